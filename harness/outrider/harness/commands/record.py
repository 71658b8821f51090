"""Record what a real pair of models says about each prompt of a file, for replay under simulated hardware and links."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from outrider.edge.commands.compare import BenchPrompt, read_prompts
from outrider.edge.commands.options import SamplingOptions, with_option_groups
from outrider.harness.recording.format import Recording
from outrider.harness.recording.pair import Pair
from outrider.harness.recording.store import read_recording, recording_path, write_recording
from outrider.shared.cli import JsonOption, LogLevelOption, print_json
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.options import MAX_SEED, Sampling

# Room for a prompt beside the answer, unless --context says otherwise.
PROMPT_ROOM = 512


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
    if options.stop:
        raise OutriderError(Reason.USAGE, "--stop: a recording holds ids; stop texts are the edge's business.")
    chosen = _choose(prompts, options, category, limit)
    counts = {"recorded": 0, "skipped": 0, "tokens": 0, "bytes": 0}
    with contextlib.closing(Pair.load(target, draft, context or options.max_tokens + PROMPT_ROOM)) as pair:
        for index, (prompt, seeded) in enumerate(chosen):
            path = recording_path(out, prompt.id)
            if path.exists():
                _check_same(pair, prompt, seeded, path)
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


def _choose(
    file: Path, options: Sampling, categories: list[str] | None, limit: int | None
) -> list[tuple[BenchPrompt, Sampling]]:
    """The prompts to record, each with its seed, which does not depend on what else is chosen."""
    first = options.seed or 0
    seeded = [
        (prompt, options.model_copy(update={"seed": (first + index) & MAX_SEED}))
        for index, prompt in enumerate(read_prompts([], file))
        if not categories or prompt.category in categories
    ][:limit]
    if not seeded:
        raise OutriderError(Reason.USAGE, f"{file}: no prompt is left to record.")
    ids = [prompt.id for prompt, _ in seeded]
    for prompt_id in ids:
        recording_path(Path(), prompt_id)
        if ids.count(prompt_id) > 1:
            raise OutriderError(Reason.FILE_UNREADABLE, f"{file}: two prompts have the id {prompt_id}.")
    return seeded


def _check_same(pair: Pair, prompt: BenchPrompt, sampling: Sampling, path: Path) -> None:
    """Raise USAGE if what stands at `path` is not what this run would record there."""
    header = read_recording(path).header
    for field, expected in pair.header_fields(prompt, sampling).items():
        if getattr(header, field) != expected:
            raise OutriderError(
                Reason.USAGE, f"{path} was recorded with another {field}; remove it or choose another --out."
            )


def _print_progress(counter: str, recording: Recording, seconds: float) -> None:
    first_right = sum(
        row[0] == token for row, token in zip(recording.draft.ids.tolist(), recording.answer_ids, strict=True)
    )
    length = len(recording.answer_ids)
    print(
        f"{counter} {recording.header.id}: {length} tokens, {recording.header.finish_reason.value}, drafter right at "
        f"{first_right / length:.3f}, {len(recording.branches.positions)} branches, {seconds:.1f} s",
        file=sys.stderr,
        flush=True,
    )
