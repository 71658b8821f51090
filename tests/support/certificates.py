"""Certificates for tests, as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme

from outrider.cloud.tls import ServerTls
from outrider.shared.access import Tls


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    cert: Path
    key: Path

    def replace_by(self, other: Pair) -> None:
        """Put another pair in this one's place, as an operator would: each file in one step, the certificate first."""
        for mine, theirs in ((self.cert, other.cert), (self.key, other.key)):
            replace(mine, theirs.read_bytes())


class Authority:
    """A certificate authority of its own and what it has issued, below `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._ca = trustme.CA()
        self.cert = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self.cert)

    def for_verifier(self) -> Pair:
        """For a verifier on this machine."""
        return self._write("verifier", self._ca.issue_cert("localhost", "127.0.0.1"))

    def for_device(self, name: str) -> Pair:
        """For a device; `name` becomes part of its subject."""
        return self._write(name, self._ca.issue_cert(f"{name}@example.org", common_name=name))

    def server_tls(self, *, mutual: bool = False) -> ServerTls:
        """What a verifier is started with."""
        pair = self.for_verifier()
        return ServerTls(pair.cert, pair.key, self.cert if mutual else None)

    def device_tls(self, name: str | None = None) -> Tls:
        """What a device connects with, as `name` or without a certificate of its own."""
        if name is None:
            return Tls(self.cert)
        pair = self.for_device(name)
        return Tls(self.cert, pair.cert, pair.key)

    def _write(self, name: str, issued: trustme.LeafCert) -> Pair:
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        pair.cert.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(pair.key)
        return pair


def replace(path: Path, content: bytes) -> None:
    """Replace a file in one step."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.replace(path)
