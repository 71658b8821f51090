"""What verifiers said about themselves when they were last reached, kept on the device for when they cannot be."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from google.protobuf.message import DecodeError

from outrider.shared.convert import info_from_pb, info_to_pb
from outrider.shared.errors import OutriderError
from outrider.shared.files import write_whole
from outrider.shared.messages import VerifierInfo
from outrider.shared.paths import cache_dir
from outrider.v1 import verifier_pb2 as pb

logger = logging.getLogger(__name__)

FOLDER = "verifiers"


def keep_info(address: str, info: VerifierInfo) -> None:
    """Keep it for another time, unless the cache folder cannot be written to."""
    try:
        write_whole(_path(address), info_to_pb(info).SerializeToString(deterministic=True))
    except OSError as error:
        logger.warning("cannot keep what %s says about itself: %s", address, error.strerror)


def known_info(address: str) -> VerifierInfo | None:
    """What was kept; None if nothing was that can be read."""
    message = pb.GetInfoResponse()
    try:
        message.ParseFromString(_path(address).read_bytes())
        return info_from_pb(message)
    except (OSError, DecodeError, OutriderError):
        return None


def _path(address: str) -> Path:
    return cache_dir() / FOLDER / f"{hashlib.sha256(address.encode()).hexdigest()[:32]}.pb"
