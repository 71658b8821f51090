"""How long messages may be, and how long padded ones are."""

from __future__ import annotations

import pytest

from outrider.edge.agent import Agent
from outrider.shared.errors import OutriderError, Reason
from outrider.v1 import verifier_pb2 as pb
from support.callers import answer
from support.serving import open_request, raw_stream, serving


@pytest.mark.parametrize(("ids", "reason"), [(1 << 20, Reason.MESSAGE_TOO_LARGE), (1 << 19, Reason.PROMPT_TOO_LONG)])
async def test_a_message_of_more_than_a_mebibyte_is_refused_and_a_neighbour_goes_on(ids: int, reason: Reason) -> None:
    async with (
        serving() as address,
        Agent.connect(address, "tiny:0.5") as neighbour,
        raw_stream(address) as stream,
    ):
        expected = (await answer(neighbour)).token_ids
        await stream.send(open_request(prompt_ids=[65] * ids))
        with pytest.raises(OutriderError) as caught:
            await stream.receive()
        assert caught.value.reason is reason
        assert (await answer(neighbour)).token_ids == expected


async def sizes_of_commits(*, pad: bool) -> list[int]:
    """Sizes of an answer's commits, while now more and now fewer guesses and free tokens are asked for."""
    sizes: list[int] = []
    async with serving(pad_commits=pad) as address, raw_stream(address) as stream:
        await stream.send(open_request(max_tokens=60, sampling={"logit_bias": {256: -100.0}}, want_gaps=True))
        base = (await stream.receive()).opened.committed_length
        first_id = 1
        while base < 60:
            guesses = [104, 105, 106][: len(sizes) % 4]
            grow = pb.Grow(first_id=first_id, base=base, tokens=guesses, run_to=base + 1)
            await stream.send(pb.DecodeRequest(grow=grow))
            first_id += len(guesses)
            message = await stream.receive()
            sizes.append(message.ByteSize())
            base = message.commit.committed_length
        assert (await stream.receive()).finished.reason == pb.Finished.REASON_LENGTH
    return sizes


async def test_padded_commits_of_an_answer_are_equally_long() -> None:
    bare, padded = await sizes_of_commits(pad=False), await sizes_of_commits(pad=True)
    assert len(set(bare)) > 1
    assert max(bare) < 128
    assert set(padded) == {128}


async def test_padding_does_not_change_an_answer() -> None:
    async with (
        serving() as bare_address,
        serving(pad_commits=True) as padded_address,
        Agent.connect(bare_address, "tiny:0.5", control="fixed") as bare_agent,
        Agent.connect(padded_address, "tiny:0.5", control="fixed") as padded_agent,
    ):
        bare, padded = await answer(bare_agent), await answer(padded_agent)
    assert padded.token_ids == bare.token_ids
    assert padded.stats["downlink_bytes"] > bare.stats["downlink_bytes"] + 60 * padded.stats["passes"]
