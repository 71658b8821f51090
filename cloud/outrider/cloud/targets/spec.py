"""Makes an engine out of what `--target` says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outrider.cloud.session import SessionLimits
from outrider.cloud.targets.base import Engine, Numerics
from outrider.shared.compute_threads import wait_without_spinning
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.models.manifest import packaged_manifest
from outrider.shared.models.store import default_store

DEFAULT_TARGET = "llama:qwen2.5-coder-1.5b"
FORMS = "llama:NAME-or-path, transformers:DIR-or-GGUF, tiny"


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """What the operator says about the engine; None is the engine's own choice. `max_rows` is what the scheduler packs
    into a pass at most. `dtype` and `device` are for transformers only, `gpu_layers` and `threads` for llama.cpp only.
    """

    spec: str = DEFAULT_TARGET
    numerics: Numerics | None = None
    context_length: int = 2048
    max_sessions: int = 4
    max_branches: int = 8
    max_rows: int = 512
    dtype: str | None = None
    device: str | None = None
    gpu_layers: int | None = None
    threads: int | None = None


def make_engine(config: TargetConfig) -> Engine:
    """Load the engine that `config` names; takes seconds to minutes.

    Raises USAGE for an option that the engine has no use for, MODEL_UNSUPPORTED where exact numerics were asked for
    and not found, and what loading raises.
    """
    kind, _, rest = config.spec.partition(":")
    match kind:
        case "llama" if rest:
            _refuse_options(config, "dtype", "device")
            return _make_llama(config, rest)
        case "transformers" if rest:
            _refuse_options(config, "gpu_layers", "threads")
            return _make_transformers(config, rest)
        case "tiny" if not rest:
            _refuse_options(config, "dtype", "device", "gpu_layers", "threads")
            from outrider.cloud.targets.tiny import TinyEngine  # noqa: PLC0415 - engines are loaded on use

            return TinyEngine(
                max_slots=config.max_sessions,
                context_length=config.context_length,
                max_branches=config.max_branches,
            )
        case _:
            raise OutriderError(Reason.USAGE, f"--target {config.spec!r}: expected one of {FORMS}.")


def revision_of(spec: str) -> str:
    """What tells the target's file from others of its name: its SHA-256 where the manifest has it, else nothing."""
    manifest = packaged_manifest()
    name = spec.partition(":")[2]
    return manifest[name].sha256[:12] if name in manifest else ""


def _make_llama(config: TargetConfig, name_or_path: str) -> Engine:
    from outrider.cloud.targets.llama_cpp import LlamaCppEngine  # noqa: PLC0415

    path = default_store().resolve(name_or_path)
    return LlamaCppEngine(
        path,
        name=_model_name(name_or_path, path),
        numerics=config.numerics or "exact",
        context_length=config.context_length,
        max_slots=config.max_sessions,
        max_branches=config.max_branches,
        # A side branch repeats the rows that lead to it.
        batch=config.max_rows + config.max_branches * (1 + SessionLimits().max_pass_nodes),
        gpu_layers=config.gpu_layers or 0,
        threads=config.threads or 0,
    )


def _make_transformers(config: TargetConfig, name_or_path: str) -> Engine:
    wait_without_spinning()
    from outrider.cloud.targets.transformers import TransformersEngine  # noqa: PLC0415

    source = Path(name_or_path) if Path(name_or_path).exists() else default_store().resolve(name_or_path)
    engine = TransformersEngine(
        source,
        name=_model_name(name_or_path, source),
        dtype=config.dtype or "fp32",  # type: ignore[arg-type]  # the command line allows only what there is
        device=config.device or "cpu",
        max_slots=config.max_sessions,
        max_branches=config.max_branches,
        context_length=config.context_length,
    )
    if config.numerics == "exact" and engine.spec.numerics != "exact":
        engine.close()
        raise OutriderError(
            Reason.MODEL_UNSUPPORTED, f"{source.name}: rows were found to depend on their pass; drop --numerics exact."
        )
    return engine


def _refuse_options(config: TargetConfig, *names: str) -> None:
    for name in names:
        if getattr(config, name) is not None:
            option = name.replace("_", "-")
            raise OutriderError(Reason.USAGE, f"--{option} is of no use to the target {config.spec!r}.")


def _model_name(name_or_path: str, path: Path) -> str:
    if Path(name_or_path) != path:
        return name_or_path
    return path.name if path.is_dir() else path.stem
