"""The sub-commands that play several runs which belong together, and what ``--protocol`` makes of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks.live import LiveView
from benchmarks.protocols import ablation, swap
from benchmarks.protocols.apply import apply_protocol
from benchmarks.protocols.budget import TeamRun, read_team
from benchmarks.protocols.catalogue import ProtocolError
from benchmarks.protocols.group import Group
from benchmarks.protocols.matched import matched_settings, play_matched
from benchmarks.protocols.play import play_group
from benchmarks.runner import RunResult, RunSettings, default_folder
from trainers.team import parse_policy_specs

__all__ = ["ACTION_OF", "MATCHED", "Plan", "make_plan", "plan_matched", "play_matched_run", "play_plan"]

PROTOCOL = "protocol"
MATCHED = "matched"
ACTION_OF = {PROTOCOL: "run", swap.KIND: "swap", ablation.KIND: "ablate"}
"""The sub-command that plays a kind of group."""

_OWN_ARGUMENTS = frozenset({"every", "replace", "role"})
"""Arguments that say which runs there are, and are none of a run."""


class Plan(NamedTuple):
    """What a command plays.

    Attributes:
        runs: The settings of its runs by label.
        path: The folder of the group; None of a single run.
        group: What belongs together; None of a single run.
    """

    runs: Mapping[str, RunSettings]
    path: Path | None = None
    group: Group | None = None


def make_plan(action: str, given: Mapping[str, Any], settings: RunSettings) -> Plan:
    """Return what ``run``, ``swap`` or ``ablate`` plays.

    Args:
        action: The sub-command.
        given: The arguments of the command line.
        settings: What they say of a run.

    Raises:
        ProtocolError: If the arguments contradict each other.
        Exception: What :func:`benchmarks.protocols.swap.plan_swap` and
            :func:`benchmarks.protocols.ablation.plan_ablation` raise.
    """
    name = given.get("protocol")
    asked = ["samples" if option == "k" else option for option in given.get("given", ())]
    runs = {"": settings} if name is None else apply_protocol(name, settings, asked)
    if action == "run" and len(runs) == 1:
        return Plan(runs)
    path = settings.out or default_folder(settings.env, [action, *parse_policy_specs(settings.policies).values()])
    members = {
        label: replace(run, arguments={key: run.arguments[key] for key in run.arguments if key not in _OWN_ARGUMENTS})
        for label, run in runs.items()
    }
    if action == "run":
        group = Group(PROTOCOL, tuple(members), {"protocol": name})
    elif len(members) > 1:
        raise ProtocolError(
            f"--protocol {name} has several runs, and {action} compares teams in one of them: give one of "
            + ", ".join(f"{name}/{label}" for label in members)
        )
    elif action == "swap":
        (one,) = members.values()
        members, about = swap.plan_swap(one, every=True if given["every"] else None)
        group = Group(swap.KIND, tuple(members), about)
    else:
        (one,) = members.values()
        members, about = ablation.plan_ablation(one, given["replace"], given["role"])
        group = Group(ablation.KIND, tuple(members), about)
    return Plan(members, path, replace(group, command=tuple(settings.command), arguments=settings.arguments))


def plan_matched(given: Mapping[str, Any], settings: RunSettings) -> tuple[RunSettings, TeamRun]:
    """Return what ``matched`` plays, and the run whose budget it gets.

    Raises:
        ProtocolError: If the run of the team has no budget to give, or it is not clear who plays.
        ResultsError: If it cannot be read.
    """
    team = read_team(given["team"], given["budget"])
    names = ("temperature", "top_p", "top_k", "max_tokens")
    asked = {name: given[name] for name in names if given[name] is not None}
    return matched_settings(team, settings, asked), team


def play_matched_run(settings: RunSettings, team: TeamRun, view: LiveView) -> RunResult:
    """Play the single agent with the budget of a team.

    Raises:
        Exception: What :func:`benchmarks.protocols.matched.play_matched` raises.
    """
    return asyncio.run(play_matched(settings, team, view, grown=view.expect))


def play_plan(plan: Plan, errors: Console, *, resume: bool, quiet: bool) -> list[RunResult]:
    """Play the runs of a group, showing how each goes.

    Raises:
        Exception: What :func:`benchmarks.protocols.play.play_group` raises.
    """
    if plan.group is None or plan.path is None:
        raise ValueError("A single run is no group")
    begun: list[str] = []

    def watch(label: str) -> LiveView:
        begun.append(label)
        if not quiet:
            errors.print(f"{label} ({len(begun)} of {len(plan.runs)})", markup=False, highlight=False, soft_wrap=True)
        return LiveView(errors, quiet=quiet)

    return asyncio.run(play_group(plan.path, plan.group, plan.runs, watch, resume=resume))
