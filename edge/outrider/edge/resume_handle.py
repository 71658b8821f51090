"""All that is needed to go on with an answer later, at any verifier of the same target. A handle holds the prompt and
the answer so far as ids: whoever can read it can read them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.files import check_regular, write_whole
from outrider.shared.messages import Open, VerifierInfo
from outrider.shared.sampling.options import MAX_SEED, Sampling

MAX_HANDLE_BYTES = 64 << 20
TokenId = Annotated[int, Field(ge=0, lt=2**32)]


class ResumeHandle(BaseModel):
    """What an answer is a function of, and how far it had come. `target` names what was answering."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_ids: tuple[TokenId, ...]
    committed_ids: tuple[TokenId, ...]
    stop_ids: tuple[TokenId, ...]
    sampling: Sampling
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)]
    target: dict[str, str]

    @model_validator(mode="after")
    def _is_open(self) -> Self:
        if len(self.committed_ids) >= self.sampling.max_tokens:
            raise ValueError(f"{len(self.committed_ids)} committed ids of an answer of {self.sampling.max_tokens}")
        return self

    @classmethod
    def of(cls, request: Open, committed_ids: tuple[int, ...], info: VerifierInfo) -> ResumeHandle:
        """The handle of the answer to `request`, so far."""
        return cls(
            prompt_ids=request.prompt_ids,
            committed_ids=committed_ids,
            stop_ids=request.stop_ids,
            sampling=request.sampling,
            seed=request.seed,
            target=_identity(info),
        )

    @classmethod
    def load(cls, path: Path) -> ResumeHandle:
        """Read a handle; raises FILE_UNREADABLE."""
        try:
            check_regular(path)
            with path.open("rb") as file:
                return cls.model_validate_json(file.read(MAX_HANDLE_BYTES))
        except OSError as error:
            raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {error.strerror}.") from None
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, problem["loc"])) or "file"
            raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {where}: {problem['msg']}.") from None

    def save(self, path: Path) -> None:
        """Write it where only this user can read it; raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, self.model_dump_json(), mode=0o600)

    def request(self, info: VerifierInfo) -> Open:
        """Open for the rest of the answer; raises TARGET_DIFFERS for a verifier whose text would be another."""
        found = _identity(info)
        pairs = {key: (self.target.get(key), value) for key, value in found.items()}
        differing = [f"{key} {before!r}, here {here!r}" for key, (before, here) in pairs.items() if before != here]
        if differing:
            raise OutriderError(Reason.TARGET_DIFFERS, f"the answer was begun with {'; '.join(differing)}.")
        return Open(
            prompt_ids=self.prompt_ids,
            sampling=self.sampling,
            seed=self.seed,
            max_tokens=self.sampling.max_tokens,
            committed_ids=self.committed_ids,
            stop_ids=self.stop_ids,
            target_digest=info.target_digest,
        )


def _identity(info: VerifierInfo) -> dict[str, str]:
    return {
        "model": info.model,
        "revision": info.revision,
        "engine": info.engine,
        "numerics": info.numerics,
        "pieces": info.fingerprint.pieces,
        "special_ids": info.fingerprint.special_ids,
        "stop_ids": info.fingerprint.stop_ids,
        "context_length": str(info.limits.context_length),
    }
