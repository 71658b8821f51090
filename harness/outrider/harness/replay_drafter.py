"""A drafter that answers from recordings and takes as long as a cost function says. On the committed text it says
what the real drafter said there; off it, what was recorded after its own wrong guesses, and beyond that stand-ins.

Stand-ins are the drafter's other candidates for the position, so their ids are as large on the wire as real ones, and
never the true token or a stop id. Their confidence is the set's average at that depth off the path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeAlias

import numpy as np

from outrider.edge.drafters.base import NORMALISED, Proposal, as_proposals
from outrider.harness.recording.format import BRANCH_WIDTH, DEPTH, NO_TOKEN, Recording
from outrider.harness.recording.library import RecordingSet
from outrider.harness.usage import DraftRecord
from outrider.shared.ids import common_length
from outrider.shared.sampling.choose import Chooser
from outrider.shared.vocabulary import Vocabulary

# A trie of the tokens that have been fed.
_Fed: TypeAlias = "dict[int, _Fed]"

# Milliseconds of one guess: (tokens to feed, seconds the device has been drafting before).
DraftCost = Callable[[int, float], float]


class DeviceClock:
    """What a device's drafters share: it makes one guess at a time. `draft_ms(rows, busy_s)` is the time of a guess in
    milliseconds of the loop's clock, where `rows` tokens had to be fed (the prompt at first, then one, or two after a
    guess that was taken whole) and the device had been drafting for `busy_s` seconds. `guesses` holds a record of each
    guess so far.
    """

    def __init__(self, draft_ms: DraftCost) -> None:
        self.guesses: list[DraftRecord] = []
        self._draft_ms = draft_ms
        self._busy_s = self._busy_until_s = 0.0

    async def work(self, rows: int, reads_prompt: bool) -> None:
        """Take the time of one guess that feeds `rows` tokens after those asked for before; the device works on if the
        caller is cancelled.
        """
        now_s = asyncio.get_running_loop().time()
        took_s = self._draft_ms(rows, self._busy_s) / 1000
        began_s = max(now_s, self._busy_until_s)
        self._busy_s += took_s
        self._busy_until_s = began_s + took_s
        self.guesses.append(DraftRecord(began_s, self._busy_until_s, reads_prompt))
        await asyncio.sleep(self._busy_until_s - now_s)


class ReplayDrafter:
    """See `Drafter`. Its guesses take the time of `clock`, which it may share with others."""

    def __init__(self, recordings: RecordingSet, clock: DeviceClock) -> None:
        self.clock = clock
        self._recordings = recordings
        self._confidence = off_path_confidence(recordings)

    @property
    def name(self) -> str:
        """See `Drafter.name`."""
        return self._recordings.header.draft.name

    @property
    def vocabulary(self) -> Vocabulary | None:
        """See `Drafter.vocabulary`."""
        return self._recordings.vocabulary

    def open(self, prompt_ids: Sequence[int], chooser: Chooser) -> ReplayDraftSession:
        """See `Drafter.open`; `chooser` was applied when the recording was made. Raises FILE_UNREADABLE."""
        return ReplayDraftSession(self.clock, self._recordings.find(prompt_ids), self._confidence)

    async def close(self) -> None:
        """See `Drafter.close`."""


class ReplayDraftSession:
    """See `DraftSession`."""

    def __init__(self, device: DeviceClock, recording: Recording, confidence: list[list[float]]) -> None:
        self._device = device
        self._recording = recording
        self._confidence = confidence
        self._answer = list(recording.answer_ids)
        self._stop_ids = frozenset(recording.header.vocabulary.stop_ids)
        wrong = recording.draft.ids[recording.branches.positions, recording.branches.ranks].tolist()
        starts = zip(recording.branches.positions.tolist(), wrong, strict=True)
        self._branch_of = {start: index for index, start in enumerate(starts)}
        self._fed: _Fed = {}
        self._uncached_prompt = len(recording.prompt_ids)

    async def propose(self, texts: Sequence[Sequence[int]], count: int) -> list[list[Proposal]]:
        """See `DraftSession.propose`."""
        answers = [list(text) for text in texts]
        reads_prompt = self._uncached_prompt > 0
        await self._device.work(self._feed(answers), reads_prompt)
        return [self._guess(answer, count) for answer in answers]

    async def close(self) -> None:
        """See `DraftSession.close`."""

    def _guess(self, answer: list[int], count: int) -> list[Proposal]:
        on_path = common_length(answer, self._answer)
        if on_path < len(answer):
            return self._off_path(answer, on_path, count)
        if on_path == len(self._answer):
            return []
        return as_proposals(self._recording.draft.candidates((on_path,), max(count, NORMALISED)), count)

    def _feed(self, answers: Sequence[list[int]]) -> int:
        """Tokens that a model's cache lacks for these texts, and the last one of each, as its logits are wanted.

        What was fed once stays: a real drafter keeps side branches in sequences of their own.
        """
        rows, self._uncached_prompt = self._uncached_prompt, 0
        for answer in answers:
            kept = 0
            node = self._fed
            while kept < len(answer) and (child := node.get(answer[kept])) is not None:
                node, kept = child, kept + 1
            for token in answer[kept:]:
                node[token] = node = {}
            rows += len(answer) - min(kept, len(answer) - 1) if answer else 0
        return max(1, rows)

    def _off_path(self, answer: list[int], on_path: int, count: int) -> list[Proposal]:
        wrong, *tail = answer[on_path:]
        proposals: list[Proposal] = []
        branch = self._branch_of.get((on_path, wrong))
        ranking = self._recording.branches.ranking
        if branch is not None and len(tail) < DEPTH and ranking.ids[branch, : len(tail), 0].tolist() == tail:
            proposals = as_proposals(ranking.candidates((branch, len(tail)), BRANCH_WIDTH), count)
        return [*proposals, *self._stand_ins(len(answer), len(tail), count, proposals)]

    def _stand_ins(self, position: int, depth: int, count: int, before: list[Proposal]) -> list[Proposal]:
        """What fills `before` up to `count`."""
        position = min(position, len(self._answer) - 1)
        taken = {self._answer[position], NO_TOKEN, *self._stop_ids, *(proposal.token for proposal in before)}
        fresh = (token for token in self._recording.draft.ids[position].tolist() if token not in taken)
        confidence = self._confidence[min(depth, DEPTH - 1)]
        ranks = range(len(before), count)
        chances = (confidence[min(rank, BRANCH_WIDTH - 1)] for rank in ranks)
        tokens = islice(fresh, len(ranks))
        return [Proposal(token, chance, chance) for chance, token in zip(chances, tokens, strict=False)]


def off_path_confidence(recordings: RecordingSet) -> list[list[float]]:
    """Mean confidence off the path (see `as_proposals`), by depth and rank [DEPTH][BRANCH_WIDTH]; 0 where nothing was
    recorded.
    """
    rankings = [recording.branches.ranking for recording in recordings]
    present = np.concatenate([ranking.ids != NO_TOKEN for ranking in rankings])
    margin = np.concatenate([ranking.margin for ranking in rankings]).astype(np.float64)
    weight = np.where(present, np.exp(-np.abs(margin)), 0.0)
    weight[..., 0] = present[..., 0]
    share = weight / np.maximum(weight.sum(axis=-1, keepdims=True), 1e-9)
    means: list[list[float]] = (share.sum(axis=0) / np.maximum(present.sum(axis=0), 1)).tolist()
    return means
