"""Every number that an edge can send, at its ends: -1 (as uint32), the vocabulary's size, 2**31 - 1, and nothing.
Each has a defined outcome, and a field that is added without one fails here.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor

from outrider.cloud.session import SessionLimits
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import VerifierConfig
from outrider.edge.agent import Agent
from outrider.shared.errors import Reason
from outrider.shared.sampling.options import Sampling
from outrider.v1 import verifier_pb2 as pb
from support.fuzzing import Ending, send_all
from support.serving import grow_request, open_request, serving

INTEGERS = (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32)
ENDS = (260, 2**31 - 1, 2**32 - 1)
IDS = Reason.TOKEN_OUT_OF_RANGE
# By message and field: the reason with a value of ENDS, and the reason without any. None is a good end.
OUTCOMES: dict[str, tuple[Reason | None, Reason | None]] = {
    "Open.prompt_ids": (IDS, Reason.PROMPT_EMPTY),
    # Not yet all of a prompt that never comes: a good end at the half-close.
    "Open.prompt_length": (None, None),
    "Open.committed_ids": (IDS, None),
    "Open.max_tokens": (None, Reason.SAMPLING_INVALID),
    "Open.stop_ids": (IDS, None),
    "PromptPart.prompt_ids": (IDS, Reason.OPEN_INVALID),
    # More than the vocabulary holds is all of it.
    "Sampling.top_k": (None, None),
    "Sampling.logit_bias": (IDS, None),
    "Grow.first_id": (Reason.GROW_MALFORMED, Reason.GROW_MALFORMED),
    "Grow.base": (Reason.GROW_MALFORMED, None),
    "Grow.parents": (Reason.PARENT_UNKNOWN, None),
    # There is a parent, and no node for it.
    "Grow.tokens": (IDS, Reason.GROW_MALFORMED),
    "Grow.run_to": (None, None),
    "Resume.attempt": (Reason.SESSION_NOT_FOUND, Reason.SESSION_NOT_FOUND),
    "Resume.committed_length": (Reason.SESSION_NOT_FOUND, Reason.SESSION_NOT_FOUND),
    "Resume.hash": (Reason.SESSION_NOT_FOUND, Reason.SESSION_NOT_FOUND),
}
EXCEPTIONS: dict[tuple[str, int | None], Reason | None] = {
    # A prompt of so many ids is refused before any comes.
    ("Open.prompt_length", 2**31 - 1): Reason.PROMPT_TOO_LONG,
    ("Open.prompt_length", 2**32 - 1): Reason.PROMPT_TOO_LONG,
    # These options end at 2**31 - 1.
    ("Open.max_tokens", 2**32 - 1): Reason.SAMPLING_INVALID,
    ("Sampling.top_k", 2**32 - 1): Reason.SAMPLING_INVALID,
}
CASES = [
    (name, value, EXCEPTIONS.get((name, value), without if value is None else with_value))
    for name, (with_value, without) in OUTCOMES.items()
    for value in (*ENDS, None)
]


def integer_fields(message: Any) -> set[str]:
    """The fields of a message, and of those within it, that hold integers or have them as keys."""
    found = set()
    for field in message.fields:
        inner = field.message_type
        is_map = inner is not None and inner.GetOptions().map_entry
        if field.type in INTEGERS or (is_map and inner.fields_by_name["key"].type in INTEGERS):
            found.add(f"{message.name}.{field.name}")
        elif inner is not None:
            found |= integer_fields(inner)
    return found


def messages_with(name: str, value: int | None) -> list[pb.DecodeRequest]:
    """A good stream but for the field `name`: it holds `value`, or nothing."""
    kind, field = name.split(".")
    opened = open_request(max_tokens=3)
    grow = grow_request(1, [97], parents=[0], run_to=3)
    stream = {"Grow": [opened, grow], "Resume": [pb.DecodeRequest(resume=pb.Resume(session_id="0" * 32, attempt=1))]}
    if kind == "PromptPart":
        part = pb.DecodeRequest(prompt_part=pb.PromptPart(prompt_ids=[97] if value is None else [value]))
        messages = [open_request(max_tokens=3, prompt_length=5), part]
    else:
        messages = stream.get(kind, [opened])
    last = getattr(messages[-1], messages[-1].WhichOneof("message"))
    target = last.sampling if kind == "Sampling" else last
    target.ClearField(field)
    if value is not None:
        if target.DESCRIPTOR.fields_by_name[field].message_type:
            getattr(target, field)[value] = 1.0
        elif hasattr(getattr(target, field), "append"):
            getattr(target, field).append(value)
        else:
            setattr(target, field, value)
    return messages


def test_every_integer_of_the_protocol_has_an_outcome() -> None:
    assert integer_fields(pb.DecodeRequest.DESCRIPTOR) == set(OUTCOMES)


@pytest.mark.parametrize(("name", "value", "reason"), CASES, ids=[f"{c[0]}={c[1]}" for c in CASES])
async def test_a_field_at_its_end_has_its_outcome_and_a_neighbour_goes_on(
    name: str, value: int | None, reason: Reason | None
) -> None:
    config = VerifierConfig(session=SessionLimits(window=32))
    async with (
        serving(TinyEngine(context_length=64), config) as address,
        grpc.aio.insecure_channel(address) as channel,
        Agent.connect(address, drafter="tiny:0.5", control="fixed", gamma=3) as neighbour,
    ):
        before = await _answer(neighbour)
        beside = asyncio.create_task(_answer(neighbour))
        ending = await _send(channel, messages_with(name, value))
        assert ending.reason is reason
        assert await beside == await _answer(neighbour) == before


async def _send(channel: grpc.aio.Channel, messages: list[pb.DecodeRequest]) -> Ending:
    while (ending := await send_all(channel, [message.SerializeToString() for message in messages])).is_lost:
        pass
    return ending


async def _answer(agent: Agent) -> list[int]:
    chunks = [chunk async for chunk in agent.stream_ids([97], Sampling(max_tokens=30, seed=3))]
    assert chunks[-1].result is not None
    return chunks[-1].result.token_ids
