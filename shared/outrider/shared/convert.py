"""Between messages and their wire form. Protobuf types stop here: what comes in is checked for shape, what an unset
field means is decided, and parents travel as distances so that a node costs one byte for its place.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import (
    Close,
    CloudMessage,
    Commit,
    EdgeMessage,
    Finished,
    FinishReason,
    GoAway,
    Grow,
    Limits,
    Open,
    Opened,
    Resume,
    VerifierInfo,
)
from outrider.shared.sampling.options import Sampling, make_sampling
from outrider.shared.vocabulary import Fingerprint
from outrider.v1 import verifier_pb2 as pb

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PROMPT_PART_IDS = 16_384
MAX_ID_LIST = 1_048_576
MAX_GROW_NODES = 4096

_FINISH_TO_PB = {
    FinishReason.STOP: pb.Finished.REASON_STOP,
    FinishReason.LENGTH: pb.Finished.REASON_LENGTH,
    FinishReason.CANCELLED: pb.Finished.REASON_CANCELLED,
}
_FINISH_FROM_PB = {value: key for key, value in _FINISH_TO_PB.items()}
_NUMERICS_TO_PB = {"exact": pb.NUMERICS_EXACT, "fast": pb.NUMERICS_FAST}
_NUMERICS_FROM_PB = {value: key for key, value in _NUMERICS_TO_PB.items()}


def edge_message_to_pb(message: EdgeMessage) -> list[pb.DecodeRequest]:
    """The wire messages of one edge message; a long prompt takes several."""
    match message:
        case Open():
            head = _open_to_pb(message)
            rest = message.prompt_ids[PROMPT_PART_IDS:]
            parts = [rest[i : i + PROMPT_PART_IDS] for i in range(0, len(rest), PROMPT_PART_IDS)]
            return [
                pb.DecodeRequest(open=head),
                *(pb.DecodeRequest(prompt_part=pb.PromptPart(prompt_ids=part)) for part in parts),
            ]
        case Resume():
            return [pb.DecodeRequest(resume=pb.Resume(**_same_names(Resume, message)))]
        case Grow():
            return [pb.DecodeRequest(grow=_grow_to_pb(message))]
        case Close():
            return [pb.DecodeRequest(close=pb.Close())]


class EdgeMessageReader:
    """Turns wire messages from the edge into messages, joining the parts of a prompt."""

    def __init__(self) -> None:
        self._open: pb.Open | None = None
        self._prompt: list[int] = []

    def read(self, message: pb.DecodeRequest) -> EdgeMessage | None:
        """The message that is complete with `message`, or None while prompt parts are missing.

        Raises MESSAGE_UNKNOWN, OPEN_INVALID, OPEN_EXPECTED, GROW_MALFORMED or SAMPLING_INVALID.
        """
        kind = message.WhichOneof("message")
        if self._open is not None and kind != "prompt_part":
            raise OutriderError(Reason.OPEN_INVALID, f"{kind} before the prompt was complete.")
        match kind:
            case "open":
                return self._begin_open(message.open)
            case "prompt_part":
                return self._continue_open(message.prompt_part.prompt_ids)
            case "resume":
                return Resume(**_same_names(Resume, message.resume))
            case "grow":
                return grow_from_pb(message.grow)
            case "close":
                return Close()
            case _:
                raise OutriderError(Reason.MESSAGE_UNKNOWN, "DecodeRequest holds no message known here.")

    def _begin_open(self, head: pb.Open) -> Open | None:
        if head.prompt_length > MAX_ID_LIST:
            raise OutriderError(Reason.PROMPT_TOO_LONG, f"prompt_length = {head.prompt_length}.")
        self._open, self._prompt = head, list(head.prompt_ids)
        return self._complete_open()

    def _continue_open(self, ids: Sequence[int]) -> Open | None:
        if self._open is None:
            raise OutriderError(Reason.OPEN_EXPECTED, "PromptPart without an Open that asks for it.")
        if not ids:
            raise OutriderError(Reason.OPEN_INVALID, "PromptPart without ids.")
        self._prompt.extend(ids)
        return self._complete_open()

    def _complete_open(self) -> Open | None:
        assert self._open is not None
        expected = self._open.prompt_length or len(self._prompt)
        if len(self._prompt) < expected:
            return None
        if len(self._prompt) > expected:
            raise OutriderError(Reason.OPEN_INVALID, f"prompt_length = {expected}, got {len(self._prompt)} ids.")
        head, self._open = self._open, None
        return _open_from_pb(head, self._prompt)


def cloud_message_to_pb(message: CloudMessage) -> pb.DecodeResponse:
    """The wire message of one cloud message."""
    match message:
        case Opened():
            return pb.DecodeResponse(opened=pb.Opened(**_same_names(Opened, message)))
        case Commit():
            # Once a round: made in place, as a finished Commit would be copied.
            return pb.DecodeResponse(commit=_same_names(Commit, message))
        case Finished():
            finished = _same_names(Finished, message) | {"reason": _FINISH_TO_PB[message.reason]}
            return pb.DecodeResponse(finished=pb.Finished(**finished))
        case GoAway():
            return pb.DecodeResponse(go_away=pb.GoAway(**_same_names(GoAway, message)))


def cloud_message_from_pb(message: pb.DecodeResponse) -> CloudMessage:
    """The message that a wire message from the cloud holds; raises MESSAGE_UNKNOWN."""
    match message.WhichOneof("message"):
        case "opened":
            missing = {"missing_ids": tuple(message.opened.missing_ids)}
            return Opened(**_same_names(Opened, message.opened) | missing)
        case "commit":
            lists = {"tokens": tuple(message.commit.tokens), "gaps": tuple(message.commit.gaps)}
            return Commit(**_same_names(Commit, message.commit) | lists)
        case "finished":
            reason = _FINISH_FROM_PB.get(message.finished.reason)
            if reason is None:
                raise OutriderError(Reason.MESSAGE_UNKNOWN, f"finish reason {message.finished.reason}.")
            return Finished(**_same_names(Finished, message.finished) | {"reason": reason})
        case "go_away":
            return GoAway(**_same_names(GoAway, message.go_away))
        case _:
            raise OutriderError(Reason.MESSAGE_UNKNOWN, "DecodeResponse holds no message known here.")


def info_to_pb(info: VerifierInfo) -> pb.GetInfoResponse:
    """The wire form of what a verifier says about itself."""
    special = {
        "fingerprint": pb.Fingerprint(**_same_names(Fingerprint, info.fingerprint)),
        "stop_ids": sorted(info.stop_ids),
        "numerics": _NUMERICS_TO_PB[info.numerics],
        "limits": pb.Limits(**_same_names(Limits, info.limits)),
        "features": sorted(info.features),
    }
    return pb.GetInfoResponse(**_same_names(VerifierInfo, info) | special)


def info_from_pb(info: pb.GetInfoResponse) -> VerifierInfo:
    """What a verifier says about itself; raises PEER_VIOLATION for numerics unknown here."""
    numerics = _NUMERICS_FROM_PB.get(info.numerics)
    if numerics is None:
        raise OutriderError(Reason.PEER_VIOLATION, f"numerics {info.numerics} is not known here.")
    special = {
        "fingerprint": Fingerprint(**_same_names(Fingerprint, info.fingerprint)),
        "stop_ids": frozenset(info.stop_ids),
        "numerics": numerics,
        "limits": Limits(**_same_names(Limits, info.limits)),
        "features": frozenset(info.features),
        "settings": dict(info.settings),
    }
    return VerifierInfo(**_same_names(VerifierInfo, info) | special)


def _same_names(kind: type[DataclassInstance], source: object) -> dict[str, Any]:
    """The fields of `kind` as `source` has them: messages and their wire forms share names."""
    return {name: getattr(source, name) for name in _names(kind)}


@functools.cache
def _names(kind: type[DataclassInstance]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _open_to_pb(message: Open) -> pb.Open:
    return pb.Open(
        prompt_ids=message.prompt_ids[:PROMPT_PART_IDS],
        prompt_length=len(message.prompt_ids),
        committed_ids=message.committed_ids,
        sampling=_sampling_to_pb(message.sampling),
        seed=message.seed,
        max_tokens=message.max_tokens,
        stop_ids=message.stop_ids,
        prefix_of=message.prefix_of,
        required_features=message.required_features,
        want_gaps=message.want_gaps,
        target_digest=message.target_digest,
    )


def _open_from_pb(head: pb.Open, prompt_ids: Iterable[int]) -> Open:
    return Open(
        prompt_ids=tuple(prompt_ids),
        sampling=_sampling_from_pb(head),
        seed=head.seed,
        max_tokens=head.max_tokens,
        committed_ids=tuple(head.committed_ids),
        stop_ids=tuple(head.stop_ids),
        prefix_of=head.prefix_of,
        required_features=tuple(head.required_features),
        want_gaps=head.want_gaps,
        target_digest=head.target_digest,
    )


def _sampling_to_pb(sampling: Sampling) -> pb.Sampling:
    return pb.Sampling(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        logit_bias=sampling.logit_bias,
    )


def _sampling_from_pb(head: pb.Open) -> Sampling:
    sampling = head.sampling
    options = {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "logit_bias": dict(sampling.logit_bias),
        "max_tokens": head.max_tokens,
    }
    for name in ("top_p", "repetition_penalty"):
        if sampling.HasField(name):
            options[name] = getattr(sampling, name)
    return make_sampling(options)


def grow_payload_bytes(grow: Grow) -> int:
    """Bytes of the packed ids and parents of `grow` on the wire, without tags and lengths."""
    return sum(_varint_length(value) for value in (*grow.tokens, *_distances(grow)))


def _varint_length(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _distances(grow: Grow) -> list[int]:
    """How far back each parent's id lies (0: the root), without the end of the list that goes without saying."""
    distances = [grow.first_id + index - parent if parent else 0 for index, parent in enumerate(grow.parents)]
    while distances and distances[-1] == _implied_distance(len(distances) - 1):
        distances.pop()
    return distances


def _implied_distance(index: int) -> int:
    """Below the node before it; the first one below the root."""
    return 1 if index else 0


def _grow_to_pb(grow: Grow) -> pb.Grow:
    return pb.Grow(
        first_id=grow.first_id, base=grow.base, parents=_distances(grow), tokens=grow.tokens, run_to=grow.run_to
    )


def grow_from_pb(grow: pb.Grow) -> Grow:
    """The Grow that a wire message holds, parents as absolute ids; raises GROW_MALFORMED."""
    if len(grow.tokens) > MAX_GROW_NODES:
        raise OutriderError(Reason.GROW_MALFORMED, f"{len(grow.tokens)} nodes, at most {MAX_GROW_NODES}.")
    if len(grow.parents) > len(grow.tokens):
        raise OutriderError(Reason.GROW_MALFORMED, f"{len(grow.parents)} parents for {len(grow.tokens)} tokens.")
    parents: list[int] = []
    for index in range(len(grow.tokens)):
        distance = grow.parents[index] if index < len(grow.parents) else _implied_distance(index)
        node_id = grow.first_id + index
        if distance >= node_id and distance:
            raise OutriderError(Reason.PARENT_UNKNOWN, f"node {node_id} names a parent {distance} before it.")
        parents.append(node_id - distance if distance else 0)
    return Grow(grow.first_id, grow.base, tuple(parents), tuple(grow.tokens), grow.run_to)
