"""A simulation beside the run that it describes: the rollout and the update of a small model on the CPU.

The run is the real code: episodes of ``math-2agent`` by a tiny model through the ``hf`` back end, and an update of the
learner on what was collected. The simulation is given the lengths of the episodes and the times of the fitted points,
nothing else of the run. Both are in seconds of processor time of one thread.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llm_envs
from benchmarks.scale.costs import engine_costs
from benchmarks.scale.engine import BarrierEngine
from benchmarks.scale.lengths import Recorded, SimulatedTurn
from benchmarks.scale.simulate import Flow, simulate
from trainers.capacity.devices import parse_pools
from trainers.capacity.shapes import shape_of
from trainers.capacity.timing import rates_of, update_features
from trainers.models import build_tiny_model
from trainers.rollout.records import Episode

__all__ = ["describe", "validate"]

MICRO_BATCH = 4096


def validate(episodes: int = 24, max_tokens: int = 32, **size: int) -> dict[str, Any]:
    """Play, learn, simulate, and return both times.

    Args:
        episodes: Episodes in flight.
        max_tokens: Of an answer; the model is random, and ends one sooner or later.
        size: Of the model, as :func:`trainers.models.build_tiny_model` takes it.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            model = build_tiny_model(Path(folder) / "model", max_length=4096, **size)  # type: ignore[arg-type]
            shape, _ = shape_of(str(model))
            played, rollout_s, update_s = asyncio.run(_run(model, episodes, max_tokens))
    finally:
        torch.set_num_threads(threads)
    recorded = Recorded("this run", ("solver_0", "verifier_0"), tuple(_turns(episode) for episode in played))
    rates = rates_of(parse_pools("cpu")[0].device, "hf")
    costs = engine_costs(shape, rates, 4)
    turns = [turn for episode in recorded.episodes for turn in episode]
    tokens = sum(turn.prompt + turn.completion for turn in turns)
    what = update_features(
        shape,
        tokens=tokens,
        length=tokens / len(turns),
        predicted=sum(turn.completion for turn in turns),
        passes=-(-tokens // MICRO_BATCH),
        steps=1,
        trained=shape.parameters,
    )
    report = simulate(
        Flow(
            lengths=recorded,
            episodes=len(played),
            concurrency=len(played),
            make_engines=lambda env: [[BarrierEngine(env, costs, 256)]],
            runner_cores=1,
            update_s=lambda *_: rates.update.seconds(what),
            sync_s=0.0,
            prefix_cache=False,
            replay=True,
        )
    )
    return {
        "parameters": shape.parameters,
        "episodes": len(played),
        "turns": len(turns),
        "completion_tokens": sum(turn.completion for turn in turns),
        "rollout_s": {"measured": rollout_s, "simulated": report.rollout_s},
        "update_s": {"measured": update_s, "simulated": report.update_s},
    }


def _turns(episode: Episode) -> tuple[SimulatedTurn, ...]:
    agents = {"solver_0": 0, "verifier_0": 1}
    return tuple(SimulatedTurn(agents[t.agent], t.prompt_tokens, t.completion_tokens, 0.0) for t in episode.turns)


async def _run(model: Path, episodes: int, max_tokens: int) -> tuple[list[Episode], float, float]:
    import torch
    from transformers import AutoModelForCausalLM

    from trainers.algorithms.losses import LossConfig
    from trainers.learner import Learner, LearnerConfig, Sample
    from trainers.policies.base import Sampling, make_policy
    from trainers.rollout.episodes import collect, make_jobs
    from trainers.team import Team

    env = llm_envs.make("math-2agent", max_rounds=2).unwrapped
    policy = make_policy(f"hf:{model}")
    team = Team.single(policy, Sampling(max_tokens=max_tokens))
    await collect(env.fork, team, make_jobs(range(2), 1, 1), concurrency=2)  # first use of everything
    started = time.process_time()
    played = await collect(env.fork, team, make_jobs(range(episodes), 1, 0), concurrency=episodes)
    rollout_s = time.process_time() - started
    await policy.close()
    samples = [
        Sample(turn.prompt_ids, turn.completion_ids, turn.logprobs, 1.0, turn.agent)
        for episode in played
        for turn in episode.turns
        if turn.prompt_ids and turn.completion_ids
    ]
    network = AutoModelForCausalLM.from_pretrained(str(model), dtype=torch.float32)
    config = LearnerConfig(lr=0.0, packing="padded", micro_batch_tokens=MICRO_BATCH)
    learner = Learner(network, config, LossConfig(importance="off"))
    learner.update(samples)
    started = time.process_time()
    learner.update(samples)
    return played, rollout_s, time.process_time() - started


def main(argv: Sequence[str] | None = None) -> int:
    """Play, learn, simulate, and write what was found; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.validate", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where to write")
    parser.add_argument("--episodes", type=int, default=24, help="episodes in flight (default: %(default)s)")
    options = parser.parse_args(argv)
    options.out.write_text(json.dumps([validate(options.episodes)], indent=1) + "\n", encoding="utf-8")
    return 0


def describe(found: Sequence[dict[str, Any]]) -> str:
    """A table of :func:`validate`'s findings in Markdown."""
    lines = [
        "| parameters | episodes | turns | rollout, measured | simulated | update, measured | predicted |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found:
        rollout, update = row["rollout_s"], row["update_s"]
        lines.append(
            f"| {row['parameters'] / 1e6:.2f}M | {row['episodes']} | {row['turns']} | {rollout['measured']:.2f} s | "
            f"{rollout['simulated']:.2f} s | {update['measured']:.2f} s | {update['simulated']:.2f} s |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
