"""What simulated hardware did and when: one record for each pass of a target and for each guess of a device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One pass, in seconds of the loop's clock. `rows` counts all rows, `accepted` the guesses that it made text.

    `draft_s` is the time before it in which the same accelerator drafted (0 where the device drafts).
    """

    began_s: float
    ended_s: float
    rows: int
    sessions: int
    accepted: int
    draft_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DraftRecord:
    """One guess of a device, in seconds of the loop's clock; the first of an answer `reads_prompt`."""

    began_s: float
    ended_s: float
    reads_prompt: bool = False
