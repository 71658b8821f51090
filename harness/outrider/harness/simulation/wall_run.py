"""Runs a setup on the wall clock: the product's verifier in a process of its own behind an emulated link, and the same
edges as on the virtual clock in this one, over real gRPC. A run in which link or machine did not keep the times that
the setup asks for is no result; what the product's own code costs is part of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from outrider.edge.link import VerifierClient
from outrider.harness import wall_time
from outrider.harness.emulator import Emulator, EmulatorName, running_emulator
from outrider.harness.probe_link import LinkProbe, probe_link
from outrider.harness.recording.library import RecordingSet
from outrider.harness.recording.store import recording_path, write_recording
from outrider.harness.replay_server import ReplayConfig, running_replay_server
from outrider.harness.simulation.decode import decode
from outrider.harness.simulation.measures import Run, measures
from outrider.harness.simulation.setup import NO_DRAFTER, Setup
from outrider.harness.simulation.virtual_run import MAX_BRANCHES, SLOTS_A_SESSION
from outrider.harness.usage import PassRecord
from outrider.harness.wall_time import Lateness, PreciseLoop
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import VerifierInfo

logger = logging.getLogger(__name__)

# The proxy needs two file descriptors for each, and a precise loop takes those below 1,024.
MAX_SESSIONS = 256
ATTEMPTS = 2
WARM_UP_TOKENS = 2
# How far a run on the wall clock may be off: this share, and this much for each pass.
TOLERANCE = 0.05
TOLERANCE_MS_A_PASS = 1.5


@dataclass(frozen=True, slots=True)
class Timekeeping:
    """How late the machine was with what the setup gives a time to: passes, the edges' timers (draft steps), and what
    the link released. `waited_ms` is how long threads of the run could have run and had no processor (None where the
    system does not say): on edge, link and verifier of their own they would not have waited for each other nor for
    others. `late_ms_per_token` is what all that can have added to ms/token at most: as if none of it overlapped.
    `real_time` says whether the run came before all other programs of the machine.
    """

    real_time: bool
    waited_ms: float | None
    passes: Lateness
    drafts: Lateness
    link: Lateness
    late_ms_per_token: float


@dataclass(frozen=True, slots=True)
class WallRun:
    """A run that counts, what the emulator was measured to do before it, how the machine kept time, and how many times
    it was tried.
    """

    run: Run
    emulator: EmulatorName
    probe: LinkProbe
    timekeeping: Timekeeping
    attempts: int = 1


def run_wall(setup: Setup, emulator: EmulatorName = "proxy") -> WallRun:
    """The run of `setup` over `emulator`; tried `ATTEMPTS` times where it does not count, which is judged by link and
    machine alone and never by what was measured of the product.

    Raises MEASUREMENT_INVALID with what was expected and measured, USAGE for too many sessions, and what the product
    raises.
    """
    if setup.sessions > MAX_SESSIONS:
        raise OutriderError(
            Reason.USAGE, f"sessions = {setup.sessions}: on the wall clock at most {MAX_SESSIONS} have connections."
        )
    for attempt in range(1, ATTEMPTS):
        try:
            return replace(_attempt(setup, emulator), attempts=attempt)
        except OutriderError as error:
            if error.reason is not Reason.MEASUREMENT_INVALID:
                raise
            logger.warning("trying again: %s", error.message)
    return replace(_attempt(setup, emulator), attempts=ATTEMPTS)


def allowed_ms(ms_per_token: float, passes_per_token: float) -> float:
    """By how much ms/token on the wall clock may be off."""
    return TOLERANCE * ms_per_token + TOLERANCE_MS_A_PASS * passes_per_token


def _attempt(setup: Setup, name: EmulatorName) -> WallRun:
    with wall_time.real_time() as is_real_time:
        found = wall_time.run(_measure(setup, name))
        timekeeping = replace(found.timekeeping, real_time=is_real_time)
    _check_timekeeping(found.run, timekeeping)
    return replace(found, timekeeping=timekeeping)


async def _measure(setup: Setup, name: EmulatorName) -> WallRun:
    async with running_emulator(name) as emulator:
        probe = await probe_link(setup.link, emulator)
        if not probe.is_valid:
            raise OutriderError(Reason.MEASUREMENT_INVALID, f"emulator {name}: {'; '.join(probe.problems)}.")
        run, timekeeping = await decode_over(emulator, setup)
    return WallRun(run, name, probe, timekeeping)


async def decode_over(emulator: Emulator, setup: Setup) -> tuple[Run, Timekeeping]:
    """The run of `setup` over `emulator`, on a precise loop, whatever time was kept.

    Raises MEASUREMENT_INVALID where a process died or sessions did not have one connection each, and what the product
    raises.
    """
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        config = await asyncio.to_thread(_hand_over, setup, Path(folder))
        return await _decode_over(emulator, setup, config)


def _hand_over(setup: Setup, folder: Path) -> ReplayConfig:
    """Put what the verifier's process needs into `folder`."""
    for recording in setup.recordings:
        write_recording(recording, recording_path(folder, recording.header.id))
    return ReplayConfig(
        folder=folder,
        ids=tuple(recording.header.id for recording in setup.recordings),
        target=setup.target,
        max_slots=setup.sessions * SLOTS_A_SESSION,
        max_branches=MAX_BRANCHES,
        lookup_nodes=setup.cloud_lookup,
    )


async def _decode_over(emulator: Emulator, setup: Setup, config: ReplayConfig) -> tuple[Run, Timekeeping]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PreciseLoop)
    passes: list[PassRecord] = []
    async with (
        running_replay_server(config, emulator.cloud_side) as server,
        emulator.link(setup.link, server.address, setup.seed) as link,
        _clients(setup.sessions, link.address) as clients,
    ):
        info = await _connect(clients)
        await _warm_up(setup, info, clients[0])
        warm_up_passes = len(await server.passes())
        # The link's jitter, losses and stalls are those of the virtual clock, which starts with the first question.
        await link.restart_clock()
        loop.late_s.clear()
        pids = (os.getpid(), server.pid, link.pid)
        before_ms = wall_time.waited_ms(pids)
        run = await decode(setup, info, lambda session: clients[session].open_stream(), passes)
        after_ms = wall_time.waited_ms(pids)
        drafts = Lateness.of(loop.late_s)
        passes.extend((await server.passes())[warm_up_passes:])
        report = await link.report()
    if report.connections != setup.sessions:
        text = f"{report.connections} connections were made for {setup.sessions} sessions."
        raise OutriderError(Reason.MEASUREMENT_INVALID, text)
    # A thread that has ended takes its time out of the sum.
    waited_ms = None if before_ms is None or after_ms is None else max(0.0, after_ms - before_ms)
    return run, _timekeeping(setup, run, drafts, report.lateness, waited_ms)


@contextlib.asynccontextmanager
async def _clients(count: int, address: str) -> AsyncIterator[list[VerifierClient]]:
    clients = [VerifierClient(address, own_connection=True) for _ in range(count)]
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()


async def _connect(clients: Sequence[VerifierClient]) -> VerifierInfo:
    """Connect one after the other, as the link gives each connection a seed of its own, and run what the first call and
    the first stream of a connection set up once.
    """
    for client in clients:
        info = await client.get_info()
        await client.open_stream().close()
    # A round trip on each, so that what the streams left behind is through.
    for client in clients:
        info = await client.get_info()
    return info


async def _warm_up(setup: Setup, info: VerifierInfo, client: VerifierClient) -> None:
    """Decode the beginning of one answer: the verifier's process sets things up at its first, which no later one has
    to wait for.
    """
    alone = setup.with_drafting(drafter=NO_DRAFTER, pace="eager")
    first = RecordingSet(setup.recordings.recordings[:1])
    few = replace(alone, recordings=first, sessions=1, max_tokens=WARM_UP_TOKENS)
    await decode(few, info, lambda _: client.open_stream(), [])


def _timekeeping(setup: Setup, run: Run, drafts: Lateness, link: Lateness, waited_ms: float | None) -> Timekeeping:
    overruns_s = [p.ended_s - p.began_s - setup.target.pass_ms(p.rows, p.sessions) / 1000 for p in run.passes]
    tokens = sum(answer.token_count for answer in run.answers) + run.other_tokens
    # A pass that is late keeps all its sessions waiting.
    passes_s = sum(max(0.0, late_s) * p.sessions for late_s, p in zip(overruns_s, run.passes, strict=True))
    total_ms = 1000 * passes_s + drafts.total_ms + link.total_ms + (waited_ms or 0.0)
    return Timekeeping(False, waited_ms, Lateness.of(overruns_s), drafts, link, total_ms / max(1, tokens))


def _check_timekeeping(run: Run, timekeeping: Timekeeping) -> None:
    """Raise MEASUREMENT_INVALID where the machine's lateness alone could take ms/token out of its bounds."""
    found = measures(run)
    limit_ms = allowed_ms(found["ms_per_token"] or 0.0, found["passes_per_token"] or 0.0)
    if timekeeping.late_ms_per_token > limit_ms:
        kinds = (("passes", timekeeping.passes), ("draft steps", timekeeping.drafts), ("link", timekeeping.link))
        parts = [f"{name} {late.total_ms:.0f} ms in {late.steps} (p99 {late.p99_ms:.1f})" for name, late in kinds]
        if timekeeping.waited_ms is not None:
            parts.append(f"{timekeeping.waited_ms:.0f} ms without a processor")
        raise OutriderError(
            Reason.MEASUREMENT_INVALID,
            f"the machine did not keep time: {timekeeping.late_ms_per_token:.2f} ms a token late, at most "
            f"{limit_ms:.2f} allowed: {', '.join(parts)}.",
        )
