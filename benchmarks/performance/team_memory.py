"""What a team costs in memory and time: one policy for four roles, an adapter a role on one base, a full model a role.

Each arm trains for a few updates in a process of its own, sampler and learner of all policies in it, and says how much
memory it had at most (its resident set, program code included) and how long an update took without the first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.performance.measure import Measurement, in_own_process

__all__ = ["ARMS", "measure_team_memory", "team_config"]

ROLES = ("solver", "critic", "refiner", "verifier")
ARMS = {
    "one policy with an adapter": (False, True),
    "an adapter a role on one base": (True, True),
    "a full model a role": (True, False),
}
"""Whether each role has a policy of its own, and whether policies are adapters."""
TARGET = 1.3


def measure_team_memory(model: str = "smollm2-135m", *, backend: str = "vllm", updates: int = 2) -> list[Measurement]:
    """Measure the three arms.

    Args:
        model: The model of all policies.
        backend: What samples.
        updates: Of a run; the first is not counted.
    """
    found = {arm: _run(arm, model, backend, updates) for arm in ARMS}
    what = f"four roles, {model} through {backend}"
    first, *others = ARMS
    one = found[first]
    if one is None:
        return []
    rows = [
        Measurement(f"memory of {first}, {what}", one["gib"], "GiB"),
        Measurement(f"seconds of an update, {first}, {what}", one["seconds"], "s"),
    ]
    for arm in others:
        other = found[arm]
        if other is None:
            continue
        target = TARGET if ARMS[arm][1] else None
        rows += [
            Measurement(f"memory of {arm} / of {first}, {what}", other["gib"] / one["gib"], "x", target, at_most=True),
            Measurement(f"an update, {arm} / {first}, {what}", other["seconds"] / one["seconds"], "x"),
        ]
    return rows


def team_config(arm: str, model: str, backend: str, updates: int) -> dict[str, Any]:
    """The training run of an arm."""
    per_role, lora = ARMS[arm]
    policy: dict[str, Any] = {
        "model": model,
        "backend": backend,
        "learning_rate": 1e-5,
        "micro_batch_tokens": 1024,
        "sampling": {"temperature": 1.0, "max_tokens": 16},
    }
    if lora:
        policy["lora"] = {"rank": 8, "alpha": 16}
    if backend == "vllm":
        policy["engine"] = {"max_model_len": 1024, "kv_cache_memory_bytes": 2**28}
    names = ROLES if per_role else ("all",)
    return {
        "env": {"id": "math-4agent", "tasks": "one-digit", "kwargs": {"max_rounds": 1}},
        "algorithm": {"preset": "dr_mas"},
        "policies": dict.fromkeys(names, policy),
        "roles": {role: role if per_role else "all" for role in ROLES},
        "updates": updates,
        "tasks_per_update": 2,
        "samples_per_task": 4,
        "verify_every": 1,
        "checkpoint": {"every": updates},
        "record": {"every": 0},
    }


def _run(arm: str, model: str, backend: str, updates: int) -> dict[str, float] | None:
    return in_own_process("benchmarks.performance.team_memory", arm, model, backend, str(updates))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one arm in this process, and write what it took as JSON; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance.team_memory", description=__doc__)
    parser.add_argument("arm", choices=list(ARMS))
    parser.add_argument("model")
    parser.add_argument("backend", choices=("vllm", "hf"))
    parser.add_argument("updates", type=int)
    given = parser.parse_args(argv)
    from trainers.config import load_config
    from trainers.tracking import read_metrics
    from trainers.trainer import Trainer

    config = load_config(team_config(given.arm, given.model, given.backend, given.updates))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(Trainer(config, Path(folder)).run())
        rows = read_metrics(Path(folder))
    seconds = [sum(row[f"time/{phase}_s"] for phase in ("rollout", "update", "sync")) for row in rows]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sys.stdout.write(json.dumps({"gib": peak, "seconds": median(seconds[1:])}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
