"""A session without an agent, which hears what it asks for and leaves as abruptly as a soak wants."""

from __future__ import annotations

from dataclasses import replace

from outrider.edge.link import GrpcEdgeLink, VerifierClient
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import Commit, Finished, Grow, Open, Opened, Resume, TokenHash


class RawSession:
    """Never guesses, so the verifier goes on as far as it is let. `ids` is the answer so far."""

    def __init__(self, request: Open) -> None:
        self.ids: list[int] = []
        self._request = request
        self._id = ""
        self._is_finished = False

    async def open(
        self, client: VerifierClient, length: int, prompt_ids: tuple[int, ...] = (), guess: int | None = None
    ) -> None:
        """Open it, hear `length` tokens and break off; with other `prompt_ids`, or with a guess."""
        link = client.open_stream()
        try:
            await link.send(replace(self._request, prompt_ids=prompt_ids or self._request.prompt_ids))
            opened = await _hear(link)
            assert isinstance(opened, Opened), opened
            self._id = opened.session_id
            guesses = () if guess is None else (guess,)
            await link.send(Grow(first_id=1, base=0, tokens=guesses, run_to=length))
            # A refused guess is told where a token would be.
            await self._hear(link, length + (guess is not None))
        finally:
            link.abandon()

    async def resume(self, client: VerifierClient) -> None:
        """Go on over `client` to the end."""
        link = client.open_stream()
        try:
            hashed = TokenHash([*self._request.prompt_ids, *self.ids])
            await link.send(Resume(self._id, 1, len(self.ids), hashed.value))
            opened = await _hear(link)
            assert isinstance(opened, Opened), opened
            self.ids += opened.missing_ids
            if not self._is_finished:
                await link.send(Grow(first_id=1, base=len(self.ids), run_to=self._request.max_tokens))
            await self._hear(link, None)
            await link.close()
        finally:
            link.abandon()

    async def _hear(self, link: GrpcEdgeLink, length: int | None) -> None:
        """Take commits in until the answer has `length` tokens, or ends."""
        while not self._is_finished and (length is None or len(self.ids) < length):
            match await _hear(link):
                case Commit() as commit:
                    assert commit.base == len(self.ids), f"a commit from {commit.base} on after {len(self.ids)} ids"
                    self.ids += commit.tokens
                case Finished():
                    self._is_finished = True


async def _hear(link: GrpcEdgeLink) -> object:
    message = await link.receive()
    if message is None:
        raise OutriderError(Reason.PEER_VIOLATION, "the verifier has ended the stream.")
    return message
