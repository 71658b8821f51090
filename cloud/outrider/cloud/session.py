"""The verifier's side of one answer: its tree, its text, and what it wants from the next pass. A state machine without
clock, wire or tasks of its own; messages for the edge go to `outbox`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from outrider.cloud.lookup import with_lookup
from outrider.cloud.target import PassWork
from outrider.cloud.targets.base import ROOT_PARENT, SlotRows
from outrider.cloud.targets.contract import side_branches
from outrider.cloud.walk import WalkResult, WalkRules
from outrider.shared.errors import OutriderError
from outrider.shared.lookup import LookupIndex
from outrider.shared.messages import CloudMessage, Commit, Finished, FinishReason, Grow, Open, Opened
from outrider.shared.sampling.choose import Chooser
from outrider.shared.token_tree import NO_NODE, Snapshot, VerifierTree
from outrider.shared.vocabulary import Vocabulary

# A session that may run ahead no further than this is patient: it gets the one token that an edge with nothing to say
# asks for, and otherwise passes for its guesses only.
PATIENT_RUN_AHEAD = 1


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What the operator allows one session: live nodes, tokens ahead of the edge, nodes and prefill rows a pass,
    guesses a pass that the verifier looks up itself (each is a row), seconds until Open is complete, seconds without a
    word while nothing is left to do, and seconds that the edge may take to read a message.
    """

    window: int = 256
    max_run_ahead: int = 1024
    max_pass_nodes: int = 64
    prefill_chunk: int = 256
    lookup_nodes: int = 0
    open_limit_s: float = 20.0
    idle_limit_s: float = 900.0
    send_limit_s: float = 30.0


@dataclass(frozen=True, slots=True)
class PassTiming:
    """How long the session's work waited and how long the pass took, in nanoseconds; and how full the pass was: 50
    percent is as many rows as cost next to nothing.
    """

    queue_ns: int
    pass_ns: int
    load_percent: int


class Session:
    """One answer being decoded in one slot of the target."""

    def __init__(
        self, session_id: str, slot: int, request: Open, vocabulary: Vocabulary, end: int, limits: SessionLimits
    ) -> None:
        """`end` is the answer length at which it is complete; the request has been checked."""
        self.session_id = session_id
        self.slot = slot
        self.outbox: asyncio.Queue[CloudMessage | OutriderError | None] = asyncio.Queue()
        self.finished = False
        self.in_pass = False
        self.cache_is_sound = True
        self.released = False
        self.ready_since: float | None = None
        self.left_out_count = 0
        self.passes = 0
        self.prefill_passes = 0
        self._limits = limits
        self._vocabulary = vocabulary
        self._want_gaps = request.want_gaps
        stop_ids = vocabulary.stop_ids | frozenset(request.stop_ids)
        self._rules = WalkRules(
            Chooser(request.sampling, request.seed, request.prompt_ids, vocabulary.size), stop_ids, end
        )
        self._tree = VerifierTree(request.prompt_ids, request.committed_ids, window=limits.window, stop_ids=stop_ids)
        self._sequence = [*request.prompt_ids, *request.committed_ids]
        self._run_to = 0
        self._guesses = False
        self._prefill_queue_ns = self._prefill_pass_ns = 0
        self._snapshot = Snapshot((), ())
        self._pass_tokens: tuple[int, ...] = ()
        self._index = LookupIndex(self._sequence) if limits.lookup_nodes else None

    @property
    def sequence(self) -> list[int]:
        """Prompt and committed ids; not to be changed."""
        return self._sequence

    @property
    def has_work(self) -> bool:
        """Whether a pass is running or could run without a further message from the edge."""
        has_credit = self._tree.committed_length < self._run_to
        return not self.finished and (self.in_pass or self._tree.live_count > 0 or has_credit)

    @property
    def is_eager(self) -> bool:
        """Whether it may go on without guesses, and not only by the one token that an edge without any asks for."""
        return self._tree.committed_length + 1 < self._run_to

    @property
    def is_between_guesses(self) -> bool:
        """Whether it is eager and its edge has sent guesses, but none that are left to check. A pass would take it one
        token on; its edge can wait, where one that never guesses has no other way.
        """
        return self.is_eager and self._guesses and self._tree.live_count == 0

    def reads_in_one_pass(self, cached_length: int) -> bool:
        """Whether a single pass can take in all of its text that is not cached."""
        return len(self._sequence) - cached_length <= self._limits.prefill_chunk

    def opened(self, reused_length: int) -> Opened:
        """The answer to Open."""
        return Opened(
            session_id=self.session_id,
            committed_length=self._tree.committed_length,
            hash=self._tree.hash,
            window=self._limits.window,
            token_limit=self._rules.end,
            reused_length=reused_length,
        )

    def grow(self, message: Grow) -> None:
        """Take nodes and credit in; after the end they are ignored. Raises what `VerifierTree.grow` raises, and
        TOKEN_OUT_OF_RANGE.
        """
        if self.finished:
            return
        self._vocabulary.check_ids(message.tokens, "Grow.tokens")
        self._tree.grow(message)
        self._guesses = self._guesses or bool(message.tokens)
        granted = min(message.run_to, message.base + self._limits.max_run_ahead)
        self._run_to = max(self._run_to, granted)

    def next_work(self, cached_length: int, max_branches: int) -> PassWork | None:
        """What the next pass should do for this session, or None. `cached_length` is what the slot has cached,
        `max_branches` how many side branches the pass still has room for. A pass that reads the prompt's end chooses
        the first token too, if there is credit or a guess by then.
        """
        if self.finished or self.in_pass:
            return None
        missing = self._sequence[cached_length:]
        chunk = self._limits.prefill_chunk
        if len(missing) > chunk or not self.has_work:
            read = missing[:-1][:chunk]
            return PassWork(SlotRows(self.slot, read, want_logits=False)) if read else None
        if len(missing) > 1:
            # An engine may compute all of that once more for each side branch.
            tokens, parents = self._nodes(chunk - len(missing), 0)
        else:
            tokens, parents = self._nodes(self._limits.max_pass_nodes + self._limits.lookup_nodes, max_branches)
        return PassWork(SlotRows(self.slot, missing, tokens, parents), tuple(self._tree.committed), self._rules)

    def _nodes(self, room: int, max_branches: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Tokens and parents of up to `room` nodes for a pass to check: the edge's, and then what is looked up here."""
        self._snapshot = self._tree.snapshot(min(room, self._limits.max_pass_nodes), max_branches, self._rules.end)
        tokens, parents = self._snapshot.tokens, self._snapshot.parents
        if self._index is not None:
            left = min(self._limits.lookup_nodes, room - len(tokens), self._rules.end - 1 - self._tree.committed_length)
            more_tokens, more_parents = with_lookup(self._index, tokens, parents, left)
            if side_branches(more_parents) <= max_branches:
                tokens, parents = more_tokens, more_parents
        self._pass_tokens = tokens
        return tokens, parents

    def complete(self, result: WalkResult | None, timing: PassTiming) -> None:
        """Take in what a pass found: move the root, tell the edge, finish if the answer is complete."""
        if result is None:
            self.prefill_passes += 1
            self._prefill_queue_ns += timing.queue_ns
            self._prefill_pass_ns += timing.pass_ns
            return
        self.passes += 1
        tokens = [self._pass_tokens[index] for index in result.path]
        tokens += [] if result.correction is None else [result.correction]
        # What the verifier looked up itself has no id: to the edge those are tokens like the correction.
        accepted = [self._snapshot.nodes[index] for index in result.path if index < len(self._snapshot.nodes)]
        corrections = tokens[len(accepted) :]
        base = self._tree.committed_length
        self._tree.advance(tokens)
        self._sequence.extend(tokens)
        if self._index is not None:
            for token in tokens:
                self._index.read(token, learn=True)
        if self.finished:
            return
        self.outbox.put_nowait(
            Commit(
                base=base,
                accepted_node=accepted[-1].node_id if accepted else NO_NODE,
                tokens=tuple(corrections),
                committed_length=self._tree.committed_length,
                hash=self._tree.hash,
                checked_count=self._checked_count(result),
                # The first commit carries the time of the prompt's passes as well.
                queue_ns=timing.queue_ns + self._prefill_queue_ns,
                pass_ns=timing.pass_ns + self._prefill_pass_ns,
                load_percent=timing.load_percent,
                gaps=result.gaps if self._want_gaps else (),
            )
        )
        self._prefill_queue_ns = self._prefill_pass_ns = 0
        if result.finish is not None:
            self.finish(result.finish)

    def _checked_count(self, result: WalkResult) -> int:
        """Positions at which a guess of the edge was compared; where the answer ended none was any more."""
        visited = (ROOT_PARENT, *result.path)[: len(result.gaps)]
        return len(set(self._snapshot.parents).intersection(visited))

    def finish(self, reason: FinishReason) -> None:
        """End the answer; a second call does nothing."""
        if not self.finished:
            self.finished = True
            self.outbox.put_nowait(Finished(reason, self.passes, self.prefill_passes))

    def fail(self, error: OutriderError | None) -> None:
        """End the stream with `error`, or (None) without a word because the edge has gone."""
        if not self.finished:
            self.finished = True
            self.outbox.put_nowait(error)

    def check_integrity(self) -> None:
        """Assert the invariants of the tree and of the text."""
        self._tree.check_integrity()
        assert self._sequence[len(self._sequence) - self._tree.committed_length :] == self._tree.committed
