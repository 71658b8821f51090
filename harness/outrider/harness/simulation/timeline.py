"""One answer moment by moment: when the device drafted, what flew, when passes ran and what became text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from outrider.harness.memory_link import Flight
from outrider.harness.recording.format import Recording
from outrider.harness.recording.library import RecordingSet
from outrider.harness.simulation.setup import Setup
from outrider.harness.simulation.virtual_run import run_virtual

FORMAT = "outrider-timeline"
VERSION = 1
DIGITS = 6


def timeline(setup: Setup, settings: dict[str, Any]) -> dict[str, Any]:
    """The first recording's answer on the virtual clock, with an accelerator to itself; times in milliseconds since it
    was asked for. `settings` is passed on.
    """
    recording = setup.recordings.recordings[0]
    alone = replace(setup, recordings=RecordingSet([recording]), sessions=1)
    flights: list[Flight] = []
    run = run_virtual(alone, flights.append)
    trace = run.answers[0]

    def ms(time_s: float) -> float:
        return round(1000 * (time_s - trace.asked_s), DIGITS)

    pieces = _pieces(recording, [count for _, count in trace.updates])
    return {
        "format": FORMAT,
        "version": VERSION,
        "prompt_id": recording.header.id,
        "settings": settings,
        "drafts": [{"start_ms": ms(guess.began_s), "end_ms": ms(guess.ended_s)} for guess in run.guesses],
        "flights": [
            {
                "direction": flight.direction.value,
                "bytes": flight.size_bytes,
                "sent_ms": ms(flight.sent_s),
                "arrives_ms": ms(flight.arrives_s),
            }
            for flight in flights
        ],
        "passes": [
            {"start_ms": ms(p.began_s), "end_ms": ms(p.ended_s), "rows": p.rows, "accepted": p.accepted}
            for p in run.passes
        ],
        "commits": [
            {"at_ms": ms(at_s), "tokens": tokens} for (at_s, _), tokens in zip(trace.updates, pieces, strict=True)
        ],
    }


def _pieces(recording: Recording, counts: Sequence[int]) -> Iterable[list[str]]:
    """The texts of the answer's tokens, as many a time as `counts` says."""
    known = recording.header.vocabulary.pieces
    texts = [known.get(token, "").encode("latin-1").decode("utf-8", "replace") for token in recording.answer_ids]
    return [texts[begin:end] for begin, end in pairwise(accumulate(counts, initial=0))]
