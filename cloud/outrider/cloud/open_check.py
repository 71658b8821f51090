"""What an Open has to be to be served, whoever sends it."""

from __future__ import annotations

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import FEATURES, Open
from outrider.shared.vocabulary import Vocabulary

MAX_REQUIRED_FEATURES = 32
MAX_STOP_IDS = 256


def check_open(request: Open, vocabulary: Vocabulary, context_length: int) -> int:
    """Refuse what cannot be served; returns the answer length, in tokens, at which the answer is complete.

    Raises FEATURE_UNSUPPORTED, PROMPT_EMPTY, PROMPT_TOO_LONG, OPEN_INVALID or TOKEN_OUT_OF_RANGE.
    """
    unknown = sorted(set(request.required_features[:MAX_REQUIRED_FEATURES]) - set(FEATURES))
    if unknown or len(request.required_features) > MAX_REQUIRED_FEATURES:
        raise OutriderError(
            Reason.FEATURE_UNSUPPORTED,
            f"unknown here: {', '.join(unknown)[:200] or 'none'}; {len(request.required_features)} named, at most "
            f"{MAX_REQUIRED_FEATURES}.",
        )
    if not request.prompt_ids:
        raise OutriderError(Reason.PROMPT_EMPTY)
    # Lengths come first: ids are checked one by one.
    room = context_length - len(request.prompt_ids)
    if room < 1:
        raise OutriderError(
            Reason.PROMPT_TOO_LONG,
            f"{len(request.prompt_ids)} prompt tokens, context {context_length}.",
        )
    end = min(request.max_tokens, room)
    if len(request.stop_ids) > MAX_STOP_IDS or len(request.committed_ids) >= end:
        raise OutriderError(
            Reason.OPEN_INVALID,
            f"{len(request.committed_ids)} committed ids of at most {end - 1}, {len(request.stop_ids)} stop ids "
            f"of at most {MAX_STOP_IDS}.",
        )
    vocabulary.check_ids(request.prompt_ids, "Open.prompt_ids")
    vocabulary.check_ids(request.committed_ids, "Open.committed_ids")
    vocabulary.check_ids(request.stop_ids, "Open.stop_ids")
    vocabulary.check_ids(request.sampling.logit_bias, "Open.sampling.logit_bias")
    stop_ids = vocabulary.stop_ids | frozenset(request.stop_ids)
    if stop_ids.intersection(request.committed_ids):
        raise OutriderError(Reason.OPEN_INVALID, "the committed ids hold a stop id: nothing is left to decode.")
    return end
