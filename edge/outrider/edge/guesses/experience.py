"""What an agent has learned about its drafters and its verifier. It outlives answers and, in a file, the program."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from outrider.edge.control.bandit import Bandit, KeptBandit
from outrider.edge.guesses.calibration import PRIOR, Calibration
from outrider.edge.guesses.draft_temperature import DraftTemperature, make_draft_temperature
from outrider.edge.guesses.ensemble import Ensemble
from outrider.edge.guesses.roster import Roster
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.files import check_regular, write_whole
from outrider.shared.layered_lookup import corpus_reliability
from outrider.shared.lookup import LONGEST

logger = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
WIDTH = len(PRIOR)


class Experience:
    """Shared by all answers of an agent; not between threads."""

    def __init__(self) -> None:
        self.ensemble = Ensemble()
        self.roster = Roster(self.ensemble)
        self.bandit = Bandit()
        self.corpus = corpus_reliability()
        self._calibrations: dict[str, Calibration] = {}
        self._temperatures: dict[tuple[str, str, float | str], DraftTemperature] = {}

    def calibration(self, drafter: str) -> Calibration:
        """Of the drafter of that name."""
        if drafter not in self._calibrations:
            self._calibrations[drafter] = Calibration()
        return self._calibrations[drafter]

    def temperature(self, drafter: str, sampling: str, choice: float | str) -> DraftTemperature:
        """Of that drafter under these sampling options, set the way `choice` says."""
        key = (drafter, sampling, choice)
        if key not in self._temperatures:
            self._temperatures[key] = make_draft_temperature(choice)
        return self._temperatures[key]

    def save(self, path: Path) -> None:
        """Write what stays true for another run; raises FILE_UNREADABLE."""
        state = _State(
            format="outrider-state",
            version=1,
            shares=self.ensemble.shares(),
            calibrations={
                name: _Regression(weights=weights, precision=precision)
                for name, calibration in self._calibrations.items()
                for weights, precision in [calibration.as_lists()]
            },
            corpus=self.corpus.shares(),
            bandit=self.bandit.kept(),
        )
        try:
            write_whole(path, state.model_dump_json(indent=1).encode())
        except OSError as error:
            raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {error}.") from None

    @classmethod
    def load(cls, path: Path) -> Experience:
        """What was saved; a new one where there is no such file yet. Raises FILE_UNREADABLE."""
        experience = cls()
        try:
            check_regular(path)
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: more than {MAX_BYTES} bytes are no state.")
            state = _State.model_validate_json(content)
        except FileNotFoundError:
            return experience
        except OSError as error:
            raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {error.strerror}.") from None
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {where}: {problem['msg']}.") from None
        except ValueError as error:  # no path at all
            raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {error}.") from None
        experience.ensemble = Ensemble(state.shares)
        experience.roster = Roster(experience.ensemble)
        experience._calibrations = {
            name: Calibration(found.weights, found.precision) for name, found in state.calibrations.items()
        }
        if state.bandit is not None:
            experience.bandit = Bandit.of(state.bandit)
        if state.corpus is not None:
            experience.corpus = corpus_reliability(state.corpus)
        return experience


@asynccontextmanager
async def kept(experience: Experience, path: Path | None) -> AsyncIterator[None]:
    """Save it to `path`, if there is one, when the context is left, whatever for; raises FILE_UNREADABLE, but only logs
    it beside another error.
    """
    try:
        yield
    except BaseException:
        try:
            await _save(experience, path)
        except OutriderError as error:
            logger.warning("what was learned is not kept: %s", error.message)
        raise
    await _save(experience, path)


async def _save(experience: Experience, path: Path | None) -> None:
    if path is not None:
        await asyncio.to_thread(experience.save, path)


_Share = Annotated[float, Field(ge=0, le=1)]
# Far beyond what is ever learned, and far from where sums and squares end.
_Moderate = Annotated[float, Field(ge=-1e9, le=1e9)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Regression(_Strict):
    weights: list[_Moderate] = Field(min_length=WIDTH, max_length=WIDTH)
    precision: list[list[_Moderate]] = Field(min_length=WIDTH, max_length=WIDTH)

    @field_validator("precision")
    @classmethod
    def _is_a_precision(cls, rows: list[list[float]]) -> list[list[float]]:
        matrix = np.array(rows) if all(len(row) == WIDTH for row in rows) else np.zeros((WIDTH, WIDTH))
        try:
            # Of a matrix it reads one half only.
            np.linalg.cholesky((matrix + matrix.T) / 2)
            if not np.allclose(matrix, matrix.T):
                raise np.linalg.LinAlgError
        except np.linalg.LinAlgError:
            raise ValueError(f"precision is no positive definite matrix of {WIDTH} x {WIDTH}") from None
        return rows


class _State(_Strict):
    format: Literal["outrider-state"]
    version: Literal[1]
    shares: dict[str, Annotated[float, Field(gt=0, lt=1000)]]
    calibrations: dict[str, _Regression]
    bandit: KeptBandit | None = None
    corpus: Annotated[list[_Share], Field(min_length=LONGEST + 1, max_length=LONGEST + 1)] | None = None
