"""Recordings as files: one compressed archive of arrays a prompt, written in one step and read with every check that
replay relies on. A folder of them is a set: one pair, one way of sampling.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib.format import read_array
from numpy.typing import NDArray
from pydantic import ValidationError

from outrider.harness.recording.format import (
    BRANCH_RANKS,
    BRANCH_WIDTH,
    DEPTH,
    FORMAT,
    NO_TOKEN,
    VERSION,
    WIDTH,
    Branches,
    Header,
    Ranking,
    Recording,
)
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.files import write_whole
from outrider.shared.messages import FinishReason

SUFFIX = ".npz"
MAX_BYTES = 256 * 2**20
# What unpacking and parsing raise for bytes that are not what was written, beside ValueError.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, SyntaxError, TokenError)

Array = NDArray[Any]


def recording_path(folder: Path, prompt_id: str) -> Path:
    """Where a prompt's recording stands; raises USAGE for an id that is no plain file name."""
    if not prompt_id or prompt_id.startswith(".") or not all(c.isalnum() or c in "-_." for c in prompt_id):
        raise OutriderError(Reason.USAGE, f"prompt id {prompt_id!r}: expected letters, digits, '-', '_' and '.'.")
    return folder / f"{prompt_id}{SUFFIX}"


def write_recording(recording: Recording, path: Path) -> int:
    """Write `path` in one step; returns its size in bytes. Equal recordings give equal bytes."""
    arrays: dict[str, Array] = {
        "header": np.frombuffer(recording.header.model_dump_json().encode(), np.uint8),
        "prompt_ids": np.array(recording.prompt_ids, np.uint32),
        "answer_ids": np.array(recording.answer_ids, np.uint32),
        "branch_position": recording.branches.positions,
        "branch_rank": recording.branches.ranks,
    }
    for name, ranking in _rankings(recording):
        arrays |= {
            f"{name}_ids": ranking.ids,
            f"{name}_log_probability": ranking.log_probability,
            f"{name}_margin": ranking.margin,
        }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_whole(path, buffer.getvalue())
    return buffer.tell()


def read_recording(path: Path) -> Recording:
    """Read and check the recording at `path`; raises FILE_UNREADABLE with what was expected and what was found."""
    try:
        return _parse(_read_arrays(path))
    except OSError as error:
        reason = error.strerror or str(error)
    except _DAMAGE as error:
        reason = f"damaged or cut short ({error})"
    except ValidationError as error:
        problem = error.errors()[0]
        reason = f"header.{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
    except (KeyError, ValueError) as error:
        reason = str(error)
    raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {reason}.")


def _rankings(recording: Recording) -> tuple[tuple[str, Ranking], ...]:
    return ("draft", recording.draft), ("target", recording.target), ("branch", recording.branches.ranking)


def _read_arrays(path: Path) -> dict[str, Array]:
    with path.open("rb") as handle:
        if not zipfile.is_zipfile(handle):
            raise ValueError("not a recording, or cut short: no zip directory")
        with zipfile.ZipFile(handle) as archive:
            total = sum(entry.file_size for entry in archive.infolist())
            if total > MAX_BYTES:
                raise ValueError(f"{total} bytes unpacked, expected at most {MAX_BYTES}")
            # Read whole before it is parsed, so that the checksum is looked at first.
            return {
                entry.filename.removesuffix(".npy"): read_array(io.BytesIO(archive.read(entry)), allow_pickle=False)
                for entry in archive.infolist()
            }


def _parse(arrays: Mapping[str, Array]) -> Recording:
    if "header" not in arrays:
        raise ValueError("not a recording: no header")
    header = _parse_header(arrays["header"])
    prompt_ids = _array(arrays, "prompt_ids", np.uint32, (None,))
    answer_ids = _array(arrays, "answer_ids", np.uint32, (None,))
    positions = _array(arrays, "branch_position", np.uint32, (None,))
    length, count = len(answer_ids), len(positions)
    branches = Branches(
        positions,
        _array(arrays, "branch_rank", np.uint8, (count,)),
        _ranking(arrays, "branch", (count, DEPTH, BRANCH_WIDTH)),
    )
    recording = Recording(
        header,
        tuple(prompt_ids.tolist()),
        tuple(answer_ids.tolist()),
        _ranking(arrays, "draft", (length, WIDTH)),
        _ranking(arrays, "target", (length, WIDTH)),
        branches,
    )
    unknown = set(arrays) - _names()
    if unknown:
        raise ValueError(f"unknown array {min(unknown)}")
    _check(recording)
    return recording


def _names() -> set[str]:
    parts = ("ids", "log_probability", "margin")
    rankings = {f"{name}_{part}" for name in ("draft", "target", "branch") for part in parts}
    return rankings | {"header", "prompt_ids", "answer_ids", "branch_position", "branch_rank"}


def _parse_header(data: Array) -> Header:
    if data.dtype != np.uint8 or data.ndim != 1:
        raise ValueError("header is no text")
    fields = json.loads(data.tobytes())
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise ValueError(f"not a recording: expected format {FORMAT}")
    if fields.get("version") != VERSION:
        raise ValueError(f"recording version {fields.get('version')}, this program reads {VERSION}")
    return Header.model_validate(fields)


def _array(arrays: Mapping[str, Array], name: str, dtype: type[np.generic], shape: tuple[int | None, ...]) -> Array:
    if name not in arrays:
        raise ValueError(f"array {name} is missing")
    array = arrays[name]
    fits = array.ndim == len(shape) and all(
        want is None or have == want for have, want in zip(array.shape, shape, strict=True)
    )
    if array.dtype != dtype or not fits:
        expected = f"{np.dtype(dtype)} {list(shape)}"
        raise ValueError(f"array {name}: expected {expected}, got {array.dtype} {list(array.shape)}")
    array.flags.writeable = False
    return array


def _ranking(arrays: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> Ranking:
    return Ranking(
        _array(arrays, f"{name}_ids", np.uint32, shape),
        _array(arrays, f"{name}_log_probability", np.float16, shape),
        _array(arrays, f"{name}_margin", np.float16, shape),
    )


def _check(recording: Recording) -> None:
    """What replay relies on. Raises ValueError."""
    size = recording.header.vocabulary.size
    answer = np.array(recording.answer_ids, np.uint32)
    if recording.header.sampling.seed is None:
        raise ValueError("header.sampling.seed is missing")
    for name, ids in (("prompt_ids", np.array(recording.prompt_ids, np.uint32)), ("answer_ids", answer)):
        if not len(ids):
            raise ValueError(f"{name} is empty")
        if ids.max() >= size:
            raise ValueError(f"{name} holds {ids.max()}, vocabulary size {size}")
    for name, ranking in _rankings(recording):
        _check_ranking(name, ranking, size)
    stops = np.isin(answer, recording.header.vocabulary.stop_ids)
    ends_by_stop = recording.header.finish_reason is FinishReason.STOP
    if stops[:-1].any() or stops[-1] != ends_by_stop or recording.header.finish_reason is FinishReason.CANCELLED:
        raise ValueError(f"the answer's stop ids do not fit its end ({recording.header.finish_reason.value})")
    if len(answer) > recording.header.sampling.max_tokens:
        raise ValueError(f"{len(answer)} answer ids, at most {recording.header.sampling.max_tokens} were asked for")
    if (recording.target.ids[:, 0] != answer).any():
        raise ValueError("the target's first choices are not the answer")
    _check_branches(recording, answer)


def _check_ranking(name: str, ranking: Ranking, size: int) -> None:
    present = ranking.ids != NO_TOKEN
    if (ranking.ids[present] >= size).any():
        raise ValueError(f"{name}_ids hold {ranking.ids[present].max()}, vocabulary size {size}")
    if (present[..., 1:] & ~present[..., :-1]).any():
        raise ValueError(f"{name}_ids have a gap")
    log_probability = ranking.log_probability[present]
    if np.isnan(log_probability).any() or (log_probability > 0).any() or np.isnan(ranking.margin).any():
        raise ValueError(f"{name}: a probability above 1, or not a number")
    if name != "branch" and not present[:, 0].all():
        raise ValueError(f"{name}_ids: a position without a candidate")


def _check_branches(recording: Recording, answer: NDArray[np.uint32]) -> None:
    positions = recording.branches.positions.astype(np.int64)
    ranks = recording.branches.ranks.astype(np.int64)
    if len(positions) and (positions.max() >= len(answer) or ranks.max() >= BRANCH_RANKS):
        raise ValueError("a branch outside the answer")
    if (np.diff(positions * BRANCH_RANKS + ranks) <= 0).any():
        raise ValueError("branches are not in ascending order")
    if (recording.draft.ids[positions, ranks] == answer[positions]).any():
        raise ValueError("a branch on the path")
