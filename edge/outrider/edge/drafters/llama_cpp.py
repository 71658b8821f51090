"""A GGUF model as drafter. Each answer has a cache stream that is rolled back to what the asked text shares with it,
in one worker thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outrider.edge.drafters.base import Proposal
from outrider.shared.ids import common_length
from outrider.shared.llama.runtime import LlamaContext, LlamaModel, Row
from outrider.shared.sampling.choose import Chooser
from outrider.shared.vocabulary import Vocabulary
from outrider.shared.vocabulary_gguf import read_vocabulary
from outrider.shared.worker import Worker

STREAMS = 4
BATCH = 512


@dataclass(slots=True)
class _Stream:
    """A cache stream and the ids it holds; `users` counts the answers that draft in it."""

    index: int
    cached: list[int] = field(default_factory=list)
    users: int = 0


class LlamaDrafter:
    """See `Drafter`. Answers beyond `STREAMS` at once share streams, which is slower and no less right."""

    def __init__(self, path: Path, *, name: str = "", context_length: int = 4096, threads: int = 0) -> None:
        """Load `path`; raises FILE_UNREADABLE, MODEL_CORRUPT or MODEL_UNSUPPORTED."""
        self._vocabulary = read_vocabulary(path)
        self._model = LlamaModel(path)
        try:
            self._model.check_can_roll_back()
            self._context = LlamaContext(
                self._model,
                length=min(context_length, self._model.trained_context_length),
                sequences=STREAMS,
                batch=BATCH,
                micro_batch=BATCH,
                threads=threads,
            )
        except BaseException:
            self._model.close()
            raise
        self._name = name or path.stem
        self._streams = [_Stream(index) for index in range(STREAMS)]
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
        stream = max(idle, key=lambda s: common_length(s.cached, prompt_ids))
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

    async def propose(self, answer_ids: Sequence[int], count: int) -> list[Proposal]:
        """See `DraftSession.propose`."""
        answer = list(answer_ids)
        if self._context.closed or len(self._prompt_ids) + len(answer) >= self._context.length:
            return []
        return await self._worker.run(lambda: self._propose(answer, count))

    async def close(self) -> None:
        """See `DraftSession.close`. The cache stays for an answer that begins alike."""
        if not self._closed:
            self._closed = True
            self._stream.users -= 1

    def _propose(self, answer_ids: list[int], count: int) -> list[Proposal]:
        if self._context.closed:
            return []
        text = [*self._prompt_ids, *answer_ids]
        # The last token is always fed, as its logits are wanted. Truncating what is not there costs nothing and
        # mends a cache that a failed call left longer than it should be.
        kept = min(common_length(self._stream.cached, text), len(text) - 1)
        self._context.truncate(self._stream.index, kept)
        del self._stream.cached[kept:]
        last_row = self._feed(text, kept)
        ranked = self._chooser.rank(self._context.logits(last_row), answer_ids, count)
        return [Proposal(candidate.token, candidate.probability) for candidate in ranked]

    def _feed(self, text: list[int], start: int) -> int:
        """Evaluate `text[start:]`; returns the batch row of the last token."""
        row = 0
        for begin in range(start, len(text), self._context.batch_size):
            part = text[begin : begin + self._context.batch_size]
            rows = [
                Row(token, begin + i, self._stream.index, begin + i == len(text) - 1) for i, token in enumerate(part)
            ]
            self._context.decode(rows)
            self._stream.cached.extend(part)
            row = len(part) - 1
        return row
