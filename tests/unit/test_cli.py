"""The command `outrider`: what it prints where, and with which exit code it ends."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from outrider.shared import cli, paths

Capture = pytest.CaptureFixture[str]


def outrider(*arguments: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OUTRIDER_HOME": str(home)} if home else None
    command = [sys.executable, "-m", "outrider.shared.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)


COMMANDS = '''
    """Things to try.

    Not shown in the list.
    """
    import logging
    from typing import Annotated
    import typer
    from outrider.shared.cli import JsonOption, LogLevelOption, print_json
    from outrider.shared.errors import OutriderError, Reason

    def probe(
        how: str,
        count: Annotated[int, typer.Option()] = 1,
        as_json: JsonOption = False,
        log_level: LogLevelOption = None,
    ) -> int | None:
        """Do as told."""
        match how:
            case "answer":
                logging.getLogger("probe").info("on the way")
                print_json({"count": count}) if as_json else print(count)
            case "differs":
                return 1
            case "refused":
                raise OutriderError(Reason.SESSION_IDLE, "Session 7.")
            case "unreachable":
                raise OutriderError(Reason.VERIFIER_UNREACHABLE)
            case "bug":
                raise ValueError("seven")
            case "interrupt":
                raise KeyboardInterrupt
            case "stop":
                raise typer.Exit(3)
            case "late-import":
                import nosuchpackage
        return None
'''


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of a further part of the package: a working one, and some that cannot be loaded."""
    folder = tmp_path / "outrider" / "testside"
    folder.mkdir(parents=True)
    (folder / "probe.py").write_text(dedent(COMMANDS).lstrip())
    (folder / "needy.py").write_text('"""Needs more."""\nimport nosuchpackage.deep\n')
    (folder / "torchy.py").write_text('"""Needs torch."""\nraise ModuleNotFoundError(name="torch")\n')
    (folder / "buggy.py").write_text('"""Has a bug."""\nimport outrider.testside.nosuchmodule\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(cli.EXTRA_OF_SIDE, "testside", "edge")
    names = {"probe": "probe:probe", "needy": "needy:x", "torchy": "torchy:x", "buggy": "buggy:x", "gone": "gone:x"}
    entries = [EntryPoint(name, f"outrider.testside.{value}", cli.COMMAND_GROUP) for name, value in names.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: entries)


def error_of(capture: Capture) -> dict[str, Any]:
    """The one JSON object on stdout, which is an error; stderr holds nothing."""
    out, err = capture.readouterr()
    assert err == ""
    answer = json.loads(out)
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"reason", "message"}
    error: dict[str, Any] = answer["error"]
    return error


# -- as a process ----------------------------------------------------------------------------------------------


def test_help_lists_commands_without_importing_them() -> None:
    script = """
import sys
from outrider.shared.cli import main
assert main(["--help"]) == 0
sides = ("outrider.edge", "outrider.cloud", "outrider.shared.models")
loaded = [name for name in sys.modules if name.startswith(sides)]
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    for entry in importlib.metadata.entry_points(group=cli.COMMAND_GROUP):
        assert f"\n  {entry.name} " in done.stdout
    assert re.search(r"^  models +List, fetch, check and remove model files\.$", done.stdout, re.MULTILINE)


def test_version_is_the_installed_one() -> None:
    done = outrider("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"outrider {importlib.metadata.version('outrider')}\n"


def test_no_command_shows_the_commands_on_stderr() -> None:
    done = outrider()
    assert (done.returncode, done.stdout) == (2, "")
    assert "commands:" in done.stderr


def test_answers_go_to_stdout_alone(tmp_path: Path) -> None:
    done = outrider("models", "list", "--json", home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    states = {model["name"]: model["state"] for model in json.loads(done.stdout)["models"]}
    assert states["smollm2-135m"] == "missing"


def test_a_failing_command_leaves_stdout_empty(tmp_path: Path) -> None:
    done = outrider("models", "path", "smollm2-135m", home=tmp_path)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith("error: MODEL_MISSING: ")


def test_a_reader_who_leaves_gets_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "outrider.shared.cli", "--help"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


# -- dispatch --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "code"),
    [("answer", 0), ("differs", 1), ("stop", 3), ("refused", 3), ("unreachable", 4), ("bug", 70), ("interrupt", 130)],
)
def test_exit_code_tells_what_happened(how: str, code: int, commands: None) -> None:
    assert cli.main(["probe", how]) == code


def test_command_gets_its_options(commands: None, capsys: Capture) -> None:
    assert cli.main(["probe", "answer", "--count", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"count": 3}


def test_known_failure_is_one_line_on_stderr(commands: None, capsys: Capture) -> None:
    cli.main(["probe", "refused"])
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "error: SESSION_IDLE: Nothing was asked for so long that the session was ended. Session 7.\n",
    )


def test_known_failure_is_json_when_asked(commands: None, capsys: Capture) -> None:
    assert cli.main(["probe", "refused", "--json"]) == 3
    assert error_of(capsys) == {
        "reason": "SESSION_IDLE",
        "message": "Nothing was asked for so long that the session was ended. Session 7.",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        ["--nosuch"],
        ["--log-level", "loud", "probe", "answer"],
        ["--log-level"],
        ["probe"],
        ["probe", "answer", "--nosuch"],
        ["probe", "answer", "--count", "x"],
    ],
)
def test_usage_errors_exit_2_in_text_and_in_json(arguments: list[str], commands: None, capsys: Capture) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: USAGE: ")
    # In front too: `--log-level` alone would take what follows for its value.
    assert cli.main(["--json", *arguments]) == 2
    assert error_of(capsys)["reason"] == "USAGE"


def test_json_behind_a_double_dash_is_no_option(commands: None, capsys: Capture) -> None:
    assert cli.main(["nosuch", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_internal_error_shows_its_traceback_only_at_debug(commands: None, capsys: Capture) -> None:
    cli.main(["probe", "bug"])
    assert "Traceback" not in capsys.readouterr().err
    cli.main(["--log-level", "debug", "probe", "bug"])
    assert "Traceback" in capsys.readouterr().err
    cli.main(["probe", "bug", "--json"])
    assert error_of(capsys)["reason"] == "INTERNAL"


@pytest.mark.parametrize(
    "arguments", [["--log-level=info", "probe", "answer"], ["probe", "answer", "--log-level", "info"]]
)
def test_log_level_counts_before_and_after_the_command(
    arguments: list[str], commands: None, caplog: pytest.LogCaptureFixture
) -> None:
    cli.main(["probe", "answer"])
    assert "on the way" not in caplog.text
    cli.main(arguments)
    assert "on the way" in caplog.text


def test_summary_is_the_first_line_of_the_module(commands: None, capsys: Capture) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "  probe   Things to try.\n" in out
    assert "  gone    (not part of this installation)\n" in out
    assert "Not shown" not in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["needy"], "needs nosuchpackage. Run: pip install 'outrider[edge]'"),
        (["probe", "late-import"], "needs nosuchpackage. Run: pip install 'outrider[edge]'"),
        (["torchy"], "needs torch. Run: pip install 'outrider[cloud]'"),
        (["gone"], "gone is not part of this installation"),
    ],
)
def test_missing_package_names_the_extra(arguments: list[str], text: str, commands: None, capsys: Capture) -> None:
    assert cli.main(arguments) == 2
    assert text in capsys.readouterr().err


def test_missing_module_of_our_own_is_a_bug(commands: None, capsys: Capture) -> None:
    assert cli.main(["buggy"]) == 70


# -- folders ---------------------------------------------------------------------------------------------------


def test_home_variable_moves_all_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path))
    assert paths.cache_dir() == tmp_path
    monkeypatch.delenv("OUTRIDER_HOME")
    assert paths.cache_dir().name == "outrider"
    assert tmp_path not in paths.cache_dir().parents


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_has_no_word_for_is_not_printed(capsys: Capture, value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        cli.print_json({"value": value})
    assert capsys.readouterr().out == ""
