"""Rollout and update at the same time beside one after the other: the same run with ``max_staleness`` 1 and 0.

A team of two roles with a policy each learns to give the one right answer, on a tiny model whose rollouts and updates
take about the same time. It learns slowly enough that groups still differ, so updates do not become cheap, in most of
the run. Each side has one thread. Seconds of an update are the median after the first two, in which the pipeline fills.
Runs of a seed follow each other, so what disturbs the machine for a while disturbs all of them; the fastest seed of
each kind counts. The run with a thread a core, one after the other, shows what overlap is up
against: where a matrix product is large enough for two threads, these are the other way to use two cores.

The pipeline by itself is measured with a rollout and an update that only wait, so neither cores nor the interpreter's
lock matter: N updates of equal halves h take 2·N·h in turn, and (N + 1)·h at best with overlap.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.performance.measure import Measurement

__all__ = ["OverlapRun", "measure_overlap", "measure_pipeline"]

IDEAL_TARGET, RATE_TARGET, SUCCESS_TARGET = 0.9, 1.5, 0.95
FILLING, LAST = 2, 4
ANSWERS = 5
TASKS = 32


@dataclass(frozen=True, slots=True)
class OverlapRun:
    """What a run did.

    Attributes:
        seconds: Of an update, median.
        rollout_s: Of the collection of a batch, median.
        update_s: Of the learner, median.
        share: Share of the learner's time in which a batch was being collected; 0 without overlap.
        success: Of the episodes that were trained on, mean over the updates.
        last: The same over the last four.
    """

    seconds: float
    rollout_s: float
    update_s: float
    share: float
    success: float
    last: float


def measure_overlap(
    seeds: Sequence[int] = (0, 1, 2), *, updates: int = 20, hidden: int = 96, **changes: Any
) -> list[Measurement]:
    """Measure the rates of both kinds of runs, and what they learn.

    Args:
        seeds: One run of each kind for each.
        updates: Of a run.
        hidden: Width of the model.
        changes: Further settings of all runs.
    """
    cores = os.cpu_count() or 1
    kinds = {
        "overlap": {"max_staleness": 1, "threads": 1},
        "in turn": {"threads": 1},
        "in turn, a thread a core": {"threads": cores},
    }
    runs: dict[str, list[OverlapRun]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = _settings(folder, hidden, updates) | changes
        for seed in seeds:
            for kind, values in kinds.items():
                if kind != "in turn, a thread a core" or seed == seeds[0]:
                    runs[kind].append(_run({**settings, **values, "seed": seed}, folder / f"{kind} {seed}"))
    best = {kind: min(done.seconds for done in found) for kind, found in runs.items()}
    overlap, in_turn = runs["overlap"], runs["in turn"]
    what = f"2 roles, hidden size {hidden}"
    return [
        measure_pipeline(),
        Measurement(
            f"overlap / in turn, episodes a second, a thread each, {what}",
            best["in turn"] / best["overlap"], "x", RATE_TARGET,
        ),
        Measurement(
            f"overlap / in turn with {cores} threads, episodes a second, {what}",
            best["in turn, a thread a core"] / best["overlap"], "x",
        ),
        Measurement(
            "rollout / update, seconds, in turn", median(done.rollout_s / done.update_s for done in in_turn), "x"
        ),
        Measurement("share of updates beside which a batch was collected", fmean(done.share for done in overlap), ""),
        Measurement(
            f"overlap / in turn, success of the last {LAST} of {updates} updates, {len(seeds)} seeds",
            fmean(done.last for done in overlap) / fmean(done.last for done in in_turn), "x", SUCCESS_TARGET,
        ),
        Measurement(
            "the same over all updates, of which overlap is one behind",
            fmean(done.success for done in overlap) / fmean(done.success for done in in_turn), "x",
        ),
        Measurement(
            "worst / best seed in turn, success over all updates",
            min(done.success for done in in_turn) / max(done.success for done in in_turn), "x",
        ),
    ]  # fmt: skip


def measure_pipeline(half_s: float = 0.25, updates: int = 10) -> Measurement:
    """Measure how near the pipeline is to the best schedule, with a rollout and an update that wait ``half_s`` each."""
    seconds = asyncio.run(_wait_through(half_s, updates))
    name = f"best schedule / pipeline, {updates} updates, rollout and update wait {half_s:g} s each"
    return Measurement(name, (updates + 1) * half_s / seconds, "x", IDEAL_TARGET)


async def _wait_through(half_s: float, updates: int) -> float:
    import llm_envs
    from trainers.collecting import Collector
    from trainers.config import load_config
    from trainers.cursor import TaskCursor
    from trainers.pipeline import make_pipeline
    from trainers.policies.scripted import RandomPolicy
    from trainers.rollout.records import Episode
    from trainers.run_metrics import Clock
    from trainers.team import Team

    env: Any = llm_envs.make("math-1agent").unwrapped
    policy = {"model": "none", "backend": "hf", "trainable": False}
    config = load_config(
        {"env": {"id": "math-1agent"}, "policies": {"solver": policy}, "max_staleness": 1, "updates": updates}
    )

    async def play(*_: Any, **__: Any) -> list[Episode]:
        await asyncio.sleep(half_s)
        return [Episode("e", "math-1agent", "t", 0, "", 0, 0)]

    collector = Collector(env.fork, config.algorithm.build(), config, play=play)
    cursor = TaskCursor(len(env.tasks), config.tasks_per_update, 0)
    pipeline = make_pipeline(collector, cursor, config)
    started = time.perf_counter()
    pipeline.open(Team.single(RandomPolicy()), {}, 0)
    try:
        for update in range(updates):
            await pipeline.batch(update, Clock())
            await pipeline.run(lambda: time.sleep(half_s))
            await pipeline.push(update + 1, (), Clock(), hold=True)
        return time.perf_counter() - started
    finally:
        await pipeline.close()


def _settings(folder: Path, hidden: int, updates: int) -> dict[str, Any]:
    from trainers.models import build_tiny_model

    words = [rf"\boxed{{{n}}}" for n in range(ANSWERS)]
    words += ["<verify>approve</verify>", "<verify>reject</verify>", "Problem:", "solver_0.", "verifier_0."]
    model = build_tiny_model(
        folder / "model", vocab=words, hidden_size=hidden, layers=4, intermediate_size=3 * hidden, init_std=0.05
    )
    tasks = folder / "four.jsonl"
    rows = [{"question": f"Say four, please ({i}).", "answer": "4"} for i in range(TASKS)]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    policy = {"model": str(model), "backend": "hf", "learning_rate": 3e-4, "sampling": {"max_tokens": 12}}
    return {
        "env": {"id": "math-2agent", "tasks": str(tasks), "split": None},
        "algorithm": {"preset": "dr_mas"},
        "policies": {"solver": dict(policy), "verifier": dict(policy)},
        "updates": updates,
        "tasks_per_update": 6,
        "samples_per_task": 8,
        "verify_every": updates,
        "checkpoint": {"every": updates},
        "record": {"every": 0},
    }


def _run(settings: dict[str, Any], folder: Path) -> OverlapRun:
    import torch

    from trainers.api import train
    from trainers.tracking import read_metrics

    threads = torch.get_num_threads()
    try:
        train(settings, out=folder)
    finally:
        torch.set_num_threads(threads)
    rows = read_metrics(folder)
    steady = rows[FILLING:-1] or rows  # the last one saves and proves
    return OverlapRun(
        seconds=median(row["time/total_s"] for row in steady),
        rollout_s=median(row["time/rollout_s"] for row in steady),
        update_s=median(row["time/update_s"] for row in steady),
        share=fmean(row.get("time/overlap_share", 0.0) for row in steady),
        success=fmean(row["train/success"] for row in rows),
        last=fmean(row["train/success"] for row in rows[-LAST:]),
    )
