"""Churn on a verifier process for a long time: edges that connect, are cut off, cancel, vanish and come back, each
whole answer compared with the target alone. Memory, threads, open files, sessions and cache must be flat; what that
means is said in `harness/outrider/harness/soak/run.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from outrider.harness.soak.run import SoakConfig, soak
from outrider.harness.soak.server import LEAKS


def main() -> int:
    """1 if something grew, was not given back, or an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--leak", choices=LEAKS, default="none", help="let the verifier leak: the soak must fail")
    options = parser.parse_args()
    config = SoakConfig(60 * options.minutes, options.workers, options.seed, leak=options.leak)
    # Which agents change their pace, and why, is no news.
    logging.disable(logging.WARNING)
    verdict = asyncio.run(soak(config))
    print(verdict)
    return 1 if verdict.failures else 0


if __name__ == "__main__":
    sys.exit(main())
