"""Verifiers and commands as processes of their own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any

COMMAND = [sys.executable, "-m", "outrider.shared.cli"]


@contextlib.contextmanager
def verifier_process(*arguments: str, stderr: IO[bytes] | None = None) -> Iterator[str]:
    """`outrider verifier` with `arguments` on a free loopback port; yields HOST:PORT. It must end well."""
    process = subprocess.Popen(
        [*COMMAND, "verifier", "--listen", "127.0.0.1:0", "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert "listening" in said, said
        yield said["listening"]
    finally:
        process.terminate()
        assert process.wait(30) == 0


def run_command(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `outrider` with `arguments` to its end."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, input=stdin, timeout=600, check=False)


def json_lines(output: str) -> list[dict[str, Any]]:
    """The JSON objects that a command printed, one a line; anything else fails."""
    return [json.loads(line) for line in output.splitlines()]
