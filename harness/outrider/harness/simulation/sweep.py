"""A grid of scenarios, run in several processes, with what is done kept in a file so that a run can be taken up again.

The file is JSON lines: a header with the base scenario and the axes, then a cell a line. While a sweep runs cells
stand in the order in which they were done; a finished one is in the grid's order: the same grid gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from itertools import product
from pathlib import Path
from typing import Any

from outrider.harness.links import LinkProfile, shown
from outrider.harness.recording.library import RecordingSet
from outrider.harness.recording.store import SUFFIX
from outrider.harness.simulation.scenario import (
    RECORDING_KEYS,
    Scenario,
    changed,
    read_recordings,
    recordings_folder,
    resolve,
    resolve_with,
)
from outrider.harness.simulation.simulate import clock_of, link_settings, simulate
from outrider.harness.simulation.workers import running
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.files import naming, write_whole
from outrider.shared.version import software_version

FORMAT = "outrider-sweep"
VERSION = 1

Cell = dict[str, Any]
Progress = Callable[[int, int], None]
"""Called with the cells that are done and those there are."""


def sweep(
    base: Scenario, axes: Mapping[str, Sequence[Any]], out: Path, jobs: int, progress: Progress = lambda *_: None
) -> int:
    """Run what is missing in `out` of all combinations of `axes` over `base`; returns how many cells were run.

    Raises USAGE for values that make no scenario and for a file of another sweep, FILE_UNREADABLE for what is no
    sweep's file, before anything runs or is written; and what the product raises.
    """
    cells = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    scenarios = [changed(base, cell) for cell in cells]
    header = {
        "format": FORMAT,
        "version": VERSION,
        "scenario": _base_settings(base),
        "axes": {name: list(values) for name, values in axes.items()},
        "software": software_version(),
        "sha256": _check(scenarios),
    }
    done = _read_done(out, header)
    missing = {index: scenarios[index] for index, cell in enumerate(cells) if _key(cell) not in done}
    progress(len(cells) - len(missing), len(cells))
    write_whole(out, _lines(header, cells, done))
    with running(_run_cell, missing, jobs) as futures:
        for future in as_completed(futures):
            cell = cells[futures[future]]
            done[_key(cell)] = future.result()
            with naming(out), out.open("a", encoding="utf-8") as file:
                file.write(_line(cell, done[_key(cell)]))
            progress(len(done), len(cells))
    write_whole(out, _lines(header, cells, done))
    return len(missing)


def _run_cell(scenario: Scenario) -> dict[str, Any]:
    return simulate(scenario, resolve(scenario))


def _check(scenarios: Sequence[Scenario]) -> dict[str, str]:
    """Resolve every scenario, so that what is wrong with one is said before any runs. Returns the SHA-256 of what they
    run on: of the recordings' files, and of profiles and traces as they were read.
    """
    sets: dict[str, RecordingSet] = {}
    profiles, recordings = hashlib.sha256(), hashlib.sha256()
    for scenario in scenarios:
        key = scenario.model_dump_json(include=RECORDING_KEYS)
        if key not in sets:
            sets[key] = read_recordings(scenario)
        setup = resolve_with(scenario, sets[key])
        clock_of(scenario, setup)
        for profile in (setup.target, setup.cloud_drafter, setup.device, setup.link):
            profiles.update(profile.model_dump_json().encode())
    names = [name for scenario in scenarios for name in (scenario.recordings, *scenario.further_recordings)]
    for folder in dict.fromkeys(map(recordings_folder, names)):
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            recordings.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return {"recordings": recordings.hexdigest(), "profiles": profiles.hexdigest()}


def _base_settings(base: Scenario) -> dict[str, Any]:
    """What the base scenario says, a trace in short."""
    values = base.model_dump(mode="json", exclude_defaults=True)
    if isinstance(base.link, LinkProfile) and base.link.trace:
        values["link"]["trace"] = link_settings(base.link, None)["trace"]
    return values


def _read_done(out: Path, header: Mapping[str, Any]) -> dict[str, Any]:
    """Results by cell of an earlier run into `out`; a last line that was cut short is dropped."""
    if not out.exists():
        return {}
    if not out.is_file():
        raise OutriderError(Reason.FILE_UNREADABLE, f"{out}: a sweep is taken up from its file; this is none.")
    try:
        # Not `splitlines`: characters that it breaks at may stand inside JSON texts.
        *whole, rest = out.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{out}: {error}.") from None
    if not whole:
        if not rest:
            return {}
        whole = [rest]
    found = _parse(whole[0], f"{out}:1")
    if found.get("format") != FORMAT:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{out}:1: no sweep.")
    for key, value in header.items():
        # As texts: for Python, 1, 1.0 and true are one.
        if json.dumps(found.get(key), sort_keys=True) != json.dumps(value, sort_keys=True):
            text = f"{out} holds a sweep of another {key}: {shown(found.get(key))} there, {shown(value)} here."
            raise OutriderError(Reason.USAGE, f"{text} Give another --out.")
    done: dict[str, Any] = {}
    for number, line in enumerate(whole[1:], 2):
        entry = _parse(line, f"{out}:{number}")
        if set(entry) != {"cell", "result"}:
            raise OutriderError(Reason.FILE_UNREADABLE, f"{out}:{number}: expected cell and result.")
        done[_key(entry["cell"])] = entry["result"]
    return done


def _parse(line: str, where: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{where}: {error}.") from None
    if not isinstance(entry, dict):
        raise OutriderError(Reason.FILE_UNREADABLE, f"{where}: expected an object.")
    return entry


def _lines(header: Mapping[str, Any], cells: Sequence[Cell], done: Mapping[str, Any]) -> str:
    """The whole file, cells in the grid's order."""
    head = json.dumps(header, ensure_ascii=False) + "\n"
    return head + "".join(_line(cell, done[_key(cell)]) for cell in cells if _key(cell) in done)


def _line(cell: Cell, result: Any) -> str:
    return json.dumps({"cell": cell, "result": result}, ensure_ascii=False, allow_nan=False) + "\n"


def _key(cell: Cell) -> str:
    return json.dumps(cell, sort_keys=True)
