"""Lookups at both ends: they change what is guessed and how fast it goes, never the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.cloud.session import SessionLimits
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.answer import Answer, AnswerSetup
from outrider.edge.control.base import Control
from outrider.edge.control.fixed import FixedControl
from outrider.edge.control.ratio import RatioControl
from outrider.edge.drafters.tiny import TinyDrafter
from outrider.edge.drafting import Drafting
from outrider.edge.guesses.experience import Experience
from outrider.edge.guesses.sources import Sources
from outrider.harness import virtual_time
from outrider.harness.inline_target import InlineTarget
from outrider.harness.links import LinkProfile
from outrider.harness.memory_link import MemoryPort
from outrider.harness.simulation.measures import measures
from outrider.harness.simulation.scenario import Scenario, resolve
from outrider.harness.simulation.virtual_run import run_virtual
from outrider.harness.tiny_answers import PacedDraft, chooser_of
from outrider.shared.corpus_index import CorpusIndex
from outrider.shared.sampling.options import Sampling
from simulation.world import Task, drain, forty_ms, target_alone


def repetitive(seed: int, letters: int) -> Task:
    """An answer of a few letters only, in which every ending has occurred before and lookups are often wrong."""
    bias = {97 + letter: 60.0 for letter in range(letters)}
    return Task(seed=seed, sampling=Sampling(temperature=1.0, max_tokens=60, logit_bias=bias))


async def answer(
    task: Task,
    control: Control,
    lookup_nodes: int,
    rtt_ms: float,
    *,
    eager: bool,
    model: bool,
    corpus: Sequence[int] | None = None,
) -> Answer:
    limits = SessionLimits(lookup_nodes=lookup_nodes)
    verifier = Verifier(InlineTarget(TinyEngine(), forty_ms), VerifierConfig(session=limits))
    async with verifier.running(), MemoryPort.listening(verifier) as port:
        info = verifier.info()
        request = task.request()
        draft = TinyDrafter(task.deviation).open(request.prompt_ids, chooser_of(request)) if model else None
        setup = AnswerSetup(request, info.limits, info.stop_ids, control, eager)
        link = port.connect(LinkProfile.of_rtt(rtt_ms), task.seed)
        sessions = {"tiny": PacedDraft(draft, task.draft_ms)} if draft else {}
        index = None if corpus is None else CorpusIndex(corpus)
        made = Answer(setup, link, Sources.of(sessions, request, Experience(), lookup=True, corpus=index))
        await drain(made)
        return made


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    letters=st.integers(1, 4),
    lookup_nodes=st.sampled_from([0, 3, 16]),
    rtt_ms=st.sampled_from([0.0, 20.0, 300.0]),
    eager=st.booleans(),
    model=st.booleans(),
    is_fixed=st.booleans(),
    corpus=st.sampled_from([None, "right", "misleading"]),
)
def test_the_text_is_the_targets_own(
    seed: int,
    letters: int,
    lookup_nodes: int,
    rtt_ms: float,
    eager: bool,
    model: bool,
    is_fixed: bool,
    corpus: str | None,
) -> None:
    task = repetitive(seed, letters)
    expected = target_alone(task)
    texts = {
        None: None,
        "right": expected,
        "misleading": [token ^ 1 if i % 3 else token for i, token in enumerate(expected)],
    }
    control = FixedControl(5, 2) if is_fixed else RatioControl()
    made = virtual_time.run(answer(task, control, lookup_nodes, rtt_ms, eager=eager, model=model, corpus=texts[corpus]))
    assert list(made.tree.committed) == expected
    made.tree.check_integrity()
    assert made.stats.walked <= made.stats.checked


@pytest.mark.parametrize("control", ["fixed", "ratio"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_corpus_that_holds_the_answer_gives_three_times_the_tokens_a_pass(control: str, temperature: float) -> None:
    """Among ten other answers of the same model, as in a file of earlier ones."""
    without_end = {256: -100.0}
    passes: dict[str, int] = {}
    for seed in range(3):
        sampling = Sampling(temperature=temperature, max_tokens=120, logit_bias=without_end)
        task = Task(seed=seed, sampling=sampling)
        others = [token for other in range(100, 110) for token in target_alone(replace(task, seed=other))]
        expected = target_alone(task)
        for name, corpus in (("text alone", None), ("corpus", [*others[:600], *expected, *others[600:]])):
            policy = Drafting("lookup", control).make_control()
            made = virtual_time.run(answer(task, policy, 0, 20.0, eager=False, model=False, corpus=corpus))
            assert list(made.tree.committed) == expected
            passes[name] = passes.get(name, 0) + made.stats.passes
    assert passes["corpus"] * 3 <= passes["text alone"], passes


def test_what_the_verifier_looks_up_is_no_guess_of_the_edge() -> None:
    task = repetitive(3, 1)
    made = virtual_time.run(answer(task, FixedControl(1), 16, 20.0, eager=True, model=False))
    assert made.stats.passes < 20, "one letter over and over is looked up"
    assert sum(count * times for count, times in made.stats.accepted_histogram.items()) == made.stats.walked


@pytest.mark.parametrize("pace", ["patient", "eager"])
def test_lookups_save_time_or_passes_where_the_answer_repeats_the_prompt(pace: str) -> None:
    def found(drafter: str, cloud_lookup: int) -> tuple[float, float]:
        scenario = Scenario(
            category=("edit",), control="ratio", pace=pace, drafter=drafter, cloud_lookup=cloud_lookup, rtt_ms=60
        )
        result = measures(run_virtual(resolve(scenario)))
        return result["passes_per_token"], result["ms_per_token"]

    model, model_ms = found("recorded", 0)
    both, both_ms = found("recorded+lookup", 0)
    # A patient edge trades: with free guesses the answer is faster, so that drafting on is worth less, and it asks
    # earlier for a pass.
    share = 1.2 if pace == "patient" else 0.95
    assert both < share * model
    assert both_ms < 0.92 * model_ms
    assert found("recorded", 16)[0] < share * model
    assert found("lookup", 0)[0] < 0.9
    assert found("none", 16)[0] < 0.9
