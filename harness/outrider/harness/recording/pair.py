"""Loads the two models of a recording by name and knows who they are; turns prompts into recordings."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from outrider.cloud.targets.base import Engine
from outrider.cloud.targets.spec import TargetConfig, make_engine
from outrider.edge.chat_template import ChatTemplate
from outrider.edge.commands.compare import BenchPrompt
from outrider.edge.tokenizer import LlamaTokenizer, PlainTokenizer
from outrider.harness.recording.draft_rows import DraftRows
from outrider.harness.recording.format import DEPTH, Header, ModelIdentity, RecordedIds, Recording, TargetSettings
from outrider.harness.recording.recorder import record_answer
from outrider.harness.recording.tiny_rows import TinyDraftRows
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.models.store import default_store
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import tiny_vocabulary
from outrider.shared.version import software_version
from outrider.shared.vocabulary import Vocabulary

TINY = "tiny"
# One slot, and a second stream for the probe of exact numerics.
MAX_BRANCHES = 1
# Fields that need not agree, as for any drafter: the target's template makes the prompt.
_FREE_FIELDS = frozenset({"template", "stop_ids"})


@dataclass(frozen=True, slots=True)
class Pair:
    """A loaded target and draft model, and the target's chat template."""

    engine: Engine
    draft: DraftRows
    template: ChatTemplate
    target_identity: ModelIdentity
    draft_identity: ModelIdentity

    @classmethod
    def load(cls, target: str, draft: str, context_length: int) -> Pair:
        """Load models by name or path, or the pseudo model as `tiny` with a draft `tiny:DEVIATION`.

        `context_length` bounds prompt and answer. Raises VOCABULARY_MISMATCH and what loading raises.
        """
        engine = make_engine(
            TargetConfig(
                spec=TINY if target == TINY else f"llama:{target}",
                context_length=context_length,
                max_sessions=1,
                max_branches=MAX_BRANCHES,
            )
        )
        try:
            rows = _load_draft(draft, context_length)
            field = rows.vocabulary.fingerprint.first_difference(engine.vocabulary.fingerprint, ignore=_FREE_FIELDS)
            if field is not None:
                raise OutriderError(Reason.VOCABULARY_MISMATCH, f"{draft} and {target} differ in {field}.")
            tokenizer = _TinyTokenizer() if target == TINY else LlamaTokenizer(default_store().resolve(target))
            template = ChatTemplate(tokenizer, engine.vocabulary.template)
        except BaseException:
            engine.close()
            raise
        return cls(engine, rows, template, _identity(target), _identity(draft))

    def close(self) -> None:
        """Free both models."""
        self.draft.close()
        self.engine.close()

    def header_fields(self, prompt: BenchPrompt, sampling: Sampling) -> dict[str, object]:
        """What a recording of `prompt` says before anything is computed."""
        spec = self.engine.spec
        return {
            "id": prompt.id,
            "category": prompt.category,
            "prompt": prompt.prompt,
            "sampling": sampling,
            "draft": self.draft_identity,
            "target": self.target_identity,
            "target_settings": TargetSettings(
                engine=spec.kind, numerics=spec.numerics, near_tie_gap=spec.near_tie_gap, settings=spec.settings
            ),
        }

    def record(self, prompt: BenchPrompt, sampling: Sampling) -> Recording:
        """Record `prompt`; `sampling` has its seed. Raises PROMPT_TOO_LONG where the whole answer would not fit."""
        prompt_ids = self.template.prompt_ids([{"role": "user", "content": prompt.prompt}])
        needed, context = len(prompt_ids) + sampling.max_tokens, self.engine.spec.context_length
        if needed > context:
            raise OutriderError(
                Reason.PROMPT_TOO_LONG, f"{prompt.id}: prompt and answer need {needed} tokens, context {context}."
            )
        recorded = record_answer(self.engine, self.draft, prompt_ids, sampling)
        header = Header.model_validate(
            self.header_fields(prompt, sampling)
            | {
                "finish_reason": recorded.finish_reason,
                "vocabulary": _recorded_ids(self.engine.vocabulary, recorded.answer_ids),
                "software_version": software_version(),
            }
        )
        return Recording(
            header, tuple(prompt_ids), recorded.answer_ids, recorded.draft, recorded.target, recorded.branches
        )


def _load_draft(name: str, context_length: int) -> DraftRows:
    kind, _, rest = name.partition(":")
    if kind != TINY:
        from outrider.harness.recording.llama_rows import LlamaDraftRows  # noqa: PLC0415 - an extra brings llama.cpp

        return LlamaDraftRows(default_store().resolve(name), context_length + DEPTH)
    try:
        return TinyDraftRows(float(rest))
    except ValueError:
        raise OutriderError(Reason.USAGE, f"--draft {name}: expected tiny:DEVIATION.") from None


def _identity(name: str) -> ModelIdentity:
    if name.partition(":")[0] == TINY:
        return ModelIdentity(name=name, sha256=hashlib.sha256().hexdigest())
    path = default_store().resolve(name)
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    return ModelIdentity(name=path.stem if Path(name) == path else name, sha256=digest)


def _recorded_ids(vocabulary: Vocabulary, answer_ids: tuple[int, ...]) -> RecordedIds:
    return RecordedIds(
        size=vocabulary.size,
        padded_width=vocabulary.padded_width,
        stop_ids=tuple(sorted(vocabulary.stop_ids)),
        fingerprint=vocabulary.fingerprint,
        pieces={token: vocabulary.pieces[token].decode("latin-1") for token in sorted(set(answer_ids))},
    )


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
