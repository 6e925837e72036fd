"""The swap test: the policies of the roles exchanged, and what that costs.

If roles have specialised, a policy in another one's role does worse than in its own (AT-GRPO, arXiv 2510.11062, swaps
the trained policies of a team). Every assignment is a run on the same tasks with the same seeds, compared with the
team as it was given, task by task.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare import compare_metric, pair_up, players_of
from benchmarks.paired import holm
from benchmarks.protocols.catalogue import ProtocolError
from benchmarks.protocols.group import Group
from benchmarks.protocols.seats import look_at, same_seats, seated
from benchmarks.runner import RunSettings
from benchmarks.task_values import find_metric, read_task_run
from trainers.team import EVERYONE, Player, parse_policy_specs, role_of

__all__ = ["KIND", "assignments", "compare_swaps", "plan_swap"]

KIND = "swap"
_PAIR = 2


def assignments(players: Mapping[str, Player], *, every: bool) -> dict[str, tuple[str, ...]]:
    """Return who may sit where: for each role, in order, the role whose player takes it.

    Args:
        players: By role.
        every: All ways to give each role any of the players (n roles: n to the power of n), not only the permutations
            (n!).

    Returns:
        By label, which names the roles whose players sit in the roles in order, ``verifier.solver``. The first is that
        of all in their own roles. Of assignments with the same players in all roles only the first is there.

    Example:
        >>> list(assignments({"solver": Player("random"), "verifier": Player("oracle")}, every=True))
        ['solver.verifier', 'solver.solver', 'verifier.solver', 'verifier.verifier']
    """
    roles = tuple(players)
    ways = itertools.product(roles, repeat=len(roles)) if every else itertools.permutations(roles)
    found: dict[tuple[tuple[str, str], ...], tuple[str, ...]] = {}
    for way in [roles, *ways]:
        found.setdefault(same_seats([players[source] for source in way]), way)
    return {".".join(way): way for way in found.values()}


def plan_swap(settings: RunSettings, *, every: bool | None = None) -> tuple[dict[str, RunSettings], dict[str, Any]]:
    """Say which runs make up the swap test of a team.

    Args:
        settings: The run of the team. The roles that its policies name are exchanged; a policy without a role stays.
        every: As in :func:`assignments`; None is True of two roles, which makes four runs, and False of more.

    Returns:
        The settings of the runs by label, that of the team as it was given first; and what a report needs to know of
        them: ``roles`` and ``assignments``.

    Raises:
        ProtocolError: If fewer than two roles are named, if they have the same policy, or of a zero-sum game.
        gymnasium.error.Error: If the environment, its arguments or its tasks do not exist.
        trainers.policies.PolicySpecError: If a spec is malformed.
        trainers.team.TeamError: If the policies do not fit the environment's roles.
    """
    named = [role for role in parse_policy_specs(settings.policies) if role != EVERYONE]
    if len(named) < _PAIR:
        raise ProtocolError(
            "A swap test exchanges the policies of roles: give --policy ROLE=SPEC for at least two roles, "
            f"got {len(named)}"
        )
    seats = look_at(settings, "a swap test")
    players = {role: seats.players[role] for role in named}
    ways = assignments(players, every=len(named) == _PAIR if every is None else every)
    if len(ways) == 1:
        raise ProtocolError(
            f"{' and '.join(named)} have the same policy with the same options, so there is nothing to exchange"
        )
    runs = {}
    for label, way in ways.items():
        seated_players = {**seats.players, **{role: players[source] for role, source in zip(named, way, strict=True)}}
        runs[label] = seated(settings, seated_players)
    return runs, {"roles": named, "assignments": {label: list(way) for label, way in ways.items()}}


def compare_swaps(path: str | Path, group: Group, *, common: bool = False) -> dict[str, Any]:
    """Compare every assignment of a swap test with the team as it was given.

    Args:
        path: The folder of the group.
        group: What it holds.
        common: Compare the tasks and samples that both have, where some are missing.

    Returns:
        A JSON object. ``own`` is the label of the team as it was given, ``value`` its success and ``policies`` who
        plays each role; ``assignments`` holds, by label, ``sources`` (for each role the one whose policy sits in it),
        ``values`` of success, those of the team as it was given first, the ``difference`` (own less exchanged, with
        95 % ``interval``, ``p`` of the paired bootstrap over tasks and ``p_holm``, adjusted for the number of
        assignments), and ``signs`` with the ``p`` of McNemar's exact test (several samples a task: of the sign test).

    Raises:
        CompareError: If runs cannot be compared, because episodes are missing for example.
        ResultsError: If a folder cannot be read.
    """
    path = Path(path)
    roles: Sequence[str] = group.about["roles"]
    first, *others = group.runs
    own = read_task_run(path / first)
    playing = players_of(own)
    players = {role: next(playing[agent] for agent in own.agents if role in (agent, role_of(agent))) for role in roles}
    found: dict[str, Any] = {}
    for label in others:
        one, two = pair_up(own, read_task_run(path / label), common=common)
        compared = compare_metric(find_metric("avg"), one, two)
        way = group.about["assignments"][label]
        found[label] = {
            "run": str(path / label),
            "sources": dict(zip(roles, way, strict=True)),
            "tasks": len(one.tasks),
            "values": compared["values"],
            "difference": compared["difference"],
            "signs": compared["signs"],
        }
    for label, p in holm({label: each["difference"]["p"] for label, each in found.items()}).items():
        found[label]["difference"]["p_holm"] = p
    values = find_metric("avg").values(own)
    return {
        "env": own.config["identity"]["env"],
        "group": str(path),
        "own": first,
        "policies": players,
        "value": sum(values) / len(values),
        "assignments": found,
    }
