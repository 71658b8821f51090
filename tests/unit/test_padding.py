"""Padded commits: equally long as long as they hold few tokens, and the same commit to a reader."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.cloud.padding import COMMIT_BLOCK_BYTES, pad_commit
from outrider.shared.convert import cloud_message_from_pb, cloud_message_to_pb
from outrider.shared.messages import Commit
from outrider.v1 import verifier_pb2 as pb

EQUAL_UP_TO = 24
# The largest that occur: contexts and vocabularies of two million, passes of an hour.
LARGE: dict[str, Any] = {
    "base": 2**21 - 1,
    "accepted_node": 2**28 - 1,
    "committed_length": 2**21 - 1,
    "hash": 2**32 - 1,
    "checked_count": 4096,
    "queue_ns": 2**42 - 1,
    "pass_ns": 2**42 - 1,
    "load_percent": 1000,
}


def wire(commit: Commit, *, padded: bool = True) -> bytes:
    response = cloud_message_to_pb(commit)
    if padded:
        pad_commit(response)
    return response.SerializeToString()


def small(tokens: tuple[int, ...] = ()) -> Commit:
    return Commit(base=0, accepted_node=0, tokens=tokens, committed_length=0, hash=0)


def large(tokens: tuple[int, ...]) -> Commit:
    return Commit(tokens=tokens, **LARGE)


def test_commits_of_up_to_24_tokens_are_equally_long() -> None:
    bare, padded = set(), set()
    for count in range(EQUAL_UP_TO + 1):
        for commit in (small((0,) * count), large((2**21 - 1,) * count)):
            bare.add(len(wire(commit, padded=False)))
            padded.add(len(wire(commit)))
    assert len(bare) > EQUAL_UP_TO
    assert padded == {COMMIT_BLOCK_BYTES}


def test_every_size_of_commit_becomes_a_multiple_and_at_most_two_blocks_longer() -> None:
    """Two bytes below a multiple no padding fits, as a field cannot be that short; there it takes another block."""
    for count in range(1000):
        commit = small((1,) * count)
        sent, bare = wire(commit), len(wire(commit, padded=False))
        assert len(sent) % COMMIT_BLOCK_BYTES == 0
        assert bare <= len(sent) <= bare + 2 * COMMIT_BLOCK_BYTES + 2
        assert cloud_message_from_pb(pb.DecodeResponse.FromString(sent)) == commit


@given(st.lists(st.integers(0, 2**32 - 1), max_size=80), st.lists(st.floats(width=32, allow_nan=False), max_size=80))
@settings(deadline=None)
def test_a_padded_commit_is_the_same_commit(tokens: list[int], gaps: list[float]) -> None:
    commit = Commit(tokens=tuple(tokens), gaps=tuple(gaps), **LARGE)
    sent = wire(commit)
    assert len(sent) % COMMIT_BLOCK_BYTES == 0
    assert cloud_message_from_pb(pb.DecodeResponse.FromString(sent)) == commit
