"""A verifier that says what none may say: the answer ends with the rule that it broke, before any of it reaches text,
drafter or user.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.cloud.session import Session
from outrider.edge.agent import Agent, AnswerOptions
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import CloudMessage, Commit, Opened, TokenHash
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END, TINY_PADDED_WIDTH, TINY_SIZE
from support.refusal import refused
from support.serving import serving

SAMPLING = Sampling(max_tokens=12, seed=3, temperature=1.0, logit_bias={END: -100.0})
HONEST_COUNT = 3


def make_lie(monkeypatch: pytest.MonkeyPatch, tokens: tuple[int, ...], *, in_opened: bool) -> None:
    """After some honest commits of every session, or in its Opened, `tokens` with a hash that fits them."""
    say, attach = Session._say, Session.attach

    def lie(session: Session, base: int) -> dict[str, object]:
        honest = session.sequence[: session._prompt_length + base]
        return {"committed_length": base + len(tokens), "hash": TokenHash([*honest, *tokens]).value}

    def lying_say(self: Session, message: CloudMessage | OutriderError | None) -> None:
        if isinstance(message, Commit) and message.base >= HONEST_COUNT and not in_opened:
            message = replace(message, accepted_node=0, tokens=tokens, **lie(self, message.base))  # type: ignore[arg-type]
        say(self, message)

    def lying_attach(self: Session, *arguments: object) -> object:
        outbox = attach(self, *arguments)  # type: ignore[arg-type]
        opened = outbox.get_nowait()
        assert isinstance(opened, Opened)
        if in_opened:
            opened = replace(opened, missing_ids=tokens, **lie(self, 0))  # type: ignore[arg-type]
        outbox.put_nowait(opened)
        return outbox

    monkeypatch.setattr(Session, "_say", lying_say)
    monkeypatch.setattr(Session, "attach", lying_attach)


LIES = {
    "an id past the vocabulary": ((97, TINY_SIZE), f"{TINY_SIZE}, vocabulary size {TINY_SIZE}"),
    "an id of the padding": ((TINY_PADDED_WIDTH - 1,), "vocabulary size"),
    "2**31 - 1": ((2**31 - 1,), "vocabulary size"),
    "-1 as uint32": ((2**32 - 1,), "vocabulary size"),
    "more than was asked for": ((97,) * 13, "at most 12"),
    "text after a stop id": ((97, END, 98), "after a stop id"),
}


@pytest.mark.parametrize("in_opened", [False, True], ids=["in a commit", "in Opened"])
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("drafter", ["none", "tiny:0.5"])
async def test_what_no_verifier_may_commit_is_refused_by_rule_and_shown_to_nobody(
    lie: str, in_opened: bool, drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, rule = LIES[lie]
    async with serving() as address, Agent.connect(address, drafter=drafter, control="fixed", gamma=1) as agent:
        honest = (await agent.answer("truth", SAMPLING)).token_ids
        make_lie(monkeypatch, tokens, in_opened=in_opened)
        shown: list[int] = []
        with refused(Reason.PEER_VIOLATION, rule):
            async for chunk in agent.stream("truth", SAMPLING):
                shown += chunk.token_ids
    assert shown == honest[: len(shown)]
    assert len(shown) < len(honest)


@pytest.mark.parametrize("token", [-1, TINY_SIZE, TINY_PADDED_WIDTH - 1, 2**31 - 1, 2**40])
async def test_a_stop_id_that_is_none_is_refused_before_anything_is_sent(token: int) -> None:
    async with serving() as address, Agent.connect(address, drafter="tiny:0.5") as agent:
        with pytest.raises(OutriderError) as caught:
            await agent.answer("stop", SAMPLING, AnswerOptions(stop_ids=frozenset({token})))
        assert caught.value.reason is Reason.TOKEN_OUT_OF_RANGE
        assert not caught.value.from_peer
        assert f"stop_ids[0] = {token}" in caught.value.message
        # The same for each other list of ids.
        for request in (
            {"prompt_ids": [token]},
            {"sampling": SAMPLING.model_copy(update={"logit_bias": {token: 1.0}})},
        ):
            with pytest.raises(OutriderError) as caught:
                async for _ in agent.stream_ids(**({"prompt_ids": [97], "sampling": SAMPLING} | request)):  # type: ignore[arg-type]
                    pass
            assert caught.value.reason is Reason.TOKEN_OUT_OF_RANGE
            assert not caught.value.from_peer
