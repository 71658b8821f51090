"""Faults of ours: the details go to the log, a number that finds them there goes to the peer."""

from __future__ import annotations

import logging
import secrets

from outrider.shared.errors import OutriderError, Reason

logger = logging.getLogger(__name__)


def internal_error(what: str, error: BaseException) -> OutriderError:
    """An INTERNAL error that tells the peer nothing but the number under which `error` was logged."""
    incident = secrets.token_hex(8)
    logger.error("%s, incident %s", what, incident, exc_info=error)
    return OutriderError(Reason.INTERNAL, f"Incident {incident}.")
