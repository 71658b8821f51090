"""How the numbers were made: files, clock, seeds, settings, and what each way to run is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from outrider.harness.report.format import Timeline
from outrider.harness.report.parts import Section, Table
from outrider.harness.report.read import Row, Sweep
from outrider.harness.report.words import MEANINGS, NO_VALUE, SERIES, setting


def made(sweep: Sweep, timeline: Timeline | None, series: Iterable[str], version: str) -> Section:
    """Where the numbers come from: files, settings, seeds, clock, and what each way to run is."""
    rows = sweep.rows
    facts = [
        ("report made by", f"outrider {version}"),
        ("sweep file", sweep.name),
        ("SHA-256 of the sweep file", sweep.sha256),
        ("format", f"{sweep.header.format}, version {sweep.header.version}"),
        ("clock", _values(rows, "clock")),
        ("seed", _values(rows, "seed")),
        *((key, setting(value)) for key, value in sorted(sweep.header.extra.items())),
    ]
    tables = [
        Table("Files, clock and seeds", ("what", "value"), tuple(facts), prose=True),
        _settings("Base scenario", sweep.header.scenario),
    ]
    if rows:
        tables.append(_settings("Settings of all cells", _common(row.result.settings for row in rows)))
        tables.append(
            Table(
                "Ways to run",
                ("name", "what it is"),
                tuple((SERIES[name], MEANINGS[name]) for name in series),
                prose=True,
            )
        )
    if timeline is not None:
        tables.append(_settings("Settings of the answer over time", timeline.settings))
    lead = (
        "A simulation on recordings of real models. On the virtual clock, equal settings and seeds give equal numbers.",
    )
    return Section("made", "How it was made", lead, tables=tuple(tables))


def _values(rows: Iterable[Row], key: str) -> str:
    """Distinct values of a setting over all cells."""
    found = dict.fromkeys(setting(row.result.settings[key]) for row in rows if key in row.result.settings)
    return ", ".join(found) or NO_VALUE


def _common(settings: Iterable[Mapping[str, JsonValue]]) -> dict[str, JsonValue]:
    """Settings that have one value in all cells; those that do not are said to vary."""
    several = [_flat(entry) for entry in settings]
    keys = dict.fromkeys(key for entry in several for key in entry)
    values = {key: [entry.get(key) for entry in several] for key in keys}
    return {key: found[0] if all(value == found[0] for value in found) else "varies" for key, found in values.items()}


def _flat(settings: Mapping[str, JsonValue], prefix: str = "") -> dict[str, JsonValue]:
    """Settings with a line for each value of a profile that is spelled out: `target.base_ms`."""
    flat: dict[str, JsonValue] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
    return flat


def _settings(caption: str, settings: Mapping[str, JsonValue]) -> Table:
    rows = tuple((key, setting(value)) for key, value in sorted(_flat(settings).items()))
    return Table(caption, ("setting", "value"), rows or ((NO_VALUE, "none given"),), prose=True)
