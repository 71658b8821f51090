"""Everything one run needs, with names looked up and files read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from outrider.edge.drafting import Drafting
from outrider.harness.links import LinkProfile
from outrider.harness.profiles import DrafterProfile, TargetProfile
from outrider.harness.recording.format import Recording
from outrider.harness.recording.library import RecordingSet

NO_DRAFTER = "none"
RECORDED_DRAFTER: Final = "recorded"


@dataclass(frozen=True, slots=True)
class Setup:
    """`sessions` devices, each with a link of its own, answer the recorded prompts, up to `max_tokens` tokens each.

    `further_recordings` are those of other draft models for the same answers, which draft beside the first.
    `cloud_lookup` guesses a pass are the verifier's own. `cloud_drafter` is the draft model on the target's
    accelerator, for the baselines that have one there.
    """

    recordings: RecordingSet
    target: TargetProfile
    cloud_drafter: TargetProfile
    device: DrafterProfile
    link: LinkProfile
    drafting: Drafting
    further_recordings: tuple[RecordingSet, ...] = ()
    cloud_lookup: int = 0
    sessions: int = 1
    seed: int = 1
    max_tokens: int | None = None

    @property
    def drafts(self) -> bool:
        """Whether devices draft with their model."""
        return bool(self.drafting.models)

    @property
    def is_eager(self) -> bool:
        """Whether the verifier goes on without guesses."""
        return self.drafting.pace == "eager"

    @property
    def quota(self) -> int:
        """Answers of a session that are judged, at most."""
        return -(-len(self.recordings) // self.sessions)

    def judged(self, session: int) -> int:
        """How many of the session's answers, from its first on, are judged: each recording is once or, with more
        sessions than recordings, one answer of each session.
        """
        if self.sessions >= len(self.recordings):
            return 1
        return max(0, min(self.quota, len(self.recordings) - session * self.quota))

    def recording(self, session: int, answer: int) -> Recording:
        """What the session's answer number `answer`, from 0, plays: all sessions together play every recording."""
        return self.recordings.recordings[(session * self.quota + answer) % len(self.recordings)]

    def with_drafting(self, **changes: object) -> Setup:
        """The same with other drafting."""
        return replace(self, drafting=replace(self.drafting, **changes))  # type: ignore[arg-type]
