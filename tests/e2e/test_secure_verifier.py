"""TLS, tokens and certificates through the command line, with a verifier that is not started again; and logs that hold
nothing that is nobody's business.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outrider.cloud.tokens import CHECK_EVERY_S, new_token
from outrider.shared.errors import OutriderError, Reason
from support.callers import calling, token_path, tokens_path
from support.certificates import Authority, Pair, replace
from support.process import json_lines, run_command, verifier_process

PROMPT = "whereabouts of the heirloom"
TINY = ("--target", "tiny", "--context", "256")


def ask(verifier: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(
        "ask", PROMPT, "--verifier", verifier, "--drafter", "tiny:0.5", "--max-tokens", "20", "--json", *arguments
    )


def answered(verifier: str, *arguments: str) -> dict[str, Any]:
    done = ask(verifier, *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return json_lines(done.stdout)[0]


def refused_with(verifier: str, *arguments: str) -> tuple[int, str]:
    done = ask(verifier, *arguments)
    return done.returncode, json_lines(done.stdout)[0]["error"]["reason"]


def flags(pair: Pair) -> tuple[str, ...]:
    return "--tls-cert", str(pair.cert), "--tls-key", str(pair.key)


def made_token(name: str) -> tuple[str, str]:
    """A token and its line, as an operator gets them."""
    (made,) = json_lines(run_command("verifier", "--new-token", name, "--json").stdout)
    return made["token"], made["line"]


@pytest.fixture(scope="module")
def plain_answer() -> dict[str, Any]:
    done = run_command("ask", PROMPT, "--target", "tiny", "--drafter", "tiny:0.5", "--max-tokens", "20", "--json")
    return json_lines(done.stdout)[0]


def test_an_answer_over_tls_with_a_token_from_every_address(tmp_path: Path, plain_answer: dict[str, Any]) -> None:
    authority = Authority(tmp_path / "authority")
    token, line = made_token("phone")
    known, mine, wrong = tmp_path / "tokens", token_path(tmp_path, token), token_path(tmp_path, "x" * 43)
    known.write_text(f"{line}\n")
    tls = ("--tls", "--tls-ca", str(authority.cert))
    listen = ("--listen", "0.0.0.0:0", *flags(authority.for_verifier()), "--tokens", str(known), "--pad-commits")
    with verifier_process(*TINY, *listen) as reported:
        verifier = f"127.0.0.1:{reported.rpartition(':')[2]}"
        answer = answered(verifier, *tls, "--token-file", str(mine))
        assert answer["token_ids"] == plain_answer["token_ids"]
        compared = run_command(
            "compare", "one", "--verifier", verifier, "--drafter", "tiny:0.5", "--max-tokens", "20", "--json",
            *tls, "--token-file", str(mine),
        )  # fmt: skip
        assert (compared.returncode, json_lines(compared.stdout)[0]["identical"]) == (0, True)
        chatted = run_command(
            "chat", "--verifier", verifier, "--drafter", "tiny:0.5", "--max-tokens", "9", "--json", *tls,
            "--token-file", str(mine), stdin="hello\nand again\n",
        )  # fmt: skip
        assert json_lines(chatted.stdout)[1]["reused_tokens"] > 0
        assert refused_with(verifier, *tls) == (3, "UNAUTHENTICATED")
        assert refused_with(verifier, *tls, "--token-file", str(wrong)) == (3, "UNAUTHENTICATED")
        assert refused_with(verifier, "--token-file", str(mine)) == (4, "VERIFIER_UNREACHABLE")
        assert refused_with(verifier, "--tls", "--token-file", str(mine)) == (4, "VERIFIER_UNREACHABLE")


def test_mutual_tls_through_the_command_line(tmp_path: Path, plain_answer: dict[str, Any]) -> None:
    authority, stranger = Authority(tmp_path / "authority"), Authority(tmp_path / "stranger")
    mine, foreign = authority.for_device("device"), stranger.for_device("device")
    tls = ("--tls", "--tls-ca", str(authority.cert))
    mutual = ("--tls-client-ca", str(authority.cert))
    with verifier_process(*TINY, *flags(authority.for_verifier()), *mutual) as verifier:
        assert answered(verifier, *tls, *flags(mine))["token_ids"] == plain_answer["token_ids"]
        assert refused_with(verifier, *tls) == (4, "VERIFIER_UNREACHABLE")
        assert refused_with(verifier, *tls, *flags(foreign)) == (4, "VERIFIER_UNREACHABLE")


async def test_token_and_certificate_are_exchanged_without_a_restart(tmp_path: Path) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    old, new = new_token("phone"), new_token("phone")
    known, pair = tokens_path(tmp_path, old), first.for_verifier()
    with verifier_process(*TINY, *flags(pair), "--tokens", str(known)) as verifier:

        async def reached(authority: Authority, token: str) -> Reason | None:
            async with calling(verifier, authority.device_tls(), token) as client:
                try:
                    await client.get_info()
                except OutriderError as error:
                    return error.reason
                return None

        assert await reached(first, old.token) is None
        assert await reached(first, new.token) is Reason.UNAUTHENTICATED
        replace(known, f"{new.line}\n".encode())
        async with asyncio.timeout(30 * CHECK_EVERY_S):
            while await reached(first, new.token) is not None:
                pass
        assert await reached(first, old.token) is Reason.UNAUTHENTICATED

        pair.replace_by(second.for_verifier())
        assert await reached(second, new.token) is None
        assert await reached(first, new.token) is Reason.VERIFIER_UNREACHABLE


def test_logs_at_every_level_hold_no_token_no_key_and_nothing_of_a_text(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    known_token, unknown_token = new_token("phone"), new_token("phone")
    known, server, device = tokens_path(tmp_path, known_token), authority.for_verifier(), authority.for_device("phone")
    access = (
        "--log-level", "debug", "--profile", "--temperature", "1", "--seed", "3",
        "--tls", "--tls-ca", str(authority.cert), *flags(device), "--token-file",
    )  # fmt: skip
    log = tmp_path / "verifier.log"
    with (
        log.open("wb") as stderr,
        verifier_process(
            *TINY, *flags(server), "--tls-client-ca", str(authority.cert), "--tokens", str(known),
            "--log-level", "debug", stderr=stderr,
        ) as verifier,
    ):  # fmt: skip
        done = ask(verifier, *access, str(token_path(tmp_path, known_token.token)))
        assert done.returncode == 0
        (answer,) = json_lines(done.stdout)
        logs = [done.stderr]
        refusals = [
            ask(verifier, *access, str(token_path(tmp_path, unknown_token.token))),
            ask(verifier, *access, str(token_path(tmp_path, known_token.token)), "--logit-bias", "262=1"),
            ask(verifier, *access, str(server.key)),
        ]
        for refusal in refusals:
            assert refusal.returncode in {2, 3, 5}
            logs += [refusal.stderr, refusal.stdout]
        # Files that change to something that is none.
        replace(known, f"phone {known_token.token}\n".encode())
        replace(server.cert, server.key.read_bytes())
        # The verifier looks at its tokens once a second, and at its certificates whenever somebody connects.
        for _ in range(20):
            if "the tokens stay as they were" in log.read_text("utf-8"):
                break
            ask(verifier, *access, str(token_path(tmp_path, unknown_token.token)))
    logs.append(log.read_text("utf-8"))
    for kept in ("the tokens stay as they were", "the certificates stay as they were"):
        assert kept in logs[-1]
    assert "DEBUG" in logs[0]
    assert "DEBUG" in logs[-1]
    assert len(answer["text"]) > 8
    secrets = [known_token.token, unknown_token.token, PROMPT, "heirloom", answer["text"], answer["text"][:8]]
    for pair in (server, device):
        secrets += [line for line in pair.key.read_text().splitlines() if not line.startswith("-----")]
    for text in logs:
        for secret in secrets:
            assert secret not in text
            assert json.dumps(secret)[1:-1] not in text
        for ids in (list(PROMPT.encode()), answer["token_ids"]):
            assert not _holds_ids(text, ids)


def _holds_ids(text: str, ids: list[int]) -> bool:
    """Whether five ids that follow each other stand in a log, however they are set apart."""
    numbers = " ".join(re.findall(r"\d+", text))
    runs = [" ".join(map(str, ids[start : start + 5])) for start in range(len(ids) - 4)]
    return any(f" {run} " in f" {numbers} " for run in runs)


def test_the_search_for_ids_finds_them() -> None:
    assert _holds_ids("DEBUG x: sent (101, 104, 105, 114, 108)", [119, 101, 104, 105, 114, 108])
    assert not _holds_ids("DEBUG x: sent (101, 104, 105)", [119, 101, 104, 105, 114, 108])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--tls-cert", "CERT"], "USAGE"),
        (["--tls-key", "KEY"], "USAGE"),
        (["--tls-client-ca", "CERT"], "USAGE"),
        (["--tls-cert", "KEY", "--tls-key", "CERT"], "FILE_UNREADABLE"),
        (["--tls-cert", "CERT", "--tls-key", "nothing"], "FILE_UNREADABLE"),
        (["--tls-cert", "CERT", "--tls-key", "KEY", "--tls-client-ca", "KEY"], "FILE_UNREADABLE"),
        (["--tokens", "nothing"], "FILE_UNREADABLE"),
        (["--tokens", "KEY"], "FILE_UNREADABLE"),
        (["--new-token", "two words"], "USAGE"),
        (["--new-token", "anonymous"], "USAGE"),
    ],
)
def test_a_verifier_is_not_started_with_files_that_do_not_fit(
    tmp_path: Path, arguments: list[str], reason: str
) -> None:
    pair = Authority(tmp_path / "authority").for_verifier()
    names = {"CERT": str(pair.cert), "KEY": str(pair.key)}
    done = run_command("verifier", *TINY, "--json", *(names.get(word, word) for word in arguments))
    assert json_lines(done.stdout)[0]["error"]["reason"] == reason
    assert done.returncode == (2 if reason == "USAGE" else 5)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--tls-ca", "x.pem", "--verifier", "localhost:1"], "--tls-ca"),
        (["--tls-cert", "x.pem", "--tls-key", "y", "--verifier", "localhost:1"], "--tls-cert"),
        (["--tls"], "--verifier"),
        (["--token-file", "x"], "--verifier"),
        (["--tls", "--tls-cert", "x.pem", "--verifier", "localhost:1"], "key"),
        (["--token-file", "TOKEN", "--plaintext", "--verifier", "192.0.2.1:7071"], "TLS"),
        (["--verifier", "192.0.2.1:7071"], "--plaintext"),
    ],
)
def test_options_that_lack_another_are_usage_errors(tmp_path: Path, arguments: list[str], named: str) -> None:
    given = [str(token_path(tmp_path, "t")) if word == "TOKEN" else word for word in arguments]
    done = run_command("ask", "x", "--drafter", "tiny:0.5", "--json", *given)
    error = json_lines(done.stdout)[0]["error"]
    assert (done.returncode, error["reason"]) == (2, "USAGE")
    assert named in error["message"]


def test_a_new_token_is_printed_with_its_line_and_lets_in() -> None:
    done = run_command("verifier", "--new-token", "phone")
    token, line = (text.split(":", 1)[1].strip() for text in done.stdout.splitlines())
    assert (done.returncode, done.stderr) == (0, "")
    assert line.startswith("phone ")
    assert made_token("phone") != (token, line)
