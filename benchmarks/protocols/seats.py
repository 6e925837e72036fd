"""Who sits where: the players of a run as settings, for comparisons that change who plays a role."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks.protocols.catalogue import ProtocolError
from benchmarks.runner import RunSettings, make_env
from trainers.policies.base import parse_spec
from trainers.team import EVERYONE, Player, assign_players, check_roles, role_of

__all__ = ["Seats", "look_at", "replaced", "same_seats", "seated", "slug"]


class Seats(NamedTuple):
    """What a comparison of players must know of an environment.

    Attributes:
        env: Its id.
        agents: Its agents.
        players: Who plays each role, as the settings say.
    """

    env: str
    agents: tuple[str, ...]
    players: Mapping[str, Player]


def look_at(settings: RunSettings, test: str) -> Seats:
    """Make the environment and see who plays in it.

    Args:
        settings: A run.
        test: What is to be done, for the message.

    Raises:
        ProtocolError: If the environment is a zero-sum game.
        gymnasium.error.Error: If the environment, its arguments or its tasks do not exist.
        trainers.policies.PolicySpecError: If a spec is malformed.
        trainers.team.TeamError: If the policies do not fit the environment's roles.
    """
    for player in assign_players(settings.policies, settings.options).values():
        parse_spec(player.spec)
    env = make_env(settings)
    try:
        if env.unwrapped.metadata.get("zero_sum", False):
            raise ProtocolError(
                f"{env.unwrapped.spec.id} is a zero-sum game, whose players share no success that {test} could "
                "compare. Let the policies play each other: llm-bench tournament"
            )
        agents = tuple(env.possible_agents)
        players = assign_players(settings.policies, settings.options, agents)
        if EVERYONE in players:
            players = {role_of(agent): players[EVERYONE] for agent in agents}
        return Seats(str(env.unwrapped.spec.id), agents, players)
    finally:
        env.close()


def seated(settings: RunSettings, players: Mapping[str, Player]) -> RunSettings:
    """Return the settings of a run in which these players play these roles."""
    options = {role: dict(player.options) for role, player in players.items() if player.options}
    policies = [f"{role}={player.spec}" for role, player in players.items()]
    arguments = dict(settings.arguments)
    if arguments:
        arguments["policy"] = policies
        arguments["option"] = [
            f"{role}.{key}={json.dumps(value)}" for role, values in options.items() for key, value in values.items()
        ]
    return replace(settings, policies=policies, options=options, arguments=arguments)


def replaced(seats: Seats, role: str, spec: str, options: Mapping[str, Mapping[str, Any]]) -> dict[str, Player]:
    """Return the players with another one in one role; of the options it takes those that are meant for every model.

    Raises:
        ProtocolError: If somebody in the role is that player already.
        trainers.team.TeamError: If there is no such role.
    """
    check_roles([role, EVERYONE], seats.agents)
    other = Player(spec)
    other = Player(spec, dict(options.get(EVERYONE, {})) if other.takes(EVERYONE) else {})
    players = dict(seats.players)
    mine = [name for name in players if role in (name, role_of(name))]
    for name in mine or [role_of(role)]:
        if players[name] == other:
            raise ProtocolError(
                f"{name} is played by {spec} already, so replacing it would take nothing away. Name the roles to "
                "replace with --role, or give --replace ROLE=SPEC"
            )
    if mine:
        players.update(dict.fromkeys(mine, other))
    else:  # one agent of a role that several have
        players[role] = other
    return players


def slug(text: str, length: int = 40) -> str:
    """Return a text as a part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9.]+", "_", text).strip("_.")[-length:] or "policy"


def same_seats(players: Sequence[Player]) -> tuple[tuple[str, str], ...]:
    """Return what two assignments of players share if they are the same."""
    return tuple((player.spec, json.dumps(dict(player.options), sort_keys=True)) for player in players)
