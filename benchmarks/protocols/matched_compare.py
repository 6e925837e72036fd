"""A team and the single agent that had its budget, task by task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.compare import CompareError
from benchmarks.compare_report import difference, p_value, print_table, say
from benchmarks.figures import escape, number, percent
from benchmarks.paired import paired_difference, sign_test
from benchmarks.protocols.budget import Budget, TeamRun, cost_of, read_budget, read_team
from benchmarks.protocols.votes import SameAnswer, answer_of, has_answer, majority, same_answer_in
from benchmarks.results import EPISODES, read_config, read_lines

__all__ = ["compare_matched", "print_matched"]

FIGURES = {
    "avg": "one try",
    "pass": "any try",
    "majority": "majority",
}
"""The figures, and how they are called in a table."""

_SHOWN_TASKS = 3


@dataclass
class _Task:
    """The samples of a task."""

    successes: list[bool] = field(default_factory=list)
    answers: list[str | None] = field(default_factory=list)
    spent: int = 0
    voted: bool = True


def compare_matched(team: str | Path, single: str | Path) -> dict[str, Any]:
    """Compare a team with the single agent that was given its budget (:mod:`benchmarks.protocols.matched`).

    Args:
        team: The run of the team, of k samples a task.
        single: The run of the single agent, of as many samples k' as the budget of a task lasted.

    Returns:
        A JSON object. ``figures`` holds three, each with the two ``values`` (means over tasks, the team's first), the
        ``difference`` (team less single agent: ``value``, 95 % ``interval``, ``p`` of the paired bootstrap over tasks)
        and ``signs`` with the ``p`` of McNemar's exact test (several values a task: of the sign test):

        * ``avg``: one try, avg@k and avg@k'. The tries of the two do not cost the same.
        * ``pass``: whether any try solved the task, pass@k and pass@k', at the same total budget.
        * ``majority``: whether the most frequent answer of all tries is right, at the same total budget, ties broken by
          chance (in expectation); None where answers cannot be compared, and ``no_majority`` says why.

        ``samples`` are k and the least, mean and greatest k'; ``budget`` and ``spent`` what the team spent and the
        single agent spent on a task, in ``unit``, means over tasks.

    Raises:
        CompareError: If the second run was not given the budget of the first, or is not complete.
        ProtocolError: If the first is no complete run of a team.
        ResultsError: If a folder cannot be read.
    """
    config = read_config(single)
    budget = read_budget(config["identity"])
    if budget is None:
        raise CompareError(f"{single} was not played with the budget of a team: llm-bench matched {team} ENV does that")
    of = read_team(team, budget.unit)
    _check_budget(of, single, budget)
    teams, singles = _read(team, budget.unit), _read(single, budget.unit)
    left = budget.unfinished({index: task.spent for index, task in singles.items()})
    if left:
        raise CompareError(
            f"{single}: the budget of {len(left)} of {len(budget.by_task)} tasks is not spent yet. Go on with: "
            f"llm-bench matched --resume --out {single}"
        )
    order = list(budget.by_task)
    pairs = [(teams[index], singles[index]) for index in order]
    figures: dict[str, Any] = {
        "avg": _compare(pairs, lambda task: sum(task.successes) / len(task.successes)),
        "pass": _compare(pairs, lambda task: float(any(task.successes))),
    }
    same, why_not = _comparable(of, config["identity"]["env"], pairs)
    figures["majority"] = None if same is None else _compare(pairs, _majority(same))
    counts = [len(task.successes) for _, task in pairs]
    return {
        "runs": [str(team), str(single)],
        "envs": [of.config["identity"]["env"], config["identity"]["env"]],
        "policies": [of.config["context"]["label"], config["context"]["label"]],
        "tasks": len(pairs),
        "unit": budget.unit,
        "budget": sum(budget.by_task.values()) / len(pairs),
        "spent": sum(task.spent for _, task in pairs) / len(pairs),
        "samples": {
            "team": of.config["identity"]["samples"],
            "single": {"least": min(counts), "mean": sum(counts) / len(counts), "greatest": max(counts)},
        },
        "figures": figures,
        "no_majority": why_not,
    }


def print_matched(found: Mapping[str, Any], console: Console) -> None:
    """Print what :func:`compare_matched` returns."""
    unit = found["unit"].replace("-", " ")
    samples, k = found["samples"]["single"], found["samples"]["team"]
    say(console, f"{found['tasks']} tasks, paired by task; the single agent had the {unit} of the team on each")
    for name, run, env, policy in zip(("team", "single"), found["runs"], found["envs"], found["policies"], strict=True):
        say(console, f"  {name}  {run}: {env}, {policy}")
    say(
        console,
        f"  {unit} a task: {number(found['budget'], 0)} and {number(found['spent'], 0)}; tries a task: {k} and "
        f"{number(samples['mean'])} ({samples['least']} to {samples['greatest']})",
    )
    rows = []
    for name, title in FIGURES.items():
        figure = found["figures"][name]
        if figure is None:
            continue
        one, two = figure["values"]
        signs = figure["signs"]
        rows.append(
            [
                escape(title), percent(one), percent(two), difference(figure["difference"], share=True),
                p_value(figure["difference"]["p"]), f"{signs['better']} – {signs['worse']}", p_value(signs["p"]),
            ]
        )  # fmt: skip
    header = ["solved by", "team", "single", "team – single [95 %]", "p", "higher", "p"]
    print_table(console, "Success (means over tasks)", header, rows)
    say(
        console,
        "All tries together cost both the same, a single try does not. The first p is of the paired bootstrap over "
        "tasks, the second of McNemar's exact test (or the sign test) on how many tasks each was higher.",
    )
    if found["no_majority"]:
        say(console, f"no majority: {found['no_majority']}")


def _read(path: str | Path, unit: str) -> dict[int, _Task]:
    records: dict[int, list[tuple[int, bool, str | None, int, bool]]] = {}
    for record in read_lines(path, EPISODES):
        records.setdefault(record["task_index"], []).append(
            (record["sample"], bool(record["success"]), answer_of(record), cost_of(record, unit), has_answer(record))
        )
    found = {}
    for index, samples in records.items():
        samples.sort(key=lambda sample: sample[0])
        found[index] = _Task(
            [sample[1] for sample in samples],
            [sample[2] for sample in samples],
            sum(sample[3] for sample in samples),
            all(sample[4] for sample in samples),
        )
    return found


def _check_budget(team: TeamRun, single: str | Path, budget: Budget) -> None:
    """Check that a budget is that of a team, and that the single agent played the team's tasks."""
    if budget.by_task != team.budget.by_task:
        raise CompareError(
            f"{single} was played with the budget of another run than {team.path}: that of {budget.team['label']} on "
            f"{budget.team['env']}"
        )
    played = {record["task_index"]: record["task_hash"] for record in read_lines(single, EPISODES)}
    other = [name for index, (name, content) in team.tasks.items() if played.get(index, content) != content]
    if other:
        raise CompareError(f"{single} and {team.path} differ in tasks, such as {', '.join(other[:_SHOWN_TASKS])}")


def _comparable(team: TeamRun, env: str, pairs: Sequence[tuple[_Task, _Task]]) -> tuple[SameAnswer | None, str | None]:
    """Return how answers are compared, or why they cannot be."""
    ways = [same_answer_in(name) for name in (team.config["identity"]["env"], env)]
    if None in ways or len(set(ways)) > 1:
        return None, f"answers of {env} cannot be compared with each other"
    if not all(task.voted for pair in pairs for task in pair):
        return None, "some episodes do not say what their answer was"
    return ways[0], None


def _majority(same: SameAnswer) -> Callable[[_Task], float]:
    return lambda task: majority(task.answers, task.successes, same)


def _compare(pairs: Sequence[tuple[_Task, _Task]], value: Callable[[_Task], float]) -> dict[str, Any]:
    one, two = ([value(task) for task in tasks] for tasks in zip(*pairs, strict=True))
    found, signs = paired_difference(one, two), sign_test(one, two)
    return {
        "values": [sum(one) / len(one), sum(two) / len(two)],
        "difference": {"value": found.value, "interval": [found.low, found.high], "p": found.p},
        "signs": {"better": signs.better, "worse": signs.worse, "p": signs.p},
    }
