"""Measures whether an emulator does on this machine, now, what a link's profile says; a run over a link that does not
is no result. Jitter, losses and stalls are left out: they are draws, and the delays they are added to are checked.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass

from outrider.harness.delay_proxy import SEEN_OVERHEAD_BYTES
from outrider.harness.echo_server import CHUNK_BYTES, NUMBER_BYTES
from outrider.harness.emulator import Emulator, ProxyEmulator
from outrider.harness.helper_process import helper_process
from outrider.harness.links import LinkProfile
from outrider.shared.errors import OutriderError, Reason

ECHOES = 31
LEAST_ECHOES = 11
ECHOES_MS = 1500.0
ECHO_BYTES = 32
RATE_S = 0.4
MAX_RATE_BYTES = 8 << 20
TOLERANCE = 0.05
TOLERANCE_MS = 1.0
LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class LinkProbe:
    """What was expected and measured. Round trips in milliseconds (median, 95th percentile), rates in Mbit/s, None
    without a bound.
    """

    rtt_ms: float
    expected_rtt_ms: float
    rtt_p95_ms: float
    up_mbit: float | None
    expected_up_mbit: float | None
    down_mbit: float | None
    expected_down_mbit: float | None

    @property
    def problems(self) -> list[str]:
        """What is off by more than the tolerance: 5 % or 1 ms for the round trip, 5 % for rates."""
        found = []
        if abs(self.rtt_ms - self.expected_rtt_ms) > max(TOLERANCE_MS, TOLERANCE * self.expected_rtt_ms):
            found.append(f"round trip {self.rtt_ms:.2f} ms, expected {self.expected_rtt_ms:.2f} ms")
        rates = (("up", self.up_mbit, self.expected_up_mbit), ("down", self.down_mbit, self.expected_down_mbit))
        for name, rate, expected in rates:
            if rate is not None and expected is not None and abs(rate - expected) > TOLERANCE * expected:
                found.append(f"{name} {rate:.2f} Mbit/s, expected {expected:.2f} Mbit/s")
        return found

    @property
    def is_valid(self) -> bool:
        """Whether runs over this link count."""
        return not self.problems


async def probe_link(profile: LinkProfile, emulator: Emulator | None = None) -> LinkProbe:
    """Put the steady part of `profile` in front of an echo server and measure it; by default with the delay proxy.

    Raises MEASUREMENT_INVALID where that takes more than `LIMIT_S`.
    """
    emulator = emulator or ProxyEmulator()
    try:
        async with asyncio.timeout(LIMIT_S):
            return await _measure(profile.steady(), emulator)
    except TimeoutError:
        text = f"the link's probe came to no end in {LIMIT_S:g} s."
        raise OutriderError(Reason.MEASUREMENT_INVALID, text) from None


async def _measure(steady: LinkProfile, emulator: Emulator) -> LinkProbe:
    echo = helper_process("the echo server", "outrider.harness.echo_server", (), emulator.cloud_side)
    async with echo as server, emulator.link(steady, server.address, 1) as link:
        host, _, port = link.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        echoes = min(ECHOES, max(LEAST_ECHOES, int(ECHOES_MS / max(1.0, steady.rtt_ms))))
        try:
            rtts_ms = [await _round_trip_ms(reader, writer) for _ in range(echoes + 1)][1:]
            up = await _rate_mbit(reader, writer, b"U", steady.up_mbit, steady.rtt_ms)
            down = await _rate_mbit(reader, writer, b"D", steady.down_mbit, steady.rtt_ms)
        finally:
            writer.close()
    return LinkProbe(
        rtt_ms=statistics.median(rtts_ms),
        expected_rtt_ms=expected_rtt_ms(steady),
        rtt_p95_ms=statistics.quantiles(rtts_ms, n=20)[-1],
        up_mbit=up,
        expected_up_mbit=steady.up_mbit,
        down_mbit=down,
        expected_down_mbit=steady.down_mbit,
    )


def expected_rtt_ms(steady: LinkProfile) -> float:
    """Round trip of an echo: the delays and the time on the line."""
    overhead = max(0, steady.overhead_bytes - SEEN_OVERHEAD_BYTES)
    on_line = sum((1 + NUMBER_BYTES + ECHO_BYTES + overhead) * 8e-3 / mbit for mbit in (steady.up_mbit,) if mbit)
    back = sum((ECHO_BYTES + overhead) * 8e-3 / mbit for mbit in (steady.down_mbit,) if mbit)
    return steady.rtt_ms + on_line + back


async def _round_trip_ms(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> float:
    began = time.perf_counter()
    _ask(writer, b"E", ECHO_BYTES, bytes(ECHO_BYTES))
    await reader.readexactly(ECHO_BYTES)
    return (time.perf_counter() - began) * 1000


async def _rate_mbit(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, command: bytes, mbit: float | None, rtt_ms: float
) -> float | None:
    """Send or fetch what takes about `RATE_S` and subtract the round trip; None without a bound to measure."""
    if mbit is None:
        return None
    size = min(MAX_RATE_BYTES, max(CHUNK_BYTES, int(mbit * 1e6 / 8 * RATE_S)))
    began = time.perf_counter()
    _ask(writer, command, size)
    if command == b"U":
        writer.write(bytes(size))
        await reader.readexactly(1)
    else:
        await reader.readexactly(size)
    took_s = time.perf_counter() - began - rtt_ms / 1000
    return size * 8e-6 / took_s if took_s > 0 else float("inf")


def _ask(writer: asyncio.StreamWriter, command: bytes, size: int, data: bytes = b"") -> None:
    writer.write(command + size.to_bytes(NUMBER_BYTES, "big") + data)
