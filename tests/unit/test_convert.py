"""Between messages and the wire: nothing is lost on the way, nothing unknown gets in, and a round stays small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.shared.convert import (
    MAX_ID_LIST,
    PROMPT_PART_IDS,
    EdgeMessageReader,
    cloud_message_from_pb,
    cloud_message_to_pb,
    edge_message_to_pb,
    grow_from_pb,
    grow_payload_bytes,
    info_from_pb,
    info_to_pb,
)
from outrider.shared.errors import Reason
from outrider.shared.messages import (
    Close,
    CloudMessage,
    Commit,
    EdgeMessage,
    Finished,
    FinishReason,
    Grow,
    Limits,
    Open,
    Opened,
    VerifierInfo,
)
from outrider.shared.sampling.options import Sampling
from outrider.shared.vocabulary import Fingerprint
from outrider.v1 import verifier_pb2 as pb
from support.refusal import refused

U32 = st.integers(0, 2**32 - 1)
COUNT = st.integers(0, 2**31 - 1)
U64 = st.integers(0, 2**64 - 1)
IDS = st.lists(U32, max_size=8).map(tuple)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
FLOAT32 = st.floats(width=32, allow_nan=False)
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.floats(0, 100),
    top_k=COUNT,
    top_p=st.floats(0, 1, exclude_min=True),
    min_p=st.floats(0, 1),
    repetition_penalty=st.floats(0.01, 100),
    frequency_penalty=st.floats(-100, 100),
    presence_penalty=st.floats(-100, 100),
    logit_bias=st.dictionaries(U32, st.floats(allow_nan=False, allow_infinity=False), max_size=4),
    max_tokens=st.integers(1, 2**31 - 1),
)


@st.composite
def opens(draw: st.DrawFn) -> Open:
    sampling = draw(SAMPLINGS)
    return Open(
        prompt_ids=draw(IDS),
        sampling=sampling,
        seed=draw(U64),
        max_tokens=sampling.max_tokens,
        committed_ids=draw(IDS),
        stop_ids=draw(IDS),
        prefix_of=draw(TEXT),
        required_features=draw(st.lists(TEXT, max_size=3).map(tuple)),
        want_gaps=draw(st.booleans()),
        target_digest=draw(st.text(max_size=40)),
    )


@st.composite
def grows(draw: st.DrawFn) -> Grow:
    first_id = draw(st.integers(1, 2**31))
    count = draw(st.integers(0, 8))
    parents = tuple(draw(st.one_of(st.just(0), st.integers(0, first_id + i - 1))) for i in range(count))
    tokens = tuple(draw(U32) for _ in range(count))
    return Grow(first_id, draw(U32), parents, tokens, draw(U32))


FINISHED = st.builds(Finished, st.sampled_from(list(FinishReason)), U32, U32)
OPENED = st.builds(Opened, TEXT, U32, U32, U32, U32, U32)
COMMIT = st.builds(Commit, U32, U32, IDS, U32, U32, U32, U64, U64, U32, st.lists(FLOAT32, max_size=4).map(tuple))
PRINT = st.builds(Fingerprint, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, U32, U32)
INFO = st.builds(
    VerifierInfo,
    model=TEXT,
    revision=TEXT,
    engine=TEXT,
    fingerprint=PRINT,
    stop_ids=st.frozensets(U32, max_size=4),
    numerics=st.sampled_from(["exact", "fast"]),
    near_tie_gap=FLOAT32,
    limits=st.builds(Limits, U32, U32, U32, U32, U32, U32),
    features=st.frozensets(TEXT, max_size=3),
    settings=st.dictionaries(TEXT, TEXT, max_size=3),
    software_version=TEXT,
)


def over_the_wire(message: EdgeMessage) -> list[pb.DecodeRequest]:
    """The wire messages of `message`, serialised and parsed again."""
    return [pb.DecodeRequest.FromString(part.SerializeToString()) for part in edge_message_to_pb(message)]


def read_all(parts: Sequence[pb.DecodeRequest]) -> list[EdgeMessage | None]:
    reader = EdgeMessageReader()
    return [reader.read(part) for part in parts]


def make_open(prompt_ids: Sequence[int] = (1, 2), **options: Any) -> Open:
    sampling = Sampling(**options)
    return Open(tuple(prompt_ids), sampling, seed=1, max_tokens=sampling.max_tokens)


# Round trips.


@given(st.one_of(opens(), grows(), st.just(Close())))
@settings(deadline=None)
def test_edge_messages_survive_the_wire(message: EdgeMessage) -> None:
    assert read_all(over_the_wire(message)) == [message]


@given(st.one_of(OPENED, COMMIT, FINISHED))
@settings(deadline=None)
def test_cloud_messages_survive_the_wire(message: CloudMessage) -> None:
    wire = cloud_message_to_pb(message).SerializeToString()
    assert cloud_message_from_pb(pb.DecodeResponse.FromString(wire)) == message


@given(INFO)
@settings(deadline=None)
def test_what_a_verifier_says_of_itself_survives_the_wire(info: VerifierInfo) -> None:
    assert info_from_pb(pb.GetInfoResponse.FromString(info_to_pb(info).SerializeToString())) == info


def test_each_field_lands_in_the_wire_field_of_its_name() -> None:
    commit = pb.Commit(
        base=1, accepted_node=2, tokens=[3], committed_length=4, hash=5, checked_count=6, queue_ns=7, pass_ns=8
    )
    commit.load_percent = 9
    commit.gaps.append(0.5)
    message = Commit(1, 2, (3,), 4, 5, 6, 7, 8, 9, (0.5,))
    assert cloud_message_to_pb(message).commit == commit
    opened = pb.Opened(session_id="s", committed_length=1, hash=2, window=3, token_limit=4, reused_length=5)
    assert cloud_message_to_pb(Opened("s", 1, 2, 3, 4, 5)).opened == opened
    finished = pb.Finished(reason=pb.Finished.REASON_LENGTH, passes=1, prefill_passes=2)
    assert cloud_message_to_pb(Finished(FinishReason.LENGTH, 1, 2)).finished == finished


# Parents.


@pytest.mark.parametrize(
    ("grow", "distances"),
    [
        (Grow(1, 0, (0, 1, 2, 3), (10, 11, 12, 13)), []),
        (Grow(6, 4, (0, 6, 7), (10, 11, 12)), []),
        (Grow(6, 4, (5, 6, 7, 8), (10, 11, 12, 13)), [1]),
        (Grow(6, 4, (2, 6, 7), (10, 11, 12)), [4]),
        (Grow(1, 0, (0, 0, 1, 3), (10, 11, 12, 13)), [0, 0, 2]),
        (Grow(1, 0, (0, 1, 1), (10, 11, 12)), [0, 1, 2]),
        (Grow(3, 0), []),
    ],
)
def test_parents_travel_as_distances_without_what_goes_without_saying(grow: Grow, distances: list[int]) -> None:
    (part,) = over_the_wire(grow)
    assert list(part.grow.parents) == distances
    assert grow_from_pb(part.grow) == grow


def test_a_chain_below_a_sent_node_costs_one_byte_more_than_its_tokens() -> None:
    fresh = Grow(1, 0, (0, 1, 2), (10, 11, 12))
    below = Grow(90, 0, (89, 90, 91), (10, 11, 12))
    assert grow_payload_bytes(fresh) == 3
    assert grow_payload_bytes(below) == 4


@given(grows())
@settings(deadline=None)
def test_payload_is_what_the_packed_fields_take(grow: Grow) -> None:
    (part,) = edge_message_to_pb(grow)
    packed = 0
    for alone in (pb.Grow(tokens=part.grow.tokens), pb.Grow(parents=part.grow.parents)):
        # A tag of one byte, a length that is one byte here, then the values.
        packed += max(0, alone.ByteSize() - 2)
    assert grow_payload_bytes(grow) == packed


@pytest.mark.parametrize(("first_id", "distances"), [(1, [1]), (1, [0, 2]), (5, [5]), (5, [0, 6]), (5, [2**32 - 1])])
def test_a_parent_before_the_first_node_is_refused(first_id: int, distances: list[int]) -> None:
    with refused(Reason.PARENT_UNKNOWN, f"parent {distances[-1]} before it"):
        grow_from_pb(pb.Grow(first_id=first_id, parents=distances, tokens=[10] * len(distances)))


def test_more_parents_than_tokens_are_refused() -> None:
    with refused(Reason.GROW_MALFORMED, "2 parents for 1 tokens"):
        EdgeMessageReader().read(pb.DecodeRequest(grow=pb.Grow(first_id=1, parents=[0, 1], tokens=[10])))


# Long prompts.


@pytest.mark.parametrize(
    ("length", "parts"),
    [(0, 1), (1, 1), (PROMPT_PART_IDS, 1), (PROMPT_PART_IDS + 1, 2), (3 * PROMPT_PART_IDS, 3), (100_000, 7)],
)
def test_long_prompts_travel_in_parts_and_are_joined_again(length: int, parts: int) -> None:
    message = make_open(range(length))
    wire = over_the_wire(message)
    assert len(wire) == parts
    assert all(part.ByteSize() < 100_000 for part in wire)
    read = read_all(wire)
    assert read[:-1] == [None] * (parts - 1)
    assert read[-1] == message


def test_a_reader_goes_on_after_a_long_prompt() -> None:
    reader = EdgeMessageReader()
    for part in over_the_wire(make_open(range(PROMPT_PART_IDS + 1))):
        reader.read(part)
    assert reader.read(edge_message_to_pb(Grow(1, 0, (0,), (9,)))[0]) == Grow(1, 0, (0,), (9,))
    with refused(Reason.OPEN_EXPECTED):
        reader.read(pb.DecodeRequest(prompt_part=pb.PromptPart(prompt_ids=[1])))


def test_a_prompt_part_needs_an_open_before_it() -> None:
    with refused(Reason.OPEN_EXPECTED):
        EdgeMessageReader().read(pb.DecodeRequest(prompt_part=pb.PromptPart(prompt_ids=[1])))


@pytest.mark.parametrize(
    "between",
    [
        pb.DecodeRequest(grow=pb.Grow(first_id=1)),
        pb.DecodeRequest(close=pb.Close()),
        pb.DecodeRequest(open=pb.Open(prompt_ids=[1], max_tokens=1)),
        pb.DecodeRequest(),
        pb.DecodeRequest(prompt_part=pb.PromptPart()),
    ],
)
def test_nothing_else_comes_between_the_parts_of_a_prompt(between: pb.DecodeRequest) -> None:
    reader = EdgeMessageReader()
    head = pb.DecodeRequest(open=pb.Open(prompt_ids=[1], prompt_length=3, max_tokens=1))
    assert reader.read(head) is None
    with refused(Reason.OPEN_INVALID):
        reader.read(between)


def test_more_ids_than_announced_are_refused() -> None:
    with refused(Reason.OPEN_INVALID, "prompt_length = 1", "2 ids"):
        EdgeMessageReader().read(pb.DecodeRequest(open=pb.Open(prompt_ids=[1, 2], prompt_length=1, max_tokens=1)))
    reader = EdgeMessageReader()
    assert reader.read(pb.DecodeRequest(open=pb.Open(prompt_ids=[1], prompt_length=2, max_tokens=1))) is None
    with refused(Reason.OPEN_INVALID, "prompt_length = 2", "3 ids"):
        reader.read(pb.DecodeRequest(prompt_part=pb.PromptPart(prompt_ids=[2, 3])))


def test_an_absurd_prompt_length_is_refused_at_once() -> None:
    with refused(Reason.PROMPT_TOO_LONG):
        EdgeMessageReader().read(pb.DecodeRequest(open=pb.Open(prompt_length=MAX_ID_LIST + 1, max_tokens=1)))


# What is not known here.


def test_messages_of_unknown_kind_are_unimplemented() -> None:
    # Field 15, length-delimited and empty: what a newer peer might send.
    newer = bytes([15 << 3 | 2, 0])
    with refused(Reason.MESSAGE_UNKNOWN):
        EdgeMessageReader().read(pb.DecodeRequest.FromString(newer))
    with refused(Reason.MESSAGE_UNKNOWN):
        cloud_message_from_pb(pb.DecodeResponse.FromString(newer))
    for number in (0, 77):
        reason = bytes([1 << 3, number])
        finished = pb.DecodeResponse.FromString(bytes([3 << 3 | 2, len(reason)]) + reason)
        with refused(Reason.MESSAGE_UNKNOWN, f"finish reason {number}"):
            cloud_message_from_pb(finished)


def test_unknown_numerics_are_a_violation() -> None:
    for number in (0, 9):
        with refused(Reason.PEER_VIOLATION, f"numerics {number}"):
            info_from_pb(pb.GetInfoResponse.FromString(bytes([6 << 3, number])))


# Sampling.


def read_sampling(sampling: pb.Sampling | None, max_tokens: int = 4) -> Sampling:
    message = EdgeMessageReader().read(
        pb.DecodeRequest(open=pb.Open(prompt_ids=[1], prompt_length=1, sampling=sampling, max_tokens=max_tokens))
    )
    assert isinstance(message, Open)
    return message.sampling


def test_absent_sampling_fields_are_off() -> None:
    for absent in (None, pb.Sampling()):
        assert read_sampling(absent) == Sampling(max_tokens=4)
    assert read_sampling(pb.Sampling(temperature=1.0)) == Sampling(temperature=1.0, max_tokens=4)


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "repetition_penalty"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -0.5, 101.0])
def test_sampling_out_of_range_is_refused_by_name(name: str, value: float) -> None:
    sampling = pb.Sampling()
    setattr(sampling, name, value)
    with refused(Reason.SAMPLING_INVALID, name):
        read_sampling(sampling)


@pytest.mark.parametrize(
    ("sampling", "name"),
    [
        # Written down as 0 they are not absent, and 0 is out of range.
        (pb.Sampling(top_p=0.0), "top_p"),
        (pb.Sampling(repetition_penalty=0.0), "repetition_penalty"),
        (pb.Sampling(top_k=2**31), "top_k"),
        (pb.Sampling(frequency_penalty=float("nan")), "frequency_penalty"),
        (pb.Sampling(presence_penalty=-101.0), "presence_penalty"),
        (pb.Sampling(logit_bias={3: float("nan")}), "logit_bias.3"),
        (pb.Sampling(logit_bias={3: float("-inf")}), "logit_bias.3"),
        (pb.Sampling(logit_bias=dict.fromkeys(range(1025), 1.0)), "logit_bias"),
    ],
)
def test_other_bad_sampling_is_refused_by_name(sampling: pb.Sampling, name: str) -> None:
    with refused(Reason.SAMPLING_INVALID, name):
        read_sampling(sampling)


def test_an_answer_of_no_tokens_is_refused() -> None:
    with refused(Reason.SAMPLING_INVALID, "max_tokens"):
        read_sampling(None, max_tokens=0)


# Size.


def test_a_round_of_five_guesses_takes_at_most_a_hundred_bytes_both_ways() -> None:
    tokens = (151_642, 151_001, 149_873, 150_555, 151_200)
    grow = Grow(4_001, 1_000, (0, 4_001, 4_002, 4_003, 4_004), tokens, run_to=1_200)
    below_sent = Grow(4_001, 1_000, (3_995, 4_001, 4_002, 4_003, 4_004), tokens, run_to=1_200)
    commit = Commit(1_000, 4_004, (150_123,), 1_005, 2**32 - 1, 5, 12_345_678, 60_000_000, 100)
    down = cloud_message_to_pb(commit).ByteSize()
    for sent in (grow, below_sent):
        (part,) = edge_message_to_pb(sent)
        up = part.ByteSize()
        assert up + down <= 100
        # Nothing but ids and counts goes up: five ids of three bytes and a few small numbers.
        assert up <= 32
