"""A soak from its beginning to its verdict. Two kinds of findings: what a worker met (a wrong answer, an error nobody
provoked), and what the verifier did not give back.

Flat is a process whose medians of the last quarter, after a warm-up of a fifth of the time, are no more than a
`Tolerance` above those of the first. Of the edge, which is the soak itself with all its proxies, threads and open
files are judged so; its memory is shown only. At the end nobody is there, no session is open or parked, all slots are
free, and threads and open files are as few as before. Freed slots keep stale cache until they are used again: then
all slots are opened at once with short prompts, which none may lack and which must leave next to nothing cached.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from outrider.edge.agent import Agent
from outrider.edge.link import VerifierClient
from outrider.harness.helper_process import HelperProcess, helper_process
from outrider.harness.soak.churn import Case, Worker, make_cases
from outrider.harness.soak.flatness import Tolerance, Trend, growth, trend
from outrider.harness.soak.usage import Sessions, Taken, Watch, sessions, taken
from outrider.shared.errors import OutriderError
from outrider.shared.messages import Open
from outrider.shared.sampling.options import Sampling

SLOTS = 64
CASES = 200
# Of an empty verifier, above what it had before anybody came: threads that are kept for more work.
MORE_THREADS, MORE_FILES = 4, 2
_SHORT = Open(prompt_ids=(257, 104, 258), sampling=Sampling(max_tokens=4), seed=1, max_tokens=4)


@dataclass(frozen=True, slots=True)
class SoakConfig:
    """`seconds` of churn by `workers` that `seed` repeats (times are the machine's own). A session without a stream is
    kept for `parked_s`; `quiet_s` later the verifier must be empty. `leak` is for tests, see `soak.server`.
    """

    seconds: float
    workers: int = 16
    seed: int = 1
    parked_s: float = 4.0
    quiet_s: float = 20.0
    leak: str = "none"
    tolerance: Tolerance = field(default_factory=Tolerance)
    edge_tolerance: Tolerance = field(default_factory=lambda: Tolerance(rss_share=math.inf, rss_bytes=1 << 60))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was done, how the processes developed, and what is wrong, in words: nothing if all is well."""

    counts: Counter[str]
    verifier: Trend
    edge: Trend
    most: Sessions
    end: Sessions
    failures: list[str]

    def __str__(self) -> str:
        lines = [
            ", ".join(f"{count} {word}" for word, count in sorted(self.counts.items())),
            f"verifier: {self.verifier}",
            f"edge: {self.edge}",
            f"at most {_in_words(self.most)}",
            f"at the end {_in_words(self.end)}, {self.end.free_slots} of {SLOTS} slots free",
            *(f"FAILED: {failure}" for failure in self.failures),
        ]
        return "\n".join([*lines, *([] if self.failures else ["ok"])])


def _in_words(gauges: Sessions) -> str:
    return f"{gauges.open} sessions open, {gauges.parked_slots} parked, {gauges.cached_tokens} tokens cached"


async def soak(config: SoakConfig) -> Verdict:
    """Run one."""
    cases = await asyncio.to_thread(make_cases, random.Random(config.seed), CASES)
    counts: Counter[str] = Counter()
    async with _verifier(config) as verifier:
        metrics = str(verifier.said["metrics"])
        # What is made once, by the first that comes, belongs to nobody.
        async with Agent.connect(verifier.address, drafter="none") as agent:
            await agent.answer("first", Sampling(max_tokens=4))
        await sessions(metrics)
        await asyncio.sleep(config.parked_s + 1)
        before = taken(verifier.pid, 0)
        watch = Watch(verifier.pid, metrics)
        failures = await _churn(config, verifier.address, cases, counts, watch)
        end = watch.sessions[-1]
        # Where a worker has failed others were broken off: what is left then says nothing.
        if not failures:
            failures += await _emptied(config, metrics)
            failures += await _all_slots_serve(verifier.address, metrics)
            failures += await _emptied(config, metrics)
            end, after = await sessions(metrics), taken(verifier.pid, 0)
            failures += _not_given_back(before, after, end)
    trends = trend(watch.verifier), trend(watch.edge)
    failures += growth("verifier", trends[0], config.tolerance)
    failures += growth("edge", trends[1], config.edge_tolerance)
    most = max(watch.sessions, key=lambda s: s.open)
    most = replace(
        most,
        parked_slots=max(s.parked_slots for s in watch.sessions),
        cached_tokens=max(s.cached_tokens for s in watch.sessions),
    )
    return Verdict(counts, *trends, most, end, failures)


@contextlib.asynccontextmanager
async def _verifier(config: SoakConfig) -> AsyncIterator[HelperProcess]:
    arguments = (
        str(config.parked_s), config.leak, "--target", "tiny", "--context", "1024", "--listen", "127.0.0.1:0", "--json",
        "--metrics", "127.0.0.1:0", "--max-sessions", str(SLOTS), "--stop-with-stdin", "--log-level", "error",
    )  # fmt: skip
    async with helper_process("the verifier", "outrider.harness.soak.server", arguments) as helper:
        yield helper


async def _churn(
    config: SoakConfig, address: str, cases: list[Case], counts: Counter[str], watch: Watch
) -> list[str]:  # fmt: skip
    """Let all workers churn while `watch` watches; the first that fails ends it. Returns what went wrong."""
    until_s = asyncio.get_running_loop().time() + config.seconds
    watching = asyncio.create_task(watch.run())
    workers = [
        asyncio.create_task(Worker(f"{config.seed}/{index}", cases, counts).run(address, until_s))
        for index in range(config.workers)
    ]
    tasks = [watching, *workers]
    try:
        while not all(worker.done() for worker in workers):
            # Whoever is done too early has failed; the watch never is.
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if any(task.exception() for task in done):
                break
            tasks = [task for task in tasks if not task.done()]
    finally:
        for task in [watching, *workers]:
            task.cancel()
        results = await asyncio.gather(watching, *workers, return_exceptions=True)
    return [_told(error) for error in results if isinstance(error, Exception)]


def _told(error: Exception) -> str:
    return "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])


async def _emptied(config: SoakConfig, metrics: str) -> list[str]:
    """Wait until nobody is there and nothing is kept any more."""
    now = await sessions(metrics)
    for _ in range(int(config.parked_s + config.quiet_s)):
        if now.is_quiet and now.free_slots == SLOTS:
            return []
        await asyncio.sleep(1)
        now = await sessions(metrics)
    return [f"the verifier is not empty {config.parked_s + config.quiet_s:g} s after the last edge left: {now}"]


async def _all_slots_serve(address: str, metrics: str) -> list[str]:
    """Open a session in each slot at once, and see that no old cache is left."""
    async with contextlib.AsyncExitStack() as stack:
        client = VerifierClient(address, own_connection=True)
        stack.push_async_callback(client.close)
        links = [client.open_stream() for _ in range(SLOTS)]
        for link in links:
            stack.callback(link.abandon)
            await link.send(_SHORT)
        try:
            for link in links:
                await link.receive()
        except OutriderError as error:
            return [f"not all slots can be had at the end: {error.message}"]
        cached = (await sessions(metrics)).cached_tokens
    most = SLOTS * (len(_SHORT.prompt_ids) + _SHORT.max_tokens)
    return [f"{cached} tokens are cached in slots that are all new, at most {most}"] if cached > most else []


def _not_given_back(before: Taken, after: Taken, end: Sessions) -> list[str]:
    found = {
        f"threads {before.threads} before and {after.threads} after": after.threads - before.threads > MORE_THREADS,
        f"open files {before.files} before and {after.files} after": after.files - before.files > MORE_FILES,
        f"{end.failed_passes} passes failed": end.failed_passes > 0,
        f"{end.internal_errors} calls ended with INTERNAL": end.internal_errors > 0,
    }
    return [f"verifier: {text}" for text, is_wrong in found.items() if is_wrong]
