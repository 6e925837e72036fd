"""Budgets: what the episodes of a run cost in tokens, task by task, and who may spend as much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.protocols.catalogue import ProtocolError
from benchmarks.results import EPISODES, read_config, read_lines

__all__ = ["UNITS", "Budget", "TeamRun", "cost_of", "planned_episodes", "read_budget", "read_team"]

UNITS = ("tokens", "written-tokens", "characters")
"""What a budget counts: tokens of prompts and answers, of answers alone, or characters of prompts and answers."""


@dataclass(frozen=True)
class Budget:
    """What may be spent on each task.

    Attributes:
        unit: One of :data:`UNITS`.
        by_task: The budget of each task by its index.
        team: Whose budget it is: ``env``, ``label`` and ``samples`` of the run.
    """

    unit: str
    by_task: Mapping[int, int]
    team: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object, as the identity of a run holds it."""
        by_task = {str(index): amount for index, amount in self.by_task.items()}
        return {"unit": self.unit, "team": dict(self.team), "by_task": by_task}

    def unfinished(self, spent: Mapping[int, int]) -> list[int]:
        """Return the tasks on which less than the budget was spent.

        Args:
            spent: What was spent by task; nothing on tasks that are not there.
        """
        return [index for index, amount in self.by_task.items() if spent.get(index, 0) < amount]


class TeamRun(NamedTuple):
    """The run of a team.

    Attributes:
        path: Its folder.
        config: Its configuration.
        budget: What it spent on each task.
        tasks: Id and hash of each task by its index.
    """

    path: str
    config: Mapping[str, Any]
    budget: Budget
    tasks: Mapping[int, tuple[str, str]]


def cost_of(episode: Mapping[str, Any], unit: str) -> int:
    """Return what an episode cost.

    Args:
        episode: Its record (``Episode.to_dict()``).
        unit: One of :data:`UNITS`. Prompts are counted in full, every turn anew.

    Example:
        >>> turn = {"observation": "6 × 7?", "action": "42", "prompt_tokens": 4, "completion_tokens": 2}
        >>> [cost_of({"turns": [turn, turn]}, unit) for unit in UNITS]
        [12, 4, 16]
    """
    if unit == "characters":
        return sum(len(turn["observation"]) + len(turn["action"]) for turn in episode["turns"])
    written = sum(turn["completion_tokens"] for turn in episode["turns"])
    return int(
        written if unit == "written-tokens" else written + sum(turn["prompt_tokens"] for turn in episode["turns"])
    )


def read_budget(identity: Mapping[str, Any]) -> Budget | None:
    """Return the budget that a run was played with; None if it has a fixed number of samples."""
    found = identity.get("budget")
    if found is None:
        return None
    return Budget(found["unit"], {int(index): amount for index, amount in found["by_task"].items()}, found["team"])


def planned_episodes(path: str | Path, identity: Mapping[str, Any]) -> int:
    """Return how many episodes a run has when it is complete; with a budget, how many as far as it is known.

    Raises:
        ResultsError: If the folder cannot be read.
    """
    budget = read_budget(identity)
    if budget is None:
        return int(identity["n"] * identity["samples"])
    costs: Counter[int] = Counter()
    played = 0
    for episode in read_lines(path, EPISODES):
        played += 1
        costs[episode["task_index"]] += cost_of(episode, budget.unit)
    return played + len(budget.unfinished(costs))


def read_team(path: str | Path, unit: str) -> TeamRun:
    """Read what the run of a team spent on each task, over all its samples.

    Raises:
        ProtocolError: If it is a tournament, a zero-sum game or a run with a budget itself, if episodes are missing, or
            if an episode cost nothing because its policies count no tokens.
        ResultsError: If the folder cannot be read.
    """
    config = read_config(path)
    identity, context = config["identity"], config["context"]
    if "tournament" in identity or context.get("zero_sum"):
        raise ProtocolError(
            f"{path} holds games of a zero-sum environment: there is no single agent to match with a team"
        )
    if read_budget(identity) is not None:
        raise ProtocolError(f"{path} was itself played with the budget of a team; name the run of the team")
    spent: dict[int, int] = {}
    tasks: dict[int, tuple[str, str]] = {}
    played = 0
    for episode in read_lines(path, EPISODES):
        played += 1
        cost = cost_of(episode, unit)
        if cost == 0:
            raise ProtocolError(
                f"{path}: episode {episode['id']} has no {unit.replace('-', ' ')}, for its policies count none. "
                "Policies without a model do not, nor do some servers: take --budget characters"
            )
        spent[episode["task_index"]] = spent.get(episode["task_index"], 0) + cost
        tasks[episode["task_index"]] = (episode["task"], episode["task_hash"])
    planned = identity["n"] * identity["samples"]
    if played < planned:
        raise ProtocolError(
            f"{path}: {planned - played} of {planned} episodes are missing, so what the team spends is not known yet. "
            f"Go on with: llm-bench run --resume --out {path}"
        )
    team = {"env": identity["env"], "label": context["label"], "samples": identity["samples"]}
    return TeamRun(str(path), config, Budget(unit, dict(sorted(spent.items())), team), tasks)
