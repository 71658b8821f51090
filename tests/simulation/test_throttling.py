"""Who may go on without guesses, and when: the operator's cap on credit, and eager sessions under load."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.cloud.scheduler import PassLimits
from outrider.cloud.session import PATIENT_RUN_AHEAD, SessionLimits
from outrider.cloud.target import PassResult, PassWork
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.answer import Answer, AnswerSetup
from outrider.edge.guesses.experience import Experience
from outrider.edge.guesses.sources import Sources
from outrider.harness.inline_target import InlineTarget
from outrider.harness.links import LinkProfile
from outrider.harness.memory_link import MemoryEdgeLink, MemoryPort
from outrider.harness.virtual_time import run
from outrider.shared.messages import Commit, Finished, Grow, Opened
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from simulation.world import Task, World, drain, make_answer, target_alone

PASS_MS, RTT_MS = 40.0, 20.0
HANG_LIMIT_S = 200.0
LONG = Sampling(max_tokens=48, logit_bias={END: -100.0})
# A draft step that no answer lives to see the end of.
NEVER_MS = 1e6


@dataclass(frozen=True)
class Pass:
    """What a pass held, by slot, and the rows that each session with guesses which was left out would have had."""

    work: dict[int, PassWork]
    left_out_rows: list[int]

    @property
    def rows(self) -> int:
        """All rows."""
        return sum(item.rows.count for item in self.work.values())

    @property
    def busy_rows(self) -> int:
        """Rows of guesses and prompts."""
        return sum(item.rows.count for item in self.work.values() if item.rows.count > 1)

    def went_on_alone(self, slot: int) -> bool:
        """Whether the slot's session was taken on by one token that nobody had guessed."""
        return slot in self.work and self.work[slot].rows.count == 1

    def has_guesses(self, slot: int) -> bool:
        """Whether guesses of the slot's session were checked."""
        return slot in self.work and bool(self.work[slot].rows.node_tokens)


class WatchedTarget(InlineTarget):
    """Passes of 40 ms over the tiny model; keeps what each held."""

    def __init__(self, slots: int) -> None:
        super().__init__(TinyEngine(max_slots=slots), lambda rows, sessions: PASS_MS)
        self.passes: list[Pass] = []
        self.verifier: Verifier | None = None

    async def run_pass(self, work: Sequence[PassWork]) -> Sequence[PassResult]:
        """See `Target.run_pass`."""
        assert self.verifier is not None
        sessions = [s for s in self.verifier._sessions if not s.in_pass and not s.finished]
        unread = {s: len(s.sequence) - self.cached_length(s.slot) for s in sessions}
        left_out = [unread[s] + s._tree.live_count for s in sessions if s._tree.live_count]
        self.passes.append(Pass({item.rows.slot: item for item in work}, left_out))
        return await super().run_pass(work)


@dataclass(frozen=True)
class Decoded:
    """Answers, and what each pass held. Each answer has a slot of its own, but which one is not said."""

    answers: list[Answer]
    passes: list[Pass] = field(repr=False)

    def presence(self, slot: int) -> list[int]:
        """Numbers of the passes that held the slot's session."""
        return [number for number, held in enumerate(self.passes) if slot in held.work]

    def after_first_guess(self, slot: int) -> list[tuple[int, int]]:
        """Numbers of the passes that held the slot's session since guesses of it were checked, each with how many
        passes before it the last such one was. The very last is left out: its token is asked for by itself.
        """
        numbers = self.presence(slot)
        first = next(number for number in numbers if self.passes[number].has_guesses(slot))
        return [(number, number - before) for before, number in pairwise(numbers[:-1]) if before >= first]

    def slots(self, *, guessing: bool) -> list[int]:
        """Slots whose sessions had guesses checked at some time, or never."""
        slots = sorted({slot for held in self.passes for slot in held.work})
        return [slot for slot in slots if any(held.has_guesses(slot) for held in self.passes) == guessing]


async def guess_once(task: Task, port: MemoryPort) -> None:
    """Decode `task` as an eager edge that sends one guess with its Open, a wrong one, and no more."""
    link, right = port.connect(LinkProfile.of_rtt(RTT_MS), task.seed), target_alone(task)
    await link.send(task.request())
    await link.send(Grow(1, 0, (0,), ((right[0] + 1) % END,), run_to=task.sampling.max_tokens))
    tokens: list[int] = []
    while not isinstance(message := await link.receive(), Finished):
        tokens += message.tokens if isinstance(message, Commit) else ()
    await link.close()
    assert tokens == right


def decode(
    tasks: Sequence[Task],
    passes: PassLimits | None = None,
    session: SessionLimits | None = None,
    guess_once_tasks: Sequence[Task] = (),
) -> Decoded:
    """All tasks at once over one verifier; each gets its own text."""
    target = WatchedTarget(len(tasks) + len(guess_once_tasks))

    async def main() -> list[Answer]:
        config = VerifierConfig(passes or PassLimits(), session or SessionLimits())
        verifier = target.verifier = Verifier(target, config)
        async with verifier.running(), MemoryPort.listening(verifier) as port:
            here, link = World(verifier, port), LinkProfile.of_rtt(RTT_MS)
            others = asyncio.gather(*(guess_once(task, port) for task in guess_once_tasks))
            answers = list(await asyncio.gather(*(here.answer(task, link) for task in tasks)))
            await others
            return answers

    answers = run(main(), limit_s=HANG_LIMIT_S)
    for task, answer in zip(tasks, answers, strict=True):
        assert answer.tree.committed == target_alone(task), task
        answer.tree.check_integrity()
    return Decoded(answers, target.passes)


# The operator's cap

PATIENT = SessionLimits(max_run_ahead=PATIENT_RUN_AHEAD)


async def _committed_within(link: MemoryEdgeLink, seconds: float, length: int) -> int:
    """The committed length after so long."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                commit = await link.receive()
                assert isinstance(commit, Commit)
                length = commit.committed_length
    except TimeoutError:
        return length


def test_a_patient_verifier_grants_one_token_at_a_time_whatever_is_asked_for() -> None:
    async def main() -> list[int]:
        target = WatchedTarget(1)
        verifier = target.verifier = Verifier(target, VerifierConfig(session=PATIENT))
        async with verifier.running(), MemoryPort.listening(verifier) as port:
            link = port.connect(LinkProfile.of_rtt(RTT_MS), 1)
            await link.send(Task(sampling=LONG).request())
            assert isinstance(await link.receive(), Opened)
            lengths = [0]
            for _ in range(3):
                await link.send(Grow(1, lengths[-1], run_to=1000))
                lengths.append(await _committed_within(link, 1.0, lengths[-1]))
            await link.close()
            return lengths

    assert run(main(), limit_s=HANG_LIMIT_S) == [0, 1, 2, 3]


@pytest.mark.parametrize("control", ["fixed", "ratio", "proportional"])
@pytest.mark.parametrize("deviation", [0.0, 50.0])
def test_a_capped_eager_answer_neither_stalls_nor_asks_twice(control: str, deviation: float) -> None:
    tasks = [Task(seed=n, sampling=LONG, eager=True, control=control, deviation=deviation) for n in range(3)]
    for answer in decode(tasks, session=PATIENT).answers:
        assert answer.stats.rounds <= answer.stats.drafted + answer.stats.passes + 1


@pytest.mark.parametrize("eager", [False, True])
def test_without_guesses_a_capped_answer_takes_a_round_trip_and_a_pass_a_token(eager: bool) -> None:
    async def main() -> Answer:
        target = WatchedTarget(1)
        verifier = target.verifier = Verifier(target, VerifierConfig(session=PATIENT))
        async with verifier.running(), MemoryPort.listening(verifier) as port:
            task, info = Task(sampling=LONG, eager=eager), verifier.info()
            setup = AnswerSetup(task.request(), info.limits, info.stop_ids, task.drafting().make_control(), eager)
            link = port.connect(LinkProfile.of_rtt(RTT_MS), 1)
            answer = Answer(setup, link, Sources.of({}, task.request(), Experience()))
            assert await drain(answer) == target_alone(task)
            return answer

    stats = run(main(), limit_s=HANG_LIMIT_S).stats
    assert stats.passes == stats.rounds == LONG.max_tokens
    assert stats.seconds * 1000 == pytest.approx(LONG.max_tokens * (RTT_MS + PASS_MS))


def test_a_patient_operator_saves_passes_and_changes_no_text() -> None:
    """An edge that would be eager finds out from the limits, and waits for guesses."""
    task = Task(seed=3, sampling=LONG, control="ratio", eager=True, gamma=None)

    async def main(session: SessionLimits) -> Answer:
        target = WatchedTarget(1)
        verifier = target.verifier = Verifier(target, VerifierConfig(session=session))
        async with verifier.running(), MemoryPort.listening(verifier) as port:
            info = verifier.info()
            assert info.limits.allows_eager is (session.max_run_ahead > 1)
            allowed = replace(task, eager=task.drafting().under(info.limits).is_eager)
            answer = make_answer(allowed, info, port.connect(LinkProfile.of_rtt(RTT_MS), 1))
            assert await drain(answer) == target_alone(task)
            return answer

    eager, patient = (run(main(session), limit_s=HANG_LIMIT_S) for session in (SessionLimits(), PATIENT))
    assert patient.stats.passes < 0.8 * eager.stats.passes


# Under load

# Rows of a pass from which on it is busy here; a dozen sessions with guesses have more.
BUSY_ROWS = 12
LOADED = PassLimits(free_rows=BUSY_ROWS, gather_passes=3.0)
EAGER = Task(sampling=LONG, eager=True, gamma=4, draft_ms=6.0, deviation=0.2)
STREAMING = replace(EAGER, draft_ms=NEVER_MS)
CROWD = [
    replace(task, seed=seed)
    for seed, task in enumerate([*[EAGER] * 12, *[STREAMING] * 2, *[replace(EAGER, eager=False)] * 2])
]
# They guess once and have nothing to say from then on.
QUIET = [replace(EAGER, seed=100 + n, sampling=Sampling(max_tokens=12, logit_bias={END: -100.0})) for n in range(3)]


def gaps(numbers: Sequence[int]) -> list[int]:
    """Passes from one that held a session to the next that did."""
    return [after - before for before, after in pairwise(numbers)]


def test_guesses_that_fill_a_pass_keep_eager_sessions_without_any_out_of_it() -> None:
    decoded = decode(CROWD, LOADED, guess_once_tasks=QUIET)
    let_in = kept_out = 0
    for slot in decoded.slots(guessing=True):
        for number, gap in decoded.after_first_guess(slot):
            held = decoded.passes[number]
            kept_out += gap - 1
            if held.went_on_alone(slot) and held.busy_rows >= BUSY_ROWS:
                let_in += 1
                assert gap == LOADED.gather_passes + 1, "only who has been left out for so long"
    assert kept_out > 100
    assert let_in > 3


def test_nobody_is_left_out_of_more_passes_in_a_row_than_the_operator_allows() -> None:
    decoded = decode(CROWD, LOADED, guess_once_tasks=QUIET)
    eager = [slot for slot in decoded.slots(guessing=True) if max(gaps(decoded.presence(slot))) > 1]
    longest = max(max(gaps(decoded.presence(slot))) for slot in eager)
    assert longest == LOADED.gather_passes + 1


def test_who_never_guesses_is_never_left_out() -> None:
    decoded = decode(CROWD, LOADED, guess_once_tasks=QUIET)
    streaming = decoded.slots(guessing=False)
    assert len(streaming) >= 2
    assert all(set(gaps(decoded.presence(slot))) == {1} for slot in streaming)


def test_without_load_nobody_is_left_out() -> None:
    eager = [task for task in CROWD if task.eager]
    for limits in (PassLimits(), replace(LOADED, throttle_rows=1000), replace(LOADED, gather_passes=0.0)):
        decoded = decode(eager, limits)
        for slot in range(len(eager)):
            assert set(gaps(decoded.presence(slot))) == {1}, limits


def test_where_rows_run_out_guesses_come_first() -> None:
    """Without throttling before that, all that is left out are those who can do without."""
    limits = PassLimits(max_rows=24, free_rows=24, throttle_rows=1000, gather_passes=3.0)
    decoded = decode([replace(EAGER, seed=seed, draft_ms=25.0) for seed in range(20)], limits)
    fill_ins = Counter[int]()
    for slot in decoded.slots(guessing=True):
        for number, gap in decoded.after_first_guess(slot):
            fill_ins[number] += decoded.passes[number].went_on_alone(slot) and gap <= limits.gather_passes
    left_out = [(number, rows) for number, held in enumerate(decoded.passes) for rows in held.left_out_rows]
    assert sum(fill_ins[number] for number, _ in left_out) > 3
    for number, rows in left_out:
        assert decoded.passes[number].rows - fill_ins[number] + rows > limits.max_rows


@given(
    max_rows=st.integers(1, 60),
    free_rows=st.integers(1, 40),
    throttle_rows=st.one_of(st.none(), st.integers(1, 40)),
    gather_passes=st.sampled_from([0.0, 0.5, 1.0, 4.0]),
    max_run_ahead=st.sampled_from([1, 2, 7, 1024]),
    tasks=st.lists(
        st.builds(
            Task,
            seed=st.integers(0, 2**32),
            sampling=st.sampled_from([Sampling(max_tokens=16), Sampling(max_tokens=24, temperature=0.8)]),
            eager=st.booleans(),
            control=st.sampled_from(["fixed", "ratio", "proportional"]),
            deviation=st.sampled_from([0.0, 0.5, 50.0]),
            draft_ms=st.sampled_from([1.0, 8.0, 90.0]),
        ),
        min_size=1,
        max_size=7,
    ),
)
@settings(max_examples=20, deadline=None)
def test_under_any_limits_each_answer_is_the_targets_own(
    max_rows: int,
    free_rows: int,
    throttle_rows: int | None,
    gather_passes: float,
    max_run_ahead: int,
    tasks: list[Task],
) -> None:
    limits = PassLimits(max_rows, free_rows, gather_passes, throttle_rows)
    decode(tasks, limits, SessionLimits(max_run_ahead=max_run_ahead))
