"""The arithmetic of the page: speed against a baseline, the round trip times at which a lead is lost, sums over cells,
and money. It knows nothing of how they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

from outrider.harness.report.format import BaselineName, Figures
from outrider.harness.report.read import Row
from outrider.harness.report.words import PRODUCT

# Relative difference below which two times are the same: results are rounded, sums of floats differ in the last digits.
SAME = 1e-6

MS_PER_HOUR = 3_600_000
MILLION = 1_000_000

State: TypeAlias = Literal["faster", "as fast", "slower"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One cell against a baseline: how many times as fast the product is."""

    row: Row
    ratio: float

    @property
    def state(self) -> State:
        """Whether the product is faster, slower or neither."""
        return "as fast" if math.isclose(self.ratio, 1, rel_tol=SAME) else "faster" if self.ratio > 1 else "slower"


@dataclass(frozen=True, slots=True)
class Comparison:
    """All cells against a baseline; `missing` cells have no number for one of the two."""

    outcomes: tuple[Outcome, ...]
    missing: int

    def count(self, state: State) -> int:
        """Number of cells in which the product is so."""
        return sum(outcome.state == state for outcome in self.outcomes)

    @property
    def best(self) -> Outcome:
        """The cell with the greatest lead; there must be one."""
        return max(self.outcomes, key=lambda outcome: outcome.ratio)

    @property
    def worst(self) -> Outcome:
        """The cell with the smallest lead; there must be one."""
        return min(self.outcomes, key=lambda outcome: outcome.ratio)


@dataclass(frozen=True, slots=True)
class Region:
    """A range of round trip times, in milliseconds, over which the product keeps its state."""

    state: State
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Spread:
    """A measure over several cells: of their sums, and the least and greatest of a single cell."""

    value: float
    low: float
    high: float


def figures(row: Row, series: str) -> Figures | None:
    """Figures of the product or of a baseline in a cell; None where that baseline was not run."""
    if series == PRODUCT:
        return row.result
    assert series in get_args(BaselineName), series
    return row.result.baselines.get(cast(BaselineName, series))


def measure(row: Row, series: str, name: str) -> float | None:
    """One measure by its key, None where there is none."""
    found = figures(row, series)
    return None if found is None else getattr(found, name)


def compare(rows: Sequence[Row], baseline: str, name: str = "ms_per_token") -> Comparison:
    """The product against a baseline, by a measure of which less is better."""
    outcomes: list[Outcome] = []
    for row in rows:
        product, other = measure(row, PRODUCT, name), measure(row, baseline, name)
        if product and other is not None:
            outcomes.append(Outcome(row, other / product))
    return Comparison(tuple(outcomes), len(rows) - len(outcomes))


def regions(points: Sequence[tuple[float, float, float]]) -> tuple[Region, ...]:
    """Where the product is faster or slower than a baseline, from points (rtt_ms, product, baseline) with ascending
    RTT. Between two points both are taken for straight lines, beyond the last nothing is said. A state that holds at a
    single point has a region without length.
    """
    found: list[Region] = []
    for index, (rtt_ms, product, baseline) in enumerate(points):
        state: State = (
            "as fast" if math.isclose(product, baseline, rel_tol=SAME) else "faster" if product < baseline else "slower"
        )
        if not found:
            found.append(Region(state, rtt_ms, rtt_ms))
            continue
        last = found[-1]
        border = _border(last.state, state, points[index - 1], points[index])
        found[-1] = Region(last.state, last.start, border)
        if state != last.state:
            found.append(Region(state, border, rtt_ms))
    return tuple(found)


def _border(before: State, after: State, left: tuple[float, float, float], right: tuple[float, float, float]) -> float:
    """RTT at which the state changes; the right point's if it does not change."""
    if after in {before, "as fast"}:
        return right[0]
    if before == "as fast":
        return left[0]
    lead_left, lead_right = left[1] - left[2], right[1] - right[2]
    return left[0] + (right[0] - left[0]) * lead_left / (lead_left - lead_right)


def break_evens(found: Sequence[Region]) -> tuple[float, ...]:
    """RTTs, in milliseconds, at which the state changes."""
    return tuple(dict.fromkeys(region.start for region in found[1:]))


def weigh(values: Sequence[tuple[float, int]]) -> Spread | None:
    """The mean of values by their weights, which are above 0; None for no values."""
    if not values:
        return None
    total = sum(weight for _, weight in values)
    plain = [value for value, _ in values]
    return Spread(sum(value * weight for value, weight in values) / total, min(plain), max(plain))


def per_token(rows: Sequence[Row], series: str, name: str) -> Spread | None:
    """A measure per token over several cells, each weighing as many tokens as it answered."""
    return weigh(_weighted(rows, series, name))


def tokens_per_pass(rows: Sequence[Row], series: str) -> Spread | None:
    """Tokens per pass over several cells: the sum of tokens by the sum of passes."""
    # Passes per token add up over tokens; the ratio is turned around at the end.
    found = [(value, tokens) for value, tokens in _weighted(rows, series, "tokens_per_pass") if value]
    turned = weigh([(1 / value, tokens) for value, tokens in found])
    return None if turned is None else Spread(1 / turned.value, 1 / turned.high, 1 / turned.low)


def _weighted(rows: Sequence[Row], series: str, name: str) -> list[tuple[float, int]]:
    found = [(measure(row, series, name), figures(row, series)) for row in rows]
    return [(value, entry.tokens) for value, entry in found if value is not None and entry is not None and entry.tokens]


def money_per_million(price_per_hour: float, ms_per_token: float) -> float:
    """What a million tokens cost on a machine that is paid by the hour and busy for so long with each."""
    return price_per_hour * ms_per_token / MS_PER_HOUR * MILLION
