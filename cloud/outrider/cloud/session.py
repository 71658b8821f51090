"""The verifier's side of one answer: its tree, its text, and what it wants from the next pass. A state machine without
clock, wire or tasks of its own; messages for the edge go to the `outbox` of the stream that it is attached to. A
session without a stream is suspended: its text stays, nothing of it runs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from outrider.cloud.lookup import with_lookup
from outrider.cloud.target import PassWork
from outrider.cloud.targets.base import ROOT_PARENT, SlotRows
from outrider.cloud.targets.contract import side_branches
from outrider.cloud.walk import WalkResult, WalkRules
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.lookup import LookupIndex
from outrider.shared.messages import (
    CloudMessage,
    Commit,
    Finished,
    FinishReason,
    GoAway,
    Grow,
    Open,
    Opened,
    Resume,
    TokenHash,
)
from outrider.shared.sampling.choose import Chooser
from outrider.shared.token_tree import NO_NODE, Snapshot, VerifierTree
from outrider.shared.vocabulary import Vocabulary

# A session that may run ahead no further than this is patient: it gets the one token that an edge with nothing to say
# asks for, and otherwise passes for its guesses only.
PATIENT_RUN_AHEAD = 1


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What the operator allows one session: live nodes, tokens ahead of the edge, nodes and prefill rows a pass,
    guesses a pass that the verifier looks up itself (each is a row), commits that may wait for the edge to read them,
    seconds until Open is complete, seconds without a word while nothing is left to do, and seconds that the edge may
    take to read a message.
    """

    window: int = 256
    max_run_ahead: int = 1024
    max_pass_nodes: int = 64
    prefill_chunk: int = 256
    lookup_nodes: int = 0
    max_unread: int = 64
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


Outbox = asyncio.Queue[CloudMessage | OutriderError | None]
"""What one stream is to send; an error ends it, and None does without a word."""


class Session:
    """One answer being decoded in one slot of the target."""

    def __init__(
        self, session_id: str, slot: int, request: Open, vocabulary: Vocabulary, end: int, limits: SessionLimits
    ) -> None:
        """`end` is the answer length at which it is complete; the request has been checked."""
        self.session_id = session_id
        self.slot = slot
        self.outbox: Outbox | None = None
        self.attempt = 0
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
        self._failed = False
        self._finished: Finished | None = None
        # Streams so far, and on which of them the running pass began.
        self._streams = self._pass_stream = 0
        self._prompt_length = len(request.prompt_ids)
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
        may_go_on = not self.is_unread and (self._tree.live_count > 0 or has_credit)
        return not self.finished and (self.in_pass or may_go_on)

    @property
    def is_unread(self) -> bool:
        """Whether so much waits for the edge to read it that nothing more is decoded until it does."""
        return self.outbox is not None and self.outbox.qsize() >= self._limits.max_unread

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

    @property
    def is_resumable(self) -> bool:
        """Whether another stream may go on with it, if only to hear that it has finished."""
        return not self._failed

    def knows(self, request: Resume) -> bool:
        """Whether what the resuming edge has is a beginning of this answer's text."""
        if request.committed_length > self._tree.committed_length:
            return False
        known = TokenHash(self._sequence[: self._prompt_length + request.committed_length])
        return known.value == request.hash

    def set_window(self, window: int) -> None:
        """Allow so many live nodes, from the next stream on."""
        self._limits = replace(self._limits, window=window)
        self._tree.window = window

    def attach(self, reused_length: int, resume: Resume | None = None) -> Outbox:
        """Begin a stream, in place of the one there is, whose end is told. Returns what the new one is to send."""
        if self.outbox is not None:
            self.outbox.put_nowait(OutriderError(Reason.SUPERSEDED))
        known_length = self._tree.committed_length
        if resume is not None:
            self.attempt, known_length = resume.attempt, resume.committed_length
            self._restart(known_length)
        self._streams += 1
        self.outbox = Outbox()
        missing = self._tree.committed[known_length:]
        self.outbox.put_nowait(
            Opened(
                session_id=self.session_id,
                committed_length=self._tree.committed_length,
                hash=self._tree.hash,
                window=self._limits.window,
                token_limit=self._rules.end,
                reused_length=reused_length,
                missing_ids=tuple(missing),
            )
        )
        if self._finished is not None:
            self.outbox.put_nowait(self._finished)
        return self.outbox

    def suspend(self) -> None:
        """Its stream has ended without Close: drop what was proposed on it and wait for another one."""
        self.outbox = None
        self._restart(self._tree.committed_length)

    def _restart(self, base: int) -> None:
        self._tree.restart(base)
        self._run_to = 0
        self._guesses = False

    def _say(self, message: CloudMessage | OutriderError | None) -> None:
        if self.outbox is not None:
            self.outbox.put_nowait(message)

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
        self._pass_stream = self._streams
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
        # Neither has what came on a stream that has ended since.
        is_current = self._pass_stream == self._streams and self.outbox is not None
        nodes = self._snapshot.nodes if is_current else ()
        accepted = [nodes[index] for index in result.path if index < len(nodes)]
        corrections = tokens[len(accepted) :]
        base = self._tree.committed_length
        self._tree.advance(tokens)
        self._sequence.extend(tokens)
        if self._index is not None:
            for token in tokens:
                self._index.read(token, learn=True)
        if self.finished:
            return
        self._say(
            Commit(
                base=base,
                accepted_node=accepted[-1].node_id if accepted else NO_NODE,
                tokens=tuple(corrections),
                committed_length=self._tree.committed_length,
                hash=self._tree.hash,
                checked_count=self._checked_count(result) if is_current else 0,
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
            self._finished = Finished(reason, self.passes, self.prefill_passes)
            self._say(self._finished)

    def fail(self, error: OutriderError) -> None:
        """End the answer, and the stream with `error`."""
        if not self.finished:
            self.finished = self._failed = True
            self._say(error)

    def hang_up(self) -> None:
        """End the stream, after what it is still to send; the answer may go on over another one."""
        self._say(None)

    def go_away(self) -> None:
        """Tell the edge that the verifier is about to stop."""
        self._say(GoAway(self.session_id))

    def check_integrity(self) -> None:
        """Assert the invariants of the tree and of the text."""
        self._tree.check_integrity()
        assert self._sequence[len(self._sequence) - self._tree.committed_length :] == self._tree.committed
