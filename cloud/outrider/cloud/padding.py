"""Commits of equal length on the wire: without padding their sizes tell who watches how many guesses were right."""

from __future__ import annotations

from outrider.v1 import verifier_pb2 as pb

# Room for everything a commit says about a pass and for 24 tokens of three bytes; what is longer takes another block.
COMMIT_BLOCK_BYTES = 128


def pad_commit(response: pb.DecodeResponse) -> None:
    """Fill `response`, a commit, up to a multiple of `COMMIT_BLOCK_BYTES` as serialised."""
    bare = response.ByteSize()
    wanted = bare + -bare % COMMIT_BLOCK_BYTES
    while response.ByteSize() != wanted:
        # The field's tag and length take two or three bytes, and the length of the commit around it may take one more.
        for overhead in (2, 3, 4):
            response.commit.padding = bytes(max(0, wanted - bare - overhead))
            if response.ByteSize() == wanted:
                return
        wanted += COMMIT_BLOCK_BYTES
