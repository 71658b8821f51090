"""Shorthand for tests of refusals: the reason is what counts, not only that something was raised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from outrider.shared.errors import OutriderError, Reason


@contextmanager
def refused(reason: Reason, *parts: str) -> Iterator[None]:
    """Expect an `OutriderError` of `reason` whose detail holds all `parts`."""
    with pytest.raises(OutriderError) as caught:
        yield
    assert caught.value.reason is reason, f"{caught.value.reason}: {caught.value.detail}"
    for part in parts:
        assert part in caught.value.detail
