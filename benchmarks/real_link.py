"""The real pair over a delayed link: both models on this machine, the verifier in a process of its own behind the delay
proxy. Seconds a token and passes a token by round trip and way to draft; the texts are compared with the target alone.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
from pathlib import Path

from outrider.edge.agent import Agent
from outrider.edge.drafting import NO_DRAFTER, Drafting
from outrider.edge.private_verifier import private_verifier
from outrider.harness.links import LinkProfile
from outrider.harness.proxy_process import running_proxy
from outrider.shared.sampling.options import Sampling

ALONE = "streaming"
WAYS = {
    ALONE: Drafting(drafter=NO_DRAFTER),
    "fixed γ 3, patient": Drafting(control="fixed", gamma=3, pace="patient"),
    "ratio, patient": Drafting(control="ratio", pace="patient"),
    "ratio, eager": Drafting(control="ratio", pace="eager"),
}


async def measure(prompts: list[dict[str, str]], tokens: int, rtts_ms: list[float]) -> None:
    """Print a row for each round trip and way."""
    print("| RTT ms | way | s/token | speed | passes/token | drafted/token | texts that differ |")
    print("|---|---|---|---|---|---|---|", flush=True)
    sampling = Sampling(max_tokens=tokens, seed=1)
    async with private_verifier(["--max-sessions", "4", "--context", "1024"]) as verifier:
        for rtt_ms in rtts_ms:
            async with running_proxy(LinkProfile.of_rtt(rtt_ms), verifier) as proxy:
                texts: dict[str, str] = {}
                streaming_s = 0.0
                for name, drafting in WAYS.items():
                    seconds, made, passes, drafted, differ = 0.0, 0, 0, 0, 0
                    async with Agent.connect(proxy.address, **dataclasses.asdict(drafting)) as agent:
                        # The first answer warms the caches up and is not counted.
                        await agent.answer(prompts[0]["prompt"], sampling.model_copy(update={"max_tokens": 8}))
                        for prompt in prompts:
                            result = await agent.answer(prompt["prompt"], sampling)
                            stats = result.stats
                            seconds += stats["seconds"] - stats["ttft_ms"] / 1000
                            made += stats["tokens"] - 1
                            passes += stats["passes"]
                            drafted += stats["drafted"]
                            differ += texts.setdefault(prompt["id"], result.text) != result.text
                    streaming_s = streaming_s or seconds / made
                    print(
                        f"| {rtt_ms:g} | {name} | {seconds / made:.3f} | {streaming_s * made / seconds:.2f} | "
                        f"{passes / made:.2f} | {drafted / made:.2f} | {differ} |",
                        flush=True,
                    )


def main() -> None:
    """Measure the first prompts of some kinds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=Path, default=Path(__file__).parent.parent / "prompts/bench.jsonl")
    parser.add_argument("--ids", nargs="+", default=["code-01", "chat-01", "edit-01"])
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rtt-ms", type=float, nargs="+", default=[20, 60, 150])
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.prompts.read_text("utf-8").splitlines()]
    chosen = [line for line in lines if line["id"] in options.ids]
    asyncio.run(measure(chosen, options.tokens, options.rtt_ms))


if __name__ == "__main__":
    main()
