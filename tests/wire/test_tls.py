"""TLS over a real gRPC server: who is genuine, whom mutual TLS lets in, and certificates that change meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.cloud.server import ServerConfig, check_reach
from outrider.cloud.tls import ServerTls
from outrider.edge.agent import Agent
from outrider.shared.access import Tls
from outrider.shared.errors import OutriderError, Reason
from support.callers import ANSWER_TOKENS, answer, calling
from support.certificates import Authority, replace
from support.refusal import refused
from support.serving import serving


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authorities") / "a")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authorities") / "b")


async def is_reached(address: str, tls: Tls | None) -> bool:
    """Whether a new connection is made and used."""
    async with calling(address, tls) as client:
        try:
            await client.get_info()
        except OutriderError as error:
            assert error.reason is Reason.VERIFIER_UNREACHABLE
            return False
        return True


async def test_over_tls_the_verifier_proves_who_it_is(authority: Authority, stranger: Authority) -> None:
    async with serving(tls=authority.server_tls()) as address:
        port = address.rpartition(":")[2]
        for name in (address, f"localhost:{port}"):
            async with Agent.connect(name, "tiny:0.5", tls=authority.device_tls()) as agent:
                assert len((await answer(agent)).token_ids) == ANSWER_TOKENS
        assert not await is_reached(address, stranger.device_tls())
        assert not await is_reached(address, Tls()), "no public authority vouches for it"
        assert not await is_reached(address, None), "it does not talk in the clear"


async def test_a_plain_verifier_is_not_taken_for_one_with_tls(authority: Authority) -> None:
    async with serving() as address:
        assert await is_reached(address, None)
        assert not await is_reached(address, authority.device_tls())


async def test_a_certificate_of_another_name_is_refused(authority: Authority) -> None:
    device = authority.for_device("not-the-verifier")
    async with serving(tls=ServerTls(device.cert, device.key)) as address:
        assert not await is_reached(address, authority.device_tls())


async def test_mutual_tls_lets_in_whom_its_authority_vouches_for(authority: Authority, stranger: Authority) -> None:
    foreign = stranger.device_tls("foreign")
    async with serving(tls=authority.server_tls(mutual=True)) as address:
        async with Agent.connect(address, "tiny:0.5", tls=authority.device_tls("device")) as agent:
            assert len((await answer(agent)).token_ids) == ANSWER_TOKENS
        assert not await is_reached(address, authority.device_tls())
        assert not await is_reached(address, Tls(authority.cert, foreign.cert, foreign.key))


async def test_certificates_are_exchanged_while_the_verifier_serves(
    tmp_path: Path, stranger: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    first = Authority(tmp_path / "first")
    pair, following = first.for_verifier(), stranger.for_verifier()
    before, after = first.device_tls(), stranger.device_tls()
    async with serving(tls=ServerTls(pair.cert, pair.key)) as address, calling(address, before) as standing:
        await standing.get_info()
        assert (await is_reached(address, before), await is_reached(address, after)) == (True, False)
        replace(pair.cert, following.cert.read_bytes())
        assert await is_reached(address, before), "the key is still the other one's"
        assert "the certificates stay as they were" in caplog.text
        replace(pair.key, following.key.read_bytes())
        assert (await is_reached(address, before), await is_reached(address, after)) == (False, True)
        await standing.get_info()
        pair.key.unlink()
        assert await is_reached(address, after)


async def test_client_authorities_are_exchanged_while_the_verifier_serves(tmp_path: Path, stranger: Authority) -> None:
    first = Authority(tmp_path / "first")
    foreign = stranger.device_tls("foreign")
    tls = Tls(first.cert, foreign.cert, foreign.key)
    async with serving(tls=first.server_tls(mutual=True)) as address:
        assert not await is_reached(address, tls)
        replace(first.cert, first.cert.read_bytes() + stranger.cert.read_bytes())
        assert await is_reached(address, tls)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "192.0.2.1:7071", "[::]:0", "[2001:db8::1]:1"])
def test_beyond_loopback_it_takes_tls_and_callers_that_are_known(tmp_path: Path, listen: str) -> None:
    tls, mutual = ServerTls(tmp_path, tmp_path), ServerTls(tmp_path, tmp_path, tmp_path)
    for missing, named in (
        (ServerConfig(listen), "--tls-cert"),
        (ServerConfig(listen, tokens=tmp_path), "--tls-cert"),
        (ServerConfig(listen, tls=tls), "--tokens"),
    ):
        with refused(Reason.LISTEN_NOT_LOOPBACK, named):
            check_reach(missing)
    for enough in (ServerConfig(listen, tls=tls, tokens=tmp_path), ServerConfig(listen, tls=mutual)):
        check_reach(enough)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:7071", "[::1]:0"])
def test_on_loopback_nothing_is_asked_for(listen: str) -> None:
    check_reach(ServerConfig(listen))
