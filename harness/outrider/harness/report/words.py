"""How numbers, settings, axes and ways to run are written on the page."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import JsonValue

from outrider.harness.report.format import AxisValue

NO_VALUE = "–"

PRODUCT = "product"
STREAMING = "streaming"
STOP_AND_WAIT = "stop_and_wait"
DRAFT_ONLY = "draft_only"
COLOCATED = "colocated"
BATCHED = "batched"

SERIES: dict[str, str] = {
    PRODUCT: "split",
    STREAMING: "streaming",
    COLOCATED: "co-located",
    STOP_AND_WAIT: "stop and wait",
    BATCHED: "batched",
    "rtt_zero": "split, RTT 0",
    "oracle": "oracle",
    DRAFT_ONLY: "draft alone*",
}
"""Every way to run a cell, in the order of legends and columns, and its name on the page."""

MEANINGS: dict[str, str] = {
    PRODUCT: "Outrider: drafting on the device, checking in the cloud, as configured in the cell.",
    STREAMING: "The target alone with an accelerator to itself, its tokens streamed to the device.",
    COLOCATED: "Draft and target model on one accelerator, all sessions in one batch, at the best γ.",
    STOP_AND_WAIT: "The split with a device that waits for each verdict, at the best γ.",
    BATCHED: "The target alone, all sessions in one batch, streamed.",
    "rtt_zero": "The split over a link without delay.",
    "oracle": "The best drafting that somebody who knows the answer could do over this link: a bound, not a product.",
    DRAFT_ONLY: "The draft model alone on the device. Its text is not the target's.",
}

OTHER_TEXT_NOTE = "* The text that the draft model writes alone is not the target's text."

AXES: dict[str, tuple[str, str]] = {
    "device": ("device", ""),
    "target": ("target", ""),
    "link": ("link", ""),
    "category": ("category", ""),
    "draft_ms": ("draft", "ms"),
    "target_ms": ("target", "ms"),
    "rtt_ms": ("RTT", "ms"),
    "sessions": ("sessions", ""),
    "control": ("control", ""),
    "gamma": ("γ", ""),
    "pace": ("pace", ""),
}
"""Known axes in the order they are named in: the word before the value and the unit behind it."""


def number(value: float | None) -> str:
    """A number with four significant digits, or a dash for none."""
    if value is None:
        return NO_VALUE
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def unbroken(*words: str) -> str:
    """Words with spaces between them at which no line ends."""
    return "\N{NO-BREAK SPACE}".join(words)


def factor(value: float | None) -> str:
    """A ratio of speeds, such as 1.25×, or a dash for none."""
    return NO_VALUE if value is None else f"{value:.2f}×"


def count(value: int, noun: str) -> str:
    """A count with its noun: `1 cell`, `3 cells`."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """Words as a list of a sentence: `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def setting(value: JsonValue) -> str:
    """A setting as text: texts as they are, everything else as JSON, whole numbers without a fraction."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def axis_value(axis: str, value: AxisValue | None) -> str:
    """An axis and its value: `draft 8 ms`, `γ 5`, `category code`."""
    word, unit = AXES.get(axis, (axis, ""))
    if value is None:
        return f"{word} not given"
    return (
        f"{word} {setting(value)}" if isinstance(value, str) or not unit else f"{word} {unbroken(setting(value), unit)}"
    )


def axis_name(axis: str) -> str:
    """An axis as the head of a column: `draft, ms`."""
    word, unit = AXES.get(axis, (axis, ""))
    return f"{word}, {unit}" if unit else word
