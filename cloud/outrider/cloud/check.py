"""Asks a running verifier whether it serves, as a container's health check does; it takes no longer than its limit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.shared.access import Access, check_address, is_loopback
from outrider.shared.convert import info_from_pb
from outrider.v1 import verifier_pb2 as pb
from outrider.v1 import verifier_pb2_grpc as pb_grpc

# All questions together, in seconds.
CHECK_LIMIT_S = 2.0
SERVICE_NAME = pb.DESCRIPTOR.services_by_name["VerifierService"].full_name


class Finding(StrEnum):
    """What a check can find."""

    SERVING = "serving"
    NOT_SERVING = "not serving"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"

    @property
    def exit_code(self) -> int:
        """Exit code of a command that found it."""
        return {Finding.SERVING: 0, Finding.UNREACHABLE: 4}.get(self, 3)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A finding about the verifier at `address`, with what it serves or why it does not."""

    address: str
    finding: Finding
    told: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, str]:
        """For `--json`."""
        return {"verifier": self.address, "status": self.finding.value, **self.told}

    def as_text(self) -> str:
        """One line."""
        told = ", ".join(f"{key} {value}" for key, value in self.told.items())
        return f"{self.address}: {self.finding.value}" + (f", {told}" if told else "")


async def check_verifier(address: str, access: Access, tls_name: str | None = None) -> CheckResult:
    """Ask for health, and then for what is served. `tls_name` is the name to expect in the certificate, if it is
    another one than the address's. Raises USAGE for what is no address, and for a token that others could read.
    """
    check_address("--check", address)
    access.check_way(address)
    options: list[tuple[str, Any]] = [
        ("grpc.enable_http_proxy", 0 if is_loopback(address) else 1),
        ("grpc.enable_retries", 0),
    ]
    if tls_name is not None:
        options.append(("grpc.ssl_target_name_override", tls_name))
    if access.credentials is None:
        channel = grpc.aio.insecure_channel(address, options=options)
    else:
        channel = grpc.aio.secure_channel(address, access.credentials, options=options)
    metadata = (("authorization", f"Bearer {access.token}"),) if access.token else None
    try:
        async with asyncio.timeout(CHECK_LIMIT_S):
            return await _ask(address, channel, metadata)
    except TimeoutError:
        return CheckResult(address, Finding.UNREACHABLE, {"why": f"no answer in {CHECK_LIMIT_S:g} s"})
    except grpc.aio.AioRpcError as error:
        return CheckResult(address, _finding_of(error.code()), {"why": _line(f"{error.code().name} {error.details()}")})
    finally:
        await channel.close()


async def _ask(address: str, channel: grpc.aio.Channel, metadata: Any) -> CheckResult:
    request = health_pb2.HealthCheckRequest(service=SERVICE_NAME)
    health = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=CHECK_LIMIT_S, metadata=metadata)
    if health.status != health_pb2.HealthCheckResponse.SERVING:
        return CheckResult(address, Finding.NOT_SERVING)
    stub: Any = pb_grpc.VerifierServiceStub(channel)
    info = info_from_pb(await stub.GetInfo(pb.GetInfoRequest(), timeout=CHECK_LIMIT_S, metadata=metadata))
    told = {"model": info.model, "engine": info.engine, "numerics": info.numerics, "version": info.software_version}
    return CheckResult(address, Finding.SERVING, {key: _line(value) for key, value in told.items()})


def _finding_of(code: grpc.StatusCode) -> Finding:
    unreachable = code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
    return Finding.UNREACHABLE if unreachable else Finding.REFUSED


def _line(text: str) -> str:
    """One printable line of what a peer said."""
    return "".join(character if character.isprintable() else " " for character in text[:300])
