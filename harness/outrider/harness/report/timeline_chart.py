"""One answer as lanes from the device to the accelerator and back, cut into strips that a phone can show."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from outrider.harness.report import svg
from outrider.harness.report.format import Timeline
from outrider.harness.report.svg import Scale
from outrider.harness.report.words import count, number

LANES = ("device drafts", "uplink", "accelerator", "downlink", "device shows")
LEFT, RIGHT, TOP, LANE = 6, 334, 4, 34
BAR_TOP, BAR_HEIGHT = 14, 16
BOTTOM = TOP + LANE * len(LANES)
HEIGHT = BOTTOM + 36
STRIPS = 6
LABEL_GAP_PX = 10


def strips(timeline: Timeline, until_ms: float) -> tuple[Markup, ...]:
    """Drawings of equal length that cover the answer from its begin to `until_ms`, which is above 0."""
    step = svg.nice_step(until_ms / STRIPS)
    starts = [step * index for index in range(STRIPS) if step * index < until_ms]
    return tuple(_strip(timeline, start, start + step, until_ms) for start in starts)


def _strip(timeline: Timeline, start: float, end: float, until_ms: float) -> Markup:
    scale = Scale(start, end, LEFT, RIGHT)
    parts = [
        svg.line(scale(start + (end - start) * i / 5), TOP, scale(start + (end - start) * i / 5), BOTTOM, "grid")
        for i in range(6)
    ]
    for index, lane in enumerate(LANES):
        y = TOP + LANE * index
        parts.append(svg.text(LEFT, y + 10, lane, css="lane halo"))
        parts.append(svg.line(LEFT, y + BAR_TOP + BAR_HEIGHT, RIGHT, y + BAR_TOP + BAR_HEIGHT, "grid"))
    visible = min(end, until_ms)
    parts.append(svg.series_group("draft", list(_drafts(timeline, scale, visible))))
    parts.append(svg.series_group("up", list(_flights(timeline, "up", 1, scale, visible))))
    parts.append(svg.series_group("pass", list(_passes(timeline, scale, visible))))
    parts.append(svg.series_group("down", list(_flights(timeline, "down", 3, scale, visible))))
    parts.append(svg.series_group("commit", list(_commits(timeline, scale, visible))))
    for i in range(6):
        value = start + (end - start) * i / 5
        anchor = "start" if i == 0 else "end" if i == 5 else "middle"
        parts.append(svg.text(scale(value), BOTTOM + 15, number(value), anchor=anchor))
    parts.append(
        svg.text((LEFT + RIGHT) / 2, BOTTOM + 32, "time since the answer began, ms", anchor="middle", css="axis")
    )
    label = f"Timeline from {number(start)} to {number(visible)} ms; the table below holds its events."
    return svg.document(HEIGHT, label, parts)


def _bar(start_ms: float, end_ms: float, lane: int, scale: Scale, visible: float, title: str) -> Markup | None:
    """The part of a bar that lies in the strip, if any does."""
    left, right = max(start_ms, scale.low), min(end_ms, visible)
    # What begins where a strip ends belongs to the next one.
    if right < left or start_ms >= visible or (end_ms <= scale.low and end_ms > start_ms):
        return None
    return svg.rect(scale(left), TOP + LANE * lane + BAR_TOP, scale(right) - scale(left), BAR_HEIGHT, "bar", title)


def _drafts(timeline: Timeline, scale: Scale, visible: float) -> Iterable[Markup]:
    for draft in timeline.drafts:
        title = f"draft, {number(draft.start_ms)} to {number(draft.end_ms)} ms"
        bar = _bar(draft.start_ms, draft.end_ms, 0, scale, visible, title)
        if bar is not None:
            yield bar


def _passes(timeline: Timeline, scale: Scale, visible: float) -> Iterable[Markup]:
    for entry in timeline.passes:
        title = (
            f"pass, {number(entry.start_ms)} to {number(entry.end_ms)} ms: {count(entry.rows, 'row')}, "
            f"{entry.accepted} accepted"
        )
        bar = _bar(entry.start_ms, entry.end_ms, 2, scale, visible, title)
        if bar is None:
            continue
        yield bar
        left, right = scale(max(entry.start_ms, scale.low)), scale(min(entry.end_ms, visible))
        words = str(entry.accepted)
        # A pass that goes on in the next strip has its number in the larger part.
        inside = min(entry.end_ms, visible) - max(entry.start_ms, scale.low)
        if right - left >= len(words) * svg.LETTER_PX + 4 and inside * 2 >= entry.end_ms - entry.start_ms:
            y = TOP + LANE * 2 + BAR_TOP + BAR_HEIGHT - 4
            yield svg.text((left + right) / 2, y, words, anchor="middle", css="inside")


def _flights(timeline: Timeline, direction: str, lane: int, scale: Scale, visible: float) -> Iterable[Markup]:
    """Messages fall from one side of their lane to the other, so that several on their way at once stay apart."""
    top = TOP + LANE * lane + BAR_TOP
    for flight in timeline.flights:
        left, right = max(flight.sent_ms, scale.low), min(flight.arrives_ms, visible)
        if flight.direction != direction or right < left or flight.sent_ms >= visible:
            continue
        length = flight.arrives_ms - flight.sent_ms
        if length and flight.arrives_ms <= scale.low:
            continue
        fall_left, fall_right = (
            ((edge - flight.sent_ms) / length if length else at) for edge, at in ((left, 0), (right, 1))
        )
        yield svg.line(scale(left), top + BAR_HEIGHT * fall_left, scale(right), top + BAR_HEIGHT * fall_right, "stroke")


def _commits(timeline: Timeline, scale: Scale, visible: float) -> Iterable[Markup]:
    """A mark for each commit and its number of tokens, unless that would touch the number before."""
    y = TOP + LANE * 4 + BAR_TOP
    free_from = 0.0
    for commit in sorted(timeline.commits, key=lambda commit: commit.at_ms):
        if not scale.low <= commit.at_ms < visible:
            continue
        x, words = scale(commit.at_ms), str(len(commit.tokens))
        yield svg.marker("commit", x, y + 12)
        if x >= free_from:
            near_end = x > RIGHT - 2 * LABEL_GAP_PX
            yield svg.text(
                x + (-6 if near_end else 6), y + 16, words, anchor="end" if near_end else "start", css="halo"
            )
            free_from = x + LABEL_GAP_PX + len(words) * svg.LETTER_PX
