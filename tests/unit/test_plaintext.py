"""Prompts leave the machine encrypted, or because somebody has said that they need not be."""

from __future__ import annotations

import pytest

from outrider.edge.agent import Agent
from outrider.edge.commands.options import VerifierOptions
from outrider.shared.access import Tls
from outrider.shared.errors import Reason
from support.refusal import refused

# Documentation's own addresses (RFC 5737): nothing answers there.
ELSEWHERE = "192.0.2.1:7071"


@pytest.mark.parametrize("addresses", [[ELSEWHERE], ["127.0.0.1:1", ELSEWHERE], ["verifier.invalid:7071"]])
async def test_another_machine_is_not_talked_to_in_the_clear(addresses: list[str]) -> None:
    with refused(Reason.USAGE, addresses[-1], "--tls", "--plaintext"):
        async with Agent.connect(addresses, "none"):
            pass


async def test_with_plaintext_it_is_tried() -> None:
    with refused(Reason.VERIFIER_UNREACHABLE):
        async with Agent.connect("verifier.invalid:7071", "none", plaintext=True):
            pass


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1"])
async def test_this_machine_needs_neither(address: str) -> None:
    with refused(Reason.VERIFIER_UNREACHABLE):
        async with Agent.connect(address, "none"):
            pass


def test_both_at_once_are_refused() -> None:
    with refused(Reason.USAGE, "--plaintext"):
        VerifierOptions(verifier=ELSEWHERE, tls=True, plaintext=True).access()
    assert VerifierOptions(verifier=ELSEWHERE, plaintext=True).access()["plaintext"]
    assert VerifierOptions(verifier=ELSEWHERE, tls=True).access()["tls"] == Tls()
