"""netem between network namespaces: what it is told, what it refuses, and the namespaces themselves."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from outrider.harness import netem, wall_time
from outrider.harness.emulator import EmulatorChoice, choose_emulator, running_emulator
from outrider.harness.helper_process import helper_process
from outrider.harness.links import Cut, Direction, LinkProfile, Stall
from outrider.harness.netem import inexpressible, netem_options, running_namespace
from outrider.harness.probe_link import probe_link
from outrider.harness.simulation.scenario import Scenario, resolve
from outrider.harness.simulation.simulate import simulate
from outrider.harness.simulation.virtual_run import run_virtual
from outrider.harness.simulation.wall_run import decode_over
from outrider.shared.errors import Reason
from support.process import run_command
from support.refusal import refused

PLAIN = LinkProfile(up_ms=8, down_ms=12)


def can_make_namespaces() -> bool:
    """Whether this is root on a machine with iproute2, in which namespaces are allowed."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        return False
    made = subprocess.run(["ip", "netns", "add", "outrider-try"], capture_output=True, check=False).returncode == 0
    subprocess.run(["ip", "netns", "del", "outrider-try"], capture_output=True, check=False)
    return made


needs_namespaces = pytest.mark.skipif(not can_make_namespaces(), reason="needs root, iproute2 and network namespaces")


def left_behind() -> set[str]:
    """Namespaces and devices of this process that are there."""
    namespaces = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout.split()
    links = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, text=True, check=True).stdout)
    own = f"outr{os.getpid():x}n"
    return {name for name in (*namespaces, *(link["ifname"] for link in links)) if name.startswith(own)}


@pytest.mark.parametrize(
    ("profile", "up", "down"),
    [
        (LinkProfile(), "", ""),
        (PLAIN, "limit 100000 delay 8000us", "limit 100000 delay 12000us"),
        (
            LinkProfile(up_ms=8, down_ms=12, up_mbit=10, overhead_bytes=80),
            "limit 100000 delay 8000us rate 10000000bit 0",
            "limit 100000 delay 12000us",
        ),
        (LinkProfile(down_mbit=0.5), "", "limit 100000 rate 500000bit -14"),
        (
            LinkProfile(up_ms=8, down_ms=12, jitter="uniform", jitter_ms=2.5),
            "limit 100000 delay 8000us 2500us rate 100000000000bit -14",
            "limit 100000 delay 12000us 2500us rate 100000000000bit -14",
        ),
    ],
)
def test_each_direction_is_told_its_own_values(profile: LinkProfile, up: str, down: str) -> None:
    assert netem_options(profile, Direction.UP) == up.split()
    assert netem_options(profile, Direction.DOWN) == down.split()


@pytest.mark.parametrize(
    ("changes", "sessions", "part"),
    [
        ({"loss_probability": 0.1, "loss_stall_ms": 200}, 1, "losses as stalls"),
        ({"stalls": (Stall(at_s=1, length_ms=5),)}, 1, "stalls"),
        ({"cuts": (Cut(at_s=1),)}, 1, "cuts"),
        ({"trace": ((0, 10), (1, 20))}, 1, "a trace"),
        ({"jitter": "exponential", "jitter_ms": 2}, 1, "exponential jitter"),
        ({"up_mbit": 1}, 2, "a rate for each of several sessions"),
    ],
)
def test_what_netem_cannot_express_is_refused_by_name(
    changes: dict[str, Any], sessions: int, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netem, "missing", lambda: ())
    profile = LinkProfile.model_validate({"up_ms": 8, "down_ms": 12} | changes)
    assert inexpressible(profile, sessions) == (f"netem cannot do {part}",) or part == "losses as stalls"
    with refused(Reason.USAGE, "netem", part):
        choose_emulator("netem", profile, sessions)
    assert choose_emulator("auto", profile, sessions) == "proxy"


@pytest.mark.parametrize(
    ("choice", "missing", "chosen"),
    [("proxy", (), "proxy"), ("auto", (), "netem"), ("netem", (), "netem"), ("auto", ("no kernel",), "proxy")],
)
def test_auto_takes_netem_where_it_can_be_had(
    choice: EmulatorChoice, missing: tuple[str, ...], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netem, "missing", lambda: missing)
    assert choose_emulator(choice, PLAIN, 1) == chosen


def test_netem_that_is_asked_for_and_missing_is_refused_by_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netem, "missing", lambda: ("the kernel has no netem",))
    scenario = Scenario(clock="wall", emulator="netem")
    with refused(Reason.USAGE, "emulator = 'netem'", "the kernel has no netem"):
        simulate(scenario, resolve(scenario))


def test_the_virtual_clock_has_no_emulator_and_looks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[str, ...]:
        raise AssertionError("nothing is to be probed")

    monkeypatch.setattr(netem, "missing", missing)
    scenario = Scenario(emulator="netem")
    with refused(Reason.USAGE, "virtual"):
        simulate(scenario, resolve(scenario))


def test_the_command_refuses_netem_where_it_cannot_be_had() -> None:
    """On the virtual clock it never can."""
    done = run_command("simulate", "--emulator", "netem", "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["reason"] == "USAGE"
    assert "emulator = 'netem'" in error["message"]


@pytest.mark.parametrize(
    ("is_root", "commands", "part"),
    [(False, {"ip", "tc"}, "only root"), (True, {"ip"}, "tc (of iproute2)"), (True, set(), "ip (of iproute2)")],
)
def test_what_a_machine_lacks_is_named(
    is_root: bool, commands: set[str], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0 if is_root else 1000)
    monkeypatch.setattr(shutil, "which", lambda name: name if name in commands else None)
    assert part in " ".join(netem.missing.__wrapped__())


@needs_namespaces
def test_looking_for_netem_leaves_nothing_behind() -> None:
    found = netem.missing.__wrapped__()
    assert found == () or "kernel" in found[0]
    assert left_behind() == set()


@needs_namespaces
def test_the_cloud_is_in_a_namespace_of_its_own_and_reached_over_the_relay_alone() -> None:
    async def main() -> None:
        async with asyncio.timeout(60), running_emulator("netem") as emulator:
            echo = helper_process("echo", "outrider.harness.echo_server", (), emulator.cloud_side)
            async with echo as server, emulator.link(LinkProfile(), server.address, 1) as link:
                assert server.address.startswith("127.0.0.1:")
                assert link.address.startswith("198.1")
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection("127.0.0.1", int(server.address.rpartition(":")[2]))
                reader, writer = await asyncio.open_connection(*link.address.split(":"))
                writer.write(b"E" + (5).to_bytes(8, "big") + b"hello")
                assert await reader.readexactly(5) == b"hello"
                writer.close()
                assert (await link.report()).connections == 1
            assert left_behind()

    wall_time.run(main())
    assert left_behind() == set()


@needs_namespaces
@pytest.mark.slow
def test_answers_through_the_namespace_are_counted_as_on_the_virtual_clock() -> None:
    """Without delay, as not every kernel has netem."""
    # A policy that minds its time does not count alike on two clocks.
    plan = {"control": "fixed", "limit": 2, "max_tokens": 24, "link": {"rtt_ms": 0}, "sessions": 2}
    setup = resolve(Scenario.model_validate(plan))

    async def main() -> list[int]:
        async with running_namespace() as namespace:
            assert (await probe_link(setup.link, namespace)).rtt_ms > 0
            run, _ = await decode_over(namespace, setup)
            return [answer.stats.passes for answer in run.answers]

    assert wall_time.run(main()) == [answer.stats.passes for answer in run_virtual(setup).answers]
    assert left_behind() == set()


@needs_namespaces
@pytest.mark.parametrize("step", range(7))
def test_a_namespace_that_could_not_be_finished_is_taken_away(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    tool = netem._tool

    async def failing(*command: str) -> None:
        nonlocal calls
        calls += 1
        await tool(*(("false",) if calls == step + 1 else command))

    monkeypatch.setattr(netem, "_tool", failing)

    async def main() -> None:
        async with running_namespace():
            pass

    with refused(Reason.MEASUREMENT_INVALID, "false"):
        asyncio.run(main())
    assert left_behind() == set()


@needs_namespaces
def test_a_run_that_is_cancelled_takes_its_namespace_away() -> None:
    async def main() -> None:
        async with running_namespace():
            await asyncio.sleep(0.05)
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            await asyncio.sleep(10)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert left_behind() == set()
