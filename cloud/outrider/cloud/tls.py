"""The verifier's TLS: certificate, key and client authorities from files that may be replaced while it serves."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc

from outrider.shared.errors import OutriderError
from outrider.shared.files import stamp_of
from outrider.shared.tls_files import read_authorities, read_pair

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files: the verifier's certificate (with what leads up to its authority) and key. With `client_ca` only
    clients with a certificate of one of these authorities get in.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None


def server_credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """Credentials that follow the files; raises FILE_UNREADABLE for what does not fit together now."""
    certificates = _Certificates(tls)
    return grpc.dynamic_ssl_server_credentials(
        certificates.first,
        certificates,  # type: ignore[arg-type]  # the stubs do not know that None is allowed
        require_client_authentication=tls.client_ca is not None,
    )


class _Certificates:
    """What gRPC asks, in a thread of its own, before each handshake. Connections that stand keep what they have."""

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._paths = [path for path in (tls.cert, tls.key, tls.client_ca) if path is not None]
        self._stamp = stamp_of(*self._paths)
        self._lock = threading.Lock()
        self.first = self._read()

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        """New certificates, or None if the files are as they were or do not fit together."""
        with self._lock:
            # Before reading: what changes meanwhile is seen at the next connection.
            stamp = stamp_of(*self._paths)
            if stamp == self._stamp:
                return None
            self._stamp = stamp
            try:
                read = self._read()
            except OutriderError as error:
                logger.warning("the certificates stay as they were: %s", error.message)
                return None
            logger.info("certificates were read again")
            return read

    def _read(self) -> grpc.ServerCertificateConfiguration:
        cert, key = read_pair(self._tls.cert, self._tls.key)
        authorities = None if self._tls.client_ca is None else read_authorities(self._tls.client_ca)
        return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=authorities)
