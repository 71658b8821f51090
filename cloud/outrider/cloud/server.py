"""A gRPC server around a verifier: port, TLS, who may call, keepalive, message limits, health and (on request)
reflection.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from outrider.cloud.gate import Gate, TokenInterceptor
from outrider.cloud.listen import parse_listen
from outrider.cloud.service import VerifierService
from outrider.cloud.tls import ServerTls, server_credentials
from outrider.cloud.tokens import TokenFile
from outrider.cloud.verifier import Verifier
from outrider.shared.errors import OutriderError, Reason
from outrider.v1 import verifier_pb2, verifier_pb2_grpc

SERVICE_NAME = verifier_pb2.DESCRIPTOR.services_by_name["VerifierService"].full_name
MAX_MESSAGE_BYTES = 1 << 20
# Of the time to stop in, what is left for calls that do not end by themselves.
STOP_S = 1.0
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # An edge that is silent in an answer is given up after these two together; one without an answer is left in peace.
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where to listen ("HOST:PORT", port 0 picks a free one), whether to offer reflection, how to be found genuine, the
    file of tokens that callers need one of, whether all commits are to be equally long on the wire, and how many
    seconds stopping may take.
    """

    listen: str = "127.0.0.1:7071"
    reflection: bool = False
    tls: ServerTls | None = None
    tokens: Path | None = None
    pad_commits: bool = False
    grace_s: float = 10.0


@contextlib.asynccontextmanager
async def running_server(verifier: Verifier, config: ServerConfig) -> AsyncIterator[int]:
    """Serve `verifier` inside the context; yields the port.

    Raises LISTEN_NOT_LOOPBACK, FILE_UNREADABLE, or PORT_IN_USE where the address cannot be bound.
    """
    check_reach(config)
    tokens = None if config.tokens is None else await asyncio.to_thread(_read_tokens, config.tokens)
    credentials = None if config.tls is None else await asyncio.to_thread(server_credentials, config.tls)
    gate = Gate(tokens, client_certificates=config.tls is not None and config.tls.client_ca is not None)
    service = VerifierService(verifier, gate, pad_commits=config.pad_commits)
    interceptors = () if tokens is None else (TokenInterceptor(gate, service.refuse),)
    server = grpc.aio.server(options=_OPTIONS, interceptors=interceptors)
    verifier_pb2_grpc.add_VerifierServiceServicer_to_server(service, server)
    checker = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checker, server)
    if config.reflection:
        from grpc_reflection.v1alpha import reflection  # noqa: PLC0415 - optional and off by default

        reflection.enable_server_reflection((SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        if credentials is None:
            port = server.add_insecure_port(config.listen)
        else:
            port = server.add_secure_port(config.listen, credentials)
    except RuntimeError:
        port = 0
    if not port:
        raise OutriderError(Reason.PORT_IN_USE, f"cannot listen on {config.listen}.")
    async with verifier.running(), contextlib.nullcontext() if tokens is None else tokens.watched():
        await server.start()
        await _report(checker, health_pb2.HealthCheckResponse.SERVING)
        watcher = asyncio.create_task(_report_changes(verifier, checker))
        try:
            yield port
        finally:
            watcher.cancel()
            await checker.enter_graceful_shutdown()
            await asyncio.shield(_stop(server, verifier, config.grace_s))


async def _stop(server: grpc.aio.Server, verifier: Verifier, grace_s: float) -> None:
    """Send the edges on, then end what is left; what has not ended after `grace_s` is broken off."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + grace_s
    await verifier.drain(grace_s)
    await server.stop(min(STOP_S, max(0.0, deadline_s - loop.time())))


async def _report(checker: health.aio.HealthServicer, status: int) -> None:
    for name in ("", SERVICE_NAME):
        await checker.set(name, status)


async def _report_changes(verifier: Verifier, checker: health.aio.HealthServicer) -> None:
    """A verifier that cannot give answers says so to those who ask for its health, and when it can again."""
    is_serving = True
    while True:
        is_serving = await verifier.vitals.serving_is_not(is_serving)
        statuses = health_pb2.HealthCheckResponse
        await _report(checker, statuses.SERVING if is_serving else statuses.NOT_SERVING)


def check_reach(config: ServerConfig) -> None:
    """Raise LISTEN_NOT_LOOPBACK for an address that others can reach without TLS or without telling who they are, or
    USAGE for one that is none.
    """
    address = parse_listen("--listen", config.listen)
    if address.is_loopback:
        return
    host = address.host
    if config.tls is None:
        raise OutriderError(
            Reason.LISTEN_NOT_LOOPBACK, f"{host} can be reached from outside: give --tls-cert and --tls-key."
        )
    if config.tokens is None and config.tls.client_ca is None:
        raise OutriderError(Reason.LISTEN_NOT_LOOPBACK, f"anybody can call {host}: give --tokens or --tls-client-ca.")


def check_files(config: ServerConfig) -> None:
    """Raise FILE_UNREADABLE early, as `check_port_is_free` does; reads files."""
    if config.tls is not None:
        server_credentials(config.tls)
    if config.tokens is not None:
        _read_tokens(config.tokens)


def _read_tokens(path: Path) -> TokenFile:
    tokens = TokenFile(path)
    if not len(tokens):
        # Later it may become empty: that lets nobody in any more.
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: it holds no token.")
    return tokens


def check_port_is_free(listen: str) -> None:
    """Raise PORT_IN_USE early: a model can take minutes to load before the server would find out."""
    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.removeprefix("[").removesuffix("]"), int(port)))
        except OSError as error:
            raise OutriderError(Reason.PORT_IN_USE, f"cannot listen on {listen}: {error.strerror}.") from None
