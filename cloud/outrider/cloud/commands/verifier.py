"""Serve a target model to edge agents over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Literal

import typer

from outrider.cloud.check import check_verifier
from outrider.cloud.logs import LogFormat, set_log_format
from outrider.cloud.quotas import Quotas, read_quotas
from outrider.cloud.scheduler import PassLimits
from outrider.cloud.server import ServerConfig, check_files, check_port_is_free, check_reach, running_server
from outrider.cloud.session import PATIENT_RUN_AHEAD, SessionLimits
from outrider.cloud.target import EngineTarget
from outrider.cloud.targets.spec import DEFAULT_TARGET, FORMS, TargetConfig, make_engine, revision_of
from outrider.cloud.tls import ServerTls
from outrider.cloud.tokens import new_token as make_token
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.cloud.watching import WatchConfig, check_watch, watching
from outrider.shared.access import Tls, read_access
from outrider.shared.cli import EXIT_INTERNAL, EXIT_INTERRUPTED, JsonOption, LogLevelOption, print_json
from outrider.shared.errors import OutriderError, Reason

logger = logging.getLogger(__name__)

# To free the target and to leave, past the grace period.
OVERTIME_S = 1.0
LONGEST_GRACE_S = 86_400.0


def verifier(
    target: Annotated[str, typer.Option(help=f"The target model: {FORMS}.")] = DEFAULT_TARGET,
    listen: Annotated[str, typer.Option(help="HOST:PORT; port 0 picks a free one.")] = "127.0.0.1:7071",
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The verifier's certificate (PEM); read again when it changes.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key (PEM).")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Only clients with a certificate of these authorities get in.")
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Calls need a token of this file; read again when it changes."),
    ] = None,
    new_token: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print a new token and its line for --tokens, and exit.")
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Ask the verifier there whether it serves, and exit: 0 if so, 4 if it cannot be reached, 3 else. "
            "--tls-cert and --tls-key are then this caller's own.",
        ),
    ] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --check: use TLS, and who may vouch for the verifier.")
    ] = None,
    tls_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --check: the certificate's name, if it is not HOST."),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="With --check: the bearer token.")] = None,
    quotas: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What each caller may have (TOML); needs --tokens or --tls-client-ca."),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="How long stopping may take: edges are sent elsewhere first."),
    ] = 10.0,
    pad_commits: Annotated[
        bool, typer.Option("--pad-commits", help="Make commits equally long: sizes then tell no accept counts.")
    ] = False,
    numerics: Annotated[
        Literal["exact", "fast"] | None,
        typer.Option(
            help="exact: rows do not depend on what shares their pass, or the start fails.",
            show_default="exact for llama, what is found for transformers",
        ),
    ] = None,
    context: Annotated[int, typer.Option(min=16, help="Positions of prompt and answer together.")] = 2048,
    max_sessions: Annotated[int, typer.Option(min=1, max=255, help="Sessions open at once.")] = 4,
    max_branches: Annotated[int, typer.Option(min=0, max=255, help="Side branches that a pass can hold.")] = 8,
    window: Annotated[int, typer.Option(min=32, max=4096, help="Live nodes that a session may have.")] = 256,
    pace: Annotated[
        Literal["patient", "eager"],
        typer.Option(help="patient: no session may be decoded on without guesses; eager: those that ask for it are."),
    ] = "eager",
    max_run_ahead: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens an eager session may have decoded ahead of its edge.", show_default="1024"),
    ] = None,
    lookup: Annotated[int, typer.Option(min=0, max=64, help="Guesses a pass that the verifier looks up itself.")] = 0,
    max_rows: Annotated[int, typer.Option(min=64, max=1024, help="Rows of one pass over all sessions.")] = 512,
    free_rows: Annotated[
        int, typer.Option(min=1, help="Rows that cost a pass next to nothing; edges send less when it has more.")
    ] = 64,
    gather_passes: Annotated[
        float, typer.Option(min=0, help="For how many passes' time patient sessions may wait for each other.")
    ] = 4.0,
    throttle_rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With so many rows of guesses and prompts a pass leaves eager sessions out that are between guesses.",
            show_default="as --free-rows",
        ),
    ] = None,
    pass_limit: Annotated[
        float, typer.Option(min=1, help="Seconds after which a pass is taken to be stuck and the health to be bad.")
    ] = 120.0,
    dtype: Annotated[
        Literal["fp32", "bf16", "fp16"] | None, typer.Option(help="For transformers targets.", show_default="fp32")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="For transformers targets: cpu, cuda or auto.", show_default="cpu")
    ] = None,
    gpu_layers: Annotated[
        int | None, typer.Option(help="For llama targets: layers to put on the GPU.", show_default="0")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="For llama targets.", show_default="all cores")] = None,
    reflection: Annotated[bool, typer.Option("--reflection", help="Offer gRPC reflection.")] = False,
    stop_with_stdin: Annotated[
        bool, typer.Option("--stop-with-stdin", help="Stop when standard input ends, as a child process should.")
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Show metrics for Prometheus over HTTP; port 0 picks a free one."),
    ] = None,
    metrics_public: Annotated[
        bool, typer.Option("--metrics-public", help="Show metrics beyond loopback too, to everybody.")
    ] = False,
    telemetry: Annotated[
        bool, typer.Option("--telemetry", help="Export traces by OpenTelemetry; OTEL_ variables say where to.")
    ] = False,
    log_format: Annotated[LogFormat, typer.Option(help="How the log on stderr looks.")] = LogFormat.TEXT,
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> int:
    """Serve a target model to edge agents until interrupted.

    The first line on standard output, once all is ready, says where it listens.
    """
    if new_token is not None:
        return _print_token(new_token, json)
    set_log_format(log_format)
    if check is not None:
        return _check(check, tls_ca, tls_cert, tls_key, tls_name, token_file, json)
    for option, value in (("--tls-ca", tls_ca), ("--tls-name", tls_name), ("--token-file", token_file)):
        if value is not None:
            raise OutriderError(Reason.USAGE, f"{option} {str(value)!r} is for --check.")
    server_config = ServerConfig(
        listen=listen,
        reflection=reflection,
        tls=_tls(tls_cert, tls_key, tls_client_ca),
        tokens=tokens,
        pad_commits=pad_commits,
        grace_s=grace,
    )
    if not 0 <= grace <= LONGEST_GRACE_S:
        raise OutriderError(Reason.USAGE, f"--grace {grace}: expected 0 to {LONGEST_GRACE_S:g} seconds.")
    check_reach(server_config)
    watch_config = WatchConfig(metrics, metrics_public, telemetry)
    check_watch(watch_config)
    if quotas is not None and tokens is None and tls_client_ca is None:
        raise OutriderError(Reason.USAGE, f"--quotas {str(quotas)!r}: expected --tokens or --tls-client-ca with it.")
    run_ahead = _max_run_ahead(pace, max_run_ahead)
    target_config = TargetConfig(
        spec=target,
        numerics=numerics,
        context_length=context,
        max_sessions=max_sessions,
        max_branches=max_branches,
        max_rows=max_rows,
        dtype=dtype,
        device=device,
        gpu_layers=gpu_layers,
        threads=threads,
    )
    config = VerifierConfig(
        passes=PassLimits(max_rows, free_rows, gather_passes, throttle_rows, pass_limit),
        session=SessionLimits(
            window=window, max_run_ahead=run_ahead, prefill_chunk=min(256, max_rows), lookup_nodes=lookup
        ),
        quotas=Quotas() if quotas is None else read_quotas(quotas),
        revision=revision_of(target),
    )
    return asyncio.run(_serve(target_config, config, server_config, watch_config, stop_with_stdin, json))


def _max_run_ahead(pace: str, given: int | None) -> int:
    """Tokens that a session may be ahead of its edge; raises USAGE where that is not for the operator to choose."""
    if pace == "eager":
        return SessionLimits().max_run_ahead if given is None else given
    if given is not None:
        raise OutriderError(Reason.USAGE, f"--max-run-ahead {given} is for --pace eager, not for {pace}.")
    return PATIENT_RUN_AHEAD


def _print_token(name: str, as_json: bool) -> int:
    """Print a token, for the device, and the line that lets it in; neither is kept."""
    made = make_token(name)
    if as_json:
        print_json({"token": made.token, "line": made.line})
    else:
        print(f"token for the device:  {made.token}\nline for --tokens:     {made.line}")
    return 0


def _check(
    address: str,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    name: str | None,
    token_file: Path | None,
    as_json: bool,
) -> int:
    """Print what is found about the verifier at `address`; returns the exit code."""
    if ca is None and (cert is not None or key is not None or name is not None):
        raise OutriderError(Reason.USAGE, "--tls-cert, --tls-key and --tls-name: expected --tls-ca with them.")
    access = read_access(None if ca is None else Tls(ca, cert, key), token_file)
    result = asyncio.run(check_verifier(address, access, name))
    if as_json:
        print_json(result.as_json())
    else:
        print(result.as_text())
    return result.finding.exit_code


def _tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> ServerTls | None:
    """What the three options say; raises USAGE where one needs another."""
    if cert is not None and key is not None:
        return ServerTls(cert, key, client_ca)
    for name, value in (("--tls-cert", cert), ("--tls-key", key), ("--tls-client-ca", client_ca)):
        if value is not None:
            raise OutriderError(Reason.USAGE, f"{name} {str(value)!r}: expected --tls-cert and --tls-key with it.")
    return None


async def _serve(
    target_config: TargetConfig,
    config: VerifierConfig,
    server_config: ServerConfig,
    watch_config: WatchConfig,
    stop_with_stdin: bool,
    as_json: bool,
) -> int:
    """Serve until told to stop; returns the exit code."""
    stop = asyncio.Event()
    signals: list[int] = []

    def on_signal(number: int) -> None:
        signals.append(number)
        stop.set()

    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, on_signal, name)
    if stop_with_stdin:
        _stop_at_end_of_stdin(stop)
    check_port_is_free(server_config.listen)
    await asyncio.to_thread(check_files, server_config)
    if watch_config.metrics is not None:
        check_port_is_free(watch_config.metrics)
    async with watching(watch_config) as watch:
        target = await EngineTarget.load(lambda: make_engine(target_config))
        served = Verifier(target, config, watch.observer)
        async with running_server(served, server_config) as port, watch.shown(served) as metrics:
            _say_ready(f"{server_config.listen.rpartition(':')[0]}:{port}", served, metrics, as_json)
            await stop.wait()
            _end_after(server_config.grace_s + OVERTIME_S)
    return EXIT_INTERRUPTED if signal.SIGINT in signals else 0


def _say_ready(address: str, served: Verifier, metrics: str | None, as_json: bool) -> None:
    """The one line on standard output."""
    info = served.info()
    if as_json:
        shown = {} if metrics is None else {"metrics": metrics}
        print_json({"listening": address, "model": info.model, "numerics": info.numerics, **shown})
        return
    shown_text = "" if metrics is None else f", metrics on {metrics}"
    print(f"listening on {address}, target {info.model}, numerics {info.numerics}{shown_text}", flush=True)


def _end_after(seconds: float) -> None:
    """End the process by force then: neither a loop nor an interpreter ends before its threads, and one may be in a
    pass that takes long.
    """

    def end() -> None:
        logger.error("the running pass did not end within the grace period")
        os._exit(EXIT_INTERNAL)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def _stop_at_end_of_stdin(stop: asyncio.Event) -> None:
    """Set `stop` when standard input ends. A thread reads it: not every kind of file can be waited for in a loop."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        while sys.stdin is not None and sys.stdin.buffer.read(1024):
            pass
        with contextlib.suppress(RuntimeError):  # the loop may have ended meanwhile
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=read, daemon=True, name="stdin").start()
