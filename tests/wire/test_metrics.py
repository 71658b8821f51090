"""Metrics of a verifier at work, over HTTP; and what is made of them in deploy/."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.cloud.exposition import MOST_CLIENTS, exposed
from outrider.cloud.metrics import Metrics
from outrider.cloud.server import ServerConfig, running_server
from outrider.cloud.target import EngineTarget
from outrider.cloud.targets.base import RowLogits, SlotRows
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.tokens import new_token
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.cloud.watching import WatchConfig, check_watch
from outrider.edge.agent import Agent
from outrider.edge.chunks import Result
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.options import Sampling
from support.callers import tokens_path
from support.scrape import scrape
from support.serving import open_request, raw_stream

ROOT = Path(__file__).parents[2]
DASHBOARD, ALERTS = ROOT / "deploy/grafana/outrider-verifier.json", ROOT / "deploy/prometheus/alerts.yml"
SLOTS = 3


class _FailingEngine(TinyEngine):
    """Its forward fails while `is_broken`."""

    is_broken = False

    def forward(self, rows: Sequence[SlotRows]) -> Sequence[RowLogits]:
        if self.is_broken:
            raise RuntimeError("a fault of the engine")
        return super().forward(rows)


@contextlib.asynccontextmanager
async def measured(engine: TinyEngine | None = None, **server: Any) -> AsyncIterator[tuple[str, str]]:
    """A verifier with metrics; yields its address and theirs."""
    metrics = Metrics()
    verifier = Verifier(EngineTarget(engine or TinyEngine(max_slots=SLOTS)), VerifierConfig(), metrics)
    metrics.watch(verifier)
    async with (
        running_server(verifier, ServerConfig("127.0.0.1:0", **server)) as port,
        exposed(metrics.registry, "127.0.0.1:0") as shown,
    ):
        yield f"127.0.0.1:{port}", shown


async def answers(address: str, count: int) -> list[Result]:
    async with Agent.connect(address, "tiny:0.5", control="fixed", gamma=4) as agent:
        return [await agent.answer(f"question {i}", Sampling(max_tokens=30)) for i in range(count)]


async def test_metrics_count_what_the_edges_got() -> None:
    async with measured() as (address, shown):
        results = await answers(address, 2)
        async with raw_stream(address) as stream:
            await stream.send(open_request())
            opened = await stream.receive()
            during = await scrape(shown)
        seen = await scrape(shown)
    tokens = sum(len(result.committed_ids) for result in results)
    assert seen.value("outrider_committed_tokens_total") == tokens
    assert seen.value("outrider_tokens_per_pass_sum") == tokens
    assert seen.value("outrider_accepted_nodes_total") == sum(r.stats["walked"] for r in results)
    assert tokens > 0 < seen.value("outrider_accepted_nodes_total") < seen.value("outrider_checked_nodes_total")
    assert seen.value("outrider_tokens_per_pass_count") == sum(r.stats["passes"] for r in results)
    assert seen.value("outrider_pass_seconds_count") == seen.value("outrider_pass_rows_count")
    assert seen.value("outrider_pass_rows_sum") > seen.value("outrider_checked_nodes_total")
    assert seen.value("outrider_grow_bytes_total") > 0
    assert sum(seen.value("outrider_answers_total", reason=reason) for reason in ("stop", "length")) == 2
    assert seen.value("outrider_first_token_seconds_count") == seen.value("outrider_answer_seconds_count") == 2
    assert seen.value("outrider_serving") == 1
    assert (during.value("outrider_streams"), during.value("outrider_open_sessions")) == (1, 1)
    slots = {state: during.value("outrider_slots", state=state) for state in ("free", "parked", "open")}
    assert slots["open"] == 1
    assert sum(slots.values()) == SLOTS
    assert during.value("outrider_cached_tokens") > tokens
    assert opened.opened.session_id[:8] not in during.text


async def test_refusals_are_counted_by_a_reason_of_the_table_and_by_nothing_else(tmp_path: Path) -> None:
    known = new_token("phone")
    async with measured(tokens=tokens_path(tmp_path, known)) as (address, shown):
        for metadata in (None, [("authorization", f"Bearer {known.token}")]):
            async with raw_stream(address, metadata) as stream:
                # Who is refused for want of a token may hear so before anything is written.
                with pytest.raises((OutriderError, grpc.aio.AioRpcError)):
                    await stream.send(open_request(prompt_ids=[]))
                    await stream.receive()
        seen = await scrape(shown)
    counted = {reason: seen.value("outrider_refusals_total", reason=reason) for reason in Reason}
    assert {reason: count for reason, count in counted.items() if count} == {
        Reason.UNAUTHENTICATED: 1,
        Reason.PROMPT_EMPTY: 1,
    }
    assert "phone" not in seen.text


async def test_passes_that_fail_in_a_row_show_in_the_health_until_one_does_not() -> None:
    engine = _FailingEngine(max_slots=SLOTS)

    async def attempt(address: str) -> None:
        async with raw_stream(address) as stream:
            await stream.send(open_request(prompt_ids=[257, 65, 258]))
            await stream.receive()
            with pytest.raises(OutriderError) as failed:
                await stream.receive()
            assert failed.value.reason is Reason.INTERNAL

    async with measured(engine) as (address, shown), grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watched = stub.Watch(health_pb2.HealthCheckRequest(), timeout=20)
        statuses = health_pb2.HealthCheckResponse
        assert (await watched.read()).status == statuses.SERVING
        engine.is_broken = True
        await attempt(address)
        await attempt(address)
        assert (await scrape(shown)).value("outrider_serving") == 1
        await attempt(address)
        assert (await watched.read()).status == statuses.NOT_SERVING
        ill = await scrape(shown)
        assert (ill.value("outrider_serving"), ill.value("outrider_failed_passes_total")) == (0, 3)
        engine.is_broken = False
        await answers(address, 1)
        assert (await watched.read()).status == statuses.SERVING


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:9464", "192.0.2.1:1"])
def test_metrics_beyond_loopback_have_to_be_meant(listen: str) -> None:
    with pytest.raises(OutriderError) as refused:
        check_watch(WatchConfig(listen))
    assert refused.value.reason is Reason.LISTEN_NOT_LOOPBACK
    check_watch(WatchConfig(listen, metrics_public=True))


@pytest.mark.parametrize("config", [WatchConfig("nowhere"), WatchConfig("example.org:1"), WatchConfig(None, True)])
def test_an_address_that_is_none_is_a_usage_error(config: WatchConfig) -> None:
    with pytest.raises(OutriderError) as refused:
        check_watch(config)
    assert refused.value.reason is Reason.USAGE


async def test_a_port_that_is_taken_is_told_of() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OutriderError) as refused:
            async with exposed(Metrics().registry, f"127.0.0.1:{taken.getsockname()[1]}"):
                pass
    assert refused.value.reason is Reason.PORT_IN_USE


async def test_a_client_that_says_nothing_keeps_no_scrape_waiting() -> None:
    async with measured() as (_, shown):
        host, _, port = shown.rpartition(":")
        with socket.create_connection((host, int(port))):
            assert "outrider_serving" in (await scrape(shown)).text


async def test_clients_that_hold_on_are_bounded_and_a_scrape_works_when_one_lets_go() -> None:
    async with measured() as (_, shown), contextlib.AsyncExitStack() as stack:
        host, _, port = shown.rpartition(":")
        before = threading.active_count()
        held = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(3 * MOST_CLIENTS)]
        await asyncio.sleep(0.5)
        assert threading.active_count() - before <= MOST_CLIENTS
        for one in held:
            one.close()
        await asyncio.sleep(0.5)
        assert "outrider_serving" in (await scrape(shown)).text


async def test_dashboard_and_alerts_ask_for_metrics_that_are_there() -> None:
    async with measured() as (address, shown):
        await answers(address, 1)
        there = (await scrape(shown)).names()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(asked) >= 10
    rules = re.split(r"^\s*- alert: ", ALERTS.read_text(), flags=re.MULTILINE)[1:]
    assert len(rules) >= 5
    asked += [rule.partition("expr:")[2].partition("labels:")[0] for rule in rules]
    for expression in asked:
        names = re.findall(r"\b(?:outrider|process)_\w+", expression)
        assert names, expression
        assert set(names) <= there, expression
