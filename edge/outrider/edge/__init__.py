"""The device side of edge-cloud decoding: an agent that guesses with a small model and has a verifier decide."""

from outrider.edge.agent import Agent, AnswerOptions
from outrider.edge.chunks import Chunk, Result, Retract
from outrider.edge.drafting import Drafting
from outrider.edge.experiment import Experiment
from outrider.edge.interrupted import AnswerInterrupted
from outrider.edge.private_verifier import private_verifier
from outrider.edge.resume_handle import ResumeHandle
from outrider.shared.access import Tls
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.options import Sampling
from outrider.shared.token_tree import Origin

__all__ = [
    "Agent",
    "AnswerInterrupted",
    "AnswerOptions",
    "Chunk",
    "Drafting",
    "Experiment",
    "Origin",
    "OutriderError",
    "Reason",
    "Result",
    "ResumeHandle",
    "Retract",
    "Sampling",
    "Tls",
    "private_verifier",
]
