"""An answer whose guesses cost more than they save stops guessing by itself and says so; its text is the target's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.edge.answer import Answer, AnswerSetup
from outrider.edge.drafting import Drafting
from outrider.edge.guesses.experience import Experience
from outrider.edge.guesses.sources import Sources
from outrider.harness.links import LinkProfile
from outrider.harness.tiny_answers import PacedDraft
from outrider.harness.virtual_time import run
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from simulation.test_ruled_out_ids import _Stubborn
from simulation.world import Task, drain, target_alone, world

TASK = Task(sampling=Sampling(max_tokens=300, logit_bias={END: -100.0, 32: -100.0}))


@pytest.mark.parametrize("control", ["fixed", "ratio"])
@pytest.mark.parametrize("may_change", [True, False])
def test_a_drafter_that_is_never_right_is_given_up(
    control: str, may_change: bool, caplog: pytest.LogCaptureFixture
) -> None:
    drafter = _Stubborn()

    async def main() -> Answer:
        async with world() as here:
            info, request = here.verifier.info(), TASK.request()
            sources = Sources.of({"odd": PacedDraft(drafter, 30.0)}, request, Experience())
            setup = AnswerSetup(request, info.limits, info.stop_ids, Drafting("tiny", control).make_control(), False)
            link = here.port.connect(LinkProfile.of_rtt(40), seed=1)
            answer = Answer(replace(setup, may_change_pace=may_change), link, sources)
            await drain(answer)
            return answer

    answer = run(main(), limit_s=1000)
    assert answer.tree.committed == target_alone(TASK)
    if may_change:
        assert len(answer.stats.pace_notes) == 2
        assert "going on eagerly" in answer.stats.pace_notes[0]
        assert "guessing no further" in answer.stats.pace_notes[1]
        assert answer.stats.pace_notes[1] in caplog.text
        assert drafter.asked_count < 150, "half of the answer at most"
    else:
        assert answer.stats.pace_notes == []
        assert drafter.asked_count > 150
