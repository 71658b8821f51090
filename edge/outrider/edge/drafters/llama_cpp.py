"""A GGUF model as drafter. Each answer has a few cache sequences that share cells: a text goes on in the one that it
continues, or in the one that was not used for longest, which takes over what another holds of it. In one worker thread.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outrider.edge.drafters.base import NORMALISED, Proposal, as_proposals
from outrider.shared.ids import common_length
from outrider.shared.llama.runtime import LlamaContext, LlamaModel, Row
from outrider.shared.sampling.choose import Chooser
from outrider.shared.vocabulary import Vocabulary
from outrider.shared.vocabulary_gguf import read_vocabulary
from outrider.shared.worker import Worker

STREAMS = 4
# Texts of one step, and side branches that stay cached. With no more than a step of eight texts takes, a policy that
# grows a tree has its branches fed again and again.
LANES = 24
BATCH = 512
# Room for side branches beside an answer.
SIDE_CELLS = 256


@dataclass(slots=True)
class _Lane:
    """A cache sequence and the ids it holds."""

    sequence: int
    cached: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Stream:
    """The lanes of one answer; `users` counts the answers that draft in them."""

    lanes: list[_Lane]
    users: int = 0

    def common_length(self, text: Sequence[int]) -> int:
        """How much of `text` the best lane holds."""
        return max(common_length(lane.cached, text) for lane in self.lanes)


class LlamaDrafter:
    """See `Drafter`. Answers beyond `STREAMS` at once share streams, which is slower and no less right."""

    def __init__(self, path: Path, *, name: str = "", context_length: int = 4096, threads: int = 0) -> None:
        """Load `path`; raises FILE_UNREADABLE, MODEL_CORRUPT or MODEL_UNSUPPORTED."""
        self._vocabulary = read_vocabulary(path)
        self._model = LlamaModel(path)
        try:
            self._model.check_can_roll_back()
            length = min(context_length, self._model.trained_context_length)
            self._context = LlamaContext(
                self._model,
                length=length,
                sequences=STREAMS * LANES,
                batch=BATCH,
                micro_batch=BATCH,
                threads=threads,
                shared_cells=STREAMS * (length + SIDE_CELLS),
            )
        except BaseException:
            self._model.close()
            raise
        self._name = name or path.stem
        self._streams = [
            _Stream([_Lane(sequence) for sequence in range(first, first + LANES)])
            for first in range(0, STREAMS * LANES, LANES)
        ]
        self._worker = Worker("drafter")

    @property
    def name(self) -> str:
        """See `Drafter.name`."""
        return self._name

    @property
    def vocabulary(self) -> Vocabulary | None:
        """See `Drafter.vocabulary`."""
        return self._vocabulary

    def open(self, prompt_ids: Sequence[int], chooser: Chooser) -> LlamaDraftSession:
        """See `Drafter.open`."""
        fewest = min(stream.users for stream in self._streams)
        idle = [stream for stream in self._streams if stream.users == fewest]
        stream = max(idle, key=lambda s: s.common_length(prompt_ids))
        stream.users += 1
        return LlamaDraftSession(self._context, self._worker, stream, list(prompt_ids), chooser)

    async def close(self) -> None:
        """See `Drafter.close`."""
        await self._worker.run(self._free)
        self._worker.stop()

    def _free(self) -> None:
        self._context.close()
        self._model.close()


class LlamaDraftSession:
    """See `DraftSession`."""

    def __init__(
        self, context: LlamaContext, worker: Worker, stream: _Stream, prompt_ids: list[int], chooser: Chooser
    ) -> None:
        self._context = context
        self._worker = worker
        self._stream = stream
        self._prompt_ids = prompt_ids
        self._chooser = chooser
        self._closed = False

    async def propose(self, texts: Sequence[Sequence[int]], count: int) -> list[list[Proposal]]:
        """See `DraftSession.propose`."""
        answers = [list(text) for text in texts]
        return await self._worker.run(functools.partial(self.propose_now, answers, count))

    async def close(self) -> None:
        """See `DraftSession.close`. The cache stays for an answer that begins alike."""
        if not self._closed:
            self._closed = True
            self._stream.users -= 1

    def propose_now(self, answers: Sequence[list[int]], count: int) -> list[list[Proposal]]:
        """See `propose`; in the caller's thread."""
        longest = len(self._prompt_ids) + max(map(len, answers))
        if self._context.closed or longest >= self._context.length:
            return [[] for _ in answers]
        parts = (answers[begin : begin + LANES] for begin in range(0, len(answers), LANES))
        return [proposals for part in parts for proposals in self._propose(part, count)]

    def _propose(self, answers: Sequence[list[int]], count: int) -> list[list[Proposal]]:
        texts = [[*self._prompt_ids, *answer] for answer in answers]
        shared = functools.reduce(lambda one, other: one[: common_length(one, other)], texts)
        if len(texts) > 1 and self._stream.common_length(shared) < len(shared):
            # Read once what all of them begin with.
            self._evaluate([shared])
        last_rows = self._evaluate(texts)
        return [
            as_proposals(self._chooser.rank(self._context.logits(row), answer, max(count, NORMALISED)), count)
            for row, answer in zip(last_rows, answers, strict=True)
        ]

    def _evaluate(self, texts: list[list[int]]) -> list[int]:
        """Feed what the lanes lack of `texts`; returns the batch rows of their last tokens."""
        lanes = self._take_lanes(texts)
        try:
            return self._feed(texts, lanes)
        except BaseException:
            for lane in lanes:
                lane.cached.clear()
                self._context.truncate(lane.sequence, 0)
            raise

    def _take_lanes(self, texts: list[list[int]]) -> list[_Lane]:
        """A lane for each text that holds as much of it as any lane does, and nothing else."""
        lanes = self._stream.lanes
        # Those with most to keep choose first.
        order = sorted(range(len(texts)), key=lambda i: -self._stream.common_length(texts[i]))
        taken: dict[int, _Lane] = {}
        for index in order:
            taken[index] = self._take_lane(texts[index], [lane for lane in lanes if lane not in taken.values()])
        used = [taken[index] for index in range(len(texts))]
        others = [lane for lane in lanes if lane not in used]
        # Least recently used first.
        self._stream.lanes = others + used
        self._drop_old_lanes(others, texts)
        return used

    def _take_lane(self, text: list[int], free: list[_Lane]) -> _Lane:
        # Of those that hold most of the text the one that would lose least.
        best = max(self._stream.lanes, key=lambda lane: (common_length(lane.cached, text), -len(lane.cached)))
        common = common_length(best.cached, text)
        # The last token is always fed, as its logits are wanted.
        kept = min(common, len(text) - 1)
        lane = best if best in free and len(best.cached) == common else free[0]
        if lane is not best:
            # The best one is another text's, or goes on in another way: share its beginning.
            self._context.share(best.sequence, lane.sequence, kept)
        # Truncating what is not there costs nothing and mends a cache that a failed call left longer than it should be.
        self._context.truncate(lane.sequence, kept)
        lane.cached = text[:kept]
        return lane

    def _drop_old_lanes(self, others: list[_Lane], texts: list[list[int]]) -> None:
        """Keep what lanes will hold beside the first of `texts` within `SIDE_CELLS`; `others` may be dropped."""
        main = texts[0]
        room = SIDE_CELLS - sum(len(text) - common_length(text, main) for text in texts)
        for lane in reversed(others):
            room -= len(lane.cached) - common_length(lane.cached, main)
            if room < 0:
                self._context.truncate(lane.sequence, 0)
                lane.cached.clear()

    def _feed(self, texts: list[list[int]], lanes: list[_Lane]) -> list[int]:
        """Evaluate what each lane lacks of its text; returns the batch rows of the last tokens.

        A text that lacks more than a batch (a prompt) goes first, but for its end: what is wanted then fits one call.
        """
        room = self._context.batch_size // len(texts)
        rows: list[Row] = []
        last_rows: list[int] = []
        for text, lane in zip(texts, lanes, strict=True):
            while len(text) - len(lane.cached) > room:
                self._context.decode(
                    self._rows(text, lane, min(len(text) - 1, len(lane.cached) + self._context.batch_size))
                )
            rows += self._rows(text, lane, len(text))
            last_rows.append(len(rows) - 1)
        self._context.decode(rows)
        return last_rows

    @staticmethod
    def _rows(text: list[int], lane: _Lane, end: int) -> list[Row]:
        """The rows that bring `lane` up to `text[:end]`; logits are wanted of the text's last token."""
        begin = len(lane.cached)
        lane.cached.extend(text[begin:end])
        return [Row(text[i], i, lane.sequence, i == len(text) - 1) for i in range(begin, end)]
