"""Who a session belongs to, as the transport found out; what one left in the cache is for no one else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """The name of a token, the subject of a client certificate, or "anonymous"."""

    name: str


ANONYMOUS = Principal("anonymous")
