"""Those who call a verifier in tests: with a token, with a certificate, or with neither."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from outrider.cloud.tokens import NewToken
from outrider.edge.agent import Agent, AnswerOptions
from outrider.edge.chunks import Result
from outrider.edge.link import VerifierClient
from outrider.shared.access import Access, Tls, read_access
from outrider.shared.sampling.options import Sampling

ANSWER_TOKENS = 40


@contextlib.asynccontextmanager
async def calling(address: str, tls: Tls | None = None, token: str = "") -> AsyncIterator[VerifierClient]:
    """A client on a connection of its own."""
    access = Access(read_access(tls, None).credentials, token)
    client = VerifierClient(address, own_connection=True, access=access)
    try:
        yield client
    finally:
        await client.close()


async def answer(agent: Agent, prefix_of: str = "") -> Result:
    """One answer of `ANSWER_TOKENS` tokens."""
    sampling = Sampling(max_tokens=ANSWER_TOKENS, logit_bias={256: -100.0})
    return await agent.answer("whose cache is it?", sampling, AnswerOptions(prefix_of=prefix_of))


def token_path(folder: Path, token: str) -> Path:
    """A file that holds `token`."""
    path = folder / f"token-{token[:8]}"
    path.write_text(f"{token}\n")
    return path


def tokens_path(folder: Path, *made: NewToken) -> Path:
    """A file of tokens for a verifier."""
    path = folder / "tokens"
    path.write_text("".join(f"{one.line}\n" for one in made))
    return path
