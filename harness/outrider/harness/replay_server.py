"""The verifier of a run on the wall clock: a process of its own (`python -m outrider.harness.replay_server`) in which
the product's verifier and gRPC server serve a recorded target on a loopback port, until its stdin ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from outrider.cloud.server import ServerConfig, running_server
from outrider.cloud.verifier import Verifier
from outrider.harness.echo_server import stdin_lines
from outrider.harness.helper_process import HelperProcess, helper_process
from outrider.harness.profiles import TargetProfile
from outrider.harness.recording.library import RecordingSet
from outrider.harness.replay_target import ReplayTarget
from outrider.harness.simulation.virtual_run import verifier_config
from outrider.harness.usage import PassRecord
from outrider.harness.wall_time import run
from outrider.shared.errors import OutriderError


class ReplayConfig(BaseModel):
    """What is served: the recordings `ids` of `folder` with the times of `target`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    ids: tuple[str, ...]
    target: TargetProfile
    max_slots: int
    max_branches: int
    lookup_nodes: int


class ReplayServer:
    """A replay server that runs; `address` is its HOST:PORT, `pid` its process number."""

    def __init__(self, process: HelperProcess) -> None:
        self.address = process.address
        self.pid = process.pid
        self._process = process

    async def passes(self) -> list[PassRecord]:
        """The passes so far, in seconds of the machine's monotonic clock; raises MEASUREMENT_INVALID if it has died."""
        said = await self._process.ask("passes")
        return [PassRecord(*values) for values in said["passes"]]


@contextlib.asynccontextmanager
async def running_replay_server(config: ReplayConfig, prefix: Sequence[str] = ()) -> AsyncIterator[ReplayServer]:
    """A replay server in a process of its own inside the context; `prefix` begins its command line.

    Raises what it says if it does not start.
    """
    arguments = (config.model_dump_json(),)
    async with helper_process("the replay server", "outrider.harness.replay_server", arguments, prefix) as process:
        yield ReplayServer(process)


async def _serve(config: ReplayConfig) -> None:
    recordings = RecordingSet.read(config.folder, ids=config.ids)
    target = ReplayTarget(
        recordings, config.target.pass_ms, max_slots=config.max_slots, max_branches=config.max_branches
    )
    verifier = Verifier(target, verifier_config(config.target, config.lookup_nodes))
    async with running_server(verifier, ServerConfig("127.0.0.1:0")) as port:
        _say({"listening": f"127.0.0.1:{port}"})
        commands = await stdin_lines()
        while line := await commands.readline():
            command = line.decode().strip()
            if command != "passes":
                print(f"unknown command {command!r}", file=sys.stderr, flush=True)
                continue
            passes = [(p.began_s, p.ended_s, p.rows, p.sessions, p.accepted) for p in target.passes]
            # In a thread: a long run's records are more than the pipe takes at once.
            await asyncio.to_thread(_say, {"done": command, "passes": passes})


def _say(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


def main() -> int:
    """Serve as the first argument, a `ReplayConfig` in JSON, says."""
    try:
        run(_serve(ReplayConfig.model_validate_json(sys.argv[1])))
    except OutriderError as error:
        _say({"error": {"reason": error.reason.value, "message": error.message}})
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
