"""How close shared noise comes to the best acceptance any lossless rule could have.

The target samples answers at the given temperature; at every position of them both models are shown the same text.
Acceptance is how often the drafter's first proposal under the shared noise is the target's token; the optimum is the
mean of 1 - TV(p, q), which no coupling of p and q can exceed. Also printed: what unshared sampling would get, Σ p q.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outrider.edge.chat_template import ChatTemplate
from outrider.edge.tokenizer import LlamaTokenizer
from outrider.shared.llama.runtime import LlamaContext, LlamaModel, Row
from outrider.shared.models.store import default_store
from outrider.shared.sampling.choose import Chooser
from outrider.shared.sampling.options import Sampling
from outrider.shared.sampling.processors import process

CONTEXT = 1024
CATEGORIES = {"code": 6, "chat": 6}


class Model:
    """One model and one text in its cache."""

    def __init__(self, name: str) -> None:
        self.path = default_store().resolve(name)
        self._model = LlamaModel(self.path)
        self._context = LlamaContext(self._model, length=CONTEXT)

    def rows(self, prompt: list[int], answer: list[int]) -> Iterator[NDArray[np.float32]]:
        """Logits before each token of `answer`, one row at a time."""
        self._context.truncate(0, 0)
        text = [*prompt, *answer]
        for start in range(0, len(prompt) - 1, 256):
            part = prompt[start : min(start + 256, len(prompt) - 1)]
            self._context.decode([Row(token, start + i, 0, False) for i, token in enumerate(part)])
        for position in range(len(prompt) - 1, len(text) - 1):
            self._context.decode([Row(text[position], position, 0, True)])
            yield self._context.logits(0)

    def sample(self, prompt: list[int], chooser: Chooser, stop_ids: frozenset[int], limit: int) -> list[int]:
        """The model's own answer."""
        self._context.truncate(0, 0)
        if len(prompt) > 1:
            self._context.decode([Row(token, i, 0, False) for i, token in enumerate(prompt[:-1])])
        answer: list[int] = []
        token = prompt[-1]
        while len(answer) < limit:
            self._context.decode([Row(token, len(prompt) - 1 + len(answer), 0, True)])
            token = chooser.choose(self._context.logits(0), answer).token
            if token in stop_ids:
                break
            answer.append(token)
        return answer


def main() -> None:
    """Print one line a category."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=Path, default=Path(__file__).parent.parent / "prompts/bench.jsonl")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--draft", default="qwen2.5-coder-0.5b")
    parser.add_argument("--target", default="qwen2.5-coder-1.5b")
    arguments = parser.parse_args()
    sampling = Sampling(temperature=arguments.temperature, top_p=arguments.top_p)
    draft, target = Model(arguments.draft), Model(arguments.target)
    tokenizer = LlamaTokenizer(target.path)
    template = ChatTemplate(tokenizer, tokenizer.vocabulary.template)
    size = tokenizer.vocabulary.size
    prompts = [json.loads(line) for line in arguments.prompts.read_text("utf-8").splitlines()]
    for category in CATEGORIES:
        chosen = [entry for entry in prompts if entry["category"] == category]
        hits, optimum, unshared = [], [], []
        for seed, entry in enumerate(chosen):
            prompt = template.prompt_ids([{"role": "user", "content": entry["prompt"]}])
            chooser = Chooser(sampling, seed, prompt, size)
            answer = target.sample(prompt, chooser, tokenizer.vocabulary.stop_ids, arguments.tokens)
            rows = zip(target.rows(prompt, answer), draft.rows(prompt, answer), strict=True)
            for index, (p_logits, q_logits) in enumerate(rows):
                p = dense(p_logits, sampling, prompt, answer[:index], size)
                q = dense(q_logits, sampling, prompt, answer[:index], size)
                hits.append(chooser.choose(q_logits, answer[:index]).token == answer[index])
                optimum.append(np.minimum(p, q).sum())
                unshared.append((p * q).sum())
        print(
            f"{category}: {len(hits)} positions, shared noise {np.mean(hits):.3f} "
            f"(standard error {np.std(hits) / len(hits) ** 0.5:.3f}), optimum {np.mean(optimum):.3f}, "
            f"unshared {np.mean(unshared):.3f}"
        )


def dense(
    logits: NDArray[np.float32], sampling: Sampling, prompt: list[int], answer: list[int], size: int
) -> NDArray[np.float64]:
    """The processed distribution as a vector, shape [size]."""
    shaped = process(logits, size, sampling, np.unique(np.asarray(prompt)), np.asarray(answer, dtype=np.int64))
    full = np.zeros(size)
    full[shaped.ids] = np.exp(shaped.log_p)
    return full


if __name__ == "__main__":
    main()
