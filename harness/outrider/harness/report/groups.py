"""Cells of a sweep sorted into groups that differ in one axis only, and the choice of the groups that are drawn."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from outrider.harness.report.format import AxisValue
from outrider.harness.report.read import Row
from outrider.harness.report.words import AXES, axis_value, setting

ALL_CELLS = "all cells"


@dataclass(frozen=True, slots=True)
class Group:
    """Cells that agree in the axes of `key`; the key names only axes that vary in the sweep."""

    key: tuple[tuple[str, AxisValue | None], ...]
    rows: tuple[Row, ...]

    @property
    def label(self) -> str:
        """The key in words."""
        return ", ".join(axis_value(axis, value) for axis, value in self.key) or ALL_CELLS


def value_of(row: Row, axis: str) -> AxisValue | None:
    """Where a cell stands on an axis. What the cell does not say, the settings of its result say; None if neither."""
    if axis in row.cell:
        return row.cell[axis]
    if axis == "sessions":
        return float(row.result.sessions)
    value = row.result.settings.get(axis)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    # The settings spell a profile out; what a cell would say is its name.
    name = value.get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else setting(value)


def rtt_of(row: Row) -> float | None:
    """Round trip time of a cell in milliseconds, if it has one number for it."""
    value = value_of(row, "rtt_ms")
    return None if isinstance(value, str) else value


def sessions_of(row: Row) -> int:
    """Number of sessions of a cell."""
    value = value_of(row, "sessions")
    assert isinstance(value, int | float), "checked when it was read"
    return int(value)


def split_axes(rows: Sequence[Row]) -> tuple[tuple[str, ...], dict[str, AxisValue | None]]:
    """The axes in which cells differ, in the order of the page, and those that have one value, with it."""
    names = {axis for row in rows for axis in row.cell} | {"sessions"}
    order = ordered(names)
    values = {axis: list(dict.fromkeys(value_of(row, axis) for row in rows)) for axis in order}
    varying = tuple(axis for axis in order if len(values[axis]) > 1)
    return varying, {axis: values[axis][0] for axis in order if len(values[axis]) == 1}


def ordered(axes: Iterable[str]) -> list[str]:
    """Axes in the order of the page."""
    names = set(axes)
    return [axis for axis in AXES if axis in names] + sorted(names - AXES.keys())


def group_rows(rows: Sequence[Row], axes: Collection[str], without: Collection[str] = ()) -> tuple[Group, ...]:
    """Groups of cells that agree in all of `axes` but those in `without`, in order of their keys; cells in order of
    the file.
    """
    groups: dict[tuple[tuple[str, AxisValue | None], ...], list[Row]] = {}
    for row in rows:
        key = tuple((axis, value_of(row, axis)) for axis in axes if axis not in without)
        groups.setdefault(key, []).append(row)
    return tuple(Group(key, tuple(groups[key])) for key in sorted(groups, key=_sort_key))


def sort_value(value: AxisValue | None) -> tuple[int, float, str]:
    """Key to sort values of an axis by: none, then numbers, then names."""
    if value is None:
        return 0, 0.0, ""
    return (2, 0.0, value) if isinstance(value, str) else (1, value, "")


def nearest(
    groups: Sequence[Group], scenario: Mapping[str, JsonValue], limit: int
) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """At most `limit` groups, those that depart in the fewest axes from the base scenario, and the groups left out.
    Where no group has the scenario's value of an axis, the middle one of the groups' values stands in for it.
    """
    base: dict[str, JsonValue] = {}
    for axis in dict.fromkeys(axis for group in groups for axis, _ in group.key):
        values = sorted({dict(group.key)[axis] for group in groups}, key=sort_value)
        wanted = scenario.get(axis)
        base[axis] = wanted if wanted in values else values[len(values) // 2]
    departures = [sum(base[axis] != value for axis, value in group.key) for group in groups]
    kept = set(sorted(range(len(groups)), key=lambda index: (departures[index], index))[:limit])
    return (
        tuple(group for index, group in enumerate(groups) if index in kept),
        tuple(group for index, group in enumerate(groups) if index not in kept),
    )


def _sort_key(key: tuple[tuple[str, AxisValue | None], ...]) -> tuple[tuple[int, float, str], ...]:
    return tuple(sort_value(value) for _, value in key)
