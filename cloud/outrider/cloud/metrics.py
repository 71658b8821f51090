"""A verifier's numbers in Prometheus' terms. Labels are few and known beforehand: nothing that peers say and no name
of theirs becomes one.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from outrider.cloud.observer import AnswerEnd, Observer, PassReport
from outrider.cloud.verifier import Verifier
from outrider.shared.errors import Reason
from outrider.shared.messages import FinishReason

_NS = 1e-9
_QUEUE_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_PASS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 120)
_ANSWER_S = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 180, 600)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SESSIONS = (1, 2, 4, 8, 16, 32, 64, 128, 255)
_TOKENS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 32)


class Metrics(Observer):
    """Counts what a verifier tells, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._queue_s = self._histogram("queue_seconds", "How long a session waited for a pass.", _QUEUE_S)
        self._pass_s = self._histogram("pass_seconds", "How long a pass took.", _PASS_S)
        self._rows = self._histogram("pass_rows", "Rows of a pass.", _ROWS)
        self._sessions = self._histogram("pass_sessions", "Sessions in a pass.", _SESSIONS)
        self._tokens = self._histogram("tokens_per_pass", "Tokens that one session got from one pass.", _TOKENS)
        self._first_token_s = self._histogram("first_token_seconds", "From Open to the first token.", _ANSWER_S)
        self._answer_s = self._histogram("answer_seconds", "From Open to the end of an answer.", _ANSWER_S)
        self._committed = self._counter("committed_tokens", "Tokens that have become final.")
        self._checked = self._counter("checked_nodes", "Guesses that were checked.")
        self._accepted = self._counter("accepted_nodes", "Guesses that were right.")
        self._failed = self._counter("failed_passes", "Passes that failed.")
        self._grow_bytes = self._counter("grow_bytes", "Size of Grow messages.")
        self._refusals = Counter(
            "outrider_refusals", "Calls that ended with an error.", ["reason"], registry=self.registry
        )
        self._answers = Counter("outrider_answers", "Answers that ended.", ["reason"], registry=self.registry)
        # A series that begins at its first event hides that event from every rate.
        for reason in Reason:
            self._refusals.labels(reason.value)
        for finish in FinishReason:
            self._answers.labels(finish.value)

    def watch(self, verifier: Verifier) -> None:
        """Add how busy `verifier` is, at each scrape, and what it serves."""
        info = verifier.info()
        served = {
            "model": info.model,
            "engine": info.engine,
            "numerics": info.numerics,
            "version": info.software_version,
        }
        Info("outrider_verifier", "What is served.", registry=self.registry).info(served)
        self.registry.register(_UsageCollector(verifier))

    def on_grow(self, size: int) -> None:
        """See `Observer.on_grow`."""
        self._grow_bytes.inc(size)

    def on_finished(self, end: AnswerEnd) -> None:
        """See `Observer.on_finished`."""
        self._answers.labels(end.reason.value).inc()
        self._answer_s.observe(end.total_s)
        if end.first_token_s is not None:
            self._first_token_s.observe(end.first_token_s)

    def on_refused(self, reason: Reason) -> None:
        """See `Observer.on_refused`."""
        self._refusals.labels(reason.value).inc()

    def on_pass(self, report: PassReport) -> None:
        """See `Observer.on_pass`."""
        self._pass_s.observe(report.pass_ns * _NS)
        self._rows.observe(report.rows)
        self._sessions.observe(len(report.shares))
        for share in report.shares:
            self._queue_s.observe(share.queue_ns * _NS)
        if report.failed:
            self._failed.inc()
            return
        for share in report.shares:
            self._checked.inc(share.checked_count)
            self._accepted.inc(share.accepted_count)
            self._committed.inc(share.token_count)
            # A pass that only reads a prompt gives none, which says nothing of guesses.
            if share.token_count:
                self._tokens.observe(share.token_count)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"outrider_{name}", text, buckets=buckets, registry=self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"outrider_{name}", text, registry=self.registry)


class _UsageCollector(Collector):
    """Asks the verifier when it is asked itself; in the thread of the scrape."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        usage = self._verifier.usage()
        slots = GaugeMetricFamily("outrider_slots", "Slots of the target by use.", labels=["state"])
        total = self._verifier.info().limits.max_sessions
        slots.add_metric(["free"], usage.free_slots)
        slots.add_metric(["parked"], usage.parked_slots)
        slots.add_metric(["open"], max(0, total - usage.free_slots - usage.parked_slots))
        yield slots
        yield GaugeMetricFamily("outrider_streams", "Decode streams.", usage.streams)
        yield GaugeMetricFamily("outrider_open_sessions", "Sessions with a stream or in a pass.", usage.open_sessions)
        yield GaugeMetricFamily("outrider_waiting_sessions", "Sessions that want a pass.", usage.waiting_sessions)
        yield GaugeMetricFamily("outrider_cached_tokens", "Tokens that all slots have cached.", usage.cached_tokens)
        yield GaugeMetricFamily("outrider_serving", "1 while answers can be had.", int(usage.is_serving))
