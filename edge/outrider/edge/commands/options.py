"""The option groups that several commands share, each a frozen dataclass whose fields carry their Typer options, and
the decorator that spreads them over a command's signature.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import typing
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.edge.agent import FALLBACKS, Agent
from outrider.edge.drafters.spec import DEFAULT_DRAFTER, FORMS
from outrider.edge.drafting import CONTROLS, Drafting
from outrider.edge.experiment import PLAIN, Experiment, parse_arm
from outrider.edge.guesses.draft_temperature import AUTO, KL, LEAST, MOST
from outrider.edge.private_verifier import private_verifier
from outrider.edge.recovery import Patience
from outrider.shared.access import Tls, check_address
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.options import Sampling, make_sampling

_UNLIMITED_HELP = "; 0 is off"


@dataclass(frozen=True)
class SamplingOptions:
    """How the target samples and when an answer ends."""

    temperature: Annotated[float, typer.Option(help="0 always takes the likeliest token.")] = 0.0
    top_k: Annotated[int, typer.Option(help=f"Keep the k likeliest tokens{_UNLIMITED_HELP}.")] = 0
    top_p: Annotated[float, typer.Option(help="Keep the likeliest tokens up to this probability.")] = 1.0
    min_p: Annotated[float, typer.Option(help="Drop tokens below this share of the best one's probability.")] = 0.0
    repetition_penalty: Annotated[float, typer.Option(help="Over prompt and output; 1 is off.")] = 1.0
    frequency_penalty: Annotated[float, typer.Option(help=f"Over the output{_UNLIMITED_HELP}.")] = 0.0
    presence_penalty: Annotated[float, typer.Option(help=f"Over the output{_UNLIMITED_HELP}.")] = 0.0
    logit_bias: Annotated[list[str], typer.Option(metavar="ID=VALUE", help="Added to a token's logit.")] = (
        dataclasses.field(default_factory=list)
    )
    seed: Annotated[int | None, typer.Option(help="64 bits; by default random, and reported.")] = None
    max_tokens: Annotated[int, typer.Option(help="Length of the answer at most.")] = 512
    stop: Annotated[list[str], typer.Option(metavar="TEXT", help="Text that ends the answer.")] = dataclasses.field(
        default_factory=list
    )

    def make(self) -> Sampling:
        """The options, checked; raises SAMPLING_INVALID."""
        options = dataclasses.asdict(self)
        return make_sampling(options | {"logit_bias": dict(map(_parse_bias, self.logit_bias))})


@dataclass(frozen=True)
class DraftingOptions:
    """How the edge drafts."""

    drafter: Annotated[str, typer.Option(metavar="SPEC", help=f"What guesses: {FORMS}.")] = DEFAULT_DRAFTER
    control: Annotated[
        str | None,
        typer.Option(help=f"How far to draft: {', '.join(CONTROLS)}.", show_default="ratio; fixed with --gamma"),
    ] = None
    gamma: Annotated[
        int | None,
        typer.Option(help="Longest path of guesses to send.", show_default="5; ratio: no limit"),
    ] = None
    branch: Annotated[
        int | None,
        typer.Option(help="Children of each node that is expanded.", show_default="1; ratio: 3"),
    ] = None
    pace: Annotated[
        str | None,
        typer.Option(
            help="patient: passes only for guesses; eager: the verifier never waits.",
            show_default="patient as long as that pays",
        ),
    ] = None
    draft_temperature: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help=f"Of the drafter, over the answer's: {AUTO} (tuned), {KL} or a number of {LEAST} to {MOST:g}.",
        ),
    ] = AUTO
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Go on from what earlier runs learned about the drafter; holds no text."),
    ] = None

    def make(self) -> Drafting:
        """The options of every answer, not checked yet."""
        values = dataclasses.asdict(self)
        del values["state"]
        return Drafting(**values)


@dataclass(frozen=True)
class ExperimentOptions:
    """Whether a share of the requests is drafted another way, to compare; off by default."""

    experiment_share: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Share of requests (0 to 1) that go arm b's way.", show_default="off"),
    ] = None
    experiment_arm: Annotated[
        str | None,
        typer.Option(
            metavar="ARM", help=f"Arm b: {PLAIN} (no guesses) or e.g. gamma=3,pace=eager.", show_default=PLAIN
        ),
    ] = None
    experiment_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its name in results and log.", show_default="ARM")
    ] = None
    experiment_log: Annotated[
        Path | None,
        typer.Option(metavar="FILE.jsonl", help="Add a line an answer, without texts; see outrider experiment."),
    ] = None

    def make(self, drafting: DraftingOptions) -> Experiment | None:
        """The experiment beside `drafting`, its arm a, or None; raises USAGE."""
        if self.experiment_share is None:
            for name, value in dataclasses.asdict(self).items():
                if value is not None:
                    flag = f"--{name.replace('_', '-')}"
                    raise OutriderError(Reason.USAGE, f"{flag} {str(value)!r}: expected --experiment-share with it.")
            return None
        arm = PLAIN if self.experiment_arm is None else self.experiment_arm
        name = arm if self.experiment_name is None else self.experiment_name
        arm_b = parse_arm(arm, drafting.make())
        return Experiment(name, self.experiment_share, arm_b, self.experiment_log)


@dataclass(frozen=True)
class VerifierOptions:
    """Which verifier to use."""

    verifier: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[,...]",
            help="A running verifier, and others of the same target to go on at; without it a private one is started.",
        ),
    ] = None
    patience: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long an answer waits for a verifier to come back.")
    ] = Patience().limit_s
    fallback: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="Without a verifier: stop, or local: the drafter goes on alone, marked, and is checked afterwards.",
        ),
    ] = FALLBACKS[0]
    target: Annotated[str | None, typer.Option(metavar="SPEC", help="Target model of the private verifier.")] = None
    numerics: Annotated[
        str | None, typer.Option(help="Numerics of the private verifier: exact or fast.", show_default="exact")
    ] = None
    context: Annotated[
        int | None, typer.Option(help="Context length of the private verifier.", show_default="2048")
    ] = None
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt, and have the verifier prove who it is.")] = False
    tls_ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Authorities (PEM) that may vouch for it.", show_default="public ones"),
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="This device's certificate (PEM), for a verifier that asks.")
    ] = None
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key (PEM).")] = None
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The bearer token for a verifier that asks.")
    ] = None
    plaintext: Annotated[
        bool, typer.Option("--plaintext", help="Without TLS even to another machine: all on the way may read along.")
    ] = False

    def private_arguments(self) -> list[str]:
        """What a private verifier is started with, beside where it listens."""
        given = {"--target": self.target, "--numerics": self.numerics, "--context": self.context}
        return [part for name, value in given.items() if value is not None for part in (name, str(value))]

    def access(self) -> dict[str, Any]:
        """Arguments of `Agent.connect` that say how to get in; raises USAGE for options that lack another."""
        files = {"--tls-ca": self.tls_ca, "--tls-cert": self.tls_cert, "--tls-key": self.tls_key}
        given = [name for name, value in files.items() if value is not None]
        if given and not self.tls:
            raise OutriderError(Reason.USAGE, f"{given[0]}: expected --tls with it.")
        if (self.tls or self.token_file is not None) and self.verifier is None:
            name = "--tls" if self.tls else "--token-file"
            raise OutriderError(Reason.USAGE, f"{name} is for --verifier; a private verifier is reached without.")
        tls = Tls(self.tls_ca, self.tls_cert, self.tls_key) if self.tls else None
        if tls is not None and self.plaintext:
            raise OutriderError(Reason.USAGE, "--plaintext is for connections without --tls.")
        how = {"patience_s": self.patience, "fallback": self.fallback, "plaintext": self.plaintext}
        return {"tls": tls, "token_file": self.token_file, **how}

    def refuse_fallback(self, command: str) -> None:
        """Raise USAGE if a command that is about verified text is to go on without."""
        if self.fallback != FALLBACKS[0]:
            raise OutriderError(Reason.USAGE, f"--fallback {self.fallback!r} is not for {command}.")

    @contextlib.asynccontextmanager
    async def address(self) -> AsyncIterator[str]:
        """HOST:PORT of the verifier to use, of several with commas between; raises USAGE for options that do not belong
        together.
        """
        self.access()
        arguments = self.private_arguments()
        if self.verifier is not None:
            if arguments:
                raise OutriderError(Reason.USAGE, f"{arguments[0]} is for a private verifier, not for --verifier.")
            for address in self.verifier.split(","):
                check_address("--verifier", address)
            yield self.verifier
            return
        async with private_verifier([*arguments, "--max-sessions", "2"]) as address:
            yield address


@contextlib.asynccontextmanager
async def connected_agent(
    verifier: VerifierOptions, drafting: DraftingOptions, experiment: Experiment | None
) -> AsyncIterator[Agent]:
    """An agent as the groups of options describe it."""
    async with verifier.address() as address, connect(address, verifier, drafting, experiment) as agent:
        yield agent


def connect(
    address: str, verifier: VerifierOptions, drafting: DraftingOptions, experiment: Experiment | None = None
) -> contextlib.AbstractAsyncContextManager[Agent]:
    """An agent for the verifier at `address`, which is the one that `verifier` means."""
    how = dataclasses.asdict(drafting.make()) | verifier.access()
    return Agent.connect(address.split(","), experiment=experiment, state=drafting.state, **how)


def with_option_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace each parameter whose type is one of the groups above by the group's fields, as Typer sees them."""
    signature = inspect.signature(command)
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, Callable[..., Any]] = {
        name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint) and isinstance(hint, type)
    }
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        field_hints = typing.get_type_hints(hints[name], include_extras=True)
        for field in dataclasses.fields(hints[name]):
            factory = field.default_factory
            default = field.default if factory is dataclasses.MISSING else factory()
            parameters.append(
                inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field_hints[field.name]
                )
            )

    def flat(**values: Any) -> Any:
        made: dict[str, Any] = {}
        for name, group in groups.items():
            made[name] = group(**{field.name: values.pop(field.name) for field in dataclasses.fields(hints[name])})
        return command(**values, **made)

    typed: Any = flat
    typed.__name__, typed.__doc__ = command.__name__, command.__doc__
    typed.__signature__ = inspect.Signature(sorted(parameters, key=lambda p: p.kind))
    typed.__annotations__ = {p.name: p.annotation for p in parameters}
    return flat


def _parse_bias(text: str) -> tuple[int, float]:
    token, _, value = text.partition("=")
    try:
        return int(token), float(value)
    except ValueError:
        raise OutriderError(Reason.SAMPLING_INVALID, f"--logit-bias {text!r}: expected ID=VALUE.") from None
