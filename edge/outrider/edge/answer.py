"""One answer at the edge: a task that takes commits in and a task that grows the tree and sends, over one replica of
the tree. When its stream breaks it goes on over another one, at this verifier or the next. Plain asyncio over links and
a drafting session; time comes from the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

from outrider.edge.alone import Alone
from outrider.edge.control.base import Control, DraftBounds, Expand, Send, Wait
from outrider.edge.guesses.sources import Sources
from outrider.edge.pace import Pace
from outrider.edge.recovery import Recovery
from outrider.edge.speculator import Speculator
from outrider.edge.stats import AnswerStats
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.link import EdgeLink
from outrider.shared.messages import (
    INITIAL_WINDOW,
    Close,
    Commit,
    Finished,
    FinishReason,
    GoAway,
    Limits,
    Open,
    Opened,
    Resume,
)
from outrider.shared.token_tree import NO_NODE, CommittedToken, DraftTree, Node, Origin

logger = logging.getLogger(__name__)

CLOSE_LIMIT_S = 1.0
# Errors after which an answer might go on another time.
CUT_SHORT = frozenset({Reason.VERIFIER_UNREACHABLE, Reason.DRAINING, Reason.SESSION_IDLE})


@dataclass(frozen=True, slots=True)
class AnswerSetup:
    """What an answer needs besides link and drafter. With `eager` the verifier goes on by itself, up to its limit;
    otherwise it decodes only what it is asked to check. With `may_change_pace` that is where the answer begins. With
    `goes_on_alone` the drafter's own text is the answer while no verifier can be reached. A verifier that commits an id
    from `vocabulary_size` on breaks the protocol.
    """

    request: Open
    limits: Limits
    stop_ids: frozenset[int]
    control: Control
    eager: bool
    may_change_pace: bool = False
    goes_on_alone: bool = False
    vocabulary_size: int = 2**32


class Answer:
    """Decodes one answer. Iterate over `committed()` once; leaving it early closes the session. Without a `recovery` it
    ends with the error of its first stream.
    """

    def __init__(self, setup: AnswerSetup, link: EdgeLink, sources: Sources, recovery: Recovery | None = None) -> None:
        self.stats = AnswerStats()
        self.session_id = ""
        # How often its session has been resumed.
        self.attempt = 0
        self.finish_reason: FinishReason | None = None
        # If they are wanted, one for each committed token: NaN where the verifier has not told it.
        self.gaps: list[float] = [math.nan] * len(setup.request.committed_ids) if setup.request.want_gaps else []
        self.tree = DraftTree(setup.request.prompt_ids, setup.request.committed_ids)
        self._setup = setup
        self._link = link
        self._recovery = recovery
        self._limits = setup.limits
        # Whether what is said now can be of use: from the first Open on, and after a break from Opened on.
        self._is_connected = True
        self._has_link = True
        self._is_going_away = False
        self._speculator = Speculator(self.tree, sources)
        self._can_draft = bool(sources)
        # Whether its end is the drafter's and no verifier has seen it.
        self.is_unverified = False
        self._pace = Pace(eager=setup.eager, may_change=setup.may_change_pace and self._can_draft)
        self._window = min(INITIAL_WINDOW, setup.limits.window)
        self._end = setup.request.max_tokens
        self._run_to = 0
        self._link_open_bytes = 0
        self._changed = asyncio.Event()
        alone = Alone(self.tree, setup.stop_ids, self._changed.set)
        self._alone = alone if setup.goes_on_alone and self._speculator.has_model else None
        self._sending = asyncio.Lock()
        self._ending = False
        self._fresh: asyncio.Queue[list[CommittedToken] | None] = asyncio.Queue()
        # When the verifier last said something.
        self._heard_s = self._began = self._now()
        self.stats.profile.begin(self._began)

    async def committed(self) -> AsyncGenerator[list[CommittedToken], None]:
        """The tokens of each commit as they become final, until the answer is complete. An answer that goes on alone
        hands out what it says there too, with that origin; the commits that follow go on from the last one.

        Raises what the verifier answers and what the link and the drafter raise.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._open_with(self._setup.request)
            tasks += [
                asyncio.create_task(self._take_commits(), name="take-commits"),
                asyncio.create_task(self._grow_and_send(), name="grow-and-send"),
            ]
            for task in tasks:
                # Whichever ends first, by success or failure, ends the answer.
                task.add_done_callback(lambda _: self._fresh.put_nowait(None))
            while (tokens := await self._fresh.get()) is not None:
                yield tokens
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            await self._end_session(tasks)

    async def _take_commits(self) -> None:
        """Follow the verifier, over as many streams as it takes, until it says that the answer is complete."""
        while True:
            try:
                return await self._follow_stream()
            except OutriderError as error:
                if self._recovery is None or self._ending:
                    raise
                if self._is_complete():
                    # Only the word that it has finished is lost. Nothing is left to ask for anywhere.
                    return self._finish_untold(self.tree.committed[-1] in self._setup.stop_ids)
                try:
                    await self._reconnect(self._recovery, error)
                except OutriderError:
                    if self._alone is None or not self._alone.is_complete(self._end):
                        raise
                    self.is_unverified = True
                    return self._finish_untold(self._alone.is_at_stop)

    def _finish_untold(self, is_stopped: bool) -> None:
        """The answer is complete, though no verifier says so."""
        self.finish_reason = FinishReason.STOP if is_stopped else FinishReason.LENGTH

    async def _follow_stream(self) -> None:
        while True:
            message = await self._link.receive()
            self._heard_s = self._now()
            match message:
                case Opened():
                    self._on_opened(message)
                case Commit():
                    self._on_commit(message)
                case Finished():
                    self.finish_reason = message.reason
                    self.stats.prefill_passes += message.prefill_passes
                    return
                case GoAway():
                    self._is_going_away, self._is_connected = True, False
                case None if self._is_going_away:
                    raise OutriderError(Reason.DRAINING)
                case None:
                    raise OutriderError(Reason.VERIFIER_UNREACHABLE, "the stream ended before the answer was complete.")
            self._changed.set()

    async def _reconnect(self, recovery: Recovery, error: OutriderError) -> None:
        """Begin another stream where the last one ended; raises what leaves no way."""
        logger.info("the stream broke: %s", error.message)
        self._is_connected = self._is_going_away = False
        silent_s = self._now() - self._heard_s
        self.tree.restart_ids()
        self._setup.control.on_break()
        self._pace.on_break()
        self._run_to = 0
        if self._alone is not None:
            self._alone.begin()
        await self._retire_link()
        way = await recovery.way_back(
            error, can_resume=bool(self.session_id), silent_s=silent_s, is_needed=self._goes_on_alone
        )
        self._link, self._heard_s = way.link, self._now()
        self.stats.streams += 1
        if way.limits is None:
            self.attempt += 1
            request: Open | Resume = Resume(self.session_id, self.attempt, self.tree.committed_length, self.tree.hash)
        else:
            self.session_id, self.attempt, self._limits = "", 0, way.limits
            request = replace(self._setup.request, committed_ids=tuple(self.tree.committed), prefix_of="")
        await self._open_with(request)

    async def _open_with(self, request: Open | Resume) -> None:
        self._has_link = True
        await self._link.send(request)
        self._link_open_bytes = self._link.sent_bytes
        self.stats.open_bytes += self._link.sent_bytes

    async def _retire_link(self) -> None:
        if not self._has_link:
            return
        self._has_link = False
        self.stats.uplink_bytes += self._link.sent_bytes - self._link_open_bytes
        self.stats.downlink_bytes += self._link.received_bytes
        await self._link.close()

    async def _grow_and_send(self) -> None:
        """Draft and send as the policy says, for as long as the answer lasts."""
        while True:
            self._changed.clear()
            if self._is_complete() or self._ending:
                await self._changed.wait()
                continue
            if self._alone is not None and self._alone.is_due:
                await self._go_on_alone(self._alone)
                continue
            await self._extend_credit()
            bounds = DraftBounds(self._window, self._limits.max_branches, self._setup.stop_ids, self._end)
            self._speculator.look_up(bounds)
            step = self._setup.control.next_step(self.tree, bounds) if self._can_draft else Wait()
            match step:
                case Expand():
                    await self._expand(step.nodes, step.count)
                case _ if not self._is_connected:
                    await self._changed.wait()
                case Send():
                    await self._send(step.nodes)
                case Wait():
                    if self._nothing_in_flight():
                        await self._ask_for(self.tree.committed_length + 1)
                    await self._changed.wait()

    async def _go_on_alone(self, alone: Alone) -> None:
        """Say one more token without a verifier, or wait for one if there is nothing more to say."""
        if not self._goes_on_alone():
            await self._changed.wait()
            return
        tip = alone.tip
        if not tip.expanded:
            await self._expand([tip], 1)
        # Meanwhile the root may have moved on.
        if alone.tip is tip and alone.is_due:
            node = self._speculator.drafted_child(tip)
            alone.say_next(node)
            if node is not None and node.token not in self._setup.stop_ids:
                self._fresh.put_nowait([CommittedToken(node.token, Origin.UNVERIFIED)])

    def _goes_on_alone(self) -> bool:
        """Whether there is more to be said without a verifier."""
        # Guesses that have ceased to pay are good for that still.
        return self._alone is not None and not self.stats.draft_error and self._alone.can_go_on(self._end)

    def stop_alone(self) -> None:
        """What has been said without a verifier holds a stop text: it is complete unless a verifier differs."""
        if self._alone is not None:
            self._alone.stop()

    def _on_opened(self, opened: Opened) -> None:
        missing = Commit(self.tree.committed_length, NO_NODE, opened.missing_ids, opened.committed_length, opened.hash)
        tokens = self._take_in(missing)
        if tokens:
            self._fresh.put_nowait(tokens)
        self._is_connected = True
        if self._alone is not None:
            self._alone.end()
        self.session_id = opened.session_id
        self._window = opened.window
        self._end = opened.token_limit
        self.stats.reused_tokens = opened.reused_length
        self.stats.profile.on_opened(self._now())
        self.stats.open_bytes += self._link.received_bytes
        self.stats.downlink_bytes -= self._link.received_bytes

    def _take_in(self, commit: Commit) -> list[CommittedToken]:
        """Move the tree along a commit and learn from what it says; raises PEER_VIOLATION for another text, and
        for one that no verifier may give.
        """
        self._check(commit)
        root = self.tree.root
        tokens = self.tree.commit(commit)
        if self._setup.request.want_gaps:
            # Those of tokens that were committed while nobody listened are lost.
            told = commit.gaps[: len(tokens)]
            self.gaps += [*told, *[math.nan] * (len(tokens) - len(told))]
        self._speculator.on_committed(root, tokens)
        return tokens

    def _check(self, commit: Commit) -> None:
        """Raise PEER_VIOLATION for ids that are none, and for text past the end of the answer."""
        size, most = self._setup.vocabulary_size, self._setup.request.max_tokens
        unknown = next((token for token in commit.tokens if token >= size), None)
        if unknown is not None:
            raise OutriderError(Reason.PEER_VIOLATION, f"committed id {unknown}, vocabulary size {size}.")
        if commit.committed_length > most:
            raise OutriderError(Reason.PEER_VIOLATION, f"{commit.committed_length} tokens, at most {most} are wanted.")
        before = [*self.tree.committed[-1:], *commit.tokens[:-1]] if commit.tokens else []
        if not self._setup.stop_ids.isdisjoint(before):
            raise OutriderError(Reason.PEER_VIOLATION, "the text goes on after a stop id.")

    def _on_commit(self, commit: Commit) -> None:
        now = self._now()
        tokens = self._take_in(commit)
        if self._recovery is not None:
            self._recovery.on_progress()
        self._setup.control.on_commit(commit)
        self._follow_pace(commit, tokens)
        self.stats.on_commit(commit, len(tokens) - len(commit.tokens))
        self.stats.on_verdict(commit, now, in_flight=not self._is_complete() and not self._nothing_in_flight())
        if not self.stats.ttft_s:
            self.stats.ttft_s = now - self._began
        self._fresh.put_nowait(tokens)

    def _follow_pace(self, commit: Commit, tokens: Sequence[CommittedToken]) -> None:
        guessed_count = sum(token.origin is Origin.DRAFTED for token in tokens)
        self._pace.on_commit(commit, guessed_count, self._now())
        if len(self._pace.notes) > len(self.stats.pace_notes):
            self.stats.pace_notes = list(self._pace.notes)
            logger.warning("%s", self._pace.notes[-1])
            self._setup.control.go_eager()
            self._can_draft = self._can_draft and self._pace.guesses

    async def _expand(self, nodes: Sequence[Node], count: int) -> None:
        began = self._now()
        try:
            await self._speculator.expand(nodes, count, self._setup.control.draft_temperature)
        except Exception as error:
            # The answer is the target's; without guesses it comes more slowly, but it comes.
            self.stats.draft_error = f"{type(error).__name__}: {error}"
            logger.warning("the drafter failed, going on without guesses: %s", self.stats.draft_error)
            logger.debug("how it failed", exc_info=error)
            self._can_draft = False
            return
        finally:
            # A step that the answer's end cuts short counts too.
            if self._speculator.has_model:
                self.stats.on_drafted(began, self._now())
        if self._speculator.has_model:
            self._setup.control.on_drafted(len(nodes), self._now() - began)

    async def _send(self, nodes: tuple[Node, ...]) -> None:
        async with self._sending:
            if not self._ending:
                grow = self.tree.compose(nodes, self._run_to)
                self.stats.on_sent(grow, self._now())
                await self._link.send(grow)

    async def _extend_credit(self) -> None:
        """Let an eager verifier run on, well before its credit is used up."""
        if self._is_connected and (self._pace.is_eager or self.stats.draft_error):
            committed = self.tree.committed_length
            ahead = self._limits.max_run_ahead
            if self._run_to < self._end and self._run_to - committed <= ahead // 2:
                await self._ask_for(min(self._end, committed + ahead))

    def _is_complete(self) -> bool:
        """Whether the committed text ends the answer; the verifier is about to say so."""
        committed = self.tree.committed
        return len(committed) >= self._end or (bool(committed) and committed[-1] in self._setup.stop_ids)

    def _nothing_in_flight(self) -> bool:
        return self.tree.live_count == 0 and self._run_to <= self.tree.committed_length

    async def _ask_for(self, length: int) -> None:
        """Let the verifier decode without guesses up to committed length `length`."""
        self._run_to = length
        await self._send(())

    async def _end_session(self, tasks: list[asyncio.Task[None]]) -> None:
        """Close the session unless it has ended; the caller may have walked away from an answer that goes on.

        Close goes out before the tasks are cancelled, as a cancelled read or write takes the whole stream down.
        """
        self._ending = True
        if self._alone is not None:
            self._alone.end()
        reader = tasks[:1]
        try:
            if self.finish_reason is None and self._has_link and reader and not reader[0].done():
                # A link that takes nothing any more may hold the pen for good.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_LIMIT_S), self._sending:
                        await self._link.send(Close())
                await asyncio.wait(reader, timeout=CLOSE_LIMIT_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.stats.on_end(self._now())
            await self._retire_link()
            await self._speculator.close()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
