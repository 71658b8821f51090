"""Packs what all sessions want into one pass of the target at a time: gather, collect, pass, commit. Sessions that have
nothing to do are not looked at; those left out, for lack of room or under load, come first in the next pass.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from outrider.cloud.accounts import Account
from outrider.cloud.fairness import FairShares
from outrider.cloud.gathering import LEAST_S, Gathering
from outrider.cloud.incidents import internal_error
from outrider.cloud.line import Line
from outrider.cloud.observer import Observer, PassReport, PassShare
from outrider.cloud.packing import Packing
from outrider.cloud.pass_watch import PassWatch
from outrider.cloud.session import PassTiming, Session
from outrider.cloud.target import PassResult, PassWork, Target
from outrider.cloud.throttle import Throttle
from outrider.cloud.vitals import Ailment, Vitals
from outrider.cloud.walk import WalkResult

# For so long an open session's prompt waits for the edge's first word, in seconds. With its credit or guesses the pass
# that reads the prompt gives the first token too; an edge that has something to say sends it right behind Open.
FIRST_WORD_S = 0.005


@dataclass(frozen=True, slots=True)
class PassLimits:
    """What the operator says of passes: at most `max_rows` rows over all sessions, of which about `free_rows` cost next
    to nothing. A pass that only patient sessions want may be held up for as long as `gather_passes` passes take, for
    others' guesses that are about to come.

    When guesses and prompts have `throttle_rows` rows (None: all the free ones), eager sessions that are between
    guesses are left out of the pass, as patient ones are; of no more than `gather_passes` passes in a row.

    A pass that takes longer than `pass_limit_s` seconds is taken to be stuck.
    """

    max_rows: int = 512
    free_rows: int = 64
    gather_passes: float = 4.0
    throttle_rows: int | None = None
    pass_limit_s: float = 120.0


class Scheduler:
    """Runs passes for as long as its task lives.

    `on_idle_slot` is called with each session that has ended or is suspended, and is in no pass any more.
    `vitals` hear of passes that fail or take too long, `observer` of all.
    """

    def __init__(
        self,
        target: Target,
        limits: PassLimits,
        on_idle_slot: Callable[[Session], None],
        vitals: Vitals | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._target = target
        self._limits = limits
        self._throttle_rows = limits.free_rows if limits.throttle_rows is None else limits.throttle_rows
        self._gathering = Gathering(limits.gather_passes)
        self._on_idle_slot = on_idle_slot
        self._vitals = vitals or Vitals()
        self._observer = observer
        self._line = Line()
        self._shares = FairShares()
        self._throttle = Throttle()
        self._watch = PassWatch(limits.pass_limit_s, partial(self._vitals.set, Ailment.STUCK))
        self._wake = asyncio.Event()
        self._is_paused = False
        # Held while a pass runs.
        self._passing = asyncio.Lock()
        self.passes = 0

    def add(self, session: Session, account: Account) -> None:
        """Give `session` a share of the passes, out of the account's."""
        # It may have been here before, and been suspended.
        session.released = False
        self._line.join(session)
        self._shares.join(session, account)
        if self._missing_count(session) == 1:
            return
        if session.reads_in_one_pass(self._target.cached_length(session.slot)):
            self._line.want_with_first_word(session, self._now() + FIRST_WORD_S)
        else:
            self._want(session, self._now())
        self._wake.set()

    def wake(self, session: Session) -> None:
        """Tell that `session` may have something to do now."""
        if session not in self._line or session.in_pass:
            return
        self._gathering.on_word(session, self._now())
        if self._wants_pass(session):
            self._want(session, self._now())
        self._wake.set()

    def go_on(self, session: Session) -> None:
        """The edge has read what it was sent, and the session need not wait for that any longer."""
        if session in self._line and not session.in_pass and self._wants_pass(session):
            self._want(session, self._now())
            self._wake.set()

    def keep(self, session: Session) -> None:
        """A session that was about to leave stays: it has a stream again."""
        session.released = False
        self.wake(session)

    async def pause(self) -> None:
        """Begin no further pass; returns when the running one has ended and its sessions have its results."""
        self._is_paused = True
        async with self._passing:
            pass

    def end(self, session: Session) -> None:
        """Let go of a session whose stream has ended: now, or when the pass it is in has ended."""
        session.released = True
        if not session.in_pass and session in self._line:
            self._line.leave(session)
            self._throttle.forget(session, self._shares.account_of(session))
            self._shares.leave(session)
            self._gathering.forget(session)
            self._on_idle_slot(session)

    async def run(self) -> None:
        """The loop; ends only by cancellation."""
        while True:
            self._wake.clear()
            hold_s = self._hold_s()
            if hold_s == 0:
                batch = self._collect()
                if batch:
                    async with self._passing:
                        await self._run_pass(batch)
                    # Let what arrived during the pass be read before the next one is packed.
                    await asyncio.sleep(0)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(hold_s):
                    await self._wake.wait()

    def _hold_s(self) -> float | None:
        """For how long to wait for further guesses: 0 if somebody is not to be kept, None if no pass is wanted."""
        if self._is_paused:
            return None
        now_s = self._now()
        for session in self._throttle.due(now_s):
            if self._wants_pass(session):
                self._want(session, now_s)
        hold_s = self._gather_s(now_s)
        until_s = self._throttle.until_s
        if until_s is None:
            return hold_s
        return until_s - now_s if hold_s is None else min(hold_s, until_s - now_s)

    def _gather_s(self, now_s: float) -> float | None:
        """The same for those whose accounts may have more tokens now."""
        while (fresh := self._line.next_fresh) is not None and fresh[1] - now_s <= LEAST_S:
            self._want(fresh[0], min(fresh[1], now_s))
        if self._line.has_eager:
            return 0.0
        if self._line.since_s is not None:
            return self._gathering.hold_s(self._line.since_s, now_s)
        return None if fresh is None else fresh[1] - now_s

    def _wants_pass(self, session: Session) -> bool:
        is_reading_prompt = self._missing_count(session) > 1
        return not session.finished and (session.has_work or is_reading_prompt)

    def _missing_count(self, session: Session) -> int:
        """Tokens of its text that the target has not cached; one always lacks."""
        return len(session.sequence) - self._target.cached_length(session.slot)

    def _want(self, session: Session, since_s: float) -> None:
        if session.ready_since is None:
            session.ready_since = since_s
        if self._throttle.holds(session, self._shares.account_of(session), self._now()):
            self._line.rest(session)
        else:
            self._line.want(session)

    def _collect(self) -> list[tuple[Session, PassWork]]:
        """The work of the next pass: sessions in turn, until the rows or the side branches run out. Those that may wait
        come after all others, and not at all if guesses and prompts keep the pass busy.
        """
        in_turn = self._line.in_turn()
        self._shares.begin(in_turn)
        waiting = dict.fromkeys(session for session in in_turn if self._may_wait(session))
        packing = Packing(self._limits.max_rows, self._target.spec.max_branches)
        self._shares.serve((s for s in in_turn if s not in waiting), lambda session: self._pack(session, packing))
        if not packing.work or packing.busy_rows < self._throttle_rows:
            self._shares.serve(waiting, lambda session: self._pack(session, packing))
        batch = [(session, packing.work[session]) for session in in_turn if session in packing.work]
        left_out = [session for session in in_turn if session not in packing.work]
        # Who was found to want nothing, or to have had its tokens, does not stand in the line any more.
        self._shares.end([session for session in left_out if self._line.is_wanting(session)])
        self._line.take_turns([session for session, _ in batch], left_out)
        for session in left_out:
            session.left_out_count += 1
        for session, _ in batch:
            session.left_out_count = 0
        return batch

    def _may_wait(self, session: Session) -> bool:
        """Whether the session could be kept for the guesses that its edge is about to send: it has not been for long,
        by passes or by what others had meanwhile, and is not just reading its prompt.
        """
        is_kept_for_long = session.left_out_count >= self._limits.gather_passes or self._shares.is_far_behind(
            session, self._throttle_rows
        )
        return session.is_between_guesses and not is_kept_for_long and self._missing_count(session) == 1

    def _pack(self, session: Session, packing: Packing) -> int:
        """Take the session into the pass if there is room and its account may have more tokens; returns its rows."""
        account = self._shares.account_of(session)
        if self._throttle.holds(session, account, self._now()):
            self._line.rest(session)
            return 0
        if account.wait_s(1 + packing.sessions_of(account), self._now()):
            return 0
        work = self._work_of(session, packing.branches_left)
        if work is None:
            self._line.rest(session)
            return 0
        return packing.add(session, work, account)

    def _work_of(self, session: Session, max_branches: int) -> PassWork | None:
        """What the session wants; one that fails at saying so is ended, and only that one."""
        try:
            return session.next_work(self._target.cached_length(session.slot), max_branches)
        except Exception as error:
            _fail(session, error)
            return None

    async def _run_pass(self, batch: list[tuple[Session, PassWork]]) -> None:
        started = self._now()
        queue_ns: list[int] = []
        for session, _ in batch:
            waited = 0.0 if session.ready_since is None else started - session.ready_since
            queue_ns.append(_nanoseconds(waited))
            session.in_pass = True
            session.ready_since = None
            self._line.rest(session)
        try:
            with self._watch.watching():
                results = await self._target.run_pass([work for _, work in batch])
        except Exception as error:
            for session, _ in batch:
                _fail(session, error)
            self._report(batch, None, queue_ns, _nanoseconds(self._now() - started))
        else:
            pass_ns = _nanoseconds(self._now() - started)
            self._complete(batch, results, queue_ns, pass_ns)
            self._report(batch, results, queue_ns, pass_ns)
        finally:
            self._after_pass([session for session, _ in batch], started)

    def _after_pass(self, sessions: Sequence[Session], began_s: float) -> None:
        answered: list[Session] = []
        for session in sessions:
            session.in_pass = False
            if self._wants_pass(session):
                self._want(session, self._now())
            else:
                answered.append(session)
        self._gathering.on_pass(answered, began_s, self._now())
        for session in sessions:
            if session.released:
                self.end(session)

    def _complete(
        self,
        batch: list[tuple[Session, PassWork]],
        results: Sequence[PassResult],
        queue_ns: list[int],
        pass_ns: int,
    ) -> None:
        self.passes += 1
        load_percent = self._load_percent(batch)
        for (session, _), waited_ns, result in zip(batch, queue_ns, results, strict=True):
            length_before = len(session.sequence)
            if isinstance(result, Exception):
                _fail(session, result)
                continue
            try:
                session.complete(result, PassTiming(waited_ns, pass_ns, load_percent))
            except Exception as error:
                _fail(session, error)
            self._shares.account_of(session).spend(len(session.sequence) - length_before, self._now())

    def _report(
        self,
        batch: list[tuple[Session, PassWork]],
        results: Sequence[PassResult] | None,
        queue_ns: list[int],
        pass_ns: int,
    ) -> None:
        """Tell those who watch of a pass; no results are those of one that failed."""
        has_failed = results is None or all(isinstance(result, Exception) for result in results)
        self._vitals.on_pass(failed=has_failed)
        if self._observer is None:
            return
        shares = tuple(
            _share(session, work, result, waited_ns)
            for (session, work), result, waited_ns in zip(batch, results or [None] * len(batch), queue_ns, strict=True)
        )
        self._observer.on_pass(PassReport(shares, pass_ns, failed=has_failed))

    @property
    def waiting_count(self) -> int:
        """Sessions that want a pass and may have one."""
        return len(self._line)

    def _load_percent(self, batch: Sequence[tuple[Session, PassWork]]) -> int:
        """50 for a pass with all the rows that are free, 100 for one with twice as many or more."""
        rows = sum(work.rows.count for _, work in batch)
        return min(100, 50 * rows // self._limits.free_rows)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _share(session: Session, work: PassWork, result: PassResult, queue_ns: int) -> PassShare:
    accepted, token_count = 0, 0
    if isinstance(result, WalkResult):
        accepted = len(result.path)
        token_count = accepted + (result.correction is not None)
    return PassShare(session.session_id, work.rows.count, len(work.rows.node_tokens), accepted, token_count, queue_ns)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000_000)


def _fail(session: Session, error: Exception) -> None:
    """End a session because of a fault of ours. What happened goes to the log, an incident number to the peer."""
    session.cache_is_sound = False
    session.fail(internal_error("pass failed", error))
