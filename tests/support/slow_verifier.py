"""`outrider verifier` whose tiny target takes its time: python slow_verifier.py PASS_MS LONG_PASS LOG ARGUMENT...

A pass takes PASS_MS, the one with number LONG_PASS (from 1; 0 is none) a minute. LOG gets a line as each begins
(`begin` and its rows of text, which are computed anew) and as it ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from outrider.cloud.targets import tiny
from outrider.cloud.targets.base import RowLogits, SlotRows
from outrider.shared.cli import main

LONG_S = 60.0


class SlowEngine(tiny.TinyEngine):
    """The tiny engine on slow hardware."""

    pass_s = 0.0
    long_pass = 0
    log = Path()
    passes = 0

    def forward(self, rows: Sequence[SlotRows]) -> Sequence[RowLogits]:
        """See `TinyEngine.forward`."""
        self.passes += 1
        with self.log.open("a") as log:
            print("begin", sum(len(r.append) for r in rows), file=log, flush=True)
            time.sleep(LONG_S if self.passes == self.long_pass else self.pass_s)
            result = super().forward(rows)
            print("end", file=log, flush=True)
        return result


if __name__ == "__main__":
    SlowEngine.pass_s = float(sys.argv[1]) / 1000
    SlowEngine.long_pass = int(sys.argv[2])
    SlowEngine.log = Path(sys.argv[3])
    tiny.TinyEngine = SlowEngine  # type: ignore[misc]
    sys.exit(main(["verifier", *sys.argv[4:]]))
