"""What happens in one run: a few answers, the verifiers they use, and what goes wrong when. Drawn from a seed; the
`repr` says all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum

from outrider.edge.recovery import Patience
from outrider.harness.links import LinkProfile
from outrider.shared.messages import Open
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END

LONGEST_NOTICE_S = 6.0


class Kind(StrEnum):
    """What goes wrong. RIVAL resumes an answer's session over a second stream; OPEN is another edge's session."""

    CUT = "cut"
    KILL = "kill"
    DRAIN = "drain"
    RIVAL = "rival"
    OPEN = "open"


class Moment(StrEnum):
    """When a verifier is killed: after a pass and before its commits are sent, while one of them is on its way (it is
    lost), or as soon as one has arrived.
    """

    BEFORE = "before"
    ON_ITS_WAY = "on its way"
    ARRIVED = "arrived"


@dataclass(frozen=True, slots=True)
class Fault:
    """At `at_s` it happens at verifier `replica`, or to `answer` (CUT: of that answer only; None: of all).

    Each side of a cut or killed stream hears of it after its notice. A killed or drained verifier comes back empty
    after `lasts_s` (None: never). A second stream stays open for `lasts_s`; a RIVAL's attempt is `attempt` above that
    of the answer it rivals, and its text may be `is_wrong`. A KILL with a `moment` waits for one in the
    next pass.
    """

    at_s: float
    kind: Kind
    replica: int = 0
    answer: int | None = None
    edge_notice_s: float = 0.0
    cloud_notice_s: float = 0.0
    lasts_s: float | None = None
    attempt: int = 0
    is_wrong: bool = False
    moment: Moment | None = None


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """One answer: what is asked, how it is drafted, and over which link. Its user walks away after `leave_after`
    tokens. Without a verifier it `falls_back` on its drafter, or waits.
    """

    begin_s: float
    seed: int
    sampling: Sampling
    control: str
    gamma: int | None
    branch: int | None
    pace: str | None
    deviations: tuple[float, ...]
    has_lookup: bool
    draft_ms: float
    link: LinkProfile
    patience: Patience
    leave_after: int | None
    falls_back: bool = False

    def request(self) -> Open:
        """Its Open message."""
        prompt = (257, *b"seed %d" % self.seed, 256, 258)
        return Open(prompt, self.sampling, self.seed, self.sampling.max_tokens)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run; `replicas` verifiers with `slots` slots each, which keep suspended sessions for `parked_s`."""

    seed: int
    replicas: int
    slots: int
    pass_ms: float
    parked_s: float
    lookup_nodes: int
    answers: tuple[AnswerPlan, ...]
    faults: tuple[Fault, ...]

    def has(self, *kinds: Kind) -> bool:
        """Whether anything of these kinds goes wrong."""
        return any(fault.kind in kinds for fault in self.faults)


def make_schedule(seed: int) -> Schedule:
    """The schedule of `seed`."""
    draw = random.Random(seed)
    answers = tuple(_answer(draw) for _ in range(draw.choice((1, 1, 2, 3))))
    replicas = draw.choice((1, 2, 3))
    faults = sorted(
        (_fault(draw, replicas, len(answers)) for _ in range(draw.randint(0, 5))), key=lambda fault: fault.at_s
    )
    # Drawn apart, so that a seed stays the schedule that it was.
    apart = random.Random(f"apart {seed}")
    if apart.random() < 0.3:
        faults.append(_kill(apart, replicas))
    answers = tuple(replace(answer, falls_back=apart.random() < 0.4) for answer in answers)
    return Schedule(
        seed=seed,
        replicas=replicas,
        slots=draw.choice((1, 2, 2, 3, 4)),
        pass_ms=draw.choice((15.0, 40.0, 90.0)),
        parked_s=draw.choice((2.0, 20.0)),
        lookup_nodes=draw.choice((0, 0, 0, 2)),
        answers=answers,
        faults=tuple(faults),
    )


def _answer(draw: random.Random) -> AnswerPlan:
    # END may come at any time, or never.
    bias = draw.choice(({}, {END: -100.0}))
    temperature = draw.choice((0.0, 0.0, 0.8))
    max_tokens = draw.randint(6, 16)
    control = draw.choice(("fixed", "ratio", "proportional"))
    deviations = draw.choice(((), (0.0,), (0.5,), (1.0,), (0.3, 0.9)))
    return AnswerPlan(
        begin_s=draw.uniform(0, 0.5),
        seed=draw.randrange(1 << 32),
        sampling=Sampling(max_tokens=max_tokens, temperature=temperature, logit_bias=bias),
        control=control,
        gamma=draw.choice((None, 1, 2, 4)),
        branch=draw.choice((None, 1, 2)),
        pace=draw.choice((None, "patient", "eager")),
        deviations=deviations,
        has_lookup=draw.random() < 0.3,
        draft_ms=draw.choice((2.0, 8.0, 30.0)),
        link=_link(draw),
        patience=Patience(limit_s=draw.choice((1.0, 5.0, 15.0))),
        leave_after=draw.randint(0, max_tokens) if draw.random() < 0.1 else None,
    )


def _link(draw: random.Random) -> LinkProfile:
    rtt_ms = draw.choice((1.0, 20.0, 60.0, 200.0))
    if draw.random() < 0.5:
        return LinkProfile.of_rtt(rtt_ms)
    jitter_ms = rtt_ms * draw.uniform(0, 0.5)
    return LinkProfile.of_rtt(
        rtt_ms, jitter="exponential", jitter_ms=jitter_ms, loss_probability=0.05, loss_stall_ms=200
    )


def _fault(draw: random.Random, replicas: int, answers: int) -> Fault:
    kind = draw.choice((Kind.CUT, Kind.CUT, Kind.CUT, Kind.KILL, Kind.DRAIN, Kind.RIVAL, Kind.RIVAL, Kind.OPEN))
    answer: int | None = draw.randrange(answers)
    if kind is Kind.CUT and draw.random() < 0.3:
        answer = None
    lasts_s: float | None = draw.choice((0.0, 0.05, 0.3, 2.0))
    if kind in (Kind.KILL, Kind.DRAIN):
        lasts_s = draw.choice((0.0, 0.3, 3.0, None))
    return Fault(
        at_s=draw.uniform(0, 1.5),
        kind=kind,
        replica=draw.randrange(replicas),
        answer=answer,
        edge_notice_s=_notice(draw),
        cloud_notice_s=_notice(draw),
        lasts_s=lasts_s,
        attempt=draw.choice((-1, 0, 0, 1, 2, 5)),
        is_wrong=draw.random() < 0.2,
    )


def _kill(draw: random.Random, replicas: int) -> Fault:
    return Fault(
        at_s=draw.uniform(0, 1.0),
        kind=Kind.KILL,
        replica=draw.randrange(replicas),
        edge_notice_s=_notice(draw),
        lasts_s=draw.choice((0.0, 0.3, 3.0, None)),
        moment=draw.choice(list(Moment)),
    )


def _notice(draw: random.Random) -> float:
    return draw.choice((0.0, 0.0, draw.uniform(0, 0.2), draw.uniform(0, LONGEST_NOTICE_S)))
