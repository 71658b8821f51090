"""The device side of edge-cloud decoding: an agent that guesses with a small model and has a verifier decide."""

from outrider.edge.agent import Agent, AnswerOptions, Drafting
from outrider.edge.chunks import Chunk, Result
from outrider.edge.private_verifier import private_verifier
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.options import Sampling
from outrider.shared.token_tree import Origin

__all__ = [
    "Agent",
    "AnswerOptions",
    "Chunk",
    "Drafting",
    "Origin",
    "OutriderError",
    "Reason",
    "Result",
    "Sampling",
    "private_verifier",
]
