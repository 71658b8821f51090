"""As whom a caller is served, and that what one left in the cache is for no one else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outrider.cloud.principal import Principal
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.tokens import new_token
from outrider.cloud.verifier import Verifier
from outrider.edge.agent import Agent
from outrider.shared.access import Tls
from outrider.shared.link import CloudLink
from outrider.shared.messages import Open
from outrider.shared.sampling.options import Sampling
from support.callers import answer, calling, token_path, tokens_path
from support.certificates import Authority
from support.serving import serving

PHONE, PHONE_TOO, LAPTOP = new_token("phone"), new_token("phone"), new_token("laptop")


@pytest.fixture
def known(tmp_path: Path) -> Path:
    return tokens_path(tmp_path, PHONE, PHONE_TOO, LAPTOP)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authorities") / "a")


@pytest.fixture
def served_as(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names under which a verifier has been asked to serve answers."""
    names: list[str] = []
    serve = Verifier.serve

    async def watching(self: Verifier, link: CloudLink, principal: Principal) -> None:
        names.append(principal.name)
        await serve(self, link, principal)

    monkeypatch.setattr(Verifier, "serve", watching)
    return names


async def open_session(server: dict[str, Any], tls: Tls | None = None, token: str = "") -> None:
    async with serving(**server) as address, calling(address, tls, token) as client:
        link = client.open_stream()
        await link.send(Open((65, 66, 67), Sampling(), seed=1, max_tokens=4))
        await link.receive()
        await link.close()


async def test_a_caller_is_its_token_its_certificate_or_nobody(
    served_as: list[str], authority: Authority, known: Path
) -> None:
    device, mutual = authority.device_tls("device"), authority.server_tls(mutual=True)
    await open_session({})
    await open_session({}, token=PHONE.token)
    await open_session({"tls": authority.server_tls()}, authority.device_tls())
    assert served_as == ["anonymous"] * 3, "a token that nobody asked for says nothing"
    await open_session({"tokens": known}, token=PHONE_TOO.token)
    await open_session({"tokens": known, "tls": mutual}, device, LAPTOP.token)
    assert served_as[3:] == ["phone", "laptop"]
    await open_session({"tls": mutual}, device)
    assert "CN=device" in served_as[5].split(",")


async def reused(mine: Agent, other: Agent, mine_again: Agent) -> tuple[int, int, int]:
    """Tokens of a prompt, and how many of them another one's answer takes over from the cache and then one's own."""
    first = await answer(mine)
    taken = await answer(other, prefix_of=first.session_id)
    own = await answer(mine_again, prefix_of=first.session_id)
    assert taken.token_ids == own.token_ids == first.token_ids
    return first.stats["prompt_tokens"], taken.stats["reused_tokens"], own.stats["reused_tokens"]


async def test_a_cached_prefix_is_for_the_same_token_name_only(known: Path, tmp_path: Path) -> None:
    async with (
        serving(TinyEngine(max_slots=4), tokens=known) as address,
        Agent.connect(address, "none", token_file=token_path(tmp_path, PHONE.token)) as phone,
        Agent.connect(address, "none", token_file=token_path(tmp_path, LAPTOP.token)) as laptop,
        Agent.connect(address, "none", token_file=token_path(tmp_path, PHONE_TOO.token)) as phone_too,
    ):
        prompt, taken, own = await reused(phone, laptop, phone_too)
        assert (taken, own) == (0, prompt - 1)


async def test_a_cached_prefix_is_for_the_same_certificate_subject_only(authority: Authority) -> None:
    async with (
        serving(TinyEngine(max_slots=4), tls=authority.server_tls(mutual=True)) as address,
        Agent.connect(address, "none", tls=authority.device_tls("one")) as one,
        Agent.connect(address, "none", tls=authority.device_tls("two")) as two,
    ):
        prompt, taken, own = await reused(one, two, one)
        assert (taken, own) == (0, prompt - 1)


async def test_a_slot_that_another_one_needs_is_given_without_its_cache(known: Path, tmp_path: Path) -> None:
    async with (
        serving(TinyEngine(max_slots=1), tokens=known) as address,
        Agent.connect(address, "none", token_file=token_path(tmp_path, PHONE.token)) as phone,
        Agent.connect(address, "none", token_file=token_path(tmp_path, LAPTOP.token)) as laptop,
    ):
        assert (await reused(phone, laptop, phone))[1:] == (0, 0)
