"""The sampling options that a user writes and that the wire carries; validated once, here, for both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.text import is_text

MAX_SEED = 2**64 - 1
MAX_LOGIT_BIASES = 1024
MAX_STOP_TEXTS = 16
MAX_SHOWN = 80

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Sampling(BaseModel):
    """How the target's distribution is shaped and when an answer ends.

    `top_k` 0, `top_p` 1, `min_p` 0, penalties 1/0/0 are off. The repetition penalty looks at prompt and output,
    the other two at the output alone. Without a `seed` a random one is drawn and reported. `max_tokens` bounds the
    answer; `stop` texts end it and are cut off.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    temperature: Annotated[Finite, Field(ge=0, le=100)] = 0.0
    top_k: Annotated[int, Field(ge=0, lt=2**31)] = 0
    top_p: Annotated[Finite, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[Finite, Field(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[Finite, Field(ge=0.01, le=100)] = 1.0
    frequency_penalty: Annotated[Finite, Field(ge=-100, le=100)] = 0.0
    presence_penalty: Annotated[Finite, Field(ge=-100, le=100)] = 0.0
    logit_bias: dict[int, Finite] = Field(default_factory=dict, max_length=MAX_LOGIT_BIASES)
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=2**31)] = 512
    stop: tuple[str, ...] = Field(default=(), max_length=MAX_STOP_TEXTS)

    @field_validator("stop", mode="after")
    @classmethod
    def _stop_texts_hold_text(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not text for text in value):
            raise ValueError("a stop text is empty")
        if not all(is_text(text) for text in value):
            raise ValueError("a stop text is not valid Unicode")
        return value

    @property
    def has_penalties(self) -> bool:
        """Whether the distribution depends on which ids came before."""
        return self.repetition_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0


def make_sampling(options: dict[str, Any]) -> Sampling:
    """Build `Sampling`, or raise SAMPLING_INVALID that names the option, its value and what was expected."""
    try:
        return Sampling(**options)
    except ValidationError as error:
        raise OutriderError(Reason.SAMPLING_INVALID, _describe(error.errors())) from None


def _describe(problems: Iterable[Any]) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc'])} = {_shorten(problem['input'])}: {problem['msg']}"
        for problem in problems
    )


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
