"""The best that any policy could do with one draft model over one link, for somebody who knows the recording: only
what will be accepted is drafted, and passes start when dynamic programming says so, so that the last token is there as
early as can be. A bound, not a product.

The device drafts one level a step along the true text as long as the true token is among its top two; past a token
that is not, it goes on when the commit of that token has reached it. A pass may start whenever the accelerator is
free, with the guesses that have arrived (or none), and commits them and one token more; the prompt's last part is read
by the first such pass or by one before it. Sending costs no bytes; delays are the link's mean ones. One session has the
accelerator to itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.cloud.session import SessionLimits
from outrider.edge.stats import AnswerStats
from outrider.harness.recording.format import Recording
from outrider.harness.simulation.measures import AnswerTrace, Run
from outrider.harness.simulation.setup import Setup
from outrider.harness.usage import DraftRecord, PassRecord

TOP = 2


def run_oracle(setup: Setup) -> Run:
    """The oracle's answers to each recording of `setup`, one after the other."""
    answers: list[AnswerTrace] = []
    passes: list[PassRecord] = []
    guesses: list[DraftRecord] = []
    for recording in setup.recordings:
        schedule = best_schedule(setup, recording)
        answers.append(schedule.trace)
        passes.extend(schedule.passes)
        guesses.extend(schedule.guesses)
    return Run(tuple(answers), passes, guesses)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When the oracle does what, in seconds since the question."""

    trace: AnswerTrace
    passes: list[PassRecord]
    guesses: list[DraftRecord]


@dataclass(frozen=True, slots=True)
class _State:
    """After a pass: the accelerator is free at `free_s`, and the device's guess for the next position is ready at
    `next_s` (infinite if that is none of its top two); later ones follow one draft step apart. Smaller is better.
    `unread` rows of the prompt are left for the next pass.
    """

    free_s: float
    next_s: float
    began_s: float = 0.0
    accepted: int = 0
    before: _State | None = None
    unread: int = 0

    @property
    def rows(self) -> int:
        """Rows of the pass."""
        return self.accepted + 1 + (self.before.unread if self.before else 0)


def best_schedule(setup: Setup, recording: Recording) -> Schedule:
    """The schedule whose last token is visible first."""
    link = setup.link.steady()
    up_s, down_s = link.up_ms / 1000, link.down_ms / 1000
    step_s = setup.device.draft_ms() / 1000
    prompt = len(recording.prompt_ids)
    length = min(len(recording.answer_ids), setup.max_tokens or len(recording.answer_ids))
    run_length = _run_lengths(recording, length)
    first_guess_s = setup.device.draft_ms(prompt) / 1000 if run_length[0] else float("inf")
    fronts: list[list[_State]] = [[] for _ in range(length + 1)]
    prefill = _prefill(setup, prompt - 1, up_s)
    read_in_time = _State(prefill[-1].ended_s if prefill else up_s, first_guess_s)
    # The last part may as well be read by the pass that gives the first token.
    unread = prefill[-1].rows if prefill else 0
    read_with_first = _State(prefill[-1].began_s if prefill else up_s, first_guess_s, unread=unread)
    fronts[0] = [read_in_time, read_with_first]
    for position in range(length):
        # The two ways to begin are not to be compared by their times alone.
        for state in _undominated(fronts[position]) if position else fronts[0]:
            # As many guesses as there are in a row, but the last token of the answer is the pass's own.
            for accepted in range(min(run_length[position], length - 1 - position, SessionLimits().max_pass_nodes) + 1):
                began_s = state.free_s
                if accepted:
                    began_s = max(began_s, state.next_s + (accepted - 1) * step_s + up_s)
                free_s = began_s + setup.target.pass_ms(accepted + 1 + state.unread) / 1000
                after = position + accepted + 1
                next_s = float("inf")
                if after < length and run_length[after]:
                    # The device hears of the commit, or has got there by itself.
                    next_s = free_s + down_s + step_s
                    if accepted < run_length[position]:
                        next_s = min(next_s, state.next_s + (accepted + 1) * step_s)
                fronts[after].append(_State(free_s, next_s, began_s, accepted, state))
    best = min(fronts[length], key=lambda state: state.free_s)
    path = _path(best)
    return _schedule(setup, recording, prefill if path[0].before is read_in_time else prefill[:-1], path)


def _run_lengths(recording: Recording, length: int) -> list[int]:
    """For each position, how many true tokens from there on in a row are among the drafter's top two."""
    ids = recording.draft.ids[:length, :TOP]
    hits = (ids == [[token] for token in recording.answer_ids[:length]]).any(axis=1).tolist()
    lengths = [0] * (length + 1)
    for position in reversed(range(length)):
        lengths[position] = lengths[position + 1] + 1 if hits[position] else 0
    return lengths


def _prefill(setup: Setup, rows: int, begin_s: float) -> list[PassRecord]:
    """Passes that do nothing but read the prompt, up to its last token."""
    chunk = SessionLimits().prefill_chunk
    passes: list[PassRecord] = []
    for start in range(0, rows, chunk):
        fed = min(chunk, rows - start)
        end_s = begin_s + setup.target.pass_ms(fed) / 1000
        passes.append(PassRecord(begin_s, end_s, fed, 1, 0))
        begin_s = end_s
    return passes


def _undominated(states: list[_State]) -> list[_State]:
    """States than which no other is better in both times."""
    kept: list[_State] = []
    for state in sorted(states, key=lambda state: (state.free_s, state.next_s)):
        if not kept or state.next_s < kept[-1].next_s:
            kept.append(state)
    return kept


def _path(last: _State) -> list[_State]:
    """The states after each pass, in order."""
    states: list[_State] = []
    state: _State | None = last
    while state is not None and state.before is not None:
        states.append(state)
        state = state.before
    return states[::-1]


def _schedule(setup: Setup, recording: Recording, prefill: list[PassRecord], states: list[_State]) -> Schedule:
    down_s = setup.link.steady().down_ms / 1000
    stats = AnswerStats()
    stats.passes = len(states)
    for state in states:
        stats.accepted_histogram[state.accepted] += 1
    accepted = sum(state.accepted for state in states)
    stats.drafted = stats.walked = stats.checked = accepted
    updates = tuple((state.free_s + down_s, state.accepted + 1) for state in states)
    step_s = setup.device.draft_ms() / 1000
    return Schedule(
        trace=AnswerTrace(recording.header.id, 0.0, updates, accepted, stats),
        passes=prefill + [PassRecord(s.began_s, s.free_s, s.rows, 1, s.accepted) for s in states],
        guesses=[DraftRecord(0.0, step_s)] * accepted,
    )
