"""Messages of the right form with values of every kind, good ones among them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from outrider.v1 import verifier_pb2 as pb

VOCABULARY, PADDED = 260, 262
EDGES = (0, 1, 2, 3, 63, 64, VOCABULARY - 1, VOCABULARY, PADDED, 2**31 - 1, 2**31, 2**32 - 1)

numbers = st.sampled_from(EDGES) | st.integers(0, 40) | st.integers(0, 2**32 - 1)
tokens = st.integers(97, 122) | st.integers(0, VOCABULARY - 1) | st.sampled_from(EDGES)
token_lists = st.lists(st.integers(97, 122), max_size=12) | st.lists(tokens, max_size=12)
reals = st.sampled_from((0.0, 1.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e-300, 1e300)) | st.floats()


def _some(kind: type[Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Messages in which any of the fields may lack."""
    return st.fixed_dictionaries({}, optional=fields).map(lambda values: kind(**values))


samplings = _some(
    pb.Sampling,
    temperature=reals,
    top_k=numbers,
    top_p=reals,
    min_p=reals,
    repetition_penalty=reals,
    frequency_penalty=reals,
    presence_penalty=reals,
    logit_bias=st.dictionaries(tokens, reals, max_size=4),
)
opens = _some(
    pb.Open,
    prompt_ids=token_lists,
    prompt_length=numbers,
    committed_ids=token_lists,
    sampling=samplings,
    seed=st.integers(0, 2**64 - 1),
    max_tokens=numbers,
    stop_ids=token_lists,
    prefix_of=st.text(max_size=40),
    required_features=st.lists(st.text(max_size=8), max_size=3),
    want_gaps=st.booleans(),
    target_digest=st.sampled_from(["", "0" * 32]),
)
grows = _some(
    pb.Grow,
    first_id=numbers,
    base=numbers,
    parents=st.lists(st.integers(0, 3) | numbers, max_size=12),
    tokens=token_lists,
    run_to=numbers,
)
parts = _some(pb.PromptPart, prompt_ids=token_lists)
resumes = _some(pb.Resume, session_id=st.text(max_size=40), attempt=numbers, committed_length=numbers, hash=numbers)
GOOD_OPEN = pb.Open(prompt_ids=[257, 104, 105, 258], max_tokens=40, seed=3)

requests = st.one_of(
    opens.map(lambda message: pb.DecodeRequest(open=message)),
    grows.map(lambda message: pb.DecodeRequest(grow=message)),
    grows.map(lambda message: pb.DecodeRequest(grow=message)),
    parts.map(lambda message: pb.DecodeRequest(prompt_part=message)),
    resumes.map(lambda message: pb.DecodeRequest(resume=message)),
    st.just(pb.DecodeRequest(close=pb.Close())),
    st.just(pb.DecodeRequest()),
)
first_requests = st.just(pb.DecodeRequest(open=GOOD_OPEN)) | requests
scripts = st.tuples(first_requests, st.lists(requests, max_size=6)).map(lambda script: [script[0], *script[1]])
