"""The target's half of a recording: its engine and template, loaded once for any number of draft models."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from outrider.cloud.targets.base import Engine
from outrider.cloud.targets.spec import TargetConfig, make_engine
from outrider.edge.chat_template import ChatTemplate
from outrider.edge.tokenizer import LlamaTokenizer, PlainTokenizer
from outrider.harness.recording.format import ModelIdentity, TargetSettings
from outrider.shared.models.store import default_store
from outrider.shared.tiny import tiny_vocabulary
from outrider.shared.vocabulary import Vocabulary

TINY = "tiny"
# One slot, and a second stream for the probe of exact numerics.
MAX_BRANCHES = 1


@dataclass(frozen=True, slots=True)
class RecordingTarget:
    """A loaded target and its chat template; `name` as it was asked for."""

    name: str
    engine: Engine
    template: ChatTemplate
    identity: ModelIdentity

    @classmethod
    def load(cls, name: str, context_length: int) -> RecordingTarget:
        """Load a model by name or path, or the pseudo model as `tiny`; `context_length` bounds prompt and answer.

        Raises what loading raises.
        """
        engine = make_engine(
            TargetConfig(
                spec=TINY if name == TINY else f"llama:{name}",
                context_length=context_length,
                max_sessions=1,
                max_branches=MAX_BRANCHES,
            )
        )
        try:
            tokenizer = _TinyTokenizer() if name == TINY else LlamaTokenizer(default_store().resolve(name))
            template = ChatTemplate(tokenizer, engine.vocabulary.template)
            return cls(name, engine, template, identity_of(name))
        except BaseException:
            engine.close()
            raise

    @property
    def settings(self) -> TargetSettings:
        """How the target runs, as a recording says it."""
        spec = self.engine.spec
        return TargetSettings(
            engine=spec.kind, numerics=spec.numerics, near_tie_gap=spec.near_tie_gap, settings=spec.settings
        )

    def prompt_ids(self, prompt: str) -> list[int]:
        """The ids that ask for an answer to `prompt`."""
        return self.template.prompt_ids([{"role": "user", "content": prompt}])

    def close(self) -> None:
        """Free the engine."""
        self.engine.close()


def identity_of(name: str) -> ModelIdentity:
    """Who a model is, by its file; raises what resolving the name raises."""
    if name.partition(":")[0] == TINY:
        return ModelIdentity(name=name, sha256=hashlib.sha256().hexdigest())
    path = default_store().resolve(name)
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    return ModelIdentity(name=path.stem if Path(name) == path else name, sha256=digest)


class _TinyTokenizer(PlainTokenizer):
    """The pseudo model's bytes."""

    def __init__(self) -> None:
        self._vocabulary = tiny_vocabulary()

    @property
    def vocabulary(self) -> Vocabulary:
        """See `PlainTokenizer.vocabulary`."""
        return self._vocabulary

    def encode(self, text: str) -> list[int]:
        """See `PlainTokenizer.encode`."""
        return list(text.encode())
