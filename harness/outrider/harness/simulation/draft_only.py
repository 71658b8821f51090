"""The draft model alone on its device: no cloud, no link, and not the target's text."""

from __future__ import annotations

import asyncio

from outrider.edge.drafters.base import propose_one
from outrider.harness import virtual_time
from outrider.harness.replay_drafter import DeviceClock, ReplayDrafter
from outrider.harness.simulation.measures import AnswerTrace, Run
from outrider.harness.simulation.setup import Setup
from outrider.shared.sampling.choose import Chooser


def run_draft_only(setup: Setup) -> Run:
    """One device writes answers as long as the recorded ones, on the virtual clock. What a step takes does not depend
    on what it says, so it is led along the recorded text.
    """
    return virtual_time.run(_write(setup))


async def _write(setup: Setup) -> Run:
    loop = asyncio.get_running_loop()
    device = ReplayDrafter(setup.recordings, DeviceClock(setup.device.draft_ms))
    traces = []
    for recording in setup.recordings:
        request = recording.open_request(setup.max_tokens)
        chooser = Chooser(request.sampling, request.seed, request.prompt_ids, recording.header.vocabulary.size)
        draft = device.open(request.prompt_ids, chooser)
        asked_s = loop.time()
        updates = []
        for position in range(min(request.max_tokens, len(recording.answer_ids))):
            await propose_one(draft, recording.answer_ids[:position], 1)
            updates.append((loop.time(), 1))
        traces.append(AnswerTrace(recording.header.id, asked_s, tuple(updates), accepted=len(updates)))
    return Run(tuple(traces), (), device.clock.guesses)
