"""Makes an engine out of what `--target` says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outrider.cloud.targets.base import Engine, Numerics
from outrider.shared.compute_threads import wait_without_spinning
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.models.store import default_store

DEFAULT_TARGET = "llama:qwen2.5-coder-1.5b"
FORMS = "llama:NAME-or-path, transformers:DIR-or-GGUF, tiny"


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """What the operator says about the engine. `dtype` and `device` matter to transformers only, `gpu_layers` and
    `threads` (0: all cores) to llama.cpp only.
    """

    spec: str = DEFAULT_TARGET
    numerics: Numerics = "exact"
    context_length: int = 2048
    max_sessions: int = 4
    max_branches: int = 8
    dtype: str = "fp32"
    device: str = "cpu"
    gpu_layers: int = 0
    threads: int = 0


def make_engine(config: TargetConfig) -> Engine:
    """Load the engine that `config` names; takes seconds to minutes. Raises USAGE and what loading raises."""
    kind, _, rest = config.spec.partition(":")
    match kind:
        case "llama" if rest:
            from outrider.cloud.targets.llama_cpp import LlamaCppEngine  # noqa: PLC0415 - engines are extras

            path = default_store().resolve(rest)
            return LlamaCppEngine(
                path,
                name=_model_name(rest, path),
                numerics=config.numerics,
                context_length=config.context_length,
                max_slots=config.max_sessions,
                max_branches=config.max_branches,
                gpu_layers=config.gpu_layers,
                threads=config.threads,
            )
        case "transformers" if rest:
            wait_without_spinning()
            from outrider.cloud.targets.transformers import TransformersEngine  # noqa: PLC0415

            source = Path(rest) if Path(rest).exists() else default_store().resolve(rest)
            return TransformersEngine(
                source,
                dtype=config.dtype,  # type: ignore[arg-type]  # checked by the command line
                device=config.device,
                max_slots=config.max_sessions,
                max_branches=config.max_branches,
                context_length=config.context_length,
            )
        case "tiny" if not rest:
            from outrider.cloud.targets.tiny import TinyEngine  # noqa: PLC0415

            return TinyEngine(
                max_slots=config.max_sessions,
                context_length=config.context_length,
                max_branches=config.max_branches,
            )
        case _:
            raise OutriderError(Reason.USAGE, f"--target {config.spec!r}: expected one of {FORMS}.")


def _model_name(name_or_path: str, path: Path) -> str:
    return path.stem if Path(name_or_path) == path else name_or_path
