"""Runs a setup on the virtual clock: verifier and agents of the product in one process over links in memory."""

from __future__ import annotations

from dataclasses import replace

from outrider.cloud.scheduler import PassLimits
from outrider.cloud.session import SessionLimits
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.harness import virtual_time
from outrider.harness.memory_link import MemoryEdgeLink, MemoryPort, Observer
from outrider.harness.profiles import TargetProfile
from outrider.harness.replay_target import ReplayTarget
from outrider.harness.simulation.decode import decode
from outrider.harness.simulation.measures import Run
from outrider.harness.simulation.setup import Setup

# An ended session holds its slot until its stream is closed, while the device opens the next one.
SLOTS_A_SESSION = 2
MAX_BRANCHES = 256


def run_virtual(setup: Setup, observer: Observer | None = None) -> Run:
    """The run of `setup`; `observer` hears of each message. The same setup gives the same run, to the last bit.

    Raises what the product raises.
    """
    return virtual_time.run(_decode_in_memory(setup, observer))


def replay_target(setup: Setup) -> ReplayTarget:
    """The recorded target with the setup's times and room for its sessions."""
    return ReplayTarget(
        setup.recordings,
        setup.target.pass_ms,
        max_slots=setup.sessions * SLOTS_A_SESSION,
        max_branches=MAX_BRANCHES,
    )


def verifier_config(target: TargetProfile, lookup_nodes: int) -> VerifierConfig:
    """What the operator of such a target would set."""
    limits = PassLimits()
    free_rows = max(1, int(target.free_rows)) if target.row_ms else limits.max_rows
    return VerifierConfig(replace(limits, free_rows=free_rows), SessionLimits(lookup_nodes=lookup_nodes))


async def _decode_in_memory(setup: Setup, observer: Observer | None) -> Run:
    target = replay_target(setup)
    verifier = Verifier(target, verifier_config(setup.target, setup.cloud_lookup))
    async with verifier.running(), MemoryPort.listening(verifier) as port:

        def open_link(session: int) -> MemoryEdgeLink:
            return port.connect(setup.link, setup.seed + session, observer)

        return await decode(setup, verifier.info(), open_link, target.passes)
