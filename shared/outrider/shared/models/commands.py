"""List, fetch, check and remove model files."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from outrider.shared.cli import JsonOption, LogLevelOption, print_json
from outrider.shared.models.store import ModelEntry, ModelStore, PullEvent, PullStage, default_store

app = typer.Typer(add_completion=False, no_args_is_help=False, help="List, fetch, check and remove model files.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name from `outrider models list`.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Names from `outrider models list`.")]


@app.command("list")
def list_models(as_json: JsonOption = False, log_level: LogLevelOption = None) -> None:
    """Show the known models and what is on this machine."""
    entries = default_store().entries()
    if as_json:
        print_json({"models": [_row(entry) for entry in entries]})
        return
    width = max(len(entry.spec.name) for entry in entries)
    for entry in entries:
        spec = entry.spec
        print(
            f"{spec.name:<{width}}  {entry.state.value:<10}  {_megabytes(spec.size):>8}  "
            f"{'/'.join(spec.roles):<6}  {spec.title}, {spec.licence}"
        )


@app.command()
def pull(names: Names, as_json: JsonOption = False, log_level: LogLevelOption = None) -> None:
    """Fetch models, check their SHA-256, and print where they are, one a line."""
    store = default_store()
    for name in names:
        store.spec(name)
    for name in names:
        _pull(store, name, as_json)


@app.command()
def path(name: Name, as_json: JsonOption = False, log_level: LogLevelOption = None) -> None:
    """Print where the verified file of a model is."""
    file = str(default_store().path(name))
    _answer({"name": name, "path": file}, file, as_json)


@app.command()
def verify(name: Name, as_json: JsonOption = False, log_level: LogLevelOption = None) -> None:
    """Hash the whole file of a model and compare."""
    store = default_store()
    file = str(store.verify(name))
    _answer({"name": name, "path": file, "sha256": store.spec(name).sha256}, file, as_json)


@app.command()
def remove(name: Name, as_json: JsonOption = False, log_level: LogLevelOption = None) -> None:
    """Delete the file of a model and anything half fetched."""
    removed = default_store().remove(name)
    _answer({"name": name, "removed": removed}, "removed" if removed else "was not there", as_json)


def _pull(store: ModelStore, name: str, as_json: bool) -> None:
    spec = store.spec(name)
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task: TaskID | None = None

    def show(event: PullEvent) -> None:
        nonlocal task
        match event.stage:
            case PullStage.WAITING:
                console.print(f"{name}: another pull is running; waiting for it")
            case PullStage.SOURCE:
                if task is None:
                    console.print(f"{spec.title}: {_megabytes(spec.size)}, licence {spec.licence}")
                    task = bar.add_task(name, total=event.bytes_total)
                    bar.start()
                console.print(f"  from {event.note}")
                bar.update(task, completed=event.bytes_done)
            case PullStage.FAILED:
                console.print(f"  not available: {event.note}")
            case PullStage.BYTES if task is not None:
                bar.update(task, completed=event.bytes_done)
            case PullStage.VERIFYING if task is not None:
                bar.update(task, description=f"{name}: checking SHA-256", completed=event.bytes_done)

    try:
        pulled = store.pull(name, show)
    finally:
        bar.stop()
    answer = {"name": name, "path": str(pulled.path), "size": spec.size, "sha256": spec.sha256}
    answer |= {"source": pulled.provenance or None, "fetched": bool(pulled.provenance)}
    _answer(answer, str(pulled.path), as_json)


def _answer(answer: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        print(text)


def _row(entry: ModelEntry) -> dict[str, Any]:
    spec = entry.spec
    return {
        "name": spec.name,
        "title": spec.title,
        "licence": spec.licence,
        "size": spec.size,
        "sha256": spec.sha256,
        "roles": list(spec.roles),
        "state": entry.state.value,
        "path": str(entry.path),
    }


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
