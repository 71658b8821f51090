"""What watches a verifier may fail: the answers go on, and the others that watch hear all."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import pytest

from outrider.cloud.observer import Metadata, Observer, Observers, PassReport
from outrider.shared.errors import Reason

PASS = PassReport((), 5)


class Ear(Observer):
    def __init__(self) -> None:
        self.heard: list[object] = []

    @contextlib.contextmanager
    def stream(self, metadata: Metadata) -> Iterator[None]:
        self.heard.append("begin")
        try:
            yield
        except ValueError as error:
            self.heard.append(error)
            raise
        finally:
            self.heard.append("end")

    def on_refused(self, reason: Reason) -> None:
        self.heard.append(reason)

    def on_pass(self, report: PassReport) -> None:
        self.heard.append(report)


class FailsAtTheBeginning(Observer):
    def stream(self, metadata: Metadata) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        raise RuntimeError("no stream")

    def on_pass(self, report: PassReport) -> None:
        raise RuntimeError("no pass")


class FailsAtTheEnd(Observer):
    @contextlib.contextmanager
    def stream(self, metadata: Metadata) -> Iterator[None]:
        try:
            yield
        finally:
            raise RuntimeError("no end")


@pytest.mark.parametrize("broken", [FailsAtTheBeginning(), FailsAtTheEnd()])
@pytest.mark.parametrize("first", [True, False])
def test_one_that_fails_harms_neither_the_stream_nor_the_others(
    broken: Observer, first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ear = Ear()
    observers = Observers([broken, ear] if first else [ear, broken])
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            with observers.stream(()):
                observers.on_refused(Reason.INTERNAL)
                observers.on_pass(PASS)
    assert ear.heard == ["begin", Reason.INTERNAL, PASS, "end"] * 3
    assert len(caplog.records) == 1, "said once"


@pytest.mark.parametrize("others", [[], [FailsAtTheBeginning()], [FailsAtTheEnd()]])
def test_the_streams_own_error_is_seen_and_goes_on(others: list[Observer]) -> None:
    ear, error = Ear(), ValueError("the stream's own")
    with pytest.raises(ValueError, match="own") as caught, Observers([ear, *others]).stream(()):
        raise error
    assert caught.value is error
    assert ear.heard == ["begin", error, "end"]
