"""What a step of the drafter costs, measured as it drafts: so much for one text, and so much for each further one."""

from __future__ import annotations

# Share of the old estimate that a new measurement leaves: the last ten steps or so count.
KEPT = 0.9
# Until it is measured. Devices that wait for memory need less, those that compute more.
FIRST_GUESS = 0.25


class DraftCost:
    """Running means of step times in seconds: of steps over one text, and of what each further text adds to that."""

    def __init__(self) -> None:
        self._has_read_prompt = False
        self._single_s: float | None = None
        self._further_s: float | None = None

    def observe(self, text_count: int, took_s: float) -> None:
        """A step over `text_count` texts took `took_s`. The first one, which reads the prompt, tells nothing."""
        if not self._has_read_prompt:
            self._has_read_prompt = True
        elif text_count == 1:
            self._single_s = _mean(self._single_s, took_s)
        elif self._single_s is not None:
            self._further_s = _mean(self._further_s, max(0.0, took_s - self._single_s) / (text_count - 1))

    def step_s(self, text_count: int) -> float | None:
        """What a step over `text_count` texts takes; None until one is measured."""
        if self._single_s is None:
            return None
        further_s = self._single_s * FIRST_GUESS if self._further_s is None else self._further_s
        return self._single_s + further_s * max(0, text_count - 1)

    @property
    def further_share(self) -> float:
        """What a further text costs, as a share of a step over one; at most 1, as it could have that step."""
        if self._further_s is None or not self._single_s:
            return FIRST_GUESS
        return min(1.0, self._further_s / self._single_s)


def _mean(old: float | None, new: float) -> float:
    return new if old is None else KEPT * old + (1 - KEPT) * new
