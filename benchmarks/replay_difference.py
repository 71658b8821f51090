"""How far replayed recordings are from the real pair when the policy looks at confidences: `--control ratio`, eager and
patient, real models and their recordings on one virtual clock with the same times, one answer after the other.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from outrider.cloud.targets.llama_cpp import LlamaCppEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.drafters.base import Proposal
from outrider.edge.drafters.llama_cpp import LlamaDrafter, LlamaDraftSession
from outrider.harness import virtual_time
from outrider.harness.inline_target import InlineTarget
from outrider.harness.memory_link import MemoryEdgeLink, MemoryPort
from outrider.harness.recording.library import RecordingSet
from outrider.harness.replay_drafter import DeviceClock, ReplayDrafter, ReplayDraftSession
from outrider.harness.simulation.decode import decode
from outrider.harness.simulation.measures import Run, measures
from outrider.harness.simulation.scenario import Scenario, resolve
from outrider.harness.simulation.setup import Setup
from outrider.harness.simulation.virtual_run import run_virtual
from outrider.shared.models.store import default_store
from outrider.shared.sampling.choose import Chooser

CONTEXT = 1024
BRANCHES = 24
KEYS = ("ms_per_token", "passes_per_token", "alpha", "draft_ms_wasted_per_token", "bytes_up_per_token")


class RealGuesses(ReplayDraftSession):
    """Takes the time of a replayed step and says what the real model says."""

    model: LlamaDraftSession

    def _guess(self, answer: list[int], count: int) -> list[Proposal]:
        (proposals,) = self.model.propose_now([answer], count)
        return proposals


class RealDrafter(ReplayDrafter):
    """A replayed device with a real model on it."""

    def __init__(self, setup: Setup, model: LlamaDrafter) -> None:
        super().__init__(setup.recordings, DeviceClock(setup.device.draft_ms))
        self.model = model

    def open(self, prompt_ids: Sequence[int], chooser: Chooser) -> ReplayDraftSession:
        """See `Drafter.open`."""
        session = RealGuesses(self.clock, self._recordings.find(prompt_ids), self._confidence)
        session.model = self.model.open(prompt_ids, chooser)
        return session


def run_real(setup: Setup, target: Path, draft: Path) -> Run:
    """The run of `setup` with real models in place of recordings."""
    return virtual_time.run(_decode(setup, target, LlamaDrafter(draft, context_length=CONTEXT)))


async def _decode(setup: Setup, path: Path, drafter: LlamaDrafter) -> Run:
    engine = LlamaCppEngine(path, context_length=CONTEXT, max_slots=2, max_branches=BRANCHES)
    verifier = Verifier(InlineTarget(engine, setup.target.pass_ms), VerifierConfig())
    async with verifier.running(), MemoryPort.listening(verifier) as port:

        def open_link(session: int) -> MemoryEdgeLink:
            return port.connect(setup.link, setup.seed + session)

        return await decode(setup, verifier.info(), open_link, [], lambda setup: [RealDrafter(setup, drafter)])


def main() -> None:
    """Print a row a case: real, replayed and their difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=1, help="prompts of each category")
    parser.add_argument("--max-tokens", type=int, default=48)
    options = parser.parse_args()
    store = default_store()
    target, draft = store.path("qwen2.5-coder-1.5b"), store.path("qwen2.5-coder-0.5b")
    print(f"| recordings | pace | | {' | '.join(KEYS)} |")
    print("|---" * (3 + len(KEYS)) + "|")
    for recordings in ("greedy", "full"):
        for pace in ("eager", "patient"):
            scenario = Scenario(recordings=recordings, control="ratio", pace=pace, max_tokens=options.max_tokens)
            setup = _first_of_each_category(resolve(scenario), options.limit)
            real = measures(run_real(setup, target, draft))
            again = measures(run_virtual(setup))
            for name, result in (("real", real), ("replayed", again)):
                print(f"| {recordings} | {pace} | {name} | {' | '.join(_number(result[key]) for key in KEYS)} |")
            print(
                f"| {recordings} | {pace} | off by | {' | '.join(_off(again[k], real[k]) for k in KEYS)} |", flush=True
            )


def _first_of_each_category(setup: Setup, limit: int) -> Setup:
    chosen, seen = [], dict[str, int]()
    for recording in setup.recordings:
        category = recording.header.category
        seen[category] = seen.get(category, 0) + 1
        if seen[category] <= limit:
            chosen.append(recording)
    return replace(setup, recordings=RecordingSet(chosen))


def _number(value: Any) -> str:
    return f"{value:.3f}"


def _off(value: float, expected: float) -> str:
    return f"{100 * (value / expected - 1):+.1f} %"


if __name__ == "__main__":
    main()
