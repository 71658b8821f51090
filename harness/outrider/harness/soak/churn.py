"""One worker of a soak: an edge on a link of its own that asks, leaves, is cut off, vanishes and comes back, as its
seed says. Whatever answer it hears whole must be the target's own; any error that was not provoked is its failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from outrider.edge.agent import Agent, AnswerOptions
from outrider.edge.link import VerifierClient
from outrider.harness.delay_proxy import DelayProxy
from outrider.harness.links import Cut, make_link_profile
from outrider.harness.soak.raw_session import RawSession
from outrider.harness.tiny_answers import target_alone
from outrider.shared.access import split_address
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import Open
from outrider.shared.sampling.options import Sampling

DRAFTERS = ("none", "tiny:0.5", "tiny:2", "tiny:0.5+lookup")
PACES = (None, "patient", "eager")
ACTION_LIMIT_S = 60.0
PAUSE_S = 0.2
# A half-open end outlives every keepalive, so that it is the silence that is noticed.
HALF_OPEN_MS = 8_000.0
_BAD_TOKEN = 1 << 20
_LINK = make_link_profile({"up_ms": 2, "down_ms": 2}, "soak")


@dataclass(frozen=True, slots=True)
class Case:
    """A request and the answer of the target alone."""

    request: Open
    answer: list[int]


def make_cases(rng: random.Random, count: int) -> list[Case]:
    """`count` requests of all kinds of sampling, with their answers."""
    return [_make_case(rng) for _ in range(count)]


def _make_case(rng: random.Random) -> Case:
    sampling = Sampling(
        max_tokens=rng.randint(20, 160),
        temperature=rng.choice((0.0, 0.8, 1.2)),
        repetition_penalty=rng.choice((1.0, 1.1)),
        seed=rng.randrange(1 << 32),
        # Most answers do not end by themselves: there is a middle to be cut in.
        logit_bias=rng.choice(({256: -100.0}, {256: -100.0}, {})),
    )
    prompt = (257, *(rng.randrange(97, 123) for _ in range(rng.randint(1, 300))), 258)
    request = Open(prompt_ids=prompt, sampling=sampling, seed=sampling.seed or 0, max_tokens=sampling.max_tokens)
    return Case(request, target_alone(request))


class Worker:
    """Counts what it did in `counts`, under the words of the summary."""

    def __init__(self, seed: str, cases: list[Case], counts: Counter[str]) -> None:
        self._rng = random.Random(seed)
        self._cases = cases
        self._counts = counts
        self._earlier = ""
        self._silent_until_s = 0.0
        self._actions: list[tuple[Callable[[Agent], Awaitable[None]], int]] = [
            (self._whole, 4), (self._cancel, 3), (self._cut, 3), (self._resume, 2), (self._vanish, 2),
            (self._walk_away, 2), (self._refused, 2),
        ]  # fmt: skip

    async def run(self, verifier: str, until_s: float) -> None:
        """Churn until the loop's clock says `until_s`; raises AssertionError for a wrong answer, naming what was done,
        and whatever else should not have happened.
        """
        host, port = split_address(verifier)
        self._proxy = DelayProxy(_LINK, 1, host, int(port))
        server = await self._proxy.listen("127.0.0.1", 0)
        self._address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            while asyncio.get_running_loop().time() < until_s:
                async with contextlib.AsyncExitStack() as stack:
                    agent = await self._connect(stack)
                    for _ in range(self._rng.randint(1, 5)):
                        await self._act(agent)
                self._proxy.late_s.clear()
            # What half-open connections are left end here.
            self._proxy.cut(Cut(at_s=0))

    async def _connect(self, stack: contextlib.AsyncExitStack) -> Agent:
        """An agent, which may share the connection of the one before; that may be one of which the edge has not noticed
        yet that it is silent. Connecting is then refused, and only then.
        """
        drafter, pace = self._rng.choice(DRAFTERS), self._rng.choice(PACES)
        while True:
            try:
                return await stack.enter_async_context(Agent.connect(self._address, drafter, pace=pace))
            except OutriderError as error:
                now_s = asyncio.get_running_loop().time()
                if error.reason is not Reason.VERIFIER_UNREACHABLE or now_s > self._silent_until_s:
                    error.add_note("in Agent.connect")
                    raise
                self._counts["connected again"] += 1

    async def _act(self, agent: Agent) -> None:
        actions, weights = zip(*self._actions, strict=True)
        (action,) = self._rng.choices(actions, weights)
        try:
            async with asyncio.timeout(ACTION_LIMIT_S):
                await action(agent)
        except Exception as error:
            error.add_note(f"in {action.__name__} with drafter {agent.drafting.drafter}")
            raise
        await asyncio.sleep(self._rng.uniform(0, PAUSE_S))

    def _case(self) -> Case:
        return self._rng.choice(self._cases)

    async def _whole(self, agent: Agent) -> None:
        """An answer, read to its end; may take over what an earlier one has cached."""
        await self._answer(agent, self._case(), cuts=0)

    async def _cut(self, agent: Agent) -> None:
        """An answer whose connection is cut once or twice."""
        await self._answer(agent, self._case(), cuts=self._rng.randint(1, 2))

    async def _answer(self, agent: Agent, case: Case, cuts: int) -> None:
        request, seen, result = case.request, 0, None
        places = sorted(self._rng.randrange(len(case.answer)) for _ in range(cuts))
        options = AnswerOptions(prefix_of=self._rng.choice(("", self._earlier)))
        async for chunk in agent.stream_ids(request.prompt_ids, request.sampling, options):
            seen += len(chunk.token_ids)
            result = chunk.result
            while places and seen > places[0] and result is None:
                places.pop(0)
                self._cut_now()
        assert result is not None
        check(case, result.committed_ids)
        self._earlier = result.session_id
        self._counts["answers"] += 1
        self._counts["further streams"] += result.stats["streams"] - 1

    def _cut_now(self) -> None:
        """A reset, an orderly end, or a link of which one side hears nothing for long."""
        edge_ms, cloud_ms = self._rng.choice(((0, 0), (0, 0), (0, HALF_OPEN_MS), (HALF_OPEN_MS, 0)))
        kind = self._rng.choice(("rst", "fin"))
        self._proxy.cut(Cut.model_validate(
            {"at_s": 0, "kind": kind, "edge_notice_ms": edge_ms, "cloud_notice_ms": cloud_ms}
        ))  # fmt: skip
        if edge_ms:
            self._silent_until_s = asyncio.get_running_loop().time() + edge_ms / 1000
        self._counts["half-open cuts" if edge_ms or cloud_ms else "cuts"] += 1

    async def _cancel(self, agent: Agent) -> None:
        """An answer that is left in the middle."""
        case = self._case()
        enough, ids = self._rng.randrange(len(case.answer)), list[int]()
        async with contextlib.aclosing(agent.stream_ids(case.request.prompt_ids, case.request.sampling)) as chunks:
            async for chunk in chunks:
                ids += chunk.token_ids
                if len(ids) > enough:
                    break
        assert ids == case.answer[: len(ids)], "the part that was read differs from the target's"
        self._counts["cancelled"] += 1

    async def _resume(self, agent: Agent) -> None:
        """An answer that breaks off and goes on over another connection."""
        case = self._case()
        async with self._client() as first, self._client() as second:
            session = RawSession(case.request)
            await session.open(first, self._rng.randrange(len(case.answer)))
            await session.resume(second)
        check(case, session.ids)
        self._counts["answers"] += 1
        self._counts["resumed"] += 1

    async def _vanish(self, agent: Agent) -> None:
        """Open, hear a part, and be gone without a word; sometimes the verifier is not even told by its socket."""
        case = self._case()
        async with self._client() as client:
            await RawSession(case.request).open(client, self._rng.randrange(len(case.answer)))
            if self._rng.random() < 0.3:
                self._proxy.cut(Cut(at_s=0, cloud_notice_ms=HALF_OPEN_MS))
        self._counts["vanished"] += 1

    async def _walk_away(self, agent: Agent) -> None:
        """Say Open and wait for nothing, or hardly."""
        async with self._client() as client:
            link = client.open_stream()
            await link.send(self._case().request)
            await asyncio.sleep(self._rng.choice((0, 0, 0.002, 0.01)))
            link.abandon()
        self._counts["walked away"] += 1

    async def _refused(self, agent: Agent) -> None:
        """A token that there is not, in a prompt or among guesses."""
        case = self._case()
        try:
            async with self._client() as client:
                if self._rng.random() < 0.5:
                    await RawSession(case.request).open(client, 0, prompt_ids=(257, _BAD_TOKEN))
                else:
                    await RawSession(case.request).open(client, 0, guess=_BAD_TOKEN)
        except OutriderError as error:
            if error.reason is not Reason.TOKEN_OUT_OF_RANGE:
                raise
        else:
            raise AssertionError("a token out of range was not refused")
        self._counts["refused"] += 1

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[VerifierClient]:
        client = VerifierClient(self._address, own_connection=True)
        try:
            yield client
        finally:
            await client.close()


def check(case: Case, ids: list[int]) -> None:
    """Assert that a whole answer is the target's own."""
    assert ids == case.answer, f"an answer of {len(ids)} ids differs from the target's {len(case.answer)}"
