"""Everything a peer may send wrong over a real gRPC stream is refused with its reason, and a neighbour goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outrider.cloud.session import PassTiming, Session, SessionLimits
from outrider.cloud.target import EngineTarget
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.cloud.walk import WalkResult
from outrider.edge.agent import Agent
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import CloudMessage, EdgeMessage, Grow, Open
from outrider.shared.sampling.options import Sampling
from outrider.v1 import verifier_pb2 as pb
from support.serving import RawStream, grow_request, open_request, raw_stream, serving

NAN, INF = float("nan"), float("inf")
PADDED = 262  # a row of the tiny model's head that stands for no token

BAD_OPENS: list[tuple[str, dict[str, Any], Reason]] = [
    ("empty prompt", {"prompt_ids": []}, Reason.PROMPT_EMPTY),
    ("prompt id past the vocabulary", {"prompt_ids": [1, 260]}, Reason.TOKEN_OUT_OF_RANGE),
    ("prompt id 2**31-1", {"prompt_ids": [2**31 - 1]}, Reason.TOKEN_OUT_OF_RANGE),
    ("prompt id -1 as uint32", {"prompt_ids": [2**32 - 1]}, Reason.TOKEN_OUT_OF_RANGE),
    ("padded prompt id", {"prompt_ids": [PADDED]}, Reason.TOKEN_OUT_OF_RANGE),
    ("padded stop id", {"stop_ids": [PADDED]}, Reason.TOKEN_OUT_OF_RANGE),
    ("padded committed id", {"committed_ids": [PADDED]}, Reason.TOKEN_OUT_OF_RANGE),
    ("padded bias id", {"sampling": {"logit_bias": {PADDED: 1.0}}}, Reason.TOKEN_OUT_OF_RANGE),
    ("bias id 2**31-1", {"sampling": {"logit_bias": {2**31 - 1: 1.0}}}, Reason.TOKEN_OUT_OF_RANGE),
    ("prompt fills the context", {"prompt_ids": [65] * 64}, Reason.PROMPT_TOO_LONG),
    ("prompt longer than the context", {"prompt_ids": [65] * 100}, Reason.PROMPT_TOO_LONG),
    ("no tokens wanted", {"max_tokens": 0}, Reason.SAMPLING_INVALID),
    ("negative temperature", {"sampling": {"temperature": -0.1}}, Reason.SAMPLING_INVALID),
    ("NaN temperature", {"sampling": {"temperature": NAN}}, Reason.SAMPLING_INVALID),
    ("infinite temperature", {"sampling": {"temperature": INF}}, Reason.SAMPLING_INVALID),
    ("top-p 0", {"sampling": {"top_p": 0.0}}, Reason.SAMPLING_INVALID),
    ("top-p above 1", {"sampling": {"top_p": 1.5}}, Reason.SAMPLING_INVALID),
    ("NaN top-p", {"sampling": {"top_p": NAN}}, Reason.SAMPLING_INVALID),
    ("negative min-p", {"sampling": {"min_p": -1.0}}, Reason.SAMPLING_INVALID),
    ("repetition penalty 0", {"sampling": {"repetition_penalty": 0.0}}, Reason.SAMPLING_INVALID),
    ("NaN presence penalty", {"sampling": {"presence_penalty": NAN}}, Reason.SAMPLING_INVALID),
    ("infinite frequency penalty", {"sampling": {"frequency_penalty": -INF}}, Reason.SAMPLING_INVALID),
    ("NaN bias", {"sampling": {"logit_bias": {1: NAN}}}, Reason.SAMPLING_INVALID),
    ("unknown feature", {"required_features": ["telepathy"]}, Reason.FEATURE_UNSUPPORTED),
    ("many unknown features", {"required_features": ["x"] * 1000}, Reason.FEATURE_UNSUPPORTED),
    ("committed ids leave nothing", {"committed_ids": [65] * 40}, Reason.OPEN_INVALID),
    ("too many stop ids", {"stop_ids": [65] * 1000}, Reason.OPEN_INVALID),
    ("too many biases", {"sampling": {"logit_bias": {i: 1.0 for i in range(5000)}}}, Reason.SAMPLING_INVALID),
    ("committed ids hold a stop id", {"committed_ids": [65, 256, 66]}, Reason.OPEN_INVALID),
    ("more ids than announced", {"prompt_length": 2}, Reason.OPEN_INVALID),
    ("absurd announced length", {"prompt_length": 2**31}, Reason.PROMPT_TOO_LONG),
]

BAD_GROWS: list[tuple[str, list[pb.DecodeRequest], Reason]] = [
    ("id past the vocabulary", [grow_request(1, [260])], Reason.TOKEN_OUT_OF_RANGE),
    ("padded id", [grow_request(1, [PADDED])], Reason.TOKEN_OUT_OF_RANGE),
    ("id 2**31-1", [grow_request(1, [2**31 - 1])], Reason.TOKEN_OUT_OF_RANGE),
    ("first id 0", [grow_request(0, [65])], Reason.GROW_MALFORMED),
    ("first id with a gap", [grow_request(3, [65])], Reason.GROW_MALFORMED),
    ("first id again", [grow_request(1, [65]), grow_request(1, [66])], Reason.GROW_MALFORMED),
    ("parent before the first id", [grow_request(1, [65], parents=[1])], Reason.PARENT_UNKNOWN),
    ("parent far before", [grow_request(1, [65, 66], parents=[0, 2**31])], Reason.PARENT_UNKNOWN),
    ("more parents than tokens", [grow_request(1, [65], parents=[0, 0])], Reason.GROW_MALFORMED),
    ("base ahead of the text", [grow_request(1, [65], base=30)], Reason.GROW_MALFORMED),
    ("one token twice", [grow_request(1, [65, 65], parents=[0, 0])], Reason.CHILD_DUPLICATE),
    ("a child of the stop id", [grow_request(1, [256, 65])], Reason.CHILD_OF_STOP),
    ("more nodes than the window", [grow_request(1, [65] * 33)], Reason.WINDOW_EXCEEDED),
    ("very many nodes", [grow_request(1, [65] * 5000)], Reason.GROW_MALFORMED),
    ("a second Open", [open_request()], Reason.OPEN_INVALID),
    ("an empty request", [pb.DecodeRequest()], Reason.MESSAGE_UNKNOWN),
    ("a prompt part out of place", [pb.DecodeRequest(prompt_part={"prompt_ids": [1]})], Reason.OPEN_EXPECTED),
]


def small_verifier() -> tuple[TinyEngine, VerifierConfig]:
    return TinyEngine(context_length=64), VerifierConfig(session=SessionLimits(window=32))


async def expect_refusal(stream: RawStream, reason: Reason) -> OutriderError:
    with pytest.raises(OutriderError) as refused:
        while True:
            await stream.receive()
    assert refused.value.reason is reason, refused.value.message
    assert refused.value.from_peer
    assert refused.value.exit_code == 3
    return refused.value


async def answer(agent: Agent) -> list[int]:
    chunks = [chunk async for chunk in agent.stream("neighbour", Sampling(max_tokens=30))]
    assert chunks[-1].result is not None
    return chunks[-1].result.token_ids


@pytest.mark.parametrize(("_name", "fields", "reason"), BAD_OPENS, ids=[case[0] for case in BAD_OPENS])
async def test_bad_open_is_refused_with_its_reason(_name: str, fields: dict[str, Any], reason: Reason) -> None:
    async with serving(*small_verifier()) as address, raw_stream(address) as stream:
        await stream.send(open_request(**fields))
        await expect_refusal(stream, reason)


@pytest.mark.parametrize(("_name", "requests", "reason"), BAD_GROWS, ids=[case[0] for case in BAD_GROWS])
async def test_bad_message_is_refused_and_a_neighbour_goes_on_unharmed(
    _name: str, requests: list[pb.DecodeRequest], reason: Reason
) -> None:
    async with (
        serving(*small_verifier()) as address,
        Agent.connect(address, drafter="tiny:0.5") as neighbour,
        raw_stream(address) as stream,
    ):
        before = await answer(neighbour)
        await stream.send(open_request())
        await stream.receive()
        for request in requests:
            await stream.send(request)
        await expect_refusal(stream, reason)
        assert await answer(neighbour) == before


async def test_refusal_names_the_place_and_the_value() -> None:
    async with serving(*small_verifier()) as address, raw_stream(address) as stream:
        await stream.send(open_request(prompt_ids=[1, 2, 260]))
        error = await expect_refusal(stream, Reason.TOKEN_OUT_OF_RANGE)
        assert "Open.prompt_ids[2] = 260" in error.message


@pytest.mark.parametrize("first", [grow_request(1, [65]), pb.DecodeRequest(close=pb.Close())])
async def test_a_stream_that_does_not_begin_with_open_is_refused(first: pb.DecodeRequest) -> None:
    async with serving(*small_verifier()) as address, raw_stream(address) as stream:
        await stream.send(first)
        await expect_refusal(stream, Reason.OPEN_EXPECTED)


async def test_surplus_opens_are_refused_with_a_time_to_retry() -> None:
    async with serving(TinyEngine(max_slots=1)) as address, raw_stream(address) as first:
        await first.send(open_request())
        await first.receive()
        async with raw_stream(address) as second:
            await second.send(open_request())
            error = await expect_refusal(second, Reason.CAPACITY_EXHAUSTED)
            assert error.retry_after_s is not None
            assert 0.125 <= error.retry_after_s <= 0.375, "about as long as a session may take, and not all at once"


async def test_a_slot_is_free_again_after_close_after_half_close_and_after_a_vanished_client() -> None:
    async with serving(TinyEngine(max_slots=1)) as address:
        async with raw_stream(address) as stream:
            await stream.send(open_request())
            await stream.receive()
            await stream.send(pb.DecodeRequest(close=pb.Close()))
            finished = (await stream.receive()).finished
            assert finished.reason == pb.Finished.REASON_CANCELLED
        async with raw_stream(address) as stream:
            await stream.send(open_request())
            await stream.receive()
            await stream.half_close()
            with pytest.raises(EOFError):
                await stream.receive()
        async with raw_stream(address) as stream:
            await stream.send(open_request())
            await stream.receive()
        async with Agent.connect(address, drafter="tiny:0.5") as agent:
            assert await _answer_when_free(agent)


async def _answer_when_free(agent: Agent) -> list[int]:
    """The cancellation of a stream reaches the server in its own time."""
    for _ in range(1000):
        try:
            return await answer(agent)
        except OutriderError as error:
            assert error.reason is Reason.CAPACITY_EXHAUSTED
    raise AssertionError("the slot never became free")


async def test_grow_after_the_end_is_ignored() -> None:
    async with serving(*small_verifier()) as address, raw_stream(address) as stream:
        await stream.send(open_request(max_tokens=1))
        await stream.receive()
        await stream.send(grow_request(1, [65]))
        await stream.send(grow_request(2, [66]))
        assert (await stream.receive()).HasField("commit")
        assert (await stream.receive()).finished.reason == pb.Finished.REASON_LENGTH


async def test_generation_that_reaches_the_end_of_the_context_ends_with_length() -> None:
    async with (
        serving(TinyEngine(context_length=40)) as address,
        Agent.connect(address, drafter="tiny:0.5") as agent,
    ):
        chunks = [chunk async for chunk in agent.stream_ids([65] * 30, Sampling(max_tokens=500))]
        result = chunks[-1].result
        assert result is not None
        assert (len(result.token_ids), result.finish_reason) == (10, "length")


async def test_an_edge_that_falls_silent_does_not_hold_its_slot_for_ever() -> None:
    config = VerifierConfig(session=SessionLimits(open_limit_s=0.2, idle_limit_s=0.2))
    async with serving(TinyEngine(max_slots=1), config) as address, raw_stream(address) as stream:
        await stream.send(open_request())
        await stream.receive()
        await expect_refusal(stream, Reason.SESSION_IDLE)
        async with raw_stream(address) as next_one:
            await next_one.send(open_request(prompt_length=9))
            await expect_refusal(next_one, Reason.OPEN_EXPECTED)


async def test_a_fault_in_one_session_ends_that_one_alone_and_tells_no_details(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    complete = Session.complete

    def faulty(self: Session, result: WalkResult | None, timing: PassTiming) -> None:
        assert 66 not in self.sequence[:1], "a secret"
        complete(self, result, timing)

    monkeypatch.setattr(Session, "complete", faulty)
    async with (
        serving(*small_verifier()) as address,
        Agent.connect(address, drafter="tiny:0.5") as neighbour,
        raw_stream(address) as stream,
    ):
        await stream.send(open_request(prompt_ids=[66, 65]))
        error = await expect_refusal(stream, Reason.INTERNAL)
        assert "secret" not in error.message
        assert "a secret" in caplog.text
        assert await answer(neighbour)


class _DeafEdge:
    """A link to an edge that asks for much and reads nothing after Opened."""

    def __init__(self) -> None:
        self._says: list[EdgeMessage] = [
            Open((65,), Sampling(logit_bias={256: -100.0}), seed=1, max_tokens=500),
            Grow(1, 0, run_to=500),
        ]
        self._reads_left = 1

    async def send(self, message: CloudMessage) -> None:
        if not self._reads_left:
            await asyncio.get_running_loop().create_future()
        self._reads_left -= 1

    async def receive(self) -> EdgeMessage | None:
        if not self._says:
            await asyncio.get_running_loop().create_future()
        return self._says.pop(0)


async def test_an_edge_that_never_reads_is_ended_and_its_slot_given_to_the_next() -> None:
    config = VerifierConfig(session=SessionLimits(send_limit_s=0.05))
    verifier = Verifier(EngineTarget(TinyEngine(max_slots=1)), config)
    async with verifier.running():
        for _ in range(3):
            with pytest.raises(OutriderError) as refused:
                await verifier.serve(_DeafEdge())
            assert refused.value.reason is Reason.SESSION_IDLE
