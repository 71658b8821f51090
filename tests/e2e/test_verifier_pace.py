"""`outrider verifier --pace`: what the operator says holds for every edge."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.edge.link import VerifierClient
from support.process import json_lines, run_command, verifier_process

ASK = ("ask", "Tell me", "--json", "--max-tokens", "40", "--pace", "eager", "--control", "fixed")


def ask(address: str, drafter: str) -> dict[str, Any]:
    """An answer of 40 tokens, the eager way."""
    (answer,) = json_lines(
        run_command(*ASK, "--logit-bias", "256=-100", "--verifier", address, "--drafter", drafter).stdout
    )
    return answer


async def run_ahead(address: str) -> int:
    """What the verifier says of the credit it grants."""
    client = VerifierClient(address)
    try:
        return (await client.get_info()).limits.max_run_ahead
    finally:
        await client.close()


async def test_a_patient_verifier_makes_eager_edges_patient() -> None:
    with verifier_process("--target", "tiny", "--pace", "patient") as address:
        assert await run_ahead(address) == 1
        right, none = ask(address, "scripted:right"), ask(address, "none")
    with verifier_process("--target", "tiny") as address:
        assert await run_ahead(address) == 1024
        free = ask(address, "none")
    assert right["token_ids"] == none["token_ids"] == free["token_ids"]
    assert right["passes"] == right["rounds"] == -(-40 // 6), "none but for five guesses each"
    assert none["passes"] == none["rounds"] == 40, "each token was asked for"
    assert (free["passes"], free["rounds"]) == (40, 1), "all tokens were asked for at once"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--pace", "leisurely"), ("--pace", "leisurely")),
        (("--pace", "patient", "--max-run-ahead", "8"), ("--max-run-ahead", "8", "patient")),
        (("--throttle-rows", "0"), ("--throttle-rows",)),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], names: tuple[str, ...]) -> None:
    done = run_command("verifier", "--target", "tiny", "--listen", "127.0.0.1:0", "--json", *arguments)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["reason"]) == (2, "USAGE")
    assert all(name in error["message"] for name in names)
