"""The distances between the best scores stay in step with the ids, over broken streams and commits that are lost."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from outrider.edge.answer import Answer
from outrider.edge.recovery import Recovery
from outrider.harness.links import Cut
from outrider.harness.virtual_time import run
from outrider.shared.messages import Open
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from simulation.test_broken_streams import STEADY, replicas
from simulation.world import Task, drain, make_answer, target_alone

TASK = Task(sampling=Sampling(max_tokens=48, temperature=0.8, logit_bias={END: -100.0}), gamma=3, eager=True)


class _WithGaps(Task):
    """Wants them."""

    def request(self, committed_ids: tuple[int, ...] = ()) -> Open:  # type: ignore[override]
        """See `Task.request`."""
        return replace(super().request(committed_ids), want_gaps=True, required_features=("gaps",))


def answered(cuts: tuple[Cut, ...], known: int) -> Answer:
    task = _WithGaps(**{name: getattr(TASK, name) for name in TASK.__dataclass_fields__})

    async def main() -> Answer:
        async with replicas(link=STEADY.model_copy(update={"cuts": cuts})) as (here, [verifier]):
            committed = target_alone(TASK)[:known]
            answer = make_answer(
                task, verifier.info(), here.open_stream(), committed, recovery=Recovery(here, None, seed=1)
            )
            await drain(answer)
            return answer

    return run(main(), limit_s=100)


@pytest.mark.parametrize("known", [0, 7])
@pytest.mark.parametrize("at_s", [0.24, 0.31, 0.45, 0.52, 0.6])
def test_each_token_has_its_own_gap_or_none_that_is_known(at_s: float, known: int) -> None:
    whole = answered((), 0)
    assert len(whole.gaps) == len(whole.tree.committed) == 48
    assert all(map(math.isfinite, whole.gaps))
    answer = answered((Cut(at_s=at_s, cloud_notice_ms=300), Cut(at_s=at_s + 0.37)), known)
    assert answer.stats.streams > 1
    assert answer.tree.committed == whole.tree.committed
    assert len(answer.gaps) == len(answer.tree.committed)
    told = [(mine, theirs) for mine, theirs in zip(answer.gaps, whole.gaps, strict=True) if not math.isnan(mine)]
    assert len(told) > 20
    assert [mine for mine, _ in told] == pytest.approx([theirs for _, theirs in told])


def test_some_are_lost_with_a_stream() -> None:
    """Else nothing is tested above."""
    answers = [answered((Cut(at_s=tenth / 20, cloud_notice_ms=300),), 0) for tenth in range(4, 16)]
    assert any(math.isnan(gap) for answer in answers for gap in answer.gaps)


def test_nothing_is_kept_where_none_are_wanted() -> None:
    async def main() -> Answer:
        async with replicas() as (here, [verifier]):
            answer = make_answer(TASK, verifier.info(), here.open_stream())
            await drain(answer)
            return answer

    assert run(main()).gaps == []
