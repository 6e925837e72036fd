"""What a run got on each task: the values that comparisons and leaderboards are made of."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cost import CostTally, Prices
from benchmarks.metrics import pass_at_k
from benchmarks.outcomes import POINTS, outcomes
from benchmarks.results import EPISODES, TIMINGS, read_config, read_lines
from benchmarks.tournament_summary import is_tournament

__all__ = ["METRICS", "Metric", "MetricError", "Played", "PlayedTask", "TaskRun", "find_metric", "read_task_run"]

METRICS = ("avg", "pass@K", "return", "turns", "tokens-in", "tokens-out", "seconds", "invalid", "cost", "score", "wins")
"""Names of the metrics, as :func:`find_metric` takes them."""

_PASS = re.compile(r"pass@([1-9][0-9]*)")


class MetricError(ValueError):
    """There is no such metric, or a run has no such figure. The message names both."""


class Played(NamedTuple):
    """The figures of one episode; ``seconds`` and ``cost`` are None where they are not known.

    Attributes:
        sample: Which of the k episodes of its task it is.
        success: Whether it solved the task.
        paid: Mean over the agents of their returns.
        turns: Number of turns.
        invalid: Number of refused actions.
        tokens_in: Tokens of all prompts.
        tokens_out: Tokens of all answers.
        seconds: From reset to end.
        cost: What its tokens cost.
        outcomes: ``win``, ``draw`` or ``loss`` by agent, of a zero-sum game; otherwise empty.
    """

    sample: int
    success: bool
    paid: float
    turns: int
    invalid: int
    tokens_in: int
    tokens_out: int
    seconds: float | None
    cost: float | None
    outcomes: Mapping[str, str]


class PlayedTask(NamedTuple):
    """A task and the episodes that were played of it, by sample."""

    id: str
    task_index: int
    episodes: tuple[Played, ...]


@dataclass(frozen=True)
class TaskRun:
    """A run by task.

    Attributes:
        path: Its folder, as it was given.
        config: Its configuration.
        agents: The agents of its environment.
        tasks: What was played, by the hash of the task's content. (Of tasks with equal contents the second has ``#2``
            behind its hash, and so on, in the order of their indices.)
    """

    path: str
    config: Mapping[str, Any]
    agents: tuple[str, ...]
    tasks: Mapping[str, PlayedTask]

    @property
    def label(self) -> str:
        """Who plays."""
        return str(self.config["context"]["label"])

    @property
    def zero_sum(self) -> bool:
        """Whether one agent's gain is the other's loss."""
        return bool(self.config["context"].get("zero_sum"))

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return sum(len(task.episodes) for task in self.tasks.values())

    @property
    def keys(self) -> set[tuple[int, int]]:
        """(Task index, sample) of all episodes."""
        return {(task.task_index, played.sample) for task in self.tasks.values() for played in task.episodes}

    def limited_to(self, samples: Mapping[str, int]) -> TaskRun:
        """Return the run with these tasks only, in this order, and so many of the first episodes of each."""
        kept = {
            key: self.tasks[key]._replace(episodes=self.tasks[key].episodes[:count]) for key, count in samples.items()
        }
        return replace(self, tasks=kept)


@dataclass(frozen=True)
class Metric:
    """A figure of which every task has a value.

    Attributes:
        name: As in :data:`METRICS`.
        title: For a table.
        higher: Whether more is better.
        share: Whether it lies between 0 and 1.
        of_task: The value of a task's episodes; None where it is not known.
    """

    name: str
    title: str
    higher: bool
    share: bool
    of_task: Callable[[Sequence[Played]], float | None]

    def values(self, run: TaskRun) -> list[float]:
        """Return the value of every task of a run, in the order of its tasks.

        Raises:
            MetricError: If it is not known of some task.
        """
        found = [self.of_task(task.episodes) for task in run.tasks.values()]
        known = [value for value in found if value is not None]
        if len(known) < len(found) or not found:
            missing = len(found) - len(known)
            why = f"{missing} of its {len(found)} tasks have none" if found else "no task was played yet"
            raise MetricError(f"{run.path} has no {self.title}: {why}")
        return known


def find_metric(name: str, agent: str | None = None) -> Metric:
    """Return a metric by its name.

    Args:
        name: One of :data:`METRICS`, with a number for the K of ``pass@K``.
        agent: Whose ``score`` or ``wins`` it is.

    Raises:
        MetricError: If there is none of this name.
    """
    match = _PASS.fullmatch(name)
    if match:
        k = int(match[1])
        return Metric(name, name, True, True, lambda episodes: _pass(episodes, k))
    if name in ("score", "wins"):
        points = POINTS if name == "score" else {"win": 1.0, "draw": 0.0, "loss": 0.0}
        title = f"{name} of {agent}" if agent else name
        return Metric(name, title, True, True, lambda episodes: _outcome(episodes, agent, points))
    found = _PLAIN.get(name)
    if found is None:
        raise MetricError(f"There is no metric {name!r}; the metrics are {', '.join(METRICS)}")
    return found


def read_task_run(path: str | Path, prices: Prices | None = None) -> TaskRun:
    """Read the results folder of a run, complete or not.

    Raises:
        ResultsError: If it is no results folder or a line of it cannot be read.
        MetricError: If it holds a tournament.
    """
    config = read_config(path)
    if is_tournament(config):
        raise MetricError(f"{path} holds a tournament, whose players are rated together: llm-bench report {path}")
    seconds = {record["id"]: record["wall_s"] for record in read_lines(path, TIMINGS)}
    zero_sum = bool(config["context"].get("zero_sum"))
    agents: dict[str, None] = {}
    tasks: dict[tuple[int, str, str], list[Played]] = {}
    for record in read_lines(path, EPISODES):
        agents.update(dict.fromkeys(record["returns"]))
        key = (record["task_index"], record["task_hash"], record["task"])
        tasks.setdefault(key, []).append(_played(record, seconds.get(record["id"]), prices, zero_sum=zero_sum))
    times: Counter[str] = Counter()
    found = {}
    for (index, content, name), episodes in sorted(tasks.items(), key=lambda item: item[0]):
        times[content] += 1
        key_of = content if times[content] == 1 else f"{content}#{times[content]}"
        found[key_of] = PlayedTask(name, index, tuple(sorted(episodes, key=lambda played: played.sample)))
    return TaskRun(str(path), config, tuple(agents), found)


def _played(record: Mapping[str, Any], seconds: float | None, prices: Prices | None, *, zero_sum: bool) -> Played:
    turns = record["turns"]
    cost = None
    if prices is not None:
        tally = CostTally()
        for turn in turns:
            tally.add(turn["policy"], turn["prompt_tokens"], turn["completion_tokens"])
        cost = tally.total(prices)
    returns = record["returns"].values()
    return Played(
        record["sample"],
        bool(record["success"]),
        sum(returns) / len(returns) if returns else 0.0,
        len(turns),
        sum(turn["invalid"] is not None for turn in turns),
        sum(turn["prompt_tokens"] for turn in turns),
        sum(turn["completion_tokens"] for turn in turns),
        seconds,
        cost,
        outcomes(record) if zero_sum else {},
    )


def _pass(episodes: Sequence[Played], k: int) -> float | None:
    if len(episodes) < k:
        return None
    return pass_at_k(len(episodes), sum(played.success for played in episodes), k)


def _outcome(episodes: Sequence[Played], agent: str | None, points: Mapping[str, float]) -> float | None:
    got = [played.outcomes.get(agent or "") for played in episodes]
    return _mean([None if outcome is None else points[outcome] for outcome in got])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _of_episode(name: str, title: str, higher: bool, value: Callable[[Played], float | None]) -> Metric:
    share = name in ("avg", "invalid")
    return Metric(name, title, higher, share, lambda episodes: _mean([value(played) for played in episodes]))


_PLAIN = {
    metric.name: metric
    for metric in (
        _of_episode("avg", "avg@k", True, lambda played: float(played.success)),
        _of_episode("return", "return", True, lambda played: played.paid),
        _of_episode("turns", "turns", False, lambda played: float(played.turns)),
        _of_episode("tokens-in", "tokens in", False, lambda played: float(played.tokens_in)),
        _of_episode("tokens-out", "tokens out", False, lambda played: float(played.tokens_out)),
        _of_episode("seconds", "seconds", False, lambda played: played.seconds),
        _of_episode("invalid", "invalid", False, lambda played: played.invalid / played.turns if played.turns else 0.0),
        _of_episode("cost", "cost", False, lambda played: played.cost),
    )
}
