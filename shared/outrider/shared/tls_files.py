"""Reads certificates and keys (PEM) for either end of a TLS connection, and says early what does not fit together:
gRPC itself would only fail each handshake.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from outrider.shared.errors import OutriderError, Reason


def read_pair(cert: Path, key: Path) -> tuple[bytes, bytes]:
    """The certificate chain and the private key; raises FILE_UNREADABLE if they are none or do not fit each other."""
    data = _read(cert), _read(key)
    try:
        # An empty password: no question on the terminal for a key that needs one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise OutriderError(
            Reason.FILE_UNREADABLE,
            f"{cert} and {key}: expected a PEM certificate and its key, without a password ({_why(error)}).",
        ) from None
    return data


def read_authorities(path: Path) -> bytes:
    """Certificates of authorities; raises FILE_UNREADABLE if there is none."""
    data = _read(path)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise OutriderError(
            Reason.FILE_UNREADABLE, f"{path}: expected PEM certificates of authorities ({_why(error)})."
        ) from None
    return data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {error.strerror}.") from None


def _why(error: Exception) -> str:
    """The library's word for it, which holds nothing of the files."""
    return (error.reason if isinstance(error, ssl.SSLError) else None) or type(error).__name__
