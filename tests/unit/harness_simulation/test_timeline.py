"""Timelines: what is drawn is what happened."""

from __future__ import annotations

import pytest

from outrider.harness.simulation.scenario import Scenario, resolve
from outrider.harness.simulation.timeline import timeline
from outrider.harness.simulation.virtual_run import run_virtual


def test_passes_follow_flights_and_commits_arrive_a_flight_after_their_pass() -> None:
    setup = resolve(Scenario(category=("code",), limit=2, max_tokens=30, rtt_ms=50, control="fixed"))
    drawn = timeline(setup, {"gamma": 5})
    assert drawn["settings"] == {"gamma": 5}
    assert drawn["prompt_id"] == setup.recordings.recordings[0].header.id
    ends = [entry["end_ms"] for entry in drawn["passes"]]
    down = [flight for flight in drawn["flights"] if flight["direction"] == "down"]
    commits = [commit["at_ms"] for commit in drawn["commits"]]
    # The prompt's pass commits nothing.
    assert commits == pytest.approx([end + 25 for end in ends[1:]])
    assert [flight["arrives_ms"] - flight["sent_ms"] for flight in down] == pytest.approx([25.0] * len(down))
    arrivals = [flight["arrives_ms"] for flight in drawn["flights"] if flight["direction"] == "up"]
    for start in (entry["start_ms"] for entry in drawn["passes"][2:]):
        assert any(abs(start - arrival) < 1e-6 for arrival in arrivals), "patient passes begin when guesses arrive"
    text = "".join(piece for commit in drawn["commits"] for piece in commit["tokens"])
    known = setup.recordings.recordings[0].header.vocabulary.pieces
    answer = setup.recordings.recordings[0].answer_ids[:30]
    assert text == b"".join(known[token].encode("latin-1") for token in answer).decode()


def test_it_is_the_run_of_the_setup() -> None:
    setup = resolve(Scenario(category=("code",), limit=1, max_tokens=30))
    drawn, run = timeline(setup, {}), run_virtual(setup)
    assert [entry["accepted"] for entry in drawn["passes"]] == [record.accepted for record in run.passes]
    assert len(drawn["drafts"]) == len(run.guesses)
