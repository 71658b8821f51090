"""Small operations on sequences of token ids."""

from __future__ import annotations

from collections.abc import Sequence


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Number of leading ids in which the two agree."""
    limit = min(len(first), len(second))
    # The usual case, compared in one go.
    if list(first[:limit]) == list(second[:limit]):
        return limit
    for index, (mine, theirs) in enumerate(zip(first, second, strict=False)):
        if mine != theirs:
            return index
    return limit
