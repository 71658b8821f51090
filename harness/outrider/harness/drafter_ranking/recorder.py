"""Records candidates one after the other along one target's answers, which are computed once. The target is loaded when
something is to be recorded, and not for what is there already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from outrider.edge.commands.compare import BenchPrompt
from outrider.harness.drafter_ranking.candidates import Candidate
from outrider.harness.recording.format import Recording
from outrider.harness.recording.pair import Pair, header_fields
from outrider.harness.recording.recording_target import RecordingTarget, identity_of
from outrider.harness.recording.session import check_same, first_choices_right, read_same
from outrider.harness.recording.store import recording_path, write_recording
from outrider.shared.sampling.options import Sampling

Progress = Callable[[str], None]


class Recorder:
    """Keeps each candidate's recordings in a folder of its own below `folder`. Close it to free the target."""

    def __init__(
        self,
        target: str,
        context_length: int,
        seeded: Sequence[tuple[BenchPrompt, Sampling]],
        folder: Path,
        progress: Progress,
    ) -> None:
        self._name = target
        self._identity = identity_of(target)
        self._context_length = context_length
        self._seeded = seeded
        self._folder = folder
        self._progress = progress
        self._target: RecordingTarget | None = None
        # By prompt: where a recording stands, and the recording.
        self._answers: dict[str, tuple[Path, Recording]] = {}

    def prepare(self, candidate: Candidate) -> None:
        """Load the target if any recording of the candidate is missing; raises what loading it raises."""
        folder = self._folder / candidate.folder
        if self._target is None and not all(recording_path(folder, p.id).exists() for p, _ in self._seeded):
            self._progress(f"loading {self._name}")
            self._target = RecordingTarget.load(self._name, self._context_length)

    def record(self, candidate: Candidate) -> list[Recording]:
        """The recordings of a prepared candidate, made where they are not there yet.

        Raises USAGE for a folder of other recordings, and what loading the candidate raises.
        """
        folder = self._folder / candidate.folder
        identity = identity_of(candidate.draft)
        found: dict[str, Recording] = {}
        for prompt, sampling in self._seeded:
            path = recording_path(folder, prompt.id)
            if path.exists():
                recording = read_same(path, header_fields(self._identity, identity, prompt, sampling))
                found[prompt.id] = recording
                self._answers.setdefault(prompt.id, (path, recording))
        if len(found) == len(self._seeded):
            self._progress(f"{candidate.name}: {len(found)} recordings are there already")
        else:
            self._complete(candidate, folder, found)
        return [found[prompt.id] for prompt, _ in self._seeded]

    def close(self) -> None:
        """Free the target, if it was loaded."""
        if self._target is not None:
            self._target.close()

    def _complete(self, candidate: Candidate, folder: Path, found: dict[str, Recording]) -> None:
        """Add what is missing to `found` and to `folder`."""
        assert self._target is not None, "prepare comes first"
        for path, recording in self._answers.values():
            check_same(recording, {"target_settings": self._target.settings}, path)
        pair = Pair.of(self._target, candidate.draft)
        with closing(pair.draft):
            for number, (prompt, sampling) in enumerate(self._seeded, 1):
                if prompt.id in found:
                    continue
                _, known = self._answers.get(prompt.id, (None, None))
                made = pair.record(prompt, sampling, known)
                path = recording_path(folder, prompt.id)
                write_recording(made, path)
                found[prompt.id] = made
                self._answers.setdefault(prompt.id, (path, made))
                self._progress(
                    f"{candidate.name}: [{number}/{len(self._seeded)}] {prompt.id}, {len(made.answer_ids)} tokens, "
                    f"right {first_choices_right(made):.3f}"
                )
