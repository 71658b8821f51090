"""The rival in the data centre: draft and target model on one accelerator, as serving engines run them. All sessions
draft γ tokens together, step by step, then one pass checks all of them; readers get their tokens over the same links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from outrider.cloud.session import SessionLimits
from outrider.cloud.target import PassWork
from outrider.cloud.targets.base import ROOT_PARENT, SlotRows
from outrider.cloud.walk import WalkResult, WalkRules
from outrider.edge.drafters.base import propose_one
from outrider.edge.stats import AnswerStats
from outrider.harness import virtual_time
from outrider.harness.links import Channel, Direction
from outrider.harness.recording.format import Recording
from outrider.harness.replay_drafter import DeviceClock, ReplayDrafter, ReplayDraftSession
from outrider.harness.simulation.decode import stagger_s
from outrider.harness.simulation.measures import AnswerTrace, Run
from outrider.harness.simulation.setup import Setup
from outrider.harness.simulation.virtual_run import replay_target
from outrider.shared.convert import cloud_message_to_pb, edge_message_to_pb
from outrider.shared.messages import Commit, Open
from outrider.shared.sampling.choose import Chooser


def run_colocated(setup: Setup, gamma: int) -> Run:
    """All sessions of `setup` served by co-located speculation with `gamma` guesses a round, on the virtual clock."""
    return virtual_time.run(_Colocated(setup, gamma).run())


@dataclass(slots=True)
class _Stream:
    """One answer in the server; `slot` is its session's number."""

    slot: int
    recording: Recording
    request: Open
    rules: WalkRules
    draft: ReplayDraftSession
    down: Channel
    answer: list[int] = field(default_factory=list)
    undrafted: int = 0
    updates: list[tuple[float, int]] = field(default_factory=list)
    accepted: int = 0
    stats: AnswerStats = field(default_factory=AnswerStats)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def missing(self, cached_length: int) -> list[int]:
        """Tokens that the target has not cached."""
        return [*self.request.prompt_ids, *self.answer][cached_length:]


class _Colocated:
    """The engine's loop, and a reader a session."""

    def __init__(self, setup: Setup, gamma: int) -> None:
        self._setup = setup
        self._gamma = gamma
        self._target = replay_target(setup)
        # Its time is counted for all sessions at once, below.
        self._drafter = ReplayDrafter(setup.recordings, DeviceClock(lambda rows, busy_s: 0.0))
        self._prefill_chunk = SessionLimits().prefill_chunk
        self._streams: list[_Stream] = []
        self._joined = asyncio.Event()
        self._traces: list[AnswerTrace] = []
        self._other_tokens = 0

    async def run(self) -> Run:
        """Serve until each session has its quota of answers."""
        quotas = [asyncio.Event() for _ in range(self._setup.sessions)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._serve(), name="engine")]
            tasks += [group.create_task(self._read(number, quota)) for number, quota in enumerate(quotas)]
            for quota in quotas:
                await quota.wait()
            for task in tasks:
                task.cancel()
        other_tokens = self._other_tokens + sum(len(stream.answer) for stream in self._streams)
        return Run(tuple(self._traces), self._target.passes, (), other_tokens)

    async def _read(self, session: int, quota_done: asyncio.Event) -> None:
        """A reader, who asks one prompt after the other."""
        await asyncio.sleep(stagger_s(session))
        loop = asyncio.get_running_loop()
        up, down = (Channel(self._setup.link, way, self._setup.seed + session) for way in Direction)
        overhead = self._setup.link.overhead_bytes
        judged = self._setup.judged(session)
        for number in count():
            if number == judged:
                quota_done.set()
            asked_s = loop.time()
            stream = self._make_stream(session, number, down)
            sizes = [part.ByteSize() + overhead for part in edge_message_to_pb(stream.request)]
            await asyncio.sleep(max(up.arrival_s(asked_s, size) for size in sizes) - asked_s)
            await self._target.rewind(session, 0)
            self._streams.append(stream)
            self._joined.set()
            await stream.done.wait()
            await asyncio.sleep(stream.updates[-1][0] - loop.time())
            if number < judged:
                trace = AnswerTrace(
                    stream.recording.header.id, asked_s, tuple(stream.updates), stream.accepted, stream.stats
                )
                self._traces.append(trace)
            else:
                self._other_tokens += len(stream.answer)

    def _make_stream(self, session: int, number: int, down: Channel) -> _Stream:
        recording = self._setup.recording(session, number)
        request = recording.open_request(self._setup.max_tokens)
        known = recording.header.vocabulary
        chooser = Chooser(request.sampling, request.seed, request.prompt_ids, known.size)
        return _Stream(
            slot=session,
            recording=recording,
            request=request,
            rules=WalkRules(chooser, frozenset(known.stop_ids), request.max_tokens),
            draft=self._drafter.open(request.prompt_ids, chooser),
            down=down,
            undrafted=len(request.prompt_ids),
        )

    async def _serve(self) -> None:
        """Draft, pass, deliver, for ever."""
        while True:
            if not self._streams:
                self._joined.clear()
                await self._joined.wait()
            streams = tuple(self._streams)
            ready = [stream for stream in streams if len(stream.missing(self._target.cached_length(stream.slot))) == 1]
            draft_s, guesses = await self._draft(ready)
            work = [self._work(stream, guesses.get(stream.slot, [])) for stream in streams]
            results = await self._target.run_pass(work)
            self._target.passes[-1] = replace(self._target.passes[-1], draft_s=draft_s)
            for stream, item, result in zip(streams, work, results, strict=True):
                if result is not None:
                    self._deliver(stream, item, result)

    async def _draft(self, streams: Sequence[_Stream]) -> tuple[float, dict[int, list[int]]]:
        """γ guesses for each stream by its slot, and the time they took; a step feeds all streams at once."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        guesses: dict[int, list[int]] = {stream.slot: [] for stream in streams}
        for _ in range(self._gamma):
            drafting = [stream for stream in streams if self._may_draft(stream, guesses[stream.slot])]
            if not drafting:
                break
            rows = sum(stream.undrafted for stream in drafting)
            await asyncio.sleep(self._setup.cloud_drafter.pass_ms(rows, len(drafting)) / 1000)
            for stream in drafting:
                stream.undrafted = 1
                proposals = await propose_one(stream.draft, [*stream.answer, *guesses[stream.slot]], 1)
                guesses[stream.slot].extend(proposal.token for proposal in proposals)
        return loop.time() - began_s, guesses

    @staticmethod
    def _may_draft(stream: _Stream, guesses: list[int]) -> bool:
        """Whether the last guess was no stop id and the answer has room for another beside the pass's own token."""
        is_stopped = bool(guesses) and guesses[-1] in stream.rules.stop_ids
        return not is_stopped and len(stream.answer) + len(guesses) < stream.rules.end - 1

    def _work(self, stream: _Stream, guesses: list[int]) -> PassWork:
        missing = stream.missing(self._target.cached_length(stream.slot))
        if len(missing) > self._prefill_chunk:
            return PassWork(SlotRows(stream.slot, missing[: self._prefill_chunk], want_logits=False))
        rows = SlotRows(stream.slot, missing, tuple(guesses), tuple(range(ROOT_PARENT, len(guesses) - 1)))
        return PassWork(rows, tuple(stream.answer), stream.rules)

    def _deliver(self, stream: _Stream, work: PassWork, result: WalkResult) -> None:
        """Take a verdict in, and send it to the reader as the product's own Commit would be."""
        accepted = [work.rows.node_tokens[node] for node in result.path]
        tokens = accepted if result.correction is None else [*accepted, result.correction]
        base = len(stream.answer)
        stream.answer.extend(tokens)
        # What the drafter is fed next: the token it has not seen, or two after a round that was taken whole.
        stream.undrafted = 1 + int(bool(accepted) and len(accepted) == len(work.rows.node_tokens))
        commit = Commit(base, 0, tuple(tokens), len(stream.answer), hash=1 << 31, checked_count=result.checked_count)
        size = cloud_message_to_pb(commit).ByteSize()
        arrives_s = stream.down.arrival_s(asyncio.get_running_loop().time(), size + self._setup.link.overhead_bytes)
        stream.updates.append((arrives_s, len(tokens)))
        stream.accepted += len(accepted)
        stream.stats.drafted += len(work.rows.node_tokens)
        stream.stats.downlink_bytes += size
        stream.stats.on_commit(commit, len(accepted))
        if result.finish is not None:
            self._streams.remove(stream)
            stream.done.set()
