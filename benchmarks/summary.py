"""What a results folder says, as numbers: one pass over its lines, nothing but counts kept."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cost import CostTally, Prices
from benchmarks.metrics import avg_at_k, bootstrap_interval, counted_interval, pass_at_k, success_interval
from benchmarks.outcomes import forfeiters, outcomes
from benchmarks.protocols.budget import cost_of, read_budget
from benchmarks.results import EPISODES, ERRORS, TIMINGS, read_config, read_lines
from benchmarks.run_state import run_state

__all__ = ["Counts", "elapsed_seconds", "passes", "summarize"]


@dataclass
class _Agent:
    episodes: int = 0
    turns: int = 0
    invalid: int = 0
    cut: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    total: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    policies: dict[str, None] = field(default_factory=dict)
    latency: list[float] = field(default_factory=list)
    timed_tokens: int = 0
    spent: CostTally = field(default_factory=CostTally)

    def summary(self, turns: int) -> dict[str, Any]:
        """Return the figures of an agent, in a run of so many ``turns`` of all agents."""
        waited = sum(self.latency)
        return {
            "policy": " ".join(self.policies),
            "turns": _per(self.turns, self.episodes),
            "share_of_turns": _per(self.turns, turns),
            "tokens_in": _tokens(self.tokens_in, self.episodes),
            "tokens_out": _tokens(self.tokens_out, self.episodes),
            "invalid_rate": _per(self.invalid, self.turns),
            "cut_rate": _per(self.cut, self.turns),
            "return": _per(self.total, self.episodes),
            "reward_parts": {name: value / self.episodes for name, value in sorted(self.parts.items())},
            "latency_s": float(np.median(self.latency)) if self.latency else None,
            "latency_p95_s": float(np.quantile(self.latency, 0.95)) if self.latency else None,
            "tokens_per_s": self.timed_tokens / waited if self.timed_tokens and waited else None,
        }


def summarize(
    path: str | Path, prices: Prices | None = None, *, only: Collection[tuple[int, int]] | None = None
) -> dict[str, Any]:
    """Read a results folder, complete or not.

    Args:
        path: The folder.
        prices: What tokens cost; None leaves ``cost`` None.
        only: (task index, sample) of the episodes to look at; None is all of them. What was planned, failed or is
            missing is said of the whole folder.

    Returns:
        A JSON object. Rates are in [0, 1] and None where there is nothing to divide by; turns, tokens, returns and
        reward parts are means per episode; intervals are 95 %. ``avg_at_k`` and ``pass_at_k`` weigh tasks equally.
        pass@k is estimated from the tasks that have at least k episodes so far (``tasks``). Where a budget decides how
        many samples each task has (``samples`` is None), k goes up to the least of them, and one more episode of each
        task on which something is left is counted as ``planned``. ``cut_rate`` is the share of answers that reached
        ``max_tokens``. ``undecided`` counts episodes in which a grader gave no verdict in time: they count as not
        solved.

        ``state`` and ``writer`` say whether somebody is playing it now (see :func:`benchmarks.run_state.run_state`).

        ``seconds`` is the mean from reset to end of an episode; ``elapsed_s`` how long anything was being played,
        without pauses between sessions; ``tokens_per_s`` the tokens written by all agents in that time, and of an agent
        the tokens it wrote in a second of waiting for it. ``cost`` holds ``total``, that of an ``episode``, of a
        ``success`` (the total by the solved episodes) and of an episode by ``agents``, in ``currency``; each is None
        where it is not known, and ``unknown`` names the policies without a price or a count of tokens. Failed episodes
        are in none of these.

        Of a zero-sum environment ``outcomes`` holds wins, draws, losses and forfeits of each agent: ``count``, and the
        share of the episodes (``value``, tasks weighing equally) with its ``interval``. A forfeit is also a loss of who
        forfeits and a win of the other. There is no success of all then, and ``solved``, ``avg_at_k`` and ``pass_at_k``
        are empty. Of any other environment ``outcomes`` is None.

    Raises:
        ResultsError: If it is no results folder or a line of it cannot be read.
    """
    path = Path(path)
    config = read_config(path)
    identity, context = config["identity"], config["context"]
    timings = {record["id"]: record for record in read_lines(path, TIMINGS)}
    solved: dict[int, list[bool]] = {}
    agents: dict[str, _Agent] = {}
    seen: set[str] = set()
    undecided = terminated = truncated = 0
    spent = CostTally()
    ended: dict[str, dict[int, list[tuple[str, bool]]]] | None = {} if context.get("zero_sum") else None
    stored: set[str] = set()
    budget, costs = read_budget(identity), Counter[int]()
    for episode in read_lines(path, EPISODES):
        stored.add(episode["id"])
        if budget is not None:
            costs[episode["task_index"]] += cost_of(episode, budget.unit)
        if only is not None and (episode["task_index"], episode["sample"]) not in only:
            continue
        seen.add(episode["id"])
        if ended is None:
            solved.setdefault(episode["task_index"], []).append(bool(episode["success"]))
        else:
            gave_up = forfeiters(episode)
            for agent, outcome in outcomes(episode).items():
                games = ended.setdefault(agent, {}).setdefault(episode["task_index"], [])
                games.append((outcome, agent in gave_up))
        terminated += episode["terminated"]
        truncated += episode["truncated"]
        undecided += any(turn["info"].get("verdict") == "undecided" for turn in episode["turns"])
        _count(agents, spent, episode, timings.get(episode["id"], {}).get("latency_s", ()))
    failed = {record["id"] for record in read_lines(path, ERRORS)} - stored
    episodes = len(seen)
    planned = identity["n"] * identity["samples"] if budget is None else len(stored) + len(budget.unfinished(costs))
    complete = len(stored) == planned
    successes = list(solved.values())
    most = identity["samples"] or min(map(len, successes), default=1)
    turns = sum(agent.turns for agent in agents.values())
    written = sum(agent.tokens_out for agent in agents.values())
    times = [timings[key] for key in seen if key in timings]
    elapsed = elapsed_seconds(times) if len(times) == episodes else None
    solved_episodes = sum(map(sum, successes)) if ended is None else None
    return {
        "run": str(path),
        "env": identity["env"],
        "policy": context["label"],
        "protocol": context.get("protocol"),
        "tasks": identity["tasks"],
        "samples": identity["samples"],
        "seed": identity["seed"],
        "planned": planned,
        "episodes": episodes,
        "failed": len(failed),
        "complete": complete,
        **run_state(path, complete=complete),
        "solved": solved_episodes,
        "avg_at_k": {"value": avg_at_k(successes), "interval": success_interval(successes)} if successes else None,
        "pass_at_k": {str(k): _pass(successes, k) for k in passes(most)} if ended is None else {},
        "outcomes": None
        if ended is None
        else {agent: _outcomes(list(games.values())) for agent, games in ended.items()},
        "turns": _per(turns, episodes),
        "tokens_in": _tokens(sum(agent.tokens_in for agent in agents.values()), episodes),
        "tokens_out": _tokens(written, episodes),
        "seconds": _per(sum(record["wall_s"] for record in times), len(times)),
        "elapsed_s": elapsed,
        "tokens_per_s": written / elapsed if written and elapsed else None,
        "cost": None if prices is None else _cost(spent, agents, prices, episodes, solved_episodes),
        "invalid_rate": _per(sum(agent.invalid for agent in agents.values()), turns),
        "terminated": _per(terminated, episodes),
        "truncated": _per(truncated, episodes),
        "undecided": undecided,
        "agents": {name: agent.summary(turns) for name, agent in agents.items()},
    }


@dataclass
class Counts:
    """Running counts of a run, for its live line.

    Attributes:
        episodes: Episodes that did not fail.
        failed: Episodes that did.
        tokens: Tokens that were written in the former.
    """

    episodes: int = 0
    failed: int = 0
    tokens: int = 0
    _solved: array[int] = field(default_factory=lambda: array("L"))
    _tried: array[int] = field(default_factory=lambda: array("L"))

    def add(self, task_index: int, success: bool, tokens: int = 0) -> None:
        """Count one episode that did not fail."""
        if task_index >= len(self._tried):
            more = [0] * (task_index + 1 - len(self._tried))
            self._tried.extend(more)
            self._solved.extend(more)
        self._tried[task_index] += 1
        self._solved[task_index] += success
        self.episodes += 1
        self.tokens += tokens

    def headline(self) -> str:
        """Return what matters so far: ``success 42.0 % [31.2, 53.6]``."""
        return f"success {self.success()}"

    def success(self) -> str:
        """Return the success so far with its interval, ``42.0 % [31.2, 53.6]``."""
        tried = np.array(self._tried)
        played = tried > 0
        if not played.any():
            return "–"
        solved, tried = np.array(self._solved)[played], tried[played]
        low, high = counted_interval(solved, tried)
        return f"{100 * float(np.mean(solved / tried)):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def _count(agents: dict[str, _Agent], spent: CostTally, episode: Mapping[str, Any], latency: Any) -> None:
    for name, total in episode["returns"].items():
        agent = agents.setdefault(name, _Agent())
        agent.episodes += 1
        agent.total += total
        for part, value in episode["reward_parts"][name].items():
            agent.parts[part] = agent.parts.get(part, 0.0) + value
    for number, turn in enumerate(episode["turns"]):
        agent = agents[turn["agent"]]
        agent.turns += 1
        agent.invalid += turn["invalid"] is not None
        agent.cut += turn["finish_reason"] == "length"
        agent.tokens_in += turn["prompt_tokens"]
        agent.tokens_out += turn["completion_tokens"]
        agent.policies[turn["policy"]] = None
        for tally in (agent.spent, spent):
            tally.add(turn["policy"], turn["prompt_tokens"], turn["completion_tokens"])
        if number < len(latency):
            agent.latency.append(latency[number])
            agent.timed_tokens += turn["completion_tokens"]


def elapsed_seconds(times: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the seconds in which at least one episode was being played; None where the folder is too old to say."""
    if not times or any("ended" not in record for record in times):
        return None
    total, until = 0.0, 0.0
    for start, end in sorted((record["ended"] - record["wall_s"], record["ended"]) for record in times):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _cost(
    spent: CostTally, agents: Mapping[str, _Agent], prices: Prices, episodes: int, solved: int | None
) -> dict[str, Any]:
    total = spent.total(prices)
    by_agent = {name: agent.spent.total(prices) for name, agent in agents.items()}
    return {
        "currency": prices.currency,
        "total": total,
        "episode": None if total is None else _per(total, episodes),
        "success": None if total is None or not solved else total / solved,
        "agents": {name: None if cost is None else _per(cost, episodes) for name, cost in by_agent.items()},
        "unknown": spent.unknown(prices),
    }


def _outcomes(games: list[list[tuple[str, bool]]]) -> dict[str, Any]:
    """Return what an agent got, from (outcome, whether it forfeited) of the games of each task."""
    found = {}
    for name, outcome in (("wins", "win"), ("draws", "draw"), ("losses", "loss")):
        found[name] = _share([[got == outcome for got, _ in task] for task in games])
    found["forfeits"] = _share([[gave_up for _, gave_up in task] for task in games])
    return found


def _share(marks: list[list[bool]]) -> dict[str, Any]:
    return {"count": sum(map(sum, marks)), "value": avg_at_k(marks), "interval": success_interval(marks)}


def passes(samples: int) -> list[int]:
    """Return the k of pass@k that are reported: 1, 2, 4, … and the number of samples itself."""
    return sorted({2**i for i in range(samples.bit_length()) if 2**i <= samples} | {samples})


def _pass(successes: list[list[bool]], k: int) -> dict[str, Any] | None:
    values = [pass_at_k(len(task), sum(task), k) for task in successes if len(task) >= k]
    if not values:
        return None
    if k == 1:
        enough = [task for task in successes if task]
        interval = success_interval(enough)
    else:
        interval = bootstrap_interval(values)
    return {"value": float(np.mean(values)), "interval": interval, "tasks": len(values)}


def _per(count: float, total: int) -> float | None:
    return count / total if total else None


def _tokens(count: int, episodes: int) -> float | None:
    """Tokens per episode; None where no policy reported any."""
    return count / episodes if count and episodes else None
