"""A grid of scenarios, run in several processes, with what is done kept in a file so that a run can be taken up again.

The file is JSON lines: a header with the base scenario and the axes, then a cell a line. While a sweep runs cells
stand in the order in which they were done; a finished one is in the grid's order: the same grid gives the same bytes.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

from outrider.harness.simulation.scenario import Scenario, changed, resolve
from outrider.harness.simulation.simulate import simulate
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.files import write_whole

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
    sweep's file, and what the product raises.
    """
    cells = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    scenarios = [changed(base, cell) for cell in cells]
    header = {
        "format": FORMAT,
        "version": VERSION,
        "scenario": base.model_dump(mode="json", exclude_defaults=True),
        "axes": {name: list(values) for name, values in axes.items()},
    }
    done = _read_done(out, header)
    missing = [index for index, cell in enumerate(cells) if _key(cell) not in done]
    progress(len(cells) - len(missing), len(cells))
    write_whole(out, _lines(header, cells, done))
    with ProcessPoolExecutor(max(1, min(jobs, len(missing))), mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_run_cell, scenarios[index]): cells[index] for index in missing}
        try:
            _collect(futures, out, done, lambda: progress(len(done), len(cells)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    write_whole(out, _lines(header, cells, done))
    return len(missing)


def _run_cell(scenario: Scenario) -> dict[str, Any]:
    return simulate(scenario, resolve(scenario))


def _collect(
    futures: Mapping[Future[dict[str, Any]], Cell], out: Path, done: dict[str, Any], tell: Callable[[], None]
) -> None:
    """Add cells to the file as they are done."""
    with out.open("a", encoding="utf-8") as file:
        for future in as_completed(futures):
            cell = futures[future]
            done[_key(cell)] = future.result()
            file.write(_line(cell, done[_key(cell)]))
            file.flush()
            tell()


def _read_done(out: Path, header: Mapping[str, Any]) -> dict[str, Any]:
    """Results by cell of an earlier run into `out`; a last line that was cut short is dropped."""
    if not out.exists():
        return {}
    try:
        lines = out.read_text("utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{out}: {error}.") from None
    whole = [line for line in lines if line.endswith("\n")]
    if not whole:
        return {}
    found = _parse(whole[0], f"{out}:1")
    if found.get("format") != FORMAT:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{out}:1: no sweep.")
    for key, value in header.items():
        if found.get(key) != value:
            text = f"{out} holds a sweep of another {key}: {found.get(key)} there, {value} here."
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
    except ValueError as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{where}: {error}.") from None
    if not isinstance(entry, dict):
        raise OutriderError(Reason.FILE_UNREADABLE, f"{where}: expected an object.")
    return entry


def _lines(header: Mapping[str, Any], cells: Sequence[Cell], done: Mapping[str, Any]) -> str:
    """The whole file, cells in the grid's order."""
    head = json.dumps(header, ensure_ascii=False) + "\n"
    return head + "".join(_line(cell, done[_key(cell)]) for cell in cells if _key(cell) in done)


def _line(cell: Cell, result: Any) -> str:
    return json.dumps({"cell": cell, "result": result}, ensure_ascii=False) + "\n"


def _key(cell: Cell) -> str:
    return json.dumps(cell, sort_keys=True)
