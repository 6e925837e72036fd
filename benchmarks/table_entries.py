"""What goes into a leaderboard: the figures of each run and tournament, and which of them belong in one column."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.compare import CompareError, compare_metric, pair_up, players_of
from benchmarks.cost import Prices
from benchmarks.figures import money
from benchmarks.metrics import RESAMPLES, bootstrap_interval, wilson_interval
from benchmarks.protocols.budget import planned_episodes, read_budget
from benchmarks.results import read_config
from benchmarks.task_values import METRICS, Metric, MetricError, TaskRun, find_metric, read_task_run
from benchmarks.tournament_summary import is_tournament, summarize_tournament
from trainers.team import SCRIPTED

__all__ = ["TABLE_METRICS", "Entry", "entries_of"]

TABLE_METRICS = (*METRICS, "cost-success", "elo")
"""Names of the metrics of a leaderboard."""

ALPHA = 0.05
"""A cell whose paired test against the best one has a p-value from this on is as good."""

_OF_GAMES = ("score", "wins")
_OF_TOURNAMENTS = ("elo", "score")
_DIGITS = {"turns": 2, "tokens-in": 0, "tokens-out": 0, "return": 3, "seconds": 3}


@dataclass(frozen=True)
class Entry:
    """A figure of a run.

    Attributes:
        column: What it must share with the other figures of its column.
        env: Id of the environment.
        what: What was played, in words.
        metric: Name of the metric.
        title: The metric for a heading.
        higher: Whether more is better.
        show: How a figure is written.
        run: The folder it is from.
        label: Who plays.
        settings: What may tell it from another run of the same policies.
        value: The figure; None if nothing was played yet.
        interval: Its 95 % interval, if there is one.
        missing: Number of episodes that are not there.
        as_good_as: Whether a test cannot tell it from another entry of the column; never of a figure without a test.
        source: The run by task; None of a tournament.
        protocol: The protocol that it was run by, if any.
    """

    column: tuple[str, ...]
    env: str
    what: str
    metric: str
    title: str
    higher: bool
    show: Callable[[float], str]
    run: str
    label: str
    settings: Mapping[str, Any]
    value: float | None
    interval: tuple[float, float] | None
    missing: int
    as_good_as: Callable[[Entry], bool]
    source: TaskRun | None = None
    protocol: str | None = None


def entries_of(path: str | Path, metrics: Sequence[str], prices: Prices | None = None) -> list[Entry]:
    """Return the figures of a results folder.

    Args:
        path: A run or a tournament.
        metrics: Which ones; those that such a folder does not have are left out. None given: avg of a run, score of a
            zero-sum game, elo of a tournament.
        prices: What tokens cost.

    Raises:
        MetricError: If the folder has none of the metrics, or they cannot be told.
        ResultsError: If it cannot be read.
    """
    if is_tournament(read_config(path)):
        return _of_tournament(path, _choose(path, metrics, ("elo",), _OF_TOURNAMENTS))
    run = read_task_run(path, prices)
    if run.zero_sum:
        solo = {name for name in TABLE_METRICS if name not in ("avg", "pass@K", "return", "cost-success", "elo")}
        chosen = _choose(path, metrics, ("score",), solo)
    else:
        chosen = _choose(path, metrics, ("avg",), set(TABLE_METRICS) - {*_OF_GAMES, "elo"})
    found = []
    for name in chosen:
        if name in _OF_GAMES:
            found += _of_seats(run, name)
        elif name == "cost-success":
            found.append(_cost_of_success(run, prices))
        else:
            metric = find_metric(name)
            title = f"avg@{run.config['identity']['samples'] or 'k'}" if name == "avg" else metric.title
            found.append(_of_run(run, metric, title, prices))
    return found


def _choose(path: str | Path, metrics: Sequence[str], usual: Sequence[str], known: Any) -> Sequence[str]:
    for name in metrics:
        if name not in ("elo", "cost-success"):
            find_metric(name)  # a typo is an error, whatever the folder holds
    chosen = [name for name in metrics if name in known or (name.startswith("pass@") and "pass@K" in known)] or usual
    if metrics and chosen is usual:
        raise MetricError(f"{path} has none of the metrics {', '.join(metrics)}; it has {', '.join(sorted(known))}")
    return chosen


def _of_run(run: TaskRun, metric: Metric, title: str, prices: Prices | None) -> Entry:
    if metric.name == "cost" and prices is None:
        raise MetricError("The metric cost needs --prices FILE")
    value = interval = None
    if run.tasks:
        values = metric.values(run)
        value, interval = sum(values) / len(values), _interval(metric, values, run)
    if metric.share:
        title = f"{title}, %"
    return _entry(run, (), metric, title, _writer(metric, prices), value, interval)


def _interval(metric: Metric, values: Sequence[float], run: TaskRun) -> tuple[float, float]:
    if not metric.share:
        return bootstrap_interval(values, resamples=RESAMPLES, bounds=None)
    if set(values) <= {0.0, 1.0} and run.config["identity"]["samples"] == 1:
        return wilson_interval(int(sum(values)), len(values))
    return bootstrap_interval(values)


def _of_seats(run: TaskRun, name: str) -> list[Entry]:
    """Return an entry for each seat of a game, of who sits there, in a column of its own for each seat and opponent.

    Seats of policies without a model are left out if a model sits in another one: they are what it is measured with.
    """
    policies = players_of(run)
    models = [agent for agent in run.agents if policies[agent].partition(" (")[0].partition(":")[0] not in SCRIPTED]
    found = []
    for agent in models or run.agents:
        metric = find_metric(name, agent)
        others = " and ".join(policies[other] for other in run.agents if other != agent)
        values = metric.values(run) if run.tasks else []
        value = sum(values) / len(values) if values else None
        interval = _interval(metric, values, run) if values else None
        title = f"{name} as {agent} against {others}, %"
        entry = _entry(run, (agent, others), metric, title, _writer(metric, None), value, interval)
        found.append(replace(entry, label=policies[agent]))
    return found


def _cost_of_success(run: TaskRun, prices: Prices | None) -> Entry:
    """Return what a solved episode cost: all costs by the number of successes, which no test compares."""
    if prices is None:
        raise MetricError("The metric cost-success needs --prices FILE")
    played = [episode for task in run.tasks.values() for episode in task.episodes]
    solved = sum(episode.success for episode in played)
    costs = [episode.cost for episode in played if episode.cost is not None]
    if len(costs) < len(played):
        raise MetricError(f"{run.path} has no cost: a policy has no price, or counts no tokens")
    metric = Metric("cost-success", "cost/success", False, False, lambda episodes: None)
    value = sum(costs) / solved if solved else None
    return _entry(run, (), metric, metric.title, _writer(metric, prices), value, None)


def _entry(
    run: TaskRun,
    seat: tuple[str, ...],
    metric: Metric,
    title: str,
    show: Callable[[float], str],
    value: float | None,
    interval: tuple[float, float] | None,
) -> Entry:
    identity, context = run.config["identity"], run.config["context"]
    about = context.get("environment")
    arguments = json.dumps(about["arguments"] if about else identity.get("env_kwargs", {}), sort_keys=True)
    tasks, samples = identity["tasks"], identity["samples"]
    drawn = f"{identity['seed']}" if identity.get("shuffle") else ""
    chosen = (str(tasks["name"]), str(tasks.get("split")), str(tasks["fingerprint"]), f"{identity['n']:09}", drawn)
    words = [f"{identity['n']} tasks of {tasks['name']} ({tasks.get('split')})"]
    budget = read_budget(identity)
    if budget is not None:
        words.append(
            f"as many samples each as the {budget.unit} last of {budget.team['label']} on {budget.team['env']}"
        )
    elif samples > 1:
        words.append(f"{samples} samples each")
    words += [f"{name}={setting!r}" for name, setting in identity.get("env_kwargs", {}).items()]

    def as_good_as(other: Entry) -> bool:
        if other.source is None:
            return False
        try:
            one, two = pair_up(other.source, run)
            return bool(compare_metric(metric, one, two)["difference"]["p"] >= ALPHA)
        except (CompareError, MetricError):
            return False

    return Entry(
        (
            identity["env"],
            *chosen,
            f"{samples:09}" if budget is None else json.dumps(budget.to_json()),
            arguments,
            *seat,
            metric.name,
        ),
        identity["env"],
        ", ".join(words),
        metric.name,
        title,
        metric.higher,
        show,
        run.path,
        run.label,
        {**identity.get("sampling", {}), "seed": identity["seed"]},
        value,
        interval,
        planned_episodes(run.path, identity) - run.episodes,
        as_good_as,
        run,
        f"{by['name']} ({by['run']})" if (by := context.get("protocol")) else None,
    )


def _of_tournament(path: str | Path, metrics: Sequence[str]) -> list[Entry]:
    summary = summarize_tournament(path)
    against = {tuple(pairing["players"]): pairing["score"] for pairing in summary["pairings"]}

    def level(one: str, other: Entry) -> bool:
        """Whether the games between two leave open who is stronger."""
        score = against.get((one, other.label)) or against.get((other.label, one))
        return score is not None and score["interval"][0] <= 0.5 <= score["interval"][1]

    found = []
    for metric in metrics:
        title, show = ("Elo", _elo) if metric == "elo" else ("score, %", _hundredth)
        for name, player in summary["players"].items():
            got = player[metric]
            found.append(
                Entry(
                    (summary["env"], "tournament", str(path), metric),
                    summary["env"],
                    f"tournament of {', '.join(sorted(summary['players']))}, {summary['deals']} deals of "
                    f"{summary['tasks']['name']}",
                    metric,
                    title,
                    True,
                    show,
                    str(path),
                    name,
                    {},
                    None if got is None else got["value"],
                    None if got is None else tuple(got["interval"]),
                    summary["planned"] - summary["episodes"],
                    partial(level, name),
                )
            )
    return found


def _writer(metric: Metric, prices: Prices | None) -> Callable[[float], str]:
    if metric.share:
        return _hundredth
    if metric.name.startswith("cost"):
        currency = "" if prices is None else prices.currency
        return lambda value: money(value, currency)
    digits = _DIGITS[metric.name]
    return lambda value: f"{value:,.{digits}f}"


def _hundredth(value: float) -> str:
    return f"{100 * value:.1f}"


def _elo(value: float) -> str:
    return f"{value:+.0f}"
