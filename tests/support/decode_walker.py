"""A client of `Decode` that keeps to the rules at random, until it breaks one on purpose. It knows which, so it can say
how the stream must end.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from outrider.shared.errors import Reason
from outrider.v1 import verifier_pb2 as pb
from support.fuzzing import ByteStream, Ending
from support.serving import grow_request, open_request

MAX_NODES = 30
# No token of these is ever the tiny target's choice.
WRONG_TOKENS = range(128, 256)


class Walker:
    """One stream. `alone_ids` are what the target says to `open_request()`; of `WRONG_TOKENS` each is guessed once."""

    def __init__(self, stream: ByteStream, rng: random.Random, alone_ids: Sequence[int]) -> None:
        self._stream = stream
        self._rng = rng
        self._alone = alone_ids
        self._wrong = rng.sample(WRONG_TOKENS, len(WRONG_TOKENS))
        self._next_id = 1
        self._length = self._base = 0
        self._right_until = 0

    async def walk(self) -> tuple[Ending, Reason | None]:
        """Up to twelve steps by the rules, then perhaps one against them; how it ended, and how it must."""
        await self._say(open_request())
        await self._stream.receive()
        for _ in range(self._rng.randint(0, 12)):
            if self._next_id > MAX_NODES:
                break
            hears = self._rng.random() < 0.7
            # Who asks for a token past what was heard gets an answer; who asks for nothing may get none.
            ahead = self._rng.randint(1, 40) if hears else self._rng.choice((-1, 0, 3))
            await self._say(self._good_grow(max(0, self._length + ahead)))
            if hears:
                await self._hear()
        reason: Reason | None = None
        match self._rng.randrange(4):
            case 0:
                pass
            case 1:
                await self._say(pb.DecodeRequest(close=pb.Close()))
                await self._say(grow_request(self._rng.randrange(2**32), [self._rng.randrange(2**32)]))
            case _:
                bad, reason = self._rng.choice(self._bad_requests())
                await self._say(bad)
        return await self._stream.end(), reason

    async def _say(self, request: pb.DecodeRequest) -> None:
        await self._stream.send(request.SerializeToString())

    async def _hear(self) -> None:
        response = await self._stream.receive()
        if response is not None and response.HasField("commit"):
            self._length = response.commit.committed_length

    def _good_grow(self, run_to: int) -> pb.DecodeRequest:
        base = self._base = self._rng.randint(self._base, self._length)
        first_id = self._next_id
        tokens, parents = [], []
        if base >= self._right_until and self._rng.random() < 0.7:
            right = list(self._alone[base : base + self._rng.randint(0, 4)])
            tokens, parents = right, [min(index, 1) for index in range(len(right))]
            self._right_until = base + len(right)
        for _ in range(self._rng.randint(0, 3)):
            tokens.append(self._wrong.pop())
            # Any node before it, of this stream; the root; or one that has long been forgotten.
            parents.append(self._rng.randint(0, first_id + len(tokens) - 2))
        self._next_id += len(tokens)
        return grow_request(first_id, tokens, base=base, parents=parents, run_to=run_to)

    def _bad_requests(self) -> list[tuple[pb.DecodeRequest, Reason]]:
        """Messages that break a rule now, and the reason of each."""
        first_id, base = self._next_id, self._base
        token = self._wrong.pop()
        ahead, far = self._length + 1000, 2**31
        bad = [
            (grow_request(first_id + 1, [token], base=base), Reason.GROW_MALFORMED),
            (grow_request(first_id, [token], base=ahead), Reason.GROW_MALFORMED),
            (grow_request(first_id, [token], base=base, parents=[first_id]), Reason.PARENT_UNKNOWN),
            (grow_request(first_id, [token], base=base, parents=[far]), Reason.PARENT_UNKNOWN),
            (grow_request(first_id, [token], base=base, parents=[0, 0]), Reason.GROW_MALFORMED),
            (grow_request(first_id, [token, 260], base=base), Reason.TOKEN_OUT_OF_RANGE),
            (grow_request(first_id, [2**32 - 1], base=base), Reason.TOKEN_OUT_OF_RANGE),
            (open_request(), Reason.OPEN_INVALID),
            (pb.DecodeRequest(resume=pb.Resume(attempt=1)), Reason.OPEN_INVALID),
            (pb.DecodeRequest(prompt_part=pb.PromptPart(prompt_ids=[97])), Reason.OPEN_EXPECTED),
            (pb.DecodeRequest(), Reason.MESSAGE_UNKNOWN),
        ]
        if first_id > 1:
            bad.append((grow_request(first_id - 1, [token], base=base), Reason.GROW_MALFORMED))
        if base > 0:
            bad.append((grow_request(first_id, [token], base=base - 1), Reason.GROW_MALFORMED))
        return bad
