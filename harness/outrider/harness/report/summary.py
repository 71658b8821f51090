"""The result in plain words: in how many cells splitting wins and loses, how much, and where."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.harness.report.compare import Comparison, Outcome, compare
from outrider.harness.report.groups import rtt_of, sort_value, value_of
from outrider.harness.report.parts import Section, Table
from outrider.harness.report.read import Row
from outrider.harness.report.view import View
from outrider.harness.report.words import (
    BATCHED,
    COLOCATED,
    NO_VALUE,
    SERIES,
    STREAMING,
    axis_value,
    count,
    factor,
    listed,
    number,
)

RIVALS = {STREAMING: "plain streaming", COLOCATED: "co-located drafting"}


def summary(view: View) -> Section:
    """The summary of a sweep."""
    sentences = [f"The sweep holds {count(len(view.rows), 'cell')}.", view.common_words]
    for baseline, words in RIVALS.items():
        sentences += _against(view, baseline, words)
    sentences += [_accelerator(view), view.solo_words]
    return Section("summary", "Summary", tuple(filter(None, sentences)), tables=_by_setting(view))


def empty_summary() -> Section:
    """The summary of a sweep without cells."""
    return Section("summary", "Summary", ("The sweep holds no cells, so there is nothing to compare.",))


def _against(view: View, baseline: str, words: str) -> list[str]:
    found = compare(view.rows, baseline)
    if not found.outcomes:
        return [f"No cell has a speed of {words} to compare with."]
    sentences = [_verdict(view, found, words), _where(found)]
    if found.missing:
        sentences.append(f"{count(found.missing, 'cell')} cannot be compared: there is no speed of one of the two.")
    return [" ".join(filter(None, sentences))]


def _verdict(view: View, found: Comparison, words: str) -> str:
    if len(found.outcomes) == 1:
        return f"Splitting is {factor(found.best.ratio)} as fast as {words}{_place(view, found.best)}."
    total = count(len(found.outcomes), "cell")
    faster, same, slower = found.count("faster"), found.count("as fast"), found.count("slower")
    if faster == len(found.outcomes):
        verdict = f"Splitting beats {words} in all {total}."
    elif slower == len(found.outcomes):
        verdict = f"Splitting loses to {words} in all {total}."
    else:
        parts = [f"beats {words} in {faster}", f"loses in {slower}", *([f"is as fast in {same}"] if same else [])]
        verdict = f"Of {total}, splitting {listed(parts)}."
    return f"{verdict} Best: {_extreme(view, found.best)}. Worst: {_extreme(view, found.worst)}."


def _extreme(view: View, outcome: Outcome) -> str:
    return f"{factor(outcome.ratio)} its speed{_place(view, outcome)}"


def _place(view: View, outcome: Outcome) -> str:
    words = [axis_value(axis, value_of(outcome.row, axis)) for axis in view.axes]
    return f" at {', '.join(words)}" if words else ""


def _where(found: Comparison) -> str:
    """Round trip times up to which all cells win, and from which none does."""
    states: dict[float, set[bool]] = {}
    for outcome in found.outcomes:
        rtt_ms = rtt_of(outcome.row)
        if rtt_ms is not None:
            states.setdefault(rtt_ms, set()).add(outcome.state == "faster")
    if len(states) < 2:
        return ""
    order = sorted(states)
    won = _leading(order, states, {True})
    lost = _leading(order[::-1], states, {False})
    if len(won) == len(order) or len(lost) == len(order):
        return ""
    if won and lost:
        return f"Up to {number(won[-1])} ms of round trip all cells win, from {number(lost[-1])} ms on none does."
    if won:
        return f"Up to {number(won[-1])} ms of round trip all cells win."
    if lost:
        return f"From {number(lost[-1])} ms of round trip on no cell wins."
    return "Round trip time alone does not decide it."


def _leading(order: Sequence[float], states: dict[float, set[bool]], wanted: set[bool]) -> list[float]:
    found: list[float] = []
    for rtt_ms in order:
        if states[rtt_ms] != wanted:
            break
        found.append(rtt_ms)
    return found


def _accelerator(view: View) -> str:
    """How much accelerator time a token takes beside the target alone under the same load, as far as that was run."""
    rival = BATCHED if BATCHED in view.series else STREAMING
    found = compare(view.rows, rival, "accelerator_ms_per_token")
    if not found.outcomes:
        return ""
    low, high = (f"{1 / outcome.ratio:.0%}" if outcome.ratio else NO_VALUE for outcome in (found.best, found.worst))
    share = low if low == high else f"{low} to {high}"
    return f"A token takes {share} of the accelerator time that it takes with the target alone ({SERIES[rival]})."


def _by_setting(view: View) -> tuple[Table, ...]:
    rows: list[tuple[str, ...]] = []
    for axis in view.axes:
        values = sorted({value_of(row, axis) for row in view.rows}, key=sort_value)
        rows += [
            (axis_value(axis, value), *_counts([row for row in view.rows if value_of(row, axis) == value]))
            for value in values
        ]
    if not rows:
        return ()
    head = ("setting", *(f"faster than {SERIES[name]}" for name in RIVALS), "best", "worst")
    note = "Best and worst: times the speed of plain streaming."
    return (Table("Where splitting wins, setting by setting", head, tuple(rows), note=note),)


def _counts(rows: Sequence[Row]) -> tuple[str, ...]:
    found = {name: compare(rows, name) for name in RIVALS}
    wins = [f"{f.count('faster')} of {len(f.outcomes)}" if f.outcomes else NO_VALUE for f in found.values()]
    streaming = found[STREAMING]
    extremes = [streaming.best.ratio, streaming.worst.ratio] if streaming.outcomes else [None, None]
    return (*wins, *map(factor, extremes))
