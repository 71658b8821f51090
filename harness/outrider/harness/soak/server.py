"""`outrider verifier` whose sessions are kept for seconds only once their stream has ended: a soak sees them go.
`python -m outrider.harness.soak.server PARKED_S LEAK ARGUMENT...`. LEAK is `none`, or how it is to grow, for a test of
the soak: `sessions` keeps each one for ever, `parked` lets none of those without a stream go.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from outrider.cloud import parking
from outrider.cloud import verifier as served
from outrider.cloud.commands import verifier as command
from outrider.cloud.parking import ParkingLimits
from outrider.cloud.session import Session
from outrider.shared.cli import main

LEAKS = ("none", "sessions", "parked")


def limits(parked_s: float) -> ParkingLimits:
    """All times are `parked_s`, and the slot of a suspended session is its caller's for a part of that."""
    return ParkingLimits(suspended_s=parked_s, finished_s=parked_s, grace_s=parked_s / 4)


def _leak(kind: str) -> None:
    if kind == "sessions":
        kept: list[Session] = []

        class Kept(Session):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                kept.append(self)

        served.Session = Kept  # type: ignore[attr-defined, assignment]
    elif kind == "parked":
        parking.Parking._expire = lambda self, session_id: None  # type: ignore[method-assign]


if __name__ == "__main__":
    _leak(sys.argv[2])
    config = functools.partial(served.VerifierConfig, parking=limits(float(sys.argv[1])))
    command.VerifierConfig = config  # type: ignore[attr-defined, assignment]
    sys.exit(main(["verifier", *sys.argv[3:]]))
