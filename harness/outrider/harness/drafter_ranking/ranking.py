"""Ranks draft models for a target: each is recorded along the target's own answers, timed, and played under a scenario
with the drafting flags that suit it best. A candidate that cannot draft is listed with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from outrider.edge.commands.compare import BenchPrompt
from outrider.harness.drafter_ranking.candidates import Candidate, ModelSize, size_of
from outrider.harness.drafter_ranking.choice import fastest_choice, plain_streaming
from outrider.harness.drafter_ranking.recorder import Progress, Recorder
from outrider.harness.drafter_ranking.rule import Contender, Verdict, judge
from outrider.harness.drafter_ranking.speed import Speed, measure_speed
from outrider.harness.recording.format import Recording
from outrider.harness.simulation.planning import Choice
from outrider.harness.simulation.scenario import Scenario, changed, resolve
from outrider.harness.simulation.setup import RECORDED_DRAFTER, Setup
from outrider.harness.simulation.simulate import Result
from outrider.shared.errors import ERROR_TABLE, OutriderError, Reason
from outrider.shared.sampling.options import Sampling

# What is wrong with a model file or its use ends one candidate; everything else ends the run.
_CANDIDATE_EXIT_CODE = ERROR_TABLE[Reason.MODEL_CORRUPT].exit_code


@dataclass(frozen=True, slots=True)
class Request:
    """What to rank: `seeded` prompts with their sampling, recordings kept under `folder`, a `scenario` whose own
    recordings and drafting do not count. `given_ms` holds times a token that are not to be measured, by candidate.
    """

    target: str
    candidates: Sequence[Candidate]
    seeded: Sequence[tuple[BenchPrompt, Sampling]]
    folder: Path
    scenario: Scenario
    context_length: int
    given_ms: Mapping[Candidate, float]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate that can draft. `acceptance` is how often its first choice is right, `acceptance_of_two` how often
    one of its first two; `by_category` has both for each category.
    """

    candidate: Candidate
    size: ModelSize
    acceptance: float
    acceptance_of_two: float
    by_category: Mapping[str, tuple[float, float]]
    speed: Speed
    branch: int | None
    best: Choice

    @property
    def ms_per_token(self) -> float:
        """Expected under the scenario."""
        return float(self.best.result["ms_per_token"])

    @property
    def flags(self) -> str:
        """The best drafting flags, as the command line takes them."""
        return self.best.flags + (f" --branch {self.branch}" if self.branch else "")


@dataclass(frozen=True, slots=True)
class Refused:
    """A candidate that cannot draft for the target."""

    candidate: Candidate
    error: OutriderError


@dataclass(frozen=True, slots=True)
class Ranking:
    """The outcome; `ranked` begins with the fastest. Where none can draft, `setup`, `streaming` and `verdict` are None.

    `setup` is the fastest's.
    """

    target_size: ModelSize
    ranked: Sequence[Ranked]
    refused: Sequence[Refused]
    tokens: int
    setup: Setup | None
    streaming: Result | None
    verdict: Verdict | None


def rank(request: Request, progress: Progress = lambda _: None) -> Ranking:
    """Measure every candidate; raises what is wrong with the target, the prompts, the folder or the scenario."""
    # A scenario that cannot be played shows before anything is computed.
    resolve(request.scenario)
    target_size = size_of(request.target)
    done: list[tuple[Ranked, Setup]] = []
    refused: list[Refused] = []
    recorder = Recorder(request.target, request.context_length, request.seeded, request.folder, progress)
    with closing(recorder):
        for candidate in request.candidates:
            # Apart, so that what is wrong with the target is not taken for the candidate's fault.
            recorder.prepare(candidate)
            try:
                done.append(_measure(request, candidate, recorder.record(candidate), progress))
            except OutriderError as error:
                if error.exit_code != _CANDIDATE_EXIT_CODE:
                    raise
                progress(f"{candidate.name}: cannot draft: {error.message}")
                refused.append(Refused(candidate, error))
    if not done:
        return Ranking(target_size, (), refused, 0, None, None, None)
    done.sort(key=lambda entry: entry[0].ms_per_token)
    ranked, setup = [entry for entry, _ in done], done[0][1]
    tokens = sum(len(recording.answer_ids) for recording in setup.recordings)
    streaming = plain_streaming(setup)
    contenders = [_contender(entry, target_size) for entry in ranked]
    verdict = judge(contenders, streaming["ms_per_token"])
    return Ranking(target_size, ranked, refused, tokens, setup, streaming, verdict)


def _measure(
    request: Request, candidate: Candidate, recordings: list[Recording], progress: Progress
) -> tuple[Ranked, Setup]:
    """The candidate with its best flags, and the setup they were found in. Raises USAGE for answers of one token."""
    if all(len(recording.answer_ids) == 1 for recording in recordings):
        raise OutriderError(Reason.USAGE, "every answer has one token only: there is nothing to time.")
    given_ms = request.given_ms.get(candidate)
    setup = _setup(request, candidate, given_ms)
    if given_ms is not None:
        speed = Speed(given_ms, setup.device.prompt_token_ms)
    else:
        speed = measure_speed(candidate.draft, recordings, request.context_length)
        progress(f"{candidate.name}: {speed.token_ms:.1f} ms a guess, {speed.prompt_token_ms:.1f} ms a prompt token")
        times = {"token_ms": speed.token_ms, "prompt_token_ms": speed.prompt_token_ms}
        setup = replace(setup, device=setup.device.model_copy(update=times))
    best = fastest_choice(setup)
    by_category = {
        category: _acceptance([r for r in recordings if r.header.category == category])
        for category in dict.fromkeys(recording.header.category for recording in recordings)
    }
    first, two = _acceptance(recordings)
    size = size_of(candidate.draft)
    return Ranked(candidate, size, first, two, by_category, speed, setup.drafting.branch, best), setup


def _setup(request: Request, candidate: Candidate, given_ms: float | None) -> Setup:
    """The scenario with the candidate's recordings; of the device throttling, and the times if one is given."""
    own: dict[str, object] = {
        "recordings": str(request.folder / candidate.folder),
        "prompts": tuple(prompt.id for prompt, _ in request.seeded),
        "drafter": RECORDED_DRAFTER,
    }
    if given_ms is not None:
        own["draft_ms"] = given_ms
    return resolve(changed(request.scenario, own))


def _acceptance(recordings: Sequence[Recording]) -> tuple[float, float]:
    """Shares of positions at which the first choice, and one of the first two, is right."""
    hits = np.concatenate([r.draft.ids[:, :2] == np.array(r.answer_ids)[:, None] for r in recordings])
    return float(hits[:, 0].mean()), float(hits.any(axis=1).mean())


def _contender(ranked: Ranked, target: ModelSize) -> Contender:
    return Contender(
        ranked.candidate.name,
        ratio(target.parameters, ranked.size.parameters),
        ratio(target.file_bytes, ranked.size.file_bytes),
        ranked.ms_per_token,
    )


def ratio(target: int | None, draft: int | None) -> float | None:
    """How many times bigger the target is; None where a size is not known."""
    return None if not target or not draft else target / draft
