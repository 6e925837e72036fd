"""What is measured, in sections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.performance.engine_use import measure_engine_use, missing_vllm
from benchmarks.performance.forks import measure_forks
from benchmarks.performance.games import measure_games, missing_peers
from benchmarks.performance.growth import measure_growth, plot_growth
from benchmarks.performance.grpo_step import measure_grpo_steps
from benchmarks.performance.learner import measure_learner, missing_trl
from benchmarks.performance.load import measure_load
from benchmarks.performance.measure import Measurement
from benchmarks.performance.overlap import measure_overlap
from benchmarks.performance.retrieval import measure_retrieval
from benchmarks.performance.schedule import measure_schedule
from benchmarks.performance.steps import measure_grading, measure_moves, measure_steps
from benchmarks.performance.team_memory import measure_team_memory
from benchmarks.performance.weights import measure_weight_sync

__all__ = ["SECTIONS", "Section", "missing"]


@dataclass(frozen=True, slots=True)
class Section:
    """Measurements that are made together.

    Attributes:
        title: What they are about.
        about: What is compared with what, for the page.
        measure: Makes them; takes the seconds of one try.
        plot: Draws them, as the page's data holds them, into a file; None if a table says enough.
    """

    title: str
    about: str
    measure: Callable[[float], Sequence[Measurement]]
    plot: Callable[[Sequence[Mapping[str, Any]], Path], None] | None = None


def _environments(seconds: float) -> list[Measurement]:
    return [
        *measure_steps(seconds),
        *measure_moves(seconds),
        *measure_games(seconds),
        *measure_forks(),
        *measure_grading(seconds),
    ]


SECTIONS: Mapping[str, Section] = {
    "environments": Section(
        "Environments",
        "Actions a second of scripted episodes, forks in the middle of an episode, checks of the grader. Games are "
        "played with the same moves through TextArena and PettingZoo.",
        _environments,
    ),
    "schedule": Section(
        "Rollout and runner",
        "The rollout beside the shortest possible schedule of the same answers, and beside a loop with a barrier after "
        "each turn; a thousand episodes at once through the benchmark runner.",
        lambda seconds: [*measure_schedule(), *measure_load()],
    ),
    "retrieval": Section("Retrieval", "BM25 in process and over HTTP.", lambda seconds: measure_retrieval()),
    "engine": Section(
        "Use of a vLLM engine",
        "The rollout of a four-turn team through vLLM, beside the engine alone with the same prompts and lengths, all "
        "of them known in advance; and beside a lock-step loop. The rollout has half as many episodes again in "
        "flight as the engine computes sequences.",
        lambda seconds: measure_engine_use(),
    ),
    "weights": Section(
        "Weights to an engine",
        "Full weights of a learner to a vLLM engine in another process: through shared memory, beside a folder.",
        lambda seconds: measure_weight_sync(),
    ),
    "learner": Section(
        "Learner",
        "An update on a given batch, beside TRL's: forward, loss, backward, optimiser step, in float32, and the same "
        "gradient.",
        lambda seconds: measure_learner(),
    ),
    "step": Section(
        "A whole GRPO step",
        "Sampling, update and sync, beside TRL's trainer, by the tokens of the step.",
        lambda seconds: measure_grpo_steps(),
    ),
    "overlap": Section(
        "Overlap", "Rollout and update at the same time, beside one after the other.", lambda seconds: measure_overlap()
    ),
    "team": Section(
        "Teams",
        "Memory and time of an update: one policy for four roles, an adapter a role on one base, a full model a role.",
        lambda seconds: measure_team_memory(),
    ),
    "growth": Section(
        "Growth",
        "Memory and time of an update as agents, turns and episodes grow, one at a time, with a tiny model. A prompt "
        "holds all answers before it, so tokens grow with the square of agents or rounds. Seconds grow less than "
        "tokens: what the turns of an episode and the episodes of a group share is computed once, and larger batches "
        "cost less a token. Memory grows less still, since a micro-batch is bounded; what grows are the records of the "
        "turns.",
        lambda seconds: measure_growth(),
        plot_growth,
    ),
}


def missing() -> list[str]:
    """Lines that say what is left out because a program is not installed."""
    return [*missing_peers(), *missing_trl(), *missing_vllm()]
