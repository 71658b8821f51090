"""The verifier of a load test: a process of its own (`python -m outrider.harness.load.server`) in which the product's
verifier and gRPC server serve a null or tiny target on a loopback port, beside a bare echo to compare with, until its
stdin ends. The line "numbers" is answered with what it has counted since the last one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import resource
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from outrider.cloud.server import ServerConfig, running_server
from outrider.cloud.target import EngineTarget, Target
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import VerifierConfig
from outrider.harness.echo_server import stdin_lines
from outrider.harness.helper_process import HelperProcess, helper_process
from outrider.harness.load.null_target import NullTarget
from outrider.harness.load.timed_verifier import TimedVerifier
from outrider.harness.wall_time import waited_ms

ECHO_METHOD = "/outrider.harness.Echo/Echo"


async def _serve(target: Target, profile: str | None) -> None:
    verifier = TimedVerifier(target, VerifierConfig())
    async with running_server(verifier, ServerConfig("127.0.0.1:0")) as port, _echo_server() as echo_port:
        said = {"listening": f"127.0.0.1:{port}", "echo": f"127.0.0.1:{echo_port}"}
        print(json.dumps(said), flush=True)
        lines = await stdin_lines()
        with _profiled(profile):
            while line := await lines.readline():
                # The last write may not have been seen to end.
                await asyncio.sleep(0.05)
                print(json.dumps({"done": line.decode().strip()} | _numbers(verifier)), flush=True)


def _numbers(verifier: TimedVerifier) -> dict[str, Any]:
    gc.collect()
    milliseconds = percentiles([1000 * value for value in verifier.round_s])
    rounds = len(verifier.round_s)
    del verifier.round_s[:]
    return {
        "cpu_s": time.process_time(),
        "rss_bytes": _resident_bytes(),
        "rounds": rounds,
        "round_ms": milliseconds,
        "waited_s": (waited_ms([os.getpid()]) or 0.0) / 1000,
        "tasks": len(asyncio.all_tasks()),
    }


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and p99; zeros for fewer than two values."""
    if len(values) < 2:
        return dict.fromkeys(("p50", "p95", "p99"), 0.0)
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 3), "p95": round(cuts[94], 3), "p99": round(cuts[98], 3)}


@contextlib.asynccontextmanager
async def _echo_server() -> AsyncIterator[int]:
    """A stream of bytes that is answered with the same bytes, as cheaply as grpc.aio can."""

    async def echo(_: object, context: Any) -> None:
        while (message := await context.read()) != grpc.aio.EOF:
            await context.write(message)

    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler(
        ECHO_METHOD.split("/")[1], {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
    )
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


@contextlib.contextmanager
def _profiled(path: str | None) -> Any:
    """Write what `cProfile` sees inside the context to `path`."""
    if path is None:
        yield
        return
    import cProfile  # noqa: PLC0415 - seldom wanted

    profiler = cProfile.Profile()
    profiler.enable()
    try:
        yield
    finally:
        profiler.disable()
        profiler.dump_stats(path)


@contextlib.asynccontextmanager
async def load_server(*arguments: str) -> AsyncIterator[HelperProcess]:
    """The server as a process of its own inside the context, with the arguments of its command line."""
    async with helper_process("the load server", "outrider.harness.load.server", arguments) as helper:
        yield helper


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=("null", "tiny"), default="null")
    parser.add_argument("--max-sessions", type=int, default=64)
    parser.add_argument("--profile")
    options = parser.parse_args()
    slots = options.max_sessions
    target = NullTarget(max_slots=slots) if options.target == "null" else EngineTarget(TinyEngine(max_slots=slots))
    asyncio.run(_serve(target, options.profile))


if __name__ == "__main__":
    main()
