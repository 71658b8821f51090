"""Loads the two models of a recording by name and knows who they are; turns prompts into recordings."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.edge.commands.compare import BenchPrompt
from outrider.harness.recording.draft_rows import DraftRows
from outrider.harness.recording.format import DEPTH, Header, ModelIdentity, RecordedIds, Recording
from outrider.harness.recording.recorder import TargetAnswer, record_answer
from outrider.harness.recording.recording_target import TINY, RecordingTarget, identity_of
from outrider.harness.recording.tiny_rows import TinyDraftRows
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.models.store import default_store
from outrider.shared.sampling.options import Sampling
from outrider.shared.version import software_version
from outrider.shared.vocabulary import Vocabulary

# Fields that need not agree, as for any drafter: the target's template makes the prompt.
_FREE_FIELDS = frozenset({"template", "stop_ids"})


@dataclass(frozen=True, slots=True)
class Pair:
    """A loaded target and draft model."""

    target: RecordingTarget
    draft: DraftRows
    draft_identity: ModelIdentity

    @classmethod
    def load(cls, target: str, draft: str, context_length: int) -> Pair:
        """Load models by name or path, or the pseudo model as `tiny` with a draft `tiny:DEVIATION`.

        `context_length` bounds prompt and answer. Raises VOCABULARY_MISMATCH and what loading raises.
        """
        loaded = RecordingTarget.load(target, context_length)
        try:
            return cls.of(loaded, draft)
        except BaseException:
            loaded.close()
            raise

    @classmethod
    def of(cls, target: RecordingTarget, draft: str) -> Pair:
        """A loaded target with a draft model, which is loaded; close only that (`draft`) if the target is to stay."""
        identity = identity_of(draft)
        rows = _load_draft(draft, target.engine.spec.context_length)
        try:
            _check_vocabulary(draft, rows.vocabulary, target)
        except BaseException:
            rows.close()
            raise
        return cls(target, rows, identity)

    def close(self) -> None:
        """Free both models."""
        self.draft.close()
        self.target.close()

    def header_fields(self, prompt: BenchPrompt, sampling: Sampling) -> dict[str, object]:
        """What a recording of `prompt` says before anything is computed."""
        return header_fields(self.target.identity, self.draft_identity, prompt, sampling) | {
            "target_settings": self.target.settings
        }

    def record(self, prompt: BenchPrompt, sampling: Sampling, known: Recording | None = None) -> Recording:
        """Record `prompt`; `sampling` has its seed. Of `known`, a recording of it with another draft model, the
        target's answer is taken over. Raises PROMPT_TOO_LONG where the whole answer would not fit.
        """
        engine = self.target.engine
        prompt_ids = self.target.prompt_ids(prompt.prompt)
        needed, context = len(prompt_ids) + sampling.max_tokens, engine.spec.context_length
        if needed > context:
            raise OutriderError(
                Reason.PROMPT_TOO_LONG, f"{prompt.id}: prompt and answer need {needed} tokens, context {context}."
            )
        answer = None if known is None else _answer_of(known)
        recorded = record_answer(engine, self.draft, prompt_ids, sampling, answer)
        header = Header.model_validate(
            self.header_fields(prompt, sampling)
            | {
                "finish_reason": recorded.finish_reason,
                "vocabulary": _recorded_ids(engine.vocabulary, recorded.answer_ids),
                "software_version": software_version(),
            }
        )
        return Recording(
            header, tuple(prompt_ids), recorded.answer_ids, recorded.draft, recorded.target, recorded.branches
        )


def header_fields(
    target: ModelIdentity, draft: ModelIdentity, prompt: BenchPrompt, sampling: Sampling
) -> dict[str, object]:
    """What a recording of `prompt` says before a model is loaded."""
    return {
        "id": prompt.id,
        "category": prompt.category,
        "prompt": prompt.prompt,
        "sampling": sampling,
        "draft": draft,
        "target": target,
    }


def _load_draft(name: str, context_length: int) -> DraftRows:
    kind, _, rest = name.partition(":")
    if kind != TINY:
        from outrider.harness.recording.llama_rows import LlamaDraftRows  # noqa: PLC0415 - an extra brings llama.cpp

        return LlamaDraftRows(default_store().resolve(name), context_length + DEPTH)
    try:
        return TinyDraftRows(float(rest))
    except ValueError:
        raise OutriderError(Reason.USAGE, f"--draft {name}: expected tiny:DEVIATION.") from None


def _check_vocabulary(draft: str, vocabulary: Vocabulary, target: RecordingTarget) -> None:
    """Raise VOCABULARY_MISMATCH where the product would refuse the drafter."""
    theirs = target.engine.vocabulary
    field = vocabulary.fingerprint.first_difference(theirs.fingerprint, ignore=_FREE_FIELDS)
    if field is None and not vocabulary.stop_ids <= theirs.stop_ids:
        field = "stop_ids"
    if field is not None:
        raise OutriderError(Reason.VOCABULARY_MISMATCH, f"{draft} and {target.name} differ in {field}.")


def _answer_of(recording: Recording) -> TargetAnswer:
    return TargetAnswer(recording.answer_ids, recording.header.finish_reason, recording.target)


def _recorded_ids(vocabulary: Vocabulary, answer_ids: tuple[int, ...]) -> RecordedIds:
    return RecordedIds(
        size=vocabulary.size,
        padded_width=vocabulary.padded_width,
        stop_ids=tuple(sorted(vocabulary.stop_ids)),
        fingerprint=vocabulary.fingerprint,
        pieces={token: vocabulary.pieces[token].decode("latin-1") for token in sorted(set(answer_ids))},
    )
