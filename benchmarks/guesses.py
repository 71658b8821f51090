"""What makes better guesses of what drafters say, position by position along recorded answers: draft temperature,
calibration, the answer's history, its n-grams, and several drafters at once. The product's own code, without time.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from outrider.edge.drafters.base import Proposal, as_proposals
from outrider.edge.guesses.calibration import Calibration, History
from outrider.edge.guesses.experience import Experience
from outrider.edge.guesses.guesser import ASKED, Guesser, GuessOptions, Said
from outrider.harness.recording.format import Recording
from outrider.harness.recording.library import RecordingSet
from outrider.harness.simulation.scenario import recordings_folder
from outrider.shared.lookup import LookupIndex

LEAST = 1e-3
CATEGORIES = ("code", "chat", "edit")
# Chances of all members at a position, to the token that is guessed.
Pick = Callable[[Said, dict[int, float]], int]


@dataclass(slots=True)
class Score:
    """Positions, first choices that were right, and the log-loss of what was chosen, in nats."""

    positions: int = 0
    right: int = 0
    loss: float = 0.0
    right_of: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def line(self) -> str:
        """As columns of a table."""
        shares = [100 * right / count for right, count in (self.right_of[name] for name in CATEGORIES) if count]
        columns = [100 * self.right / self.positions, *shares]
        return " | ".join([*(f"{share:.1f}" for share in columns), f"{self.loss / self.positions:.4f}"])


def first(_: Said, chances: dict[int, float]) -> int:
    """What the product guesses first."""
    return next(iter(chances))


def majority(said: Said, chances: dict[int, float]) -> int:
    """The token that most members put first; among equals the product's order."""
    votes = Counter(next(iter(opinion.chances)) for opinion in said.opinions)
    return max(chances, key=lambda token: votes[token])


class Raw(Calibration):
    """Confidences as the drafter has them."""

    def calibrated(self, proposals: Sequence[Proposal], history: History) -> list[float]:
        """See `Calibration.calibrated`."""
        return [proposal.probability for proposal in proposals]


class Forgetful(Calibration):
    """Calibrates without the answer's history."""

    def calibrated(self, proposals: Sequence[Proposal], history: History) -> list[float]:
        """See `Calibration.calibrated`."""
        return super().calibrated(proposals, History())

    def observe(self, proposals: Sequence[Proposal], history: History, chosen: int) -> float:
        """See `Calibration.observe`."""
        return super().observe(proposals, History(), chosen)


class Learning(Experience):
    """An agent's experience with one kind of calibration."""

    def __init__(self, kind: type[Calibration]) -> None:
        super().__init__()
        self._kind = kind
        self._kinds: dict[str, Calibration] = {}

    def calibration(self, drafter: str) -> Calibration:
        """See `Experience.calibration`."""
        return self._kinds.setdefault(drafter, self._kind())


def score(
    members: Sequence[RecordingSet],
    options: GuessOptions,
    *,
    lookup: bool = False,
    pick: Pick = first,
    kind: type[Calibration] = Calibration,
) -> Score:
    """Along every recorded answer in turn, as one agent that goes on learning."""
    found, experience = Score(), Learning(kind)
    names = [recordings.header.draft.name for recordings in members]
    for recording in members[0]:
        sampling = recording.header.sampling
        told_apart = f"{sampling.temperature:g}/{sampling.top_p:g}" if sampling.temperature else ""
        mind = Guesser(experience, names, options, told_apart)
        index = LookupIndex(recording.prompt_ids) if lookup else None
        tellers = [recordings.find(recording.prompt_ids) for recordings in members]
        for position, chosen in enumerate(recording.answer_ids):
            text, said = list(recording.answer_ids[:position]), Said()
            for name, teller in zip(names, tellers, strict=True):
                mind.hear(said, text, name, _said_at(teller, position), None)
            if index is not None:
                guess = index.continuation(index.ending(), 1)
                if guess.tokens:
                    mind.hear_lookup(said, guess.tokens[0], guess.probabilities[0])
                index.read(chosen, learn=True)
            if said.opinions:
                _count(found, recording, mind.chances(said), pick, said, chosen)
                mind.learn(said, text, chosen)
            mind.read(chosen)
    return found


def _said_at(recording: Recording, position: int) -> list[Proposal]:
    return as_proposals(recording.draft.candidates((position,), ASKED), ASKED)


def _count(found: Score, recording: Recording, chances: dict[int, float], pick: Pick, said: Said, chosen: int) -> None:
    is_right = pick(said, chances) == chosen
    found.positions += 1
    found.right += is_right
    of = found.right_of[recording.header.category]
    of[0] += is_right
    of[1] += 1
    found.loss -= math.log(max(LEAST, chances.get(chosen, 0.0)))


def main() -> None:
    """Print a row for each set of recordings and each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", nargs="+", default=["greedy", "nucleus", "full", "other"])
    parser.add_argument("--second", default="greedy-q2", help="another drafter's recordings of the first set's answers")
    options = parser.parse_args()
    print(f"| recordings | way | all % | {' | '.join(f'{name} %' for name in CATEGORIES)} | log-loss |")
    print("|---" * (4 + len(CATEGORIES)) + "|")
    for name in options.recordings:
        members = [RecordingSet.read(recordings_folder(name))]
        for way, found in _ways(members).items():
            print(f"| {name} | {way} | {found().line()} |", flush=True)
    both = [RecordingSet.read(recordings_folder(name)) for name in (options.recordings[0], options.second)]
    plain = GuessOptions(1.0)
    alone = {recordings.header.draft.name: [recordings] for recordings in both}
    for way, members in alone.items():
        print(f"| {options.recordings[0]} | {way} alone | {score(members, plain).line()} |", flush=True)
    print(f"| {options.recordings[0]} | both, as the product mixes them | {score(both, plain).line()} |", flush=True)
    voted = score(both, plain, lookup=True, pick=majority)
    print(f"| {options.recordings[0]} | both and lookups, majority | {voted.line()} |", flush=True)
    mixed = score(both, plain, lookup=True)
    print(f"| {options.recordings[0]} | both and lookups, mixed | {mixed.line()} |", flush=True)


def _ways(members: list[RecordingSet]) -> dict[str, Callable[[], Score]]:
    return {
        "as the drafter says": lambda: score(members, GuessOptions(1.0), kind=Raw),
        "calibrated, no history": lambda: score(members, GuessOptions(1.0), kind=Forgetful),
        "calibrated": lambda: score(members, GuessOptions(1.0)),
        "+ n-grams": lambda: score(members, GuessOptions(1.0, ngram_cache=True)),
        "+ lookups": lambda: score(members, GuessOptions(1.0), lookup=True),
        "draft temperature auto": lambda: score(members, GuessOptions("auto")),
        "draft temperature kl": lambda: score(members, GuessOptions("kl")),
        "draft temperature 1.2": lambda: score(members, GuessOptions(1.2)),
    }


if __name__ == "__main__":
    main()
