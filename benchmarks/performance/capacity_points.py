"""Measure the points that ``llm-train plan --devices cpu`` is fitted to: decoding, prefill and updates of small models.

    python -m benchmarks.performance.capacity_points --out points.json

Each point is the real code: the learner on random turns, the decoding loop of the transformers back end, and vLLM's
engine. All run on one thread, and seconds are processor time, so that other work on the machine adds little; the best
of several tries counts. ``--large --vllm --out trainers/capacity/cpu_points.json`` replaces what
ships with the package.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.context import describe_machine, describe_source, package_versions
from trainers.capacity.shapes import read_shape

if TYPE_CHECKING:
    from trainers.batching import Sample

__all__ = ["main", "measure_hf", "measure_update", "measure_vllm"]

BUNDLED = "smollm2-135m"
SIZES: dict[str, dict[str, int]] = {
    "tiny-96x3": {"hidden_size": 96, "layers": 3, "intermediate_size": 256},
    "tiny-192x4": {"hidden_size": 192, "layers": 4, "intermediate_size": 512},
    "tiny-384x6": {"hidden_size": 384, "layers": 6, "intermediate_size": 1024},
}
DECODES = ((1, 32), (8, 32), (8, 256), (64, 64))
"""Rows and prompt tokens; of the bundled model, which takes seconds for each, only some."""
UPDATES = ((2, 64), (16, 64), (8, 256))
"""Turns and their tokens, half of which are the completion."""
MICRO_BATCH = 2048


def measure_hf(
    model: Any, name: str, sizes: Sequence[tuple[int, int]], steps: int, tries: int
) -> Iterator[dict[str, Any]]:
    """Yield points of the transformers back end: the prefill, and the mean of the decoding steps after it.

    Args:
        model: The model, on the CPU.
        name: What to call it.
        sizes: Rows and prompt tokens of each point.
        steps: Decoding steps.
        tries: How often each is measured; the fastest counts.
    """
    from trainers.policies.base import Sampling
    from trainers.policies.decode import Row, decode

    for rows, length in sizes:
        prompts = _prompts(model.config.vocab_size, rows, length)

        def answer(tokens: int, prompts: list[tuple[int, ...]] = prompts) -> None:
            decode(
                model,
                [Row(prompt, seed) for seed, prompt in enumerate(prompts)],
                Sampling(max_tokens=tokens),
                end_ids=(),
                pad_id=0,
                to_text=lambda _: "",
            )

        yield from _sampler_points("hf", model.config, name, rows, length, steps, answer, tries)


def measure_vllm(
    folder: str, config: Any, name: str, sizes: Sequence[tuple[int, int]], steps: int, tries: int
) -> Iterator[dict[str, Any]]:
    """Yield points of vLLM's engine on the CPU, as :func:`measure_hf` does of transformers.

    Every try has other prompts, so that nothing is taken from the prefix cache.
    """
    from vllm import SamplingParams

    from trainers.policies.base import make_policy

    policy: Any = make_policy(f"vllm:{folder}", max_model_len=512, share=False)
    seeds = iter(range(10**6))

    async def play() -> list[dict[str, Any]]:
        loop = asyncio.get_running_loop()

        async def several(tokens: int, rows: int, length: int) -> None:
            params = SamplingParams(max_tokens=tokens, ignore_eos=True, logprobs=0)
            prompts = _prompts(config.vocab_size, rows, length, seed=next(seeds))
            await asyncio.gather(*(policy.engine.generate(prompt, params) for prompt in prompts))

        def points() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            for rows, length in sizes:

                def answer(tokens: int, rows: int = rows, length: int = length) -> None:
                    asyncio.run_coroutine_threadsafe(several(tokens, rows, length), loop).result()

                found += _sampler_points("vllm", config, name, rows, length, steps, answer, tries)
            return found

        try:
            return await asyncio.to_thread(points)
        finally:
            await policy.close()

    yield from asyncio.run(play())


def _sampler_points(
    backend: str, config: Any, name: str, rows: int, length: int, steps: int, answer: Callable[[int], None], tries: int
) -> Iterator[dict[str, Any]]:
    shape = asdict(read_shape(config.to_dict(), name))
    answer(1)
    prefill = _best(lambda: answer(1), tries)
    whole = _best(lambda: answer(steps + 1), tries)
    base = {"model": name, "shape": shape, "rows": rows}
    yield {**base, "kind": f"{backend}.prefill", "length": length, "passes": 1, "seconds": prefill}
    if whole > prefill:
        context = length + (steps + 1) / 2
        yield {**base, "kind": f"{backend}.decode", "context": context, "seconds": (whole - prefill) / steps}


def measure_update(model: Any, name: str, sizes: Sequence[tuple[int, int]], tries: int) -> Iterator[dict[str, Any]]:
    """Yield points of the learner: whole updates, forward, backward and a step of AdamW.

    Args:
        model: The model, on the CPU; its weights change.
        name: What to call it.
        sizes: Turns and tokens of a turn of each point.
        tries: How often each is measured; the fastest counts.
    """
    from trainers.algorithms.losses import LossConfig
    from trainers.learner import Learner, LearnerConfig

    shape = asdict(read_shape(model.config.to_dict(), name))
    config = LearnerConfig(lr=0.0, packing="padded", micro_batch_tokens=MICRO_BATCH)
    learner = Learner(model, config, LossConfig(importance="off"))
    for turns, length in sizes:
        samples = _turns(model.config.vocab_size, turns, length)
        learner.update(samples)
        seconds = _best(lambda samples=samples: learner.update(samples), tries)  # type: ignore[misc]
        passes = -(-turns // max(1, MICRO_BATCH // (length - 1)))
        yield {
            **{"model": name, "shape": shape, "kind": "update", "rows": turns, "length": length},
            **{"tokens": turns * length, "predicted": turns * length // 2, "passes": passes, "seconds": seconds},
        }


def _turns(vocabulary: int, turns: int, length: int) -> list[Sample]:
    from trainers.batching import Sample

    half = length // 2
    return [
        Sample(prompt[:-half], prompt[-half:], None, 1.0, "agent_0")
        for prompt in _prompts(vocabulary, turns, length)
    ]  # fmt: skip


def _prompts(vocabulary: int, rows: int, length: int, seed: int = 0) -> list[tuple[int, ...]]:
    drawn = np.random.default_rng(seed).integers(0, vocabulary, (rows, length))
    return [tuple(row) for row in drawn.tolist()]


def _best(work: Callable[[], object], tries: int) -> float:
    best = float("inf")
    for _ in range(tries):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def _measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from trainers.models import build_tiny_model, resolve_model

    torch.set_num_threads(1)
    points: list[dict[str, Any]] = []
    sizes = SIZES if options.sizes is None else {name: SIZES[name] for name in options.sizes}
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: str(build_tiny_model(Path(scratch) / name, **size)) for name, size in sizes.items()}  # type: ignore[arg-type]
        if options.large:
            folders[BUNDLED] = str(resolve_model(BUNDLED))
        for name, folder in folders.items():
            large = name == BUNDLED
            decodes = DECODES[:2] if large else DECODES
            steps, tries = (4, 1) if large else (8, 2)
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            points += measure_hf(model, name, decodes, steps, tries)
            points += measure_update(model, name, UPDATES[:1] if large else UPDATES, tries)
            del model
            if options.vllm:
                points += measure_vllm(folder, AutoConfig.from_pretrained(folder), name, decodes, steps, tries)
            sys.stderr.write(f"{name}: {len(points)} points\n")
    return points


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance.capacity_points", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where to write the points")
    parser.add_argument("--vllm", action="store_true", help="measure vLLM too, whose engine takes a while to start")
    parser.add_argument("--large", action="store_true", help="measure the bundled model of 135M parameters too")
    parser.add_argument("--sizes", nargs="+", choices=tuple(SIZES), metavar="NAME", help=f"some of {', '.join(SIZES)}")
    options = parser.parse_args(argv)
    flags = [flag for flag, given in (("--large", options.large), ("--vllm", options.vllm)) if given]
    load = os.getloadavg()[0]
    points = _measure(options)
    record = {
        "command": " ".join(["python -m benchmarks.performance.capacity_points", *flags]),
        "machine": describe_machine(),
        "threads": 1,
        "load_average": {"before": round(load, 1), "after": round(os.getloadavg()[0], 1)},
        "source": describe_source(),
        "versions": package_versions(("hf", "vllm")),
        "points": [{**point, "seconds": float(f"{point['seconds']:.4g}")} for point in points],
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
