from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Numerics(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NUMERICS_UNSPECIFIED: _ClassVar[Numerics]
    NUMERICS_EXACT: _ClassVar[Numerics]
    NUMERICS_FAST: _ClassVar[Numerics]
NUMERICS_UNSPECIFIED: Numerics
NUMERICS_EXACT: Numerics
NUMERICS_FAST: Numerics

class GetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetInfoResponse(_message.Message):
    __slots__ = ("model", "revision", "engine", "fingerprint", "stop_ids", "numerics", "near_tie_gap", "limits", "features", "settings", "software_version", "tokenizer_digest", "target_digest")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    STOP_IDS_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    NEAR_TIE_GAP_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TARGET_DIGEST_FIELD_NUMBER: _ClassVar[int]
    model: str
    revision: str
    engine: str
    fingerprint: Fingerprint
    stop_ids: _containers.RepeatedScalarFieldContainer[int]
    numerics: Numerics
    near_tie_gap: float
    limits: Limits
    features: _containers.RepeatedScalarFieldContainer[str]
    settings: _containers.ScalarMap[str, str]
    software_version: str
    tokenizer_digest: str
    target_digest: str
    def __init__(self, model: _Optional[str] = ..., revision: _Optional[str] = ..., engine: _Optional[str] = ..., fingerprint: _Optional[_Union[Fingerprint, _Mapping]] = ..., stop_ids: _Optional[_Iterable[int]] = ..., numerics: _Optional[_Union[Numerics, str]] = ..., near_tie_gap: _Optional[float] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., features: _Optional[_Iterable[str]] = ..., settings: _Optional[_Mapping[str, str]] = ..., software_version: _Optional[str] = ..., tokenizer_digest: _Optional[str] = ..., target_digest: _Optional[str] = ...) -> None: ...

class Fingerprint(_message.Message):
    __slots__ = ("pieces", "special_ids", "merges", "normaliser", "template", "stop_ids", "real_width", "padded_width")
    PIECES_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_IDS_FIELD_NUMBER: _ClassVar[int]
    MERGES_FIELD_NUMBER: _ClassVar[int]
    NORMALISER_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    STOP_IDS_FIELD_NUMBER: _ClassVar[int]
    REAL_WIDTH_FIELD_NUMBER: _ClassVar[int]
    PADDED_WIDTH_FIELD_NUMBER: _ClassVar[int]
    pieces: str
    special_ids: str
    merges: str
    normaliser: str
    template: str
    stop_ids: str
    real_width: int
    padded_width: int
    def __init__(self, pieces: _Optional[str] = ..., special_ids: _Optional[str] = ..., merges: _Optional[str] = ..., normaliser: _Optional[str] = ..., template: _Optional[str] = ..., stop_ids: _Optional[str] = ..., real_width: _Optional[int] = ..., padded_width: _Optional[int] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("context_length", "max_sessions", "window", "initial_window", "max_run_ahead", "max_branches")
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    INITIAL_WINDOW_FIELD_NUMBER: _ClassVar[int]
    MAX_RUN_AHEAD_FIELD_NUMBER: _ClassVar[int]
    MAX_BRANCHES_FIELD_NUMBER: _ClassVar[int]
    context_length: int
    max_sessions: int
    window: int
    initial_window: int
    max_run_ahead: int
    max_branches: int
    def __init__(self, context_length: _Optional[int] = ..., max_sessions: _Optional[int] = ..., window: _Optional[int] = ..., initial_window: _Optional[int] = ..., max_run_ahead: _Optional[int] = ..., max_branches: _Optional[int] = ...) -> None: ...

class GetTokenizerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTokenizerResponse(_message.Message):
    __slots__ = ("format", "data")
    class Format(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FORMAT_UNSPECIFIED: _ClassVar[GetTokenizerResponse.Format]
        FORMAT_GGUF: _ClassVar[GetTokenizerResponse.Format]
        FORMAT_HUGGING_FACE: _ClassVar[GetTokenizerResponse.Format]
    FORMAT_UNSPECIFIED: GetTokenizerResponse.Format
    FORMAT_GGUF: GetTokenizerResponse.Format
    FORMAT_HUGGING_FACE: GetTokenizerResponse.Format
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    format: GetTokenizerResponse.Format
    data: bytes
    def __init__(self, format: _Optional[_Union[GetTokenizerResponse.Format, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class DecodeRequest(_message.Message):
    __slots__ = ("open", "prompt_part", "grow", "close", "resume")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    PROMPT_PART_FIELD_NUMBER: _ClassVar[int]
    GROW_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    open: Open
    prompt_part: PromptPart
    grow: Grow
    close: Close
    resume: Resume
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., prompt_part: _Optional[_Union[PromptPart, _Mapping]] = ..., grow: _Optional[_Union[Grow, _Mapping]] = ..., close: _Optional[_Union[Close, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("prompt_ids", "prompt_length", "committed_ids", "sampling", "seed", "max_tokens", "stop_ids", "prefix_of", "required_features", "want_gaps", "target_digest")
    PROMPT_IDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_IDS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_OF_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FEATURES_FIELD_NUMBER: _ClassVar[int]
    WANT_GAPS_FIELD_NUMBER: _ClassVar[int]
    TARGET_DIGEST_FIELD_NUMBER: _ClassVar[int]
    prompt_ids: _containers.RepeatedScalarFieldContainer[int]
    prompt_length: int
    committed_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: Sampling
    seed: int
    max_tokens: int
    stop_ids: _containers.RepeatedScalarFieldContainer[int]
    prefix_of: str
    required_features: _containers.RepeatedScalarFieldContainer[str]
    want_gaps: bool
    target_digest: str
    def __init__(self, prompt_ids: _Optional[_Iterable[int]] = ..., prompt_length: _Optional[int] = ..., committed_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., seed: _Optional[int] = ..., max_tokens: _Optional[int] = ..., stop_ids: _Optional[_Iterable[int]] = ..., prefix_of: _Optional[str] = ..., required_features: _Optional[_Iterable[str]] = ..., want_gaps: bool = ..., target_digest: _Optional[str] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("session_id", "attempt", "committed_length", "hash")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    attempt: int
    committed_length: int
    hash: int
    def __init__(self, session_id: _Optional[str] = ..., attempt: _Optional[int] = ..., committed_length: _Optional[int] = ..., hash: _Optional[int] = ...) -> None: ...

class PromptPart(_message.Message):
    __slots__ = ("prompt_ids",)
    PROMPT_IDS_FIELD_NUMBER: _ClassVar[int]
    prompt_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, prompt_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    logit_bias: _containers.ScalarMap[int, float]
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., logit_bias: _Optional[_Mapping[int, float]] = ...) -> None: ...

class Grow(_message.Message):
    __slots__ = ("first_id", "base", "parents", "tokens", "run_to")
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    RUN_TO_FIELD_NUMBER: _ClassVar[int]
    first_id: int
    base: int
    parents: _containers.RepeatedScalarFieldContainer[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    run_to: int
    def __init__(self, first_id: _Optional[int] = ..., base: _Optional[int] = ..., parents: _Optional[_Iterable[int]] = ..., tokens: _Optional[_Iterable[int]] = ..., run_to: _Optional[int] = ...) -> None: ...

class Close(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DecodeResponse(_message.Message):
    __slots__ = ("opened", "commit", "finished", "go_away")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    GO_AWAY_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    commit: Commit
    finished: Finished
    go_away: GoAway
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., go_away: _Optional[_Union[GoAway, _Mapping]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("session_id", "committed_length", "hash", "window", "token_limit", "reused_length", "missing_ids")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LIMIT_FIELD_NUMBER: _ClassVar[int]
    REUSED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MISSING_IDS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    committed_length: int
    hash: int
    window: int
    token_limit: int
    reused_length: int
    missing_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, session_id: _Optional[str] = ..., committed_length: _Optional[int] = ..., hash: _Optional[int] = ..., window: _Optional[int] = ..., token_limit: _Optional[int] = ..., reused_length: _Optional[int] = ..., missing_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("base", "accepted_node", "tokens", "committed_length", "hash", "checked_count", "queue_ns", "pass_ns", "load_percent", "gaps", "padding")
    BASE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_NODE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    CHECKED_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_NS_FIELD_NUMBER: _ClassVar[int]
    PASS_NS_FIELD_NUMBER: _ClassVar[int]
    LOAD_PERCENT_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    base: int
    accepted_node: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    committed_length: int
    hash: int
    checked_count: int
    queue_ns: int
    pass_ns: int
    load_percent: int
    gaps: _containers.RepeatedScalarFieldContainer[float]
    padding: bytes
    def __init__(self, base: _Optional[int] = ..., accepted_node: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., committed_length: _Optional[int] = ..., hash: _Optional[int] = ..., checked_count: _Optional[int] = ..., queue_ns: _Optional[int] = ..., pass_ns: _Optional[int] = ..., load_percent: _Optional[int] = ..., gaps: _Optional[_Iterable[float]] = ..., padding: _Optional[bytes] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("reason", "passes", "prefill_passes")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Finished.Reason]
        REASON_STOP: _ClassVar[Finished.Reason]
        REASON_LENGTH: _ClassVar[Finished.Reason]
        REASON_CANCELLED: _ClassVar[Finished.Reason]
    REASON_UNSPECIFIED: Finished.Reason
    REASON_STOP: Finished.Reason
    REASON_LENGTH: Finished.Reason
    REASON_CANCELLED: Finished.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    PASSES_FIELD_NUMBER: _ClassVar[int]
    PREFILL_PASSES_FIELD_NUMBER: _ClassVar[int]
    reason: Finished.Reason
    passes: int
    prefill_passes: int
    def __init__(self, reason: _Optional[_Union[Finished.Reason, str]] = ..., passes: _Optional[int] = ..., prefill_passes: _Optional[int] = ...) -> None: ...

class GoAway(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...
