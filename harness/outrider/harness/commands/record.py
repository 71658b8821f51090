"""Record what a real pair of models says about each prompt of a file, for replay under simulated hardware and links."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from outrider.edge.commands.compare import read_prompts
from outrider.edge.commands.options import SamplingOptions, with_option_groups
from outrider.harness.recording.format import Recording
from outrider.harness.recording.pair import Pair
from outrider.harness.recording.session import PROMPT_ROOM, first_choices_right, read_same, seeded_prompts
from outrider.harness.recording.store import recording_path, write_recording
from outrider.shared.cli import JsonOption, LogLevelOption, print_json


@with_option_groups
def record(
    sampling: SamplingOptions,
    prompts: Annotated[Path, typer.Option(metavar="FILE.jsonl", help="A file with id, category and prompt a line.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where recordings go, one file a prompt.")],
    category: Annotated[list[str] | None, typer.Option(help="Only these categories of the file.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many prompts.")] = None,
    draft: Annotated[str, typer.Option(metavar="NAME", help="Draft model: name, path or tiny:DEVIATION.")] = (
        "qwen2.5-coder-0.5b"
    ),
    target: Annotated[str, typer.Option(metavar="NAME", help="Target model: name, path or tiny.")] = (
        "qwen2.5-coder-1.5b"
    ),
    context: Annotated[
        int | None, typer.Option(min=2, help=f"Tokens of prompt and answer together; default: {PROMPT_ROOM} + answer.")
    ] = None,
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> int:
    """Record the target's answers and both models' rankings along them. Prompts that are recorded already are
    skipped, so an interrupted run can be started again. The n-th prompt of the file gets the seed plus n - 1.
    """
    options = sampling.make()
    chosen = seeded_prompts(read_prompts([], prompts), options, category or (), limit, str(prompts))
    counts = {"recorded": 0, "skipped": 0, "tokens": 0, "bytes": 0}
    with contextlib.closing(Pair.load(target, draft, context or options.max_tokens + PROMPT_ROOM)) as pair:
        for index, (prompt, seeded) in enumerate(chosen):
            path = recording_path(out, prompt.id)
            if path.exists():
                read_same(path, pair.header_fields(prompt, seeded))
                counts["skipped"] += 1
                continue
            began = time.monotonic()
            recording = pair.record(prompt, seeded)
            counts["bytes"] += write_recording(recording, path)
            counts["recorded"] += 1
            counts["tokens"] += len(recording.answer_ids)
            _print_progress(f"[{index + 1}/{len(chosen)}]", recording, time.monotonic() - began)
    if json:
        print_json({**counts, "out": str(out)})
    else:
        print(f"{counts['recorded']} recorded, {counts['skipped']} there already, in {out}.")
    return 0


def _print_progress(counter: str, recording: Recording, seconds: float) -> None:
    print(
        f"{counter} {recording.header.id}: {len(recording.answer_ids)} tokens, {recording.header.finish_reason.value}, "
        f"drafter right at {first_choices_right(recording):.3f}, {len(recording.branches.positions)} branches, "
        f"{seconds:.1f} s",
        file=sys.stderr,
        flush=True,
    )
