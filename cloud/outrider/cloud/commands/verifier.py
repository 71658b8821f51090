"""Serve a target model to edge agents over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Literal

import typer

from outrider.cloud.quotas import Quotas, read_quotas
from outrider.cloud.scheduler import PassLimits
from outrider.cloud.server import ServerConfig, check_files, check_port_is_free, check_reach, running_server
from outrider.cloud.session import PATIENT_RUN_AHEAD, SessionLimits
from outrider.cloud.target import EngineTarget
from outrider.cloud.targets.spec import DEFAULT_TARGET, FORMS, TargetConfig, make_engine, revision_of
from outrider.cloud.tls import ServerTls
from outrider.cloud.tokens import new_token as make_token
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.shared.cli import EXIT_INTERRUPTED, JsonOption, LogLevelOption, print_json
from outrider.shared.errors import OutriderError, Reason


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
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> int:
    """Serve a target model to edge agents until interrupted.

    The first line on standard output, once all is ready, says where it listens.
    """
    if new_token is not None:
        return _print_token(new_token, json)
    server_config = ServerConfig(
        listen=listen,
        reflection=reflection,
        tls=_tls(tls_cert, tls_key, tls_client_ca),
        tokens=tokens,
        pad_commits=pad_commits,
        grace_s=grace,
    )
    check_reach(server_config)
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
    return asyncio.run(_serve(target_config, config, server_config, stop_with_stdin, json))


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
    target = await EngineTarget.load(lambda: make_engine(target_config))
    served = Verifier(target, config)
    async with running_server(served, server_config) as port:
        host = server_config.listen.rpartition(":")[0]
        info = served.info()
        if as_json:
            print_json({"listening": f"{host}:{port}", "model": info.model, "numerics": info.numerics})
        else:
            print(f"listening on {host}:{port}, target {info.model}, numerics {info.numerics}", flush=True)
        await stop.wait()
    return EXIT_INTERRUPTED if signal.SIGINT in signals else 0


def _stop_at_end_of_stdin(stop: asyncio.Event) -> None:
    """Set `stop` when standard input ends. A thread reads it: not every kind of file can be waited for in a loop."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        while sys.stdin is not None and sys.stdin.buffer.read(1024):
            pass
        with contextlib.suppress(RuntimeError):  # the loop may have ended meanwhile
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=read, daemon=True, name="stdin").start()
