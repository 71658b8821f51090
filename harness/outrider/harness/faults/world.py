"""Runs one schedule on a virtual clock, with the product's own edge and verifiers over links in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.edge.answer import Answer, AnswerSetup
from outrider.edge.chunks import Chunk, ChunkAssembler
from outrider.edge.drafters.tiny import TinyDrafter
from outrider.edge.drafting import Drafting
from outrider.edge.guesses.experience import Experience
from outrider.edge.guesses.sources import Sources
from outrider.edge.recovery import Recovery
from outrider.harness.faults.replicas import DRAIN_LIMIT_S, Replica, WayTo
from outrider.harness.faults.schedule import LONGEST_NOTICE_S, AnswerPlan, Fault, Kind, Schedule
from outrider.harness.links import LinkProfile
from outrider.harness.memory_link import Flight
from outrider.harness.tiny_answers import PacedDraft, chooser_of
from outrider.harness.virtual_time import run
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import Commit, FinishReason, Grow, Limits, Open, Opened, Resume
from outrider.shared.tiny import tiny_vocabulary
from outrider.shared.token_tree import CommittedToken, Origin

LIMIT_S = 600.0
# The verifier lingers for so long on a stream whose edge it has not heard the end of.
SETTLE_S = LONGEST_NOTICE_S + 10.0
RIVAL_LINK = LinkProfile.of_rtt(10)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an answer ended: its committed `tokens`, and the ids that were `shown` to its user, of which nobody has
    verified the last `unverified`, nor its end if it `is_unverified`.
    """

    tokens: tuple[int, ...]
    finish: FinishReason | None
    reason: Reason | None
    streams: int
    shown: tuple[int, ...]
    unverified: int
    is_unverified: bool


@dataclass(slots=True)
class Report:
    """What has happened: each answer's end, what rivals were told, and everything in order, with its time."""

    outcomes: dict[int, Outcome] = field(default_factory=dict)
    rivals: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    rival_wins: set[int] = field(default_factory=set)
    log: list[tuple[object, ...]] = field(default_factory=list)


def play(schedule: Schedule) -> Report:
    """Run `schedule` to its end. Raises what a broken invariant of the verifiers or of the clock raises."""
    return run(_Play(schedule).run(), limit_s=LIMIT_S)


class _Play:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._report = Report()
        self._replicas = [Replica(schedule) for _ in range(schedule.replicas)]
        self._answers: dict[int, Answer] = {}
        self._ways: dict[int, WayTo] = {}

    async def run(self) -> Report:
        for replica in self._replicas:
            await replica.start()
        limits = self._replicas[0].verifier.info().limits
        async with asyncio.TaskGroup() as group:
            for index, plan in enumerate(self._schedule.answers):
                group.create_task(self._answer(index, plan, limits))
            for fault in self._schedule.faults:
                group.create_task(self._happen(fault))
        await asyncio.sleep(SETTLE_S)
        up = [replica.verifier for replica in self._replicas if replica.is_up]
        for verifier in up:
            verifier.check_integrity()
            assert verifier.unused_slots == self._schedule.slots, "a slot is still taken after all streams have ended"
        await asyncio.sleep(self._schedule.parked_s)
        for verifier in up:
            verifier.check_integrity()
            assert verifier.free_slots == self._schedule.slots, "a session outlives its time"
        for replica in self._replicas:
            await replica.kill()
        return self._report

    def _note(self, *what: object) -> None:
        self._report.log.append((asyncio.get_running_loop().time(), *what))

    async def _answer(self, index: int, plan: AnswerPlan, limits: Limits) -> None:
        await asyncio.sleep(plan.begin_s)

        def observe(flight: Flight) -> None:
            self._note(index, flight.direction.value, flight.size_bytes, flight.arrives_s)

        way = self._ways[index] = WayTo(self._replicas, plan.link, plan.seed, observe)
        answer = self._answers[index] = _make_answer(plan, limits, way)
        reason = None
        reader = _Reader(answer)
        try:
            async with contextlib.aclosing(answer.committed()) as commits:
                if plan.leave_after != 0:
                    async for tokens in commits:
                        reader.read(tokens)
                        self._note(index, "commit", len(reader.told), len(reader.shown))
                        if plan.leave_after is not None and len(reader.told) >= plan.leave_after:
                            break
            reader.end()
        except OutriderError as error:
            reason = error.reason
            reader.break_off()
        answer.tree.check_integrity()
        self._note(index, "end", answer.finish_reason, reason, *reader.told)
        self._report.outcomes[index] = Outcome(
            tuple(reader.told),
            answer.finish_reason,
            reason,
            answer.stats.streams,
            tuple(reader.shown),
            reader.unverified_count,
            answer.is_unverified,
        )

    async def _happen(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at_s)
        self._note(fault.kind.value, fault.replica, fault.answer)
        replica = self._replicas[fault.replica]
        match fault.kind:
            case Kind.CUT if fault.answer is None:
                if replica.is_up:
                    replica.port.cut(fault.edge_notice_s, fault.cloud_notice_s)
            case Kind.CUT:
                way = self._ways.get(fault.answer) if fault.answer is not None else None
                if way is not None and way.links:
                    way.links[-1].cut(fault.edge_notice_s, fault.cloud_notice_s)
            case Kind.KILL | Kind.DRAIN:
                if replica.is_up:
                    await self._end(fault, replica)
            case Kind.RIVAL:
                await self._rival(fault)
            case Kind.OPEN:
                await self._open(fault, replica)

    async def _end(self, fault: Fault, replica: Replica) -> None:
        if fault.kind is Kind.DRAIN:
            await replica.verifier.drain(DRAIN_LIMIT_S)
        if fault.moment is None:
            await replica.kill(fault.edge_notice_s)
        else:
            await replica.kill_at(fault.moment, fault.edge_notice_s)
        if fault.lasts_s is not None:
            await asyncio.sleep(fault.lasts_s)
            if not replica.is_up:
                await replica.start()

    async def _rival(self, fault: Fault) -> None:
        assert fault.answer is not None, "a rival has an answer"
        answer = self._answers.get(fault.answer)
        if answer is None or not answer.session_id:
            return
        replica = self._ways[fault.answer].current
        length = answer.tree.committed_length
        text_hash = answer.tree.hash ^ fault.is_wrong
        attempt = max(0, answer.attempt + fault.attempt)
        if not replica.is_up:
            return
        known = list(answer.tree.committed)
        resume = Resume(answer.session_id, attempt, length, text_hash)
        tokens, is_let_in = await self._stream(replica, resume, length, fault.lasts_s or 0.0)
        assert not (is_let_in and fault.is_wrong), "a session was resumed with another text"
        if is_let_in is not False:
            self._report.rival_wins.add(fault.answer)
        self._report.rivals.append((fault.answer, (*known, *tokens)))

    async def _open(self, fault: Fault, replica: Replica) -> None:
        assert fault.answer is not None, "what is opened is some answer's request, a second time"
        if replica.is_up:
            plan = self._schedule.answers[fault.answer]
            tokens, _ = await self._stream(replica, plan.request(), 0, fault.lasts_s or 0.0)
            self._report.rivals.append((fault.answer, tuple(tokens)))

    async def _stream(
        self, replica: Replica, first: Open | Resume, length: int, seconds: float
    ) -> tuple[list[int], bool | None]:
        """What a second stream hears that never guesses, and whether it was let in; None if it was never told."""
        link = replica.port.connect(RIVAL_LINK, 0)
        tokens: list[int] = []
        is_let_in: bool | None = None
        try:
            await link.send(first)
            await link.send(Grow(1, length, run_to=1000))
            async with asyncio.timeout(0.05 + seconds):
                while (message := await link.receive()) is not None:
                    if isinstance(message, Opened):
                        is_let_in = True
                        tokens += message.missing_ids
                    elif isinstance(message, Commit):
                        tokens += message.tokens
        except TimeoutError:
            pass
        except OutriderError as error:
            if is_let_in is None and error.from_peer:
                is_let_in = False
        finally:
            await link.close()
        return tokens, is_let_in


class _Reader:
    """Follows an answer as users are told to: all that `shown` goes by is in the chunks."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._assembler = ChunkAssembler(tiny_vocabulary(), tiny_vocabulary().stop_ids, ())
        self.told: list[int] = []
        self.shown: list[int] = []
        self.unverified_count = 0

    def read(self, tokens: Sequence[CommittedToken]) -> None:
        self.told += [token.token for token in tokens if token.origin is not Origin.UNVERIFIED]
        self._follow(self._assembler.push(tokens))

    def end(self) -> None:
        self._follow(self._assembler.flush(unverified=self._answer.is_unverified))

    def break_off(self) -> None:
        self._follow(self._assembler.take_back())

    def _follow(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            self.unverified_count -= chunk.verified
            if chunk.retract is not None:
                del self.shown[chunk.retract.token_count :]
                self.unverified_count = 0
            self.shown += chunk.token_ids
            if chunk.origin is Origin.UNVERIFIED:
                self.unverified_count += len(chunk.token_ids)


def _make_answer(plan: AnswerPlan, limits: Limits, way: WayTo) -> Answer:
    request = plan.request()
    chooser = chooser_of(request)
    parts = [*(["tiny"] if plan.deviations else []), *(["lookup"] if plan.has_lookup else [])]
    drafting = Drafting("+".join(parts) or "none", plan.control, plan.gamma, plan.branch, plan.pace)
    sessions = {
        f"tiny-{deviation:g}": PacedDraft(TinyDrafter(deviation).open(request.prompt_ids, chooser), plan.draft_ms)
        for deviation in plan.deviations
    }
    sources = Sources.of(sessions, request, Experience(), drafting.guess_options(), lookup=plan.has_lookup)
    stop_ids = tiny_vocabulary().stop_ids
    setup = AnswerSetup(
        request,
        limits,
        stop_ids,
        drafting.make_control(),
        drafting.is_eager,
        drafting.may_change_pace,
        goes_on_alone=plan.falls_back,
    )
    return Answer(setup, way.open_stream(), sources, Recovery(way, plan.patience, seed=plan.seed))
