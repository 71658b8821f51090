"""What the verifier's log says of a stream, and what it never says: real gRPC, everything at DEBUG."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from outrider.cloud.logs import JsonFormatter, TextFormatter
from outrider.cloud.service import REQUEST_ID_KEY
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.tokens import new_token
from outrider.edge.agent import Agent
from outrider.edge.chunks import Result
from outrider.shared.errors import OutriderError
from outrider.shared.sampling.options import Sampling
from outrider.v1 import verifier_pb2_grpc as pb_grpc
from support.callers import token_path, tokens_path
from support.serving import grow_request, open_request, raw_stream, serving

PROMPT = "whereabouts of the heirloom"


@contextlib.contextmanager
def logged(formatter: logging.Formatter, level: int = logging.DEBUG) -> Iterator[io.StringIO]:
    """All that any logger says, from `level` on, as `formatter` writes it."""
    root, stream = logging.getLogger(), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield stream
    finally:
        root.setLevel(before)
        root.removeHandler(handler)


def lines_of(log: io.StringIO, logger: str = "outrider.cloud") -> list[dict[str, Any]]:
    """The JSON lines of loggers below `logger`."""
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    return [line for line in lines if line["logger"].startswith(logger)]


async def an_answer(address: str, token_file: Path | None = None) -> Result:
    async with Agent.connect(address, "tiny:0.5", token_file=token_file) as agent:
        return await agent.answer(PROMPT, Sampling(max_tokens=24, logit_bias={256: -100.0}))


async def test_a_stream_is_opened_and_finished_under_its_names() -> None:
    with logged(JsonFormatter(), logging.INFO) as log:
        async with serving() as address:
            result = await an_answer(address)
    opened, finished = (line for line in lines_of(log) if "request" in line)
    assert opened["message"].startswith("opened")
    expected = rf"finished \(length\): {len(result.committed_ids)} tokens, {result.stats['passes']} passes, \d+\.\d+ s"
    assert re.fullmatch(expected, finished["message"])
    for line in (opened, finished):
        assert line["level"] == "INFO"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert line["session"] == result.session_id[:8]
    assert opened["request"] == finished["request"]


async def test_the_peer_hears_what_the_stream_is_called_in_the_log() -> None:
    with logged(JsonFormatter(), logging.INFO) as log:
        async with serving() as address, grpc.aio.insecure_channel(address) as channel:
            call: Any = pb_grpc.VerifierServiceStub(channel).Decode()
            await call.write(open_request(prompt_ids=[]))
            heard = dict(await call.initial_metadata())[REQUEST_ID_KEY]
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    (refused,) = (line for line in lines_of(log) if "request" in line)
    assert (refused["message"], refused["request"]) == ("refused: PROMPT_EMPTY", heard)


async def test_two_streams_at_once_are_told_apart() -> None:
    with logged(JsonFormatter(), logging.INFO) as log:
        async with serving() as address:
            results = await asyncio.gather(an_answer(address), an_answer(address))
    lines = [line for line in lines_of(log) if "session" in line]
    by_request = {line["request"]: [other for other in lines if other["request"] == line["request"]] for line in lines}
    assert sorted(group[0]["session"] for group in by_request.values()) == sorted(r.session_id[:8] for r in results)
    assert all(len({line["session"] for line in group}) == 1 for group in by_request.values())


async def test_a_stream_that_is_left_is_told_of() -> None:
    with logged(JsonFormatter(), logging.INFO) as log:
        async with serving() as address, raw_stream(address) as stream:
            await stream.send(open_request())
            await stream.receive()
            await stream.send(grow_request(1, [], run_to=1))
            assert (await stream.receive()).commit.committed_length == 1
    assert [line["message"].startswith("left after 1 tokens") for line in lines_of(log) if "session" in line][1:] == [
        True
    ]


class _BrokenEngine(TinyEngine):
    def forward(self, rows: Any) -> Any:
        raise RuntimeError("a fault of the engine")


async def test_a_failure_is_logged_under_the_number_that_the_peer_hears() -> None:
    with logged(JsonFormatter(), logging.INFO) as log:
        async with serving(_BrokenEngine()) as address, raw_stream(address) as stream:
            await stream.send(open_request())
            with pytest.raises(OutriderError) as failed:
                while True:
                    await stream.receive()
    found = re.search(r"Incident ([0-9a-f]{16})", failed.value.message)
    assert found is not None
    (incident,) = (line for line in lines_of(log) if line["level"] == "ERROR")
    assert found[1] in incident["message"]
    assert "a fault of the engine" in incident["exception"]
    (told,) = (line for line in lines_of(log) if line["message"].startswith("failed"))
    assert found[1] in told["message"]
    assert "session" in told


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
async def test_no_prompt_no_text_no_ids_and_no_secret_is_ever_logged(
    tmp_path: Path, formatter: logging.Formatter
) -> None:
    token = new_token("phone")
    with logged(formatter) as log:
        async with serving(tokens=tokens_path(tmp_path, token)) as address:
            result = await an_answer(address, token_path(tmp_path, token.token))
            with pytest.raises(OutriderError):
                async with raw_stream(address, [("authorization", f"Bearer {token.token}")]) as stream:
                    await stream.send(open_request(required_features=[PROMPT, token.token]))
                    await stream.receive()
    said = log.getvalue()
    assert result.session_id[:8] in said
    assert len(result.committed_ids) == 24
    for secret in (token.token, result.session_id, PROMPT, "heirloom", result.text[:8]):
        assert secret not in said
    numbers = f" {' '.join(re.findall(r'[0-9]+', said))} "
    for ids in (list(PROMPT.encode()), result.committed_ids):
        for start in range(len(ids) - 3):
            assert f" {' '.join(map(str, ids[start : start + 4]))} " not in numbers


def test_a_line_is_one_line_and_holds_what_happened() -> None:
    try:
        raise ValueError("in two\nlines")
    except ValueError:
        with logged(JsonFormatter()) as log:
            logging.getLogger("outrider.cloud.x").exception("so %s", 'that "is"\nit')
    (line,) = lines_of(log)
    assert (line["message"], line["logger"]) == ('so that "is"\nit', "outrider.cloud.x")
    assert "in two\nlines" in line["exception"]
