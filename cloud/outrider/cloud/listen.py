"""Addresses to listen on."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from outrider.shared.access import split_address
from outrider.shared.errors import OutriderError, Reason


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A host without brackets, a port, and who can reach it."""

    host: str
    port: int
    is_loopback: bool

    @property
    def is_ipv6(self) -> bool:
        """Whether the host is an address of IPv6."""
        return ":" in self.host


def parse_listen(option: str, listen: str) -> ListenAddress:
    """HOST:PORT, where HOST is `localhost` or an IP address; raises USAGE, which names `option`."""
    host, port = split_address(listen)
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise OutriderError(Reason.USAGE, f"{option} {listen!r}: expected HOST:PORT.")
    if host == "localhost":
        return ListenAddress(host, int(port), is_loopback=True)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise OutriderError(Reason.USAGE, f"{option} {listen!r}: {host!r} is no IP address.") from None
    return ListenAddress(host, int(port), address.is_loopback)
