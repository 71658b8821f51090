"""The command `outrider`: finds a subcommand by its entry point, loads it on use, and turns failures into exit codes.

It knows no subcommand: an edge install never imports the cloud, and the list of commands imports none of them.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import io
import json
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.metadata import EntryPoint
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer

import outrider
from outrider.shared.errors import ERROR_TABLE, OutriderError, Reason

COMMAND_GROUP = "outrider.commands"
EXIT_USAGE = 2
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

# Packages that only one extra brings; for others the side of the command decides.
EXTRA_OF_PACKAGE = {"torch": "cloud", "transformers": "cloud", "accelerate": "cloud"}
EXTRA_OF_SIDE = {"edge": "edge", "cloud": "verifier", "harness": "harness"}

# Typer brings its own copy of click or depends on it, by version; this class is the right one in both.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class LogLevel(StrEnum):
    """What is logged to stderr."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def set_log_level(level: LogLevel | None) -> LogLevel | None:
    """Log to stderr from `level` on; None leaves it as it is. Returns `level`, as an option's callback must."""
    if level is not None:
        logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger().setLevel(level.value.upper())
    return level


LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option("--log-level", callback=set_log_level, help="What to log to stderr.", show_default="warning"),
]
"""Type of the parameter that gives a command its `--log-level`; the default is None."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer, and errors, as JSON.")]
"""Type of the parameter that gives a command its `--json`. Errors heed it without the command's doing."""


def print_json(answer: Mapping[str, Any]) -> None:
    """Print one JSON object on one line of stdout; ValueError for a number that JSON has no word for."""
    sys.stdout.write(json.dumps(answer, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:  # noqa: PLR0911 - one for each way to end
    """Run `outrider` with these arguments (default: the process's own) and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _mend_streams()
    set_log_level(LogLevel.WARNING)
    as_json = "--json" in takewhile(lambda word: word != "--", arguments)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has left; keep the interpreter from flushing into the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except OutriderError as error:
        return _report(error.reason, error.message, error.exit_code, as_json, error.more)
    except OSError as error:
        # A folder that cannot be written to, a full disk: nobody closer knew what to do about it.
        code = ERROR_TABLE[Reason.FILE_UNREADABLE].exit_code
        return _report(Reason.FILE_UNREADABLE, f"{type(error).__name__}: {error}", code, as_json)
    except UsageError as error:
        return _report(Reason.USAGE, _usage_text(error), EXIT_USAGE, as_json)
    except Exception as error:
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            traceback.print_exc()
        text = f"internal error: {type(error).__name__}: {error} (--log-level debug shows where)"
        return _report(Reason.INTERNAL, text, EXIT_INTERNAL, as_json)
    return code


def _mend_streams() -> None:
    """Standard streams that are closed become empty ones, and answers are UTF-8 whatever the locale says."""
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 - for the whole process
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _report(reason: Reason, message: str, exit_code: int, as_json: bool, more: Mapping[str, Any] | None = None) -> int:
    try:
        if as_json:
            print_json({"error": {"reason": reason.value, "message": message}, **(more or {})})
        else:
            print(f"error: {reason.value}: {message}", file=sys.stderr)
    except OSError:
        # Standard output cannot be written to; the exit code is all that is left to say.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    return exit_code


def _usage_text(error: Exception) -> str:
    text = str(getattr(error, "format_message", lambda: error)())
    path = getattr(getattr(error, "ctx", None), "command_path", "outrider")
    return f"{text} (see {path} --help)"


def _dispatch(arguments: list[str]) -> int:
    """Take the options before the command's name, then hand over to the command."""
    commands = {entry.name: entry for entry in importlib.metadata.entry_points(group=COMMAND_GROUP)}
    while arguments:
        word, equals, value = arguments.pop(0).partition("=")
        match word:
            case "--help" | "-h":
                print(_overview(commands))
                return 0
            case "--version":
                print(f"outrider {importlib.metadata.version('outrider')}")
                return 0
            case "--log-level":
                value = value if equals else "".join(arguments[:1])
                del arguments[: 0 if equals else 1]
                set_log_level(_log_level(value))
            case "--json":
                continue
            case _ if word in commands:
                return _run(commands[word], arguments)
            case _:
                kind = "option" if word.startswith("-") else "command"
                known = ", ".join(sorted(commands))
                raise OutriderError(Reason.USAGE, f"Unknown {kind} {word!r}; commands are {known}.")
    print(_overview(commands), file=sys.stderr)
    return EXIT_USAGE


def _log_level(value: str) -> LogLevel:
    try:
        return LogLevel(value)
    except ValueError:
        known = ", ".join(LogLevel)
        raise OutriderError(Reason.USAGE, f"--log-level is one of {known}; got {value!r}.") from None


def _run(entry: EntryPoint, arguments: list[str]) -> int:
    """Load one command and run it. What it returns, if an int, is the exit code."""
    try:
        target = entry.load()
        if isinstance(target, typer.Typer):
            app = target
        else:
            app = typer.Typer(add_completion=False)
            app.command(entry.name)(target)
        command = typer.main.get_command(app)
        # Not `command.main`: that one prints errors by itself and has exit codes of its own.
        with command.make_context(f"outrider {entry.name}", arguments) as context:
            result = command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    except ModuleNotFoundError as error:
        raise _missing(entry, error) from error
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _missing(entry: EntryPoint, error: ModuleNotFoundError) -> Exception:
    name = error.name or ""
    package = name.partition(".")[0]
    side = entry.module.partition(".")[2].partition(".")[0]
    if package == "outrider":
        # The command's own module or side may be left out of an installation; any other is our own bug.
        if f"{entry.module}.".startswith(f"{name}."):
            return OutriderError(Reason.USAGE, f"The command {entry.name} is not part of this installation.")
        return error
    extra = EXTRA_OF_PACKAGE.get(package) or EXTRA_OF_SIDE.get(side)
    if extra is None:
        return error
    return OutriderError(
        Reason.USAGE, f"The command {entry.name} needs {package}. Run: pip install 'outrider[{extra}]'"
    )


def _overview(commands: Mapping[str, EntryPoint]) -> str:
    width = max(map(len, commands), default=0)
    lines = [f"  {name:<{width}}  {_summary(commands[name].module)}" for name in sorted(commands)]
    return "\n".join(
        [
            "usage: outrider [--log-level LEVEL] COMMAND [OPTION ...]",
            "",
            "A small model on the device guesses, the big one in the cloud decides; the text is the big one's.",
            "",
            "commands:",
            *lines,
            "",
            "options:",
            f"  --log-level LEVEL  what to log to stderr: {', '.join(LogLevel)} (also after the command)",
            "  --version          print the version",
            "  --help             print this, or after a command its options",
        ]
    )


def _summary(module: str) -> str:
    """First line of a module's docstring, read from its file: importing it could need another extra."""
    path = _module_file(module)
    if path is None:
        return "(not part of this installation)"
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return text.partition("\n")[0]


def _module_file(module: str) -> Path | None:
    """File of a module below the namespace package `outrider`, found without importing anything."""
    steps = module.split(".")[1:]
    for portion in outrider.__path__:
        base = Path(portion).joinpath(*steps)
        for candidate in (base.with_suffix(".py"), base / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None


if __name__ == "__main__":
    sys.exit(main())
