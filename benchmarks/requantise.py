"""Quantises a GGUF model again with llama.cpp's own quantiser: a second, smaller draft model of the same vocabulary.

Quantised twice it is somewhat worse than a file made from the full weights would be. Where a matrix is no multiple of
256 wide, the quantiser takes the nearest type that fits, so a file can be larger than its type's name says.
"""

from __future__ import annotations

import argparse
import ctypes
import os
from pathlib import Path

import llama_cpp

from outrider.shared.llama.runtime import LlamaModel
from outrider.shared.models.store import default_store

PREFIX = "LLAMA_FTYPE_MOSTLY_"
TYPES = {name.removeprefix(PREFIX).lower(): getattr(llama_cpp, name) for name in dir(llama_cpp) if PREFIX in name}


def main() -> None:
    """Write the file in one step and load it, to see that it does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", default="qwen2.5-coder-0.5b", help="a model by name or path")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--type", choices=sorted(TYPES), default="q2_k")
    arguments = parser.parse_args()
    requantise(default_store().resolve(arguments.source), arguments.out, TYPES[arguments.type])
    LlamaModel(arguments.out).close()
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.0f} MB")


def requantise(source: Path, out: Path, file_type: int) -> None:
    """Write `source` in `file_type` to `out`, whose folder is made; nothing is left there if the quantiser fails."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_suffix(".partial")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type
    params.allow_requantize = True
    code = llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(partial), ctypes.byref(params))
    if code:
        partial.unlink(missing_ok=True)
        raise SystemExit(f"{out}: the quantiser returned {code}")
    partial.replace(out)


if __name__ == "__main__":
    main()
