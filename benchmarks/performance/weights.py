"""Full weights to a vLLM engine in another process: vLLM's transfer through shared memory, beside a folder on disk.

Both end in the same reload inside vLLM, so the ratio is that of whole syncs. They take turns on one engine.
"""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
import time

from benchmarks.performance.measure import Measurement

__all__ = ["measure_weight_sync"]

WAYS = ("shared", "folder")


def measure_weight_sync(*, hidden: int = 576, layers: int = 12, repeats: int = 7) -> list[Measurement]:
    """Measure the seconds of a sync by either way, and their ratio.

    Args:
        hidden: Width of the model.
        layers: Its layers.
        repeats: Syncs of each way, in turn; the fastest counts.
    """
    if importlib.util.find_spec("vllm") is None:
        return []
    megabytes, seconds = asyncio.run(_measure(hidden, layers, repeats))
    what = f"sync of {megabytes:.0f} MB to another process"
    return [
        *(Measurement(f"{what}, {way}", value, "s") for way, value in seconds.items()),
        Measurement(f"{what}, folder / shared memory", seconds["folder"] / seconds["shared"], "x"),
    ]


async def _measure(hidden: int, layers: int, repeats: int) -> tuple[float, dict[str, float]]:
    import torch
    from transformers import AutoModelForCausalLM

    from trainers.models import build_tiny_model
    from trainers.policies import make_policy
    from trainers.policies.vllm import VLLMPolicy
    from trainers.weight_sync import VLLMSync

    with tempfile.TemporaryDirectory(prefix="llm-envs-weights-") as scratch:
        folder = build_tiny_model(scratch, hidden_size=hidden, layers=layers, intermediate_size=4 * hidden)
        learner = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        best = dict.fromkeys(WAYS, float("inf"))
        async with make_policy(f"vllm:{folder}", engine="async", share=False, max_model_len=256) as policy:
            if not isinstance(policy, VLLMPolicy):
                raise TypeError(f"{policy.name!r} is not sampled by vLLM")
            syncs = {}
            for way in WAYS:
                policy.transfer = way
                syncs[way] = VLLMSync(policy)
            for version in range(repeats + 1):
                for way, sync in syncs.items():
                    started = time.perf_counter()
                    await sync.push(learner, version)
                    if version:  # the first one opens the ends
                        best[way] = min(best[way], time.perf_counter() - started)
                if version in (0, repeats):
                    await sync.verify(learner)
        return sum(p.numel() * p.element_size() for p in learner.parameters()) / 1e6, best
