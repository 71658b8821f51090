"""What a recording holds: one answer of a real pair, and at every position of it what either model thought. It knows
nothing of files (`store`), of models (`recorder`) or of time (the replaying target and drafter).

Version 1. Positions t count answer tokens from 0; n is the answer's length, its stop id included.

    header      the fields of `Header`, as JSON
    prompt_ids  uint32 [p]
    answer_ids  uint32 [n]       what the target committed under the shared-noise rule
    draft_*     a ranking [n, 64]: the drafter's best after the prompt and answer_ids[:t]
    target_*    a ranking [n, 64]: the target's best there; its first is answer_ids[t]
    branch_position, branch_rank   uint32 [b], uint8 [b]: where the drafter was led off the path, ascending
    branch_*    a ranking [b, 3, 4]: its best after the prompt, answer_ids[:position], its own wrong guess there
                (the first one at rank 0, the second at rank 1), and d more of its own first choices

A ranking is three arrays of one shape, the last axis the rank: `ids` (uint32), `log_probability` and `margin`
(float16), as `Chooser.rank` gives them: ln q under the processed distribution (-inf outside its support), and the
distance of the perturbed score to the runner-up's (rank 0, inf where nothing else can be chosen) or to the first's.
Half precision keeps 11 bits: a probability is off by 0.05% near 1 and by 0.4% at e^-10, far below what calibration can
tell apart, and order and tokens do not depend on it. Where there are fewer candidates, or nothing may follow as the
text ends with a stop id, ids are `NO_TOKEN`, log_probability -inf and margin -inf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from outrider.shared.messages import FinishReason, Open
from outrider.shared.sampling.choose import Candidate
from outrider.shared.sampling.options import Sampling
from outrider.shared.vocabulary import Fingerprint

FORMAT = "outrider-recording"
VERSION = 1
WIDTH = 64
DEPTH = 3
BRANCH_WIDTH = 4
BRANCH_RANKS = 2
NO_TOKEN = 0xFFFFFFFF


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelIdentity(_Strict):
    """A model by name and by the SHA-256 of its file (of nothing, for the pseudo model)."""

    name: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class TargetSettings(_Strict):
    """How the target ran; see `EngineSpec`."""

    engine: str
    numerics: Literal["exact", "fast"]
    near_tie_gap: float
    settings: dict[str, str | int | float | bool]


class RecordedIds(_Strict):
    """What a recording knows of the vocabulary; `pieces` are the bytes of the answer's ids, one character a byte."""

    size: int = Field(ge=1, lt=NO_TOKEN)
    padded_width: int = Field(ge=1)
    stop_ids: tuple[int, ...]
    fingerprint: Fingerprint
    pieces: dict[int, str]


class Header(_Strict):
    """Everything but the arrays. `sampling` carries the seed and the length limit that were in effect."""

    format: Literal["outrider-recording"] = "outrider-recording"
    version: Literal[1] = 1
    id: str
    category: str
    prompt: str
    sampling: Sampling
    finish_reason: FinishReason
    draft: ModelIdentity
    target: ModelIdentity
    target_settings: TargetSettings
    vocabulary: RecordedIds
    software_version: str


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates along the last axis, best first; see the module's text."""

    ids: NDArray[np.uint32]
    log_probability: NDArray[np.float16]
    margin: NDArray[np.float16]

    def candidates(self, index: tuple[int, ...], count: int) -> list[Candidate]:
        """The first `count` candidates at `index`; fewer where fewer were recorded."""
        ids = self.ids[index][:count].tolist()
        probabilities = np.exp(self.log_probability[index][:count].astype(np.float64)).tolist()
        margins = self.margin[index][:count].astype(np.float64).tolist()
        columns = zip(ids, probabilities, margins, strict=True)
        return [Candidate(token, q, margin) for token, q, margin in columns if token != NO_TOKEN]


@dataclass(frozen=True, slots=True)
class Branches:
    """Continuations off the path; `ranking` has shape [b, DEPTH, BRANCH_WIDTH]."""

    positions: NDArray[np.uint32]
    ranks: NDArray[np.uint8]
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class Recording:
    """One prompt's recording; arrays must not be written to."""

    header: Header
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    draft: Ranking
    target: Ranking
    branches: Branches

    @property
    def seed(self) -> int:
        """The seed of the shared noise."""
        assert self.header.sampling.seed is not None, "checked when it was read"
        return self.header.sampling.seed

    def open_request(self, max_tokens: int | None = None) -> Open:
        """The Open that asks for this answer, or for its first `max_tokens` tokens."""
        recorded = self.header.sampling.max_tokens
        length = recorded if max_tokens is None else min(recorded, max_tokens)
        sampling = self.header.sampling.model_copy(update={"max_tokens": length})
        return Open(prompt_ids=self.prompt_ids, sampling=sampling, seed=self.seed, max_tokens=length)


def make_ranking(rows: Sequence[Sequence[Candidate]], width: int) -> Ranking:
    """A ranking [len(rows), width] of lists of at most `width` candidates."""
    shape = (len(rows), width)
    ids = np.full(shape, NO_TOKEN, np.uint32)
    log_probability = np.full(shape, -np.inf, np.float16)
    margin = np.full(shape, -np.inf, np.float16)
    with np.errstate(divide="ignore", over="ignore"):
        for index, row in enumerate(rows):
            count = len(row)
            ids[index, :count] = [candidate.token for candidate in row]
            log_probability[index, :count] = np.log([candidate.probability for candidate in row])
            margin[index, :count] = [candidate.margin for candidate in row]
    return Ranking(ids, log_probability, margin)
