"""Who watches a verifier, as the operator says: metrics, traces, both or nobody. The packages that either needs are
loaded only then.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.cloud.observer import Observer, Observers
from outrider.cloud.verifier import Verifier
from outrider.shared.errors import OutriderError, Reason

if TYPE_CHECKING:
    from outrider.cloud.metrics import Metrics


@dataclass(frozen=True, slots=True)
class WatchConfig:
    """Where to show metrics ("HOST:PORT", port 0 picks a free one; None: nowhere), whether others may read them, and
    whether to export traces.
    """

    metrics: str | None = None
    metrics_public: bool = False
    telemetry: bool = False


@dataclass(frozen=True, slots=True)
class Watch:
    """What watches; `observer` is None if nobody does."""

    observer: Observer | None = None
    _metrics: Metrics | None = None
    _listen: str = ""

    @contextlib.asynccontextmanager
    async def shown(self, verifier: Verifier) -> AsyncIterator[str | None]:
        """Show the metrics of `verifier` inside the context; yields HOST:PORT, None without metrics."""
        if self._metrics is None:
            yield None
            return
        from outrider.cloud.exposition import exposed  # noqa: PLC0415 - see above

        self._metrics.watch(verifier)
        async with exposed(self._metrics.registry, self._listen) as address:
            yield address


def check_watch(config: WatchConfig) -> None:
    """Raise USAGE for what cannot be had here, LISTEN_NOT_LOOPBACK for metrics that everybody could read."""
    if config.metrics is not None:
        with _needs("--metrics", "cloud"):
            from outrider.cloud.exposition import check_metrics_reach  # noqa: PLC0415 - see above
        check_metrics_reach(config.metrics, config.metrics_public)
    elif config.metrics_public:
        raise OutriderError(Reason.USAGE, "--metrics-public: expected --metrics with it.")
    if config.telemetry:
        with _needs("--telemetry", "telemetry"):
            import outrider.cloud.telemetry  # noqa: F401, PLC0415 - see above


@contextlib.asynccontextmanager
async def watching(config: WatchConfig) -> AsyncIterator[Watch]:
    """What the configuration says, checked before."""
    async with contextlib.AsyncExitStack() as stack:
        observers: list[Observer] = []
        metrics = None
        if config.metrics is not None:
            from outrider.cloud.metrics import Metrics  # noqa: PLC0415 - see above

            metrics = Metrics()
            observers.append(metrics)
        if config.telemetry:
            from outrider.cloud.telemetry import exported  # noqa: PLC0415 - see above

            observers.append(await stack.enter_async_context(exported()))
        yield Watch(Observers(observers) if observers else None, metrics, config.metrics or "")


@contextlib.contextmanager
def _needs(option: str, extra: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise OutriderError(Reason.USAGE, f"{option} needs {package}. Run: pip install 'outrider[{extra}]'") from error
