"""What opens the way to a verifier that asks: TLS, a certificate of the device's own, a bearer token. All from files,
never from a command line that others on the machine can read.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.tls_files import read_authorities, read_pair

MAX_TOKEN_LENGTH = 512
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: `ca` of the authorities that may vouch for the verifier (None: the public ones that gRPC knows), and,
    where the verifier asks devices for one, `cert` and `key` of this device.
    """

    ca: Path | str | None = None
    cert: Path | str | None = None
    key: Path | str | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """What has been read of it; without `credentials` the connection is plain."""

    credentials: grpc.ChannelCredentials | None = None
    token: str = field(default="", repr=False)

    def check_way(self, address: str) -> None:
        """Raise USAGE for a token that others could read on its way to HOST:PORT."""
        if self.token and self.credentials is None and not is_loopback(address):
            raise OutriderError(Reason.USAGE, f"a token goes to {address} over TLS only.")


def split_address(address: str) -> tuple[str, str]:
    """Host and port of HOST:PORT; an IPv6 host comes without its brackets."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port


def check_address(option: str, address: str) -> None:
    """Raise USAGE, which names `option`, for what is not HOST:PORT."""
    host, port = split_address(address)
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise OutriderError(Reason.USAGE, f"{option} {address!r}: expected HOST:PORT.")


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT names this machine itself."""
    host, _ = split_address(address)
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_access(tls: Tls | None, token_file: Path | str | None) -> Access:
    """Read what the files hold; raises FILE_UNREADABLE, or USAGE for a certificate without its key."""
    token = "" if token_file is None else _read_token(Path(token_file))
    return Access(None if tls is None else _credentials(tls), token)


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    authorities = None if tls.ca is None else read_authorities(Path(tls.ca))
    if tls.cert is None and tls.key is None:
        return grpc.ssl_channel_credentials(authorities)
    if tls.cert is None or tls.key is None:
        raise OutriderError(Reason.USAGE, "a device's certificate and its key come together.")
    cert, key = read_pair(Path(tls.cert), Path(tls.key))
    return grpc.ssl_channel_credentials(authorities, key, cert)


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as handle:
            token = handle.read(MAX_TOKEN_LENGTH + 3).strip().decode("ascii", "replace")
    except OSError as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {error.strerror}.") from None
    if len(token) > MAX_TOKEN_LENGTH or not _TOKEN.fullmatch(token):
        # Not what it holds.
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: expected one token and nothing else.")
    return token
