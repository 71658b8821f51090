"""A verifier that is watched and checked through the command line: metrics, logs, traces, health."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from outrider.cloud.tokens import new_token
from support.callers import token_path, tokens_path
from support.certificates import Authority
from support.process import COMMAND, json_lines, run_command, verifier_process
from support.scrape import scrape

TINY = ("--target", "tiny", "--context", "256")
# Imports, and then the check's own limit.
CHECK_LIMIT_S = 5.0


def check(address: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    began_s = time.monotonic()
    done = run_command("verifier", "--check", address, "--json", *arguments)
    assert time.monotonic() - began_s < CHECK_LIMIT_S
    assert done.stderr == ""
    return done.returncode, json_lines(done.stdout)[0]


def test_a_verifier_that_serves_says_what_it_serves() -> None:
    with verifier_process(*TINY) as verifier:
        code, said = check(verifier)
        assert (code, said["status"], said["model"]) == (0, "serving", "tiny-0")
        done = run_command("verifier", "--check", verifier)
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"{verifier}: serving, model tiny-0, ")


def test_nobody_there_is_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        code, said = check(f"127.0.0.1:{free.getsockname()[1]}")
    assert (code, said["status"]) == (4, "unreachable")


def test_a_peer_that_takes_connections_and_says_nothing_is_unreachable_in_time() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        code, said = check(f"127.0.0.1:{mute.getsockname()[1]}")
    assert (code, said["status"]) == (4, "unreachable")


def test_a_frozen_verifier_is_unreachable_in_time() -> None:
    process = subprocess.Popen(
        [*COMMAND, "verifier", "--listen", "127.0.0.1:0", "--json", *TINY], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["listening"]
        process.send_signal(signal.SIGSTOP)
        code, said = check(address)
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        assert process.wait(30) == 0
    assert (code, said["status"]) == (4, "unreachable")


def test_a_check_brings_what_the_verifier_asks_for(tmp_path: Path) -> None:
    authority, token = Authority(tmp_path / "authority"), new_token("probe")
    pair, known = authority.for_verifier(), tokens_path(tmp_path, token)
    mine = ("--token-file", str(token_path(tmp_path, token.token)))
    tls = ("--tls-ca", str(authority.cert))
    with verifier_process(
        *TINY, "--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--tokens", str(known)
    ) as verifier:
        assert check(verifier, *tls, *mine)[0] == 0
        assert check(verifier, *tls)[1]["status"] == "refused"
        assert check(verifier, *tls)[0] == 3
        assert check(verifier, *mine)[0] == 4
        assert check(verifier, *tls, *mine, "--tls-name", "localhost")[0] == 0
        assert check(verifier, *tls, *mine, "--tls-name", "elsewhere.example")[0] == 4


def test_the_ready_line_says_where_metrics_are_and_the_log_is_json(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [
                *COMMAND, "verifier", "--listen", "127.0.0.1:0", *TINY, "--json", "--metrics", "127.0.0.1:0",
                "--log-format", "json", "--log-level", "info",
            ],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        done = run_command("ask", "hi", "--verifier", ready["listening"], "--drafter", "tiny:0.5", "--json")
        assert done.returncode == 0
        seen = _scraped(ready["metrics"])
    finally:
        process.terminate()
        assert process.wait(30) == 0
    assert seen > 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert any(line["message"].startswith("finished") and "session" in line for line in lines)


def _scraped(address: str) -> float:
    return asyncio.run(scrape(address)).value("outrider_committed_tokens_total")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--metrics", "0.0.0.0:0"], "--metrics-public"),
        (["--metrics-public"], "--metrics"),
        (["--metrics", "9464"], "HOST:PORT"),
        (["--tls-ca", "x.pem"], "--check"),
        (["--token-file", "x"], "--check"),
        (["--check", "127.0.0.1:1", "--tls-name", "x"], "--tls-ca"),
        (["--log-format", "xml"], "--log-format"),
        (["--grace", "inf"], "--grace"),
        (["--grace", "nan"], "--grace"),
        (["--check", ""], "HOST:PORT"),
        (["--check", "127.0.0.1:99999"], "HOST:PORT"),
        (["--check", "unix:/nowhere"], "HOST:PORT"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_a_model_is_loaded(arguments: list[str], named: str) -> None:
    done = run_command("verifier", "--json", "--target", "/nowhere/model.gguf", *arguments)
    assert done.returncode == 2
    assert named in json_lines(done.stdout)[0]["error"]["message"]


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("opentelemetry", ["--telemetry"], "telemetry"),
        ("prometheus_client", ["--metrics", "127.0.0.1:0"], "cloud"),
    ],
)
def test_without_its_extra_an_option_names_it(package: str, arguments: list[str], extra: str) -> None:
    without = f"import sys; sys.modules[{package!r}] = None; from outrider.shared.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", without, "verifier", *TINY, "--json", *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"outrider[{extra}]" in json_lines(done.stdout)[0]["error"]["message"]


def test_traces_with_no_collector_there_keep_nobody_waiting() -> None:
    """The last spans may take a while on their way out, and not longer."""
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "false"}
    process = subprocess.Popen(
        [*COMMAND, "verifier", "--listen", "127.0.0.1:0", "--json", *TINY, "--telemetry"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["listening"]
        assert run_command("ask", "hi", "--verifier", address, "--drafter", "tiny:0.5").returncode == 0
    finally:
        process.terminate()
        began_s = time.monotonic()
        assert process.wait(30) == 0
    assert time.monotonic() - began_s < 8
