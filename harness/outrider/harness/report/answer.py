"""One answer event by event."""

from __future__ import annotations

import json

from outrider.harness.report.format import Timeline
from outrider.harness.report.parts import Figure, LegendItem, Section, Table
from outrider.harness.report.svg import swatch
from outrider.harness.report.timeline_chart import strips
from outrider.harness.report.words import AXES, NO_VALUE, axis_value, count, listed, number

TITLE = "One answer over time"
_LEGEND = (
    ("draft", "bar", "the device drafts"),
    ("up", "stroke", "guesses on their way up"),
    ("pass", "bar", "a pass, with the guesses it accepts"),
    ("down", "stroke", "a commit on its way down"),
    ("commit", "mark", "tokens become visible, with their number"),
)


def answer(timeline: Timeline | None, until_ms: float) -> Section:
    """The first `until_ms` of an answer, or all of it if it is shorter."""
    if timeline is None:
        return Section("timeline", TITLE, ("No timeline was given (--timeline).",))
    ends = [
        *(span.end_ms for span in (*timeline.drafts, *timeline.passes)),
        *(flight.arrives_ms for flight in timeline.flights),
        *(commit.at_ms for commit in timeline.commits),
    ]
    known = {axis: timeline.settings.get(axis) for axis in AXES}
    words = [axis_value(axis, value) for axis, value in known.items() if isinstance(value, str | int | float)]
    lead = [f"Prompt {timeline.prompt_id}{f' with {listed(words)}' if words else ''}."]
    if not ends:
        return Section("timeline", TITLE, (*lead, "The timeline holds no event."))
    events = _events(timeline)
    shown = [event for event in events if event[0] < until_ms]
    last_ms = max(ends)
    if last_ms >= until_ms:
        lead.append(
            f"Shown are the first {number(until_ms)} of {number(last_ms)} ms, {len(shown):,} of "
            f"{count(len(events), 'event')}."
        )
    lead.append("Time runs from left to right, strip after strip. Numbers that would touch are in the table only.")
    figure = Figure(
        f"{TITLE}: {timeline.prompt_id}",
        # What happens at the very end must still lie inside.
        strips(timeline, min(until_ms, last_ms * 1.001 + 0.001)),
        tuple(LegendItem(swatch(series, kind), label) for series, kind, label in _LEGEND),
        _table(shown),
        long=True,
    )
    return Section("timeline", TITLE, tuple(lead), (figure,))


Event = tuple[float, float | None, str, str]


def _events(timeline: Timeline) -> list[Event]:
    """Everything that happens, by time: begin and end in milliseconds, where, and what."""
    directions = {"up": "uplink", "down": "downlink"}
    events: list[Event] = [
        *((draft.start_ms, draft.end_ms, "device", "draft") for draft in timeline.drafts),
        *(
            (flight.sent_ms, flight.arrives_ms, directions[flight.direction], count(flight.bytes, "byte"))
            for flight in timeline.flights
        ),
        *(
            (entry.start_ms, entry.end_ms, "accelerator", f"{count(entry.rows, 'row')}, {entry.accepted} accepted")
            for entry in timeline.passes
        ),
        *(
            (commit.at_ms, None, "device", f"shows {count(len(commit.tokens), 'token')}: {_pieces(commit.tokens)}")
            for commit in timeline.commits
        ),
    ]
    return sorted(events, key=lambda event: event[0])


def _pieces(tokens: tuple[str, ...]) -> str:
    """Pieces of text in quotes, so that spaces and line ends can be seen."""
    return " ".join(json.dumps(token, ensure_ascii=False) for token in tokens) or "none"


def _table(events: list[Event]) -> Table:
    rows = tuple(
        (number(begin), NO_VALUE if end is None else number(end), where, what) for begin, end, where, what in events
    )
    return Table("Events of the timeline", ("begin, ms", "end, ms", "where", "what"), rows, prose=True)
