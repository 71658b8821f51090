"""Whatever guesses, however it is steered and whatever the link does in between, the text is the target's own."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.edge.answer import Answer
from outrider.edge.drafting import CONTROLS
from outrider.edge.guesses.experience import Experience
from outrider.harness.links import LinkProfile, Stall
from outrider.harness.virtual_time import run
from outrider.shared.sampling.options import Sampling
from simulation.world import Task, target_alone, world

SAMPLINGS = (
    Sampling(max_tokens=16),
    Sampling(max_tokens=16, temperature=0.7, top_p=0.8),
    Sampling(max_tokens=16, temperature=1.0, repetition_penalty=1.2, presence_penalty=0.4),
)
# Few letters, so that lookups and n-grams have something to say.
REPETITIVE = Sampling(max_tokens=48, temperature=1.0, logit_bias={97: 60.0, 98: 60.0, 99: 60.0})
# Drafters by deviation from the target, and what drafts beside them.
SOURCES: dict[str, dict[str, Any]] = {
    "right": {"deviation": 0.0},
    "mostly right": {"deviation": 0.5},
    "mostly wrong": {"deviation": 3.0},
    "with lookups": {"deviation": 0.5, "extras": ("lookup",)},
    "with n-grams": {"deviation": 0.5, "extras": ("ngrams",)},
    "with all": {"deviation": 0.5, "further_deviations": (1.0, 3.0), "extras": ("lookup", "ngrams")},
    "two": {"deviation": 0.5, "further_deviations": (1.0,)},
}
EXTRAS = st.sampled_from([(), ("lookup",), ("ngrams",), ("lookup", "ngrams")])

tasks = st.builds(
    Task,
    seed=st.integers(0, 10_000),
    sampling=st.sampled_from([*SAMPLINGS, REPETITIVE]),
    gamma=st.none() | st.integers(1, 12),
    branch=st.none() | st.integers(1, 4),
    eager=st.booleans(),
    deviation=st.sampled_from([0.0, 0.5, 3.0]),
    draft_ms=st.sampled_from([0.0, 1.0, 8.0, 45.0]),
    control=st.sampled_from(CONTROLS),
    further_deviations=st.sampled_from([(), (1.0,), (1.0, 2.0)]),
    extras=EXTRAS,
    draft_temperature=st.sampled_from(["auto", "kl", 1.2, 0.5]),
)
FAULTS: list[dict[str, Any]] = [
    {},
    {"jitter": "uniform", "jitter_ms": 10.0},
    {"loss_probability": 0.1, "loss_stall_ms": 180.0},
    {"stalls": (Stall(at_s=0.2, length_ms=300, every_s=0.9),)},
]
links = st.tuples(st.sampled_from([30.0, 150.0, 600.0]), st.sampled_from(FAULTS)).map(
    lambda chosen: LinkProfile.of_rtt(chosen[0], **chosen[1])
)


@settings(max_examples=40, deadline=None)
@given(given_tasks=st.lists(tasks, min_size=1, max_size=3), link=links, lookup_nodes=st.sampled_from([0, 6]))
def test_under_random_schedules_the_ids_are_the_targets_own(
    given_tasks: list[Task], link: LinkProfile, lookup_nodes: int
) -> None:
    """Sessions that share passes and what their agent has learned."""
    experience = Experience()

    async def main() -> list[Answer]:
        async with world(lookup_nodes=lookup_nodes) as here:
            return await asyncio.gather(*(here.answer(task, link, experience=experience) for task in given_tasks))

    for task, answer in zip(given_tasks, run(main()), strict=True):
        assert answer.tree.committed == target_alone(task), task
        answer.tree.check_integrity()


def test_over_the_full_product_the_ids_are_the_targets_own() -> None:
    """Every policy with every pace, branching, kind of drafter and sampling."""
    cases = itertools.product(CONTROLS, (False, True), (1, 2, 3), SOURCES.values(), SAMPLINGS)

    async def main() -> list[tuple[Task, Answer]]:
        found = []
        async with world() as here:
            for number, (control, eager, branch, source, sampling) in enumerate(cases):
                task = Task(seed=number, control=control, eager=eager, branch=branch, sampling=sampling, **source)
                found.append((task, await here.answer(task, LinkProfile.of_rtt(20))))
        return found

    found = run(main())
    assert len(found) == len(CONTROLS) * 2 * 3 * len(SOURCES) * len(SAMPLINGS)
    for task, answer in found:
        assert answer.tree.committed == target_alone(task), task
