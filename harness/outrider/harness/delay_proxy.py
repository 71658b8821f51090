"""A TCP proxy on loopback that delays what passes through it as a `LinkProfile` says, for real gRPC between edge and
verifier. It runs in a process of its own (`python -m outrider.harness.delay_proxy`), so that it shares no interpreter
lock with them. TCP's own handshake and congestion control are not emulated.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import functools
import json
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from outrider.harness.links import Channel, Cut, Direction, LinkProfile, make_link_profile
from outrider.harness.wall_time import Lateness, run
from outrider.shared.errors import OutriderError, Reason

BACKLOG_BYTES = 64 << 20
CONNECT_LIMIT_S = 5.0
# A sleeping process wakes this much late at times; the rest of the way is polled.
EARLY_S = 0.0006
# Of a profile's `overhead_bytes` a message, those that a TCP socket sees anyway: HTTP/2 frame and gRPC prefix.
SEEN_OVERHEAD_BYTES = 14
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _End(asyncio.Protocol):
    """One socket of a connection. What it reads is released at its peer; each chunk is stamped when it is read."""

    def __init__(self, link: _Link, direction: Direction, on_made: Callable[[], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: _End | None = None
        self._on_made = on_made
        self._link = link
        self._direction = direction
        self._channel = Channel(link.profile, direction, link.seed)
        # What is read at once travels as one packet.
        self._overhead_bytes = max(0, link.profile.overhead_bytes - SEEN_OVERHEAD_BYTES)
        # Release time and data; None is the end of the stream.
        self._flying: deque[tuple[float, bytes | None]] = deque()
        self._backlog_bytes = 0
        self._saw_eof = False
        self._timer: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=BACKLOG_BYTES)
        self._on_made()

    def data_received(self, data: bytes) -> None:
        self._fly(data)
        self._backlog_bytes += len(data)
        if self._backlog_bytes > BACKLOG_BYTES and self.transport is not None:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self._saw_eof = True
        self._fly(None)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            # A reset crosses the link as data does, but overtakes what it makes worthless.
            self._flying.clear()
            self._cancel_timer()
        if self.peer is not None:
            self._fly(None)

    def put(self, data: bytes | None, is_last: bool) -> None:
        """Write what the peer released; None ends the stream, and the socket too if nothing can follow."""
        if self.transport is None or self.transport.is_closing():
            return
        if data is not None:
            self.transport.write(data)
        elif is_last or self._saw_eof:
            self.transport.close()
        else:
            self.transport.write_eof()

    def lose(self) -> None:
        """Drop what flies and read no further."""
        self._flying.clear()
        self._cancel_timer()
        if self.transport is not None:
            self.transport.pause_reading()

    def end(self, kind: Literal["rst", "fin"]) -> None:
        """Close this socket with a reset or in good order."""
        if self.transport is None:
            return
        if kind == "rst":
            with contextlib.suppress(OSError):
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.transport.abort()
        else:
            self.transport.close()

    def restart(self, moved_s: float) -> None:
        """The link's time has begun anew, `moved_s` later; what flies arrives when it would have."""
        self._channel = Channel(self._link.profile, self._direction, self._link.seed)
        self._flying = deque((due_s - moved_s, data) for due_s, data in self._flying)

    def _fly(self, data: bytes | None) -> None:
        if self._link.is_cut:
            return
        due_s = self._channel.arrival_s(self._link.now_s(), len(data or b"") + self._overhead_bytes)
        self._flying.append((due_s, data))
        self.arm()

    def arm(self) -> None:
        """Set the timer for what flies, if there is a socket to release it to."""
        if self._timer is None and self._flying and self.peer is not None and self.peer.transport is not None:
            loop = asyncio.get_running_loop()
            due_s = self._link.zero_s() + self._flying[0][0]
            if due_s - loop.time() > EARLY_S:
                self._timer = loop.call_at(due_s - EARLY_S, self._release)
            else:
                self._timer = loop.call_soon(self._release)

    def _release(self) -> None:
        self._timer = None
        assert self.peer is not None
        now_s = self._link.now_s()
        while self._flying and self._flying[0][0] <= now_s:
            due_s, data = self._flying.popleft()
            self._link.late_s.append(now_s - due_s)
            self._backlog_bytes -= len(data or b"")
            self.peer.put(data, is_last=self.transport is None or self.transport.is_closing())
        if self._backlog_bytes <= BACKLOG_BYTES // 2 and self.transport is not None and not self._link.is_cut:
            self.transport.resume_reading()
        self.arm()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Link:
    """One connection through the proxy: two ends and their common fate."""

    def __init__(self, proxy: DelayProxy, seed: int) -> None:
        self.profile = proxy.profile
        self.seed = seed
        self.is_cut = False
        self.now_s = proxy.now_s
        self.zero_s = proxy.zero_s
        self.late_s = proxy.late_s
        self.edge = _End(self, Direction.UP, functools.partial(proxy.connect, self))
        # What the edge sent while its other half was being made waits for it.
        self.cloud = _End(self, Direction.DOWN, self.edge.arm)
        self.edge.peer, self.cloud.peer = self.cloud, self.edge

    @property
    def is_open(self) -> bool:
        """Whether either socket is."""
        transports = (self.edge.transport, self.cloud.transport)
        return any(transport is not None and not transport.is_closing() for transport in transports)

    def restart(self, moved_s: float) -> None:
        """See `_End.restart`."""
        for end in (self.edge, self.cloud):
            end.restart(moved_s)

    def cut(self, cut: Cut) -> None:
        """Break the connection: what flies is lost, each side is told after its notice."""
        if self.is_cut:
            return
        self.is_cut = True
        loop = asyncio.get_running_loop()
        for end, notice_ms in ((self.edge, cut.edge_notice_ms), (self.cloud, cut.cloud_notice_ms)):
            end.lose()
            loop.call_later(notice_ms / 1000, end.end, cut.kind)


class DelayProxy:
    """Accepts connections and passes them on to `host`:`port`, each over a link of its own: the first with `seed`, the
    next with the seed after it, and so on.

    The links' time begins when the proxy starts, and again at each `restart_clock`. `late_s` holds how many seconds
    after its time each chunk was released since then; `accepted` counts connections.
    """

    def __init__(self, profile: LinkProfile, seed: int, host: str, port: int) -> None:
        self.profile = profile
        self.late_s: list[float] = []
        self.accepted = 0
        self._seed = seed
        self._to = (host, port)
        self._links: list[_Link] = []
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._zero_s = 0.0
        self.restart_clock()

    def now_s(self) -> float:
        """Time of the link."""
        return asyncio.get_running_loop().time() - self._zero_s

    def zero_s(self) -> float:
        """When the link's time began, on the loop's clock."""
        return self._zero_s

    def restart_clock(self) -> None:
        """Let the links' time begin now, with all its stalls and cuts before it. Connections that are open stay, and
        what flies over them arrives when it would have.
        """
        loop = asyncio.get_running_loop()
        for timer in self._timers:
            timer.cancel()
        moved_s = loop.time() - self._zero_s
        self._zero_s += moved_s
        self.late_s.clear()
        self._timers = [loop.call_at(self._zero_s + cut.at_s, self.cut, cut) for cut in self.profile.cuts]
        for link in self._links:
            link.restart(moved_s)

    def cut(self, cut: Cut) -> None:
        """Break all open connections."""
        for link in self._links:
            link.cut(cut)

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Listen; the caller closes the server."""
        return await asyncio.get_running_loop().create_server(self._accept, host, port)

    def _accept(self) -> asyncio.Protocol:
        self._links = [link for link in self._links if link.is_open]
        link = _Link(self, self._seed + self.accepted)
        self.accepted += 1
        self._links.append(link)
        return link.edge

    def connect(self, link: _Link) -> None:
        """Make the other half of an accepted connection."""
        task = asyncio.get_running_loop().create_task(self._connect(link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, link: _Link) -> None:
        now_s = self.now_s()
        if any(cut.at_s <= now_s < cut.at_s + cut.outage_ms / 1000 for cut in self.profile.cuts):
            link.is_cut = True
            link.edge.end("rst")
            return
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                await asyncio.get_running_loop().create_connection(lambda: link.cloud, *self._to)
        except (OSError, TimeoutError):
            link.is_cut = True
            link.edge.end("rst")


async def _serve(options: argparse.Namespace) -> None:
    proxy = DelayProxy(_profile_of(options), options.seed, *_address(options.to))
    server = await proxy.listen(*_address(options.listen))
    host, port = server.sockets[0].getsockname()[:2]
    print(json.dumps({"listening": f"{host}:{port}", "port": port}), flush=True)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    os.set_blocking(sys.stdin.fileno(), False)
    loop.add_reader(sys.stdin.fileno(), functools.partial(_obey, proxy, ended))
    await ended.wait()
    server.close()


def _obey(proxy: DelayProxy, ended: asyncio.Event) -> None:
    """Follow the commands on stdin: `start` restarts the links' clock, `cut rst` and `cut fin` break connections,
    `report` asks for what was done since the start.
    """
    data = os.read(sys.stdin.fileno(), 4096)
    for line in data.decode().splitlines():
        answer: dict[str, Any] = {"done": line}
        match line.split():
            case ["start"]:
                proxy.restart_clock()
            case ["cut", ("rst" | "fin") as kind]:
                proxy.cut(Cut.model_validate({"at_s": 0, "kind": kind}))
            case ["report"]:
                lateness = dataclasses.asdict(Lateness.of(proxy.late_s))
                answer |= {"connections": proxy.accepted, "lateness": lateness}
            case _:
                print(json.dumps({"error": f"unknown command {line!r}"}), file=sys.stderr, flush=True)
                continue
        print(json.dumps(answer), flush=True)
    if not data:
        ended.set()


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise OutriderError(Reason.USAGE, f"{text!r}: expected HOST:PORT.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _profile_of(options: argparse.Namespace) -> LinkProfile:
    """The profile given as JSON, with the single options over it."""
    values: dict[str, Any] = json.loads(options.link) if options.link else {}
    for key in ("up_ms", "down_ms", "jitter", "jitter_ms", "up_mbit", "down_mbit"):
        if getattr(options, key) is not None:
            values[key] = getattr(options, key)
    for text in options.stall or ():
        at_s, _, length_ms = text.partition(":")
        values["stalls"] = [*values.get("stalls", ()), {"at_s": _number(at_s), "length_ms": _number(length_ms)}]
    for text in options.cut or ():
        at_s, _, kind = text.partition(":")
        values["cuts"] = [*values.get("cuts", ()), {"at_s": _number(at_s), "kind": kind or "rst"}]
    return make_link_profile(values, "delay_proxy")


def _number(text: str) -> float | str:
    """The number in a text; what is none is left for the profile to refuse."""
    try:
        return float(text)
    except ValueError:
        return text


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="outrider.harness.delay_proxy", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--link", metavar="JSON", help="a LinkProfile; the options below override it")
    parser.add_argument("--up-ms", type=float)
    parser.add_argument("--down-ms", type=float)
    parser.add_argument("--jitter", choices=["none", "uniform", "exponential"])
    parser.add_argument("--jitter-ms", type=float)
    parser.add_argument("--up-mbit", type=float)
    parser.add_argument("--down-mbit", type=float)
    parser.add_argument("--stall", action="append", metavar="AT_S:LENGTH_MS")
    parser.add_argument("--cut", action="append", metavar="AT_S:rst|fin")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the proxy until stdin ends; prints {"listening": HOST:PORT, "port": PORT} once it listens."""
    options = _parse(arguments)
    try:
        run(_serve(options))
    except (OutriderError, OSError, json.JSONDecodeError) as error:
        message = error.message if isinstance(error, OutriderError) else str(error)
        print(json.dumps({"error": {"reason": Reason.USAGE, "message": message}}), flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
