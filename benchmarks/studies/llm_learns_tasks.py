r"""What :mod:`benchmarks.studies.llm_learns` plays, and what its warm start imitates."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from pathlib import Path
from typing import Any

import llm_envs
from benchmarks.studies.demonstrator import Demonstrator
from trainers.policies.scripted import OraclePolicy
from trainers.rollout.episodes import collect, make_jobs
from trainers.team import Team

__all__ = ["ENV", "ROLES", "demonstrate", "one_digit_tasks"]

ENV = "math-2agent"
ROLES = ("solver", "verifier")
LARGEST = 18
"""The largest sum; wrong numbers of a demonstration lie between 0 and this."""


def one_digit_tasks(test_pairs: int, seed: int) -> dict[str, list[dict[str, str]]]:
    """All sums and differences of two digits, divided by their unordered pair of digits.

    >>> found = one_digit_tasks(22, 0)
    >>> len(found["train"]) + len(found["test"])
    155

    Args:
        test_pairs: Pairs that are held out, of each operation.
        seed: Which.
    """
    rng = random.Random(seed)
    rows: dict[str, list[dict[str, str]]] = {"train": [], "test": []}
    for operator in "+-":
        held_out = set(rng.sample([(low, high) for low in range(10) for high in range(low, 10)], test_pairs))
        for a in range(10):
            for b in range(10 if operator == "+" else a + 1):
                split = "test" if (min(a, b), max(a, b)) in held_out else "train"
                answer = a + b if operator == "+" else a - b
                rows[split].append({"question": f"What is {a} {operator} {b}?", "answer": str(answer)})
    return rows


class _Solver(Demonstrator):
    r"""A solver that says ``\boxed{n}``, now and then with a wrong number."""

    def __init__(self, wrong: float) -> None:
        super().__init__(f"demonstrator(wrong={wrong:g})")
        self.wrong = wrong

    def _answer(self, env: Any, agent: str, rng: random.Random) -> str:
        right = rf"\boxed{{{env.task.answer}}}"
        others = [text for number in range(LARGEST + 1) if (text := rf"\boxed{{{number}}}") != right]
        return rng.choice(others) if rng.random() < self.wrong else right


def demonstrate(tasks: Path, file: Path, *, wrong: float, seed: int) -> None:
    """Play each task once; write down right answers and all verdicts, which are worth imitating.

    Args:
        tasks: A file of tasks.
        file: Where the episodes go.
        wrong: How often the solver says a wrong number.
        seed: Decides where, and which.
    """
    env: Any = llm_envs.make(ENV, tasks=str(tasks), order_enforcing=False).unwrapped
    team = Team({"solver": _Solver(wrong), "verifier": OraclePolicy()}, {role: role for role in ROLES})
    jobs = make_jobs(range(len(env.tasks)), 1, seed)
    episodes = asyncio.run(collect(env.fork, team, jobs, concurrency=16))
    with file.open("w", encoding="utf-8") as sink:
        for episode in episodes:
            answer = rf"\boxed{{{env.tasks[episode.task_index].answer}}}"
            turns = [t for t in episode.turns if t.agent == "verifier_0" or t.action == answer]
            kept = dataclasses.replace(episode, turns=turns)
            sink.write(kept.to_json(tokens=False, timings=False) + "\n")
