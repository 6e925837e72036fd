"""Role ablation: one role at a time played by somebody else, and what the team loses by it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare import compare_ablations
from benchmarks.protocols.catalogue import ProtocolError
from benchmarks.protocols.group import Group
from benchmarks.protocols.seats import look_at, replaced, seated, slug
from benchmarks.runner import RunSettings
from trainers.policies.base import parse_spec
from trainers.team import check_roles, role_of

__all__ = ["KIND", "compare_group", "plan_ablation"]

KIND = "ablation"
WHOLE = "whole"
"""Label of the run of the whole team."""

_ROLE = re.compile(r"(?P<role>[a-z]+(?:_[0-9]+)?)=(?P<spec>.*)", re.DOTALL)


def plan_ablation(
    settings: RunSettings, replacements: Sequence[str], roles: Sequence[str] = ()
) -> tuple[dict[str, RunSettings], dict[str, Any]]:
    """Say which runs make up the ablation of a team.

    Args:
        settings: The run of the whole team.
        replacements: Who steps in: ``SPEC`` for each role in turn, or ``role=SPEC`` for one.
        roles: The roles, or agents, that a ``SPEC`` replaces; none given is all roles.

    Returns:
        The settings of the runs by label, that of the whole team first; and what a report needs to know of them:
        ``replaced``.

    Raises:
        ProtocolError: If there is no replacement, if one would change nothing, if one is given twice, or of a zero-sum
            game.
        gymnasium.error.Error: If the environment, its arguments or its tasks do not exist.
        trainers.policies.PolicySpecError: If a spec is malformed.
        trainers.team.TeamError: If the policies do not fit the environment's roles, or there is no such role.
    """
    if not replacements:
        raise ProtocolError("Say who steps in for a role: --replace random, --replace oracle, or --replace SPEC")
    parsed = [
        (match["role"], match["spec"]) if (match := _ROLE.fullmatch(text)) else (None, text) for text in replacements
    ]
    for _, spec in parsed:
        parse_spec(spec)
    seats = look_at(settings, "an ablation")
    check_roles([*roles, "*"], seats.agents)
    everyone = list(roles) or list(dict.fromkeys(map(role_of, seats.agents)))
    runs = {WHOLE: seated(settings, seats.players)}
    about: list[dict[str, str]] = []
    for only, spec in parsed:
        for role in [only] if only else everyone:
            players = replaced(seats, role, spec, settings.options)
            if any((each["role"], each["by"]) == (role, spec) for each in about):
                raise ProtocolError(f"{role} is replaced by {spec} twice; leave one --replace out")
            label = plain = f"{role}-{slug(spec)}"
            while label in runs:
                label = f"{plain}-{len(runs)}"
            runs[label] = seated(settings, players)
            about.append({"role": role, "by": spec, "run": label})
    return runs, {"replaced": about}


def compare_group(path: str | Path, group: Group, *, common: bool = False) -> list[dict[str, Any]]:
    """Return what each role contributes, as :func:`benchmarks.compare.compare_ablations`, by who stepped in.

    Raises:
        CompareError: If runs cannot be compared, because episodes are missing for example.
        ResultsError: If a folder cannot be read.
    """
    path = Path(path)
    by_spec: dict[str, dict[str, Path]] = {}
    for each in group.about["replaced"]:
        by_spec.setdefault(each["by"], {})[each["role"]] = path / each["run"]
    return [{"by": spec, **compare_ablations(path / WHOLE, runs, common=common)} for spec, runs in by_spec.items()]
