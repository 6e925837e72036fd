"""Two runs on the same tasks, and what each role of a team contributes: paired, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cost import Prices
from benchmarks.metrics import RESAMPLES, SHARE_RESAMPLES
from benchmarks.paired import holm, paired_difference, sign_test
from benchmarks.results import differences
from benchmarks.summary import passes, summarize
from benchmarks.task_values import Metric, MetricError, TaskRun, find_metric, read_task_run
from trainers.team import EVERYONE, assign_players, role_of

__all__ = ["CompareError", "compare", "compare_ablations", "compare_metric", "pair_up", "players_of"]

_SHOWN_TASKS = 3


class CompareError(ValueError):
    """Two runs cannot be compared. The message names what differs and, where there is one, the way out."""


def compare(
    first: str | Path, second: str | Path, *, common: bool = False, prices: Prices | None = None
) -> dict[str, Any]:
    """Compare two runs of one environment, task by task.

    Args:
        first: A results folder.
        second: Another.
        common: Compare the tasks that both have played, as many samples of each as both have, where they differ.
        prices: What tokens cost.

    Returns:
        A JSON object. ``metrics`` holds, of every figure that both runs have, the two ``values`` (means over tasks),
        and the ``difference`` of the first less the second: ``value``, ``interval`` (95 %) and ``p`` of the paired
        bootstrap over tasks; ``signs`` says on how many tasks either did better, with the ``p`` of McNemar's exact
        test (several samples a task: of the sign test). ``agents`` holds the figures of every agent in both, as
        :func:`benchmarks.summary.summarize` gives them, over the compared episodes. ``differing`` names the settings
        that are not the same, each with both values.

    Raises:
        CompareError: If the environments, their arguments, the tasks or the samples differ.
        ResultsError: If a folder cannot be read.
        MetricError: If one holds a tournament.
    """
    runs = read_task_run(first, prices), read_task_run(second, prices)
    one, two = pair_up(*runs, common=common)
    metrics = {}
    for metric in _metrics(one, two):
        try:
            metrics[_name(metric, one)] = compare_metric(metric, one, two)
        except MetricError:  # one of them does not have it: no policy that counts tokens, no price
            continue
    summaries = [summarize(run.path, prices, only=run.keys) for run in (one, two)]
    return {
        "runs": [one.path, two.path],
        "policies": [one.label, two.label],
        "env": one.config["identity"]["env"],
        "tasks": len(one.tasks),
        "episodes": one.episodes,
        "left_out": [run.episodes - kept.episodes for run, kept in zip(runs, (one, two), strict=True)],
        "metrics": metrics,
        "agents": {
            agent: [summary["agents"].get(agent) for summary in summaries]
            for agent in dict.fromkeys([*one.agents, *two.agents])
        },
        "differing": _differing(one, two),
    }


def compare_ablations(base: str | Path, ablated: Mapping[str, str | Path], *, common: bool = False) -> dict[str, Any]:
    """Measure what each role contributes: how much success is lost when somebody else plays it.

    Args:
        base: The run of the whole team.
        ablated: By role, a run in which somebody else plays that role and all else is the same.
        common: As in :func:`compare`.

    Returns:
        A JSON object. ``roles`` holds, by role, the ``run``, who played the role (``replaced``) and who played it there
        (``by``), ``values`` of success in both, ``contribution`` (the difference, base less ablated, with interval and
        ``p``; ``p_holm`` is adjusted for the number of roles) and ``signs``, as in :func:`compare`.

    Raises:
        CompareError: If a run differs in something else than who plays its role, or cannot be compared.
        ResultsError: If a folder cannot be read.
    """
    whole = read_task_run(base)
    if whole.zero_sum:
        raise CompareError(f"{base} is a run of a zero-sum game, whose players do not contribute to one success")
    roles: dict[str, dict[str, Any]] = {}
    for role, path in ablated.items():
        other = read_task_run(path)
        one, two = pair_up(whole, other, common=common)
        replaced, by = _check_ablation(whole, other, role)
        found = compare_metric(find_metric("avg"), one, two)
        roles[role] = {
            "run": str(path),
            "replaced": replaced,
            "by": by,
            "tasks": len(one.tasks),
            "values": found["values"],
            "contribution": found["difference"],
            "signs": found["signs"],
        }
    adjusted = holm({role: found["contribution"]["p"] for role, found in roles.items()})
    for role, found in roles.items():
        found["contribution"]["p_holm"] = adjusted[role]
    return {"base": str(base), "policy": whole.label, "env": whole.config["identity"]["env"], "roles": roles}


def pair_up(first: TaskRun, second: TaskRun, *, common: bool = False) -> tuple[TaskRun, TaskRun]:
    """Return both runs with the same tasks in the same order, and as many samples of each task.

    Raises:
        CompareError: If they differ in environment or arguments; if they differ in tasks or samples and ``common`` is
            False; or if they have no task in common.
    """
    settings = _different_settings(first, second)
    both = {
        key: min(len(task.episodes), len(second.tasks[key].episodes))
        for key, task in first.tasks.items()
        if key in second.tasks
    }
    tasks = _different_tasks(first, second)
    way_out = ""
    if settings:
        way_out = "Runs are compared on one environment with the same arguments."
    elif tasks and not both:
        way_out = "They have no task in common."
    elif tasks and not common:
        way_out = f"Add --common to compare the {len(both)} tasks that both have played."
    elif not both:
        tasks, way_out = ["no episode was played yet"], "Go on with both: llm-bench run --resume --out DIR"
    if way_out:
        listed = "".join(f"\n  {line}" for line in [*settings, *tasks])
        raise CompareError(f"{first.path} and {second.path} cannot be compared:{listed}\n{way_out}")
    return first.limited_to(both), second.limited_to(both)


def compare_metric(metric: Metric, one: TaskRun, two: TaskRun) -> dict[str, Any]:
    """Compare a figure of two runs that :func:`pair_up` returned.

    Raises:
        MetricError: If one of them does not have it.
    """
    first, second = metric.values(one), metric.values(two)
    resamples = SHARE_RESAMPLES if metric.share else RESAMPLES
    found = paired_difference(first, second, resamples=resamples, span=1.0 if metric.share else None)
    signs = sign_test(first, second)
    return {
        "title": metric.title,
        "share": metric.share,
        "values": [sum(first) / len(first), sum(second) / len(second)],
        "difference": {"value": found.value, "interval": [found.low, found.high], "p": found.p},
        "signs": {"better": signs.better, "worse": signs.worse, "p": signs.p},
    }


def _metrics(one: TaskRun, two: TaskRun) -> list[Metric]:
    if one.zero_sum:
        outcome = [find_metric("score", agent) for agent in one.agents]
    else:
        fewest = min(len(task.episodes) for run in (one, two) for task in run.tasks.values())
        outcome = [find_metric("avg"), *(find_metric(f"pass@{k}") for k in passes(fewest) if k > 1)]
        outcome.append(find_metric("return"))
    spent = ["turns", "invalid", "seconds", "cost"]
    if all(any(played.tokens_out for task in run.tasks.values() for played in task.episodes) for run in (one, two)):
        spent[1:1] = ["tokens-in", "tokens-out"]
    return outcome + [find_metric(name) for name in spent]


def _name(metric: Metric, run: TaskRun) -> str:
    return metric.title if run.zero_sum and metric.name == "score" else metric.name


def _different_settings(first: TaskRun, second: TaskRun) -> list[str]:
    """Return a line for each thing that makes two runs incomparable whatever their tasks are."""
    one, two = (run.config["identity"] for run in (first, second))
    if one["env"] != two["env"]:
        return [f"env: {one['env']} and {two['env']}"]
    described = [run.config["context"].get("environment") for run in (first, second)]
    if all(described):  # with defaults: an argument that was given its default is no difference
        arguments = [about["arguments"] for about in described]
    else:
        arguments = [identity.get("env_kwargs", {}) for identity in (one, two)]
    return [f"env argument {name}: {a!r} and {b!r}" for name, a, b in differences(*arguments)]


def _different_tasks(first: TaskRun, second: TaskRun) -> list[str]:
    lines = []
    for run, other in ((first, second), (second, first)):
        only = [task.id for key, task in run.tasks.items() if key not in other.tasks]
        if only:
            more = f" and {len(only) - _SHOWN_TASKS} more" if len(only) > _SHOWN_TASKS else ""
            lines.append(f"tasks: only {run.path} has {', '.join(only[:_SHOWN_TASKS])}{more}")
    one, two = (run.config["identity"]["samples"] for run in (first, second))
    if one != two or None in (one, two):
        said = ["as many as a budget lasts" if samples is None else samples for samples in (one, two)]
        lines.append(f"samples: {said[0]} and {said[1]} a task")
    else:
        uneven = [
            task.id
            for key, task in first.tasks.items()
            if key in second.tasks
            and [played.sample for played in task.episodes] != [played.sample for played in second.tasks[key].episodes]
        ]
        if uneven:
            lines.append(
                f"samples: some are missing of {len(uneven)} tasks, such as {uneven[0]}; "
                "llm-bench run --resume plays them"
            )
    return lines


def _differing(one: TaskRun, two: TaskRun) -> dict[str, list[Any]]:
    """Return the settings that differ, though the runs can be compared: what the comparison may be about."""
    names = ("options", "sampling", "seed", "versions")
    before, after = ({name: run.config["identity"].get(name) for name in names} for run in (one, two))
    return {name: [first, second] for name, first, second in differences(before, after)}


def _check_ablation(whole: TaskRun, other: TaskRun, role: str) -> tuple[str, str]:
    """Return who played the role in both; raise CompareError if anything else is not the same."""
    mine = [agent for agent in whole.agents if role in (agent, role_of(agent))]
    if not mine:
        there_are = ", ".join(dict.fromkeys(map(role_of, whole.agents)))
        raise CompareError(f"--ablation {role}={other.path}: no agent has the role {role!r}; the roles are {there_are}")
    players = [players_of(run) for run in (whole, other)]
    for agent in whole.agents:
        before, after = (played[agent] for played in players)
        if agent in mine and before == after:
            raise CompareError(
                f"--ablation {role}={other.path}: {agent} is played by {before} there too, so nothing was taken away"
            )
        if agent not in mine and before != after:
            raise CompareError(
                f"--ablation {role}={other.path}: {agent} differs too ({before} and {after}), so the difference is not "
                f"that of {role} alone"
            )
    sampling = [run.config["identity"].get("sampling", {}) for run in (whole, other)]
    for name, before, after in differences(*sampling):
        raise CompareError(f"--ablation {role}={other.path}: {name} differs too ({before!r} and {after!r})")
    return tuple(" ".join(dict.fromkeys(played[agent] for agent in mine)) for played in players)  # type: ignore[return-value]


def players_of(run: TaskRun) -> dict[str, str]:
    """Return who plays each agent of a run: the spec and its options."""
    identity = run.config["identity"]
    specs: Sequence[str] = [
        spec if role == EVERYONE else f"{role}={spec}" for role, spec in identity["policies"].items()
    ]
    players = assign_players(specs, identity["options"], run.agents)
    found = {}
    for agent in run.agents:
        player = next(players[role] for role in (agent, role_of(agent), EVERYONE) if role in players)
        options = ", ".join(f"{key}={value!r}" for key, value in sorted(player.options.items()))
        found[agent] = f"{player.spec} ({options})" if options else player.spec
    return found
