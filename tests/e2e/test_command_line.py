"""The commands as a user runs them, in processes of their own: answers on stdout, reasons and exit codes for errors."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.process import COMMAND, json_lines, run_command, verifier_process

TINY = ("--target", "tiny", "--drafter", "tiny:0.5")
ASK_KEYS = {
    "text", "token_ids", "finish_reason", "prompt_tokens", "tokens", "passes", "tokens_per_pass", "drafted",
    "accepted", "acceptance_rate", "alpha", "accepted_histogram", "grow_payload_bytes", "uplink_bytes",
    "downlink_bytes", "rounds", "open_bytes", "draft_ms", "pass_ms", "queue_ms", "link_ms", "seconds", "ttft_ms",
    "seed", "model", "draft_model", "numerics", "settings",
}  # fmt: skip
COMPARE_KEYS = ASK_KEYS | {
    "id", "category", "identical", "first_difference", "logit_gap", "near_tie", "target_passes",
}  # fmt: skip


@pytest.fixture(scope="module")
def verifier() -> Iterator[str]:
    with verifier_process("--target", "tiny", "--context", "128") as address:
        yield address


def test_ask_with_a_private_verifier_prints_the_answer_and_nothing_else() -> None:
    # A pace that is left open may be said to change on a busy machine.
    patient = (*TINY, "--pace", "patient", "--max-tokens", "30")
    plain = run_command("ask", "hello", *patient)
    assert (plain.returncode, plain.stderr) == (0, "")
    (answer,) = json_lines(run_command("ask", "hello", *patient, "--json").stdout)
    assert plain.stdout == answer["text"] + "\n"
    assert set(answer) >= ASK_KEYS
    assert answer["tokens"] == len(answer["token_ids"])
    assert answer["tokens_per_pass"] == pytest.approx(answer["tokens"] / answer["passes"], abs=1e-4)
    assert sum(k * n for k, n in enumerate(answer["accepted_histogram"])) == answer["accepted"]
    assert sum(answer["accepted_histogram"]) == answer["passes"]
    assert answer["grow_payload_bytes"] / answer["drafted"] <= 4


def test_a_random_seed_is_reported_and_repeats_the_answer(verifier: str) -> None:
    common = ("ask", "seed", "--verifier", verifier, "--drafter", "tiny:0.5", "--temperature", "1", "--json")
    (drawn,) = json_lines(run_command(*common).stdout)
    (again,) = json_lines(run_command(*common, "--seed", str(drawn["seed"])).stdout)
    assert again["token_ids"] == drawn["token_ids"]


def test_compare_reports_every_prompt_and_exits_0_when_all_are_identical(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "a", "category": "x", "prompt": "one"}\n\n{"id": "b", "category": "y", "prompt": "2"}\n')
    done = run_command("compare", "--prompts", str(prompts), *TINY, "--max-tokens", "40", "--json")
    rows = json_lines(done.stdout)
    assert done.returncode == 0
    assert [row["id"] for row in rows] == ["a", "b"]
    for row in rows:
        assert set(row) >= COMPARE_KEYS
        assert row["identical"]
        assert row["first_difference"] is None
        assert row["target_passes"] >= row["passes"]


def test_demo_shows_both_texts_identical() -> None:
    done = run_command("demo", *TINY, "--json")
    assert done.returncode == 0
    assert all(row["identical"] for row in json_lines(done.stdout))
    assert "passes" in done.stderr


def test_chat_takes_over_the_cached_conversation() -> None:
    done = run_command("chat", *TINY, "--max-tokens", "20", "--json", stdin="hello\nand again\n")
    first, second = json_lines(done.stdout)
    assert first["reused_tokens"] == 0
    assert second["reused_tokens"] >= first["prompt_tokens"]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "reason", "named"),
    [
        (["--temperature", "-1"], 2, "SAMPLING_INVALID", "-1"),
        (["--temperature", "nan"], 2, "SAMPLING_INVALID", "nan"),
        (["--top-p", "0"], 2, "SAMPLING_INVALID", "top_p"),
        (["--top-k", "-3"], 2, "SAMPLING_INVALID", "-3"),
        (["--seed", str(2**64)], 2, "SAMPLING_INVALID", str(2**64)),
        (["--max-tokens", "0"], 2, "SAMPLING_INVALID", "max_tokens"),
        (["--logit-bias", "x=1"], 2, "SAMPLING_INVALID", "x=1"),
        (["--logit-bias", "5=nan"], 2, "SAMPLING_INVALID", "nan"),
        (["--stop", ""], 2, "SAMPLING_INVALID", "stop"),
        (["--logit-bias", "262=1"], 2, "TOKEN_OUT_OF_RANGE", "262"),
        (["--gamma", "0"], 2, "USAGE", "0"),
        (["--gamma", "500"], 2, "USAGE", "500"),
        (["--branch", "0"], 2, "USAGE", "0"),
        (["--control", "magic"], 2, "USAGE", "magic"),
        (["--pace", "leisurely"], 2, "USAGE", "leisurely"),
        (["--unknown-option", "1"], 2, "USAGE", "--unknown-option"),
        (["--drafter", "telepathy"], 2, "USAGE", "telepathy"),
        (["--drafter", "llama:no-such-model"], 5, "MODEL_UNKNOWN", "no-such-model"),
        (["--drafter", "lookup:no-such-file"], 5, "FILE_UNREADABLE", "no-such-file"),
        (["--drafter", "lookup:"], 2, "USAGE", "lookup:"),
        (["--drafter", "lookup:a+lookup:b"], 2, "USAGE", "lookup:a+lookup:b"),
        (["--draft-temperature", "warm"], 2, "USAGE", "warm"),
        (["--state", "/dev/null"], 5, "FILE_UNREADABLE", "/dev/null"),
        (["--target", "tiny"], 2, "USAGE", "--target"),
    ],
)
def test_bad_options_are_refused_with_reason_and_value(
    verifier: str, arguments: list[str], exit_code: int, reason: str, named: str
) -> None:
    drafter = [] if "--drafter" in arguments else ["--drafter", "tiny:0.5"]
    done = run_command("ask", "x", "--verifier", verifier, *drafter, *arguments, "--json")
    (said,) = json_lines(done.stdout)
    assert (done.returncode, said["error"]["reason"]) == (exit_code, reason)
    assert named in said["error"]["message"]


def test_a_prompt_past_the_context_is_refused_by_the_verifier(verifier: str) -> None:
    done = run_command("ask", "x" * 300, "--verifier", verifier, "--drafter", "tiny:0.5", "--json")
    (said,) = json_lines(done.stdout)
    assert (done.returncode, said["error"]["reason"]) == (3, "PROMPT_TOO_LONG")
    assert "303 prompt tokens, context 128" in said["error"]["message"]


def test_an_empty_prompt_is_refused(verifier: str) -> None:
    done = run_command("ask", "  ", "--verifier", verifier, "--json")
    assert (done.returncode, json_lines(done.stdout)[0]["error"]["reason"]) == (2, "PROMPT_EMPTY")


def test_a_verifier_that_is_not_there_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    done = run_command("ask", "x", "--verifier", address, "--drafter", "tiny:0.5", "--json")
    assert (done.returncode, json_lines(done.stdout)[0]["error"]["reason"]) == (4, "VERIFIER_UNREACHABLE")


def test_a_port_in_use_and_an_address_others_could_reach_are_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_command("verifier", "--target", "tiny", "--listen", listen, "--json")
        assert (done.returncode, json_lines(done.stdout)[0]["error"]["reason"]) == (2, "PORT_IN_USE")
    for listen in ("0.0.0.0:0", "192.0.2.1:7071", "[::]:0"):
        done = run_command("verifier", "--target", "tiny", "--listen", listen, "--json")
        assert (done.returncode, json_lines(done.stdout)[0]["error"]["reason"]) == (2, "LISTEN_NOT_LOOPBACK")


def test_a_damaged_model_file_is_refused_as_target_and_as_drafter(
    verifier: str, tiny_gguf: Path, tmp_path: Path
) -> None:
    whole = tiny_gguf.read_bytes()
    for size in (0, 10, len(whole) // 3, len(whole) - 100):
        broken = tmp_path / f"broken-{size}.gguf"
        broken.write_bytes(whole[:size])
        for arguments in (
            ["--verifier", verifier, "--drafter", f"llama:{broken}"],
            ["--target", f"llama:{broken}", "--drafter", "none"],
        ):
            done = run_command("ask", "x", *arguments, "--json")
            assert (done.returncode, json_lines(done.stdout)[0]["error"]["reason"]) == (5, "MODEL_CORRUPT")


def test_a_drafter_of_another_vocabulary_is_refused_naming_the_field(verifier: str, tiny_gguf: Path) -> None:
    done = run_command("ask", "x", "--verifier", verifier, "--drafter", f"llama:{tiny_gguf}", "--json")
    (said,) = json_lines(done.stdout)
    assert (done.returncode, said["error"]["reason"]) == (5, "VOCABULARY_MISMATCH")
    assert "real_width" in said["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [(["ask", "-"], b"abc\xff"), (["ask", "abc\udcff"], None), (["ask", "hi", "--stop", "\udcff"], None)],
)
def test_text_that_is_no_utf_8_is_a_usage_error(arguments: list[str], stdin: bytes | None) -> None:
    done = subprocess.run(
        [*COMMAND, *arguments, *TINY, "--max-tokens", "4", "--json"], capture_output=True, input=stdin, check=False
    )
    (said,) = json_lines(done.stdout.decode())
    assert (done.returncode, said["error"]["reason"]) in {(2, "USAGE"), (2, "SAMPLING_INVALID")}


def test_output_that_cannot_be_written_is_no_difference_between_answers() -> None:
    closed = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *COMMAND, "ask", "hi", *TINY, "--max-tokens", "4"],
        stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    assert (closed.returncode, closed.stderr) == (0, b"")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "ask", "hi", *TINY, "--max-tokens", "4", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 5
    assert b"Traceback" not in done.stderr


def test_a_proxy_in_the_environment_does_not_come_between_a_command_and_loopback() -> None:
    environment = os.environ | {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(
        [*COMMAND, "ask", "hi", *TINY, "--max-tokens", "4", "--json"], capture_output=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout


def test_a_cache_folder_that_cannot_be_used_costs_keeping_the_tokenizer_only() -> None:
    environment = os.environ | {"OUTRIDER_HOME": "/dev/null"}
    done = subprocess.run(
        [*COMMAND, "ask", "hi", *TINY, "--max-tokens", "4", "--json"], capture_output=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout
    assert b"cannot keep the tokenizer" in done.stderr


@pytest.mark.parametrize("drafter", ["none", "tiny:0.5"])
def test_a_reader_that_leaves_ends_an_answer_in_peace(drafter: str) -> None:
    asked = subprocess.Popen(
        [*COMMAND, "ask", "hi", *TINY[:2], "--drafter", drafter, "--max-tokens", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert asked.stdout is not None
    assert asked.stderr is not None
    assert asked.stdout.read(1)
    asked.stdout.close()
    assert b"Traceback" not in asked.stderr.read()
    asked.wait(20)
    asked.stderr.close()


@pytest.mark.parametrize("deviation", ["nan", "-1", "1e308"])
def test_a_drafter_that_could_not_draft_is_refused(deviation: str) -> None:
    done = run_command("ask", "hi", *TINY[:2], "--drafter", f"tiny:{deviation}", "--json")
    assert (done.returncode, json_lines(done.stdout)[0]["error"]["reason"]) == (2, "USAGE")


def test_an_interrupted_verifier_exits_with_130() -> None:
    process = subprocess.Popen(
        [*COMMAND, "verifier", "--target", "tiny", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"listening on 127.0.0.1:")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
