"""A round robin: every two players meet in every deal, once in each seat.

A tournament is a run whose tasks are deals and whose samples are matches. Match ``m`` is an ordered pair of players:
who sits first and who second. All matches of a deal start from the same position and the same cards. So a tournament
has the results folder of any run, and is resumed, sorted and compared like one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from benchmarks.context import describe_run
from benchmarks.results import check_usable
from benchmarks.runner import (
    Observer,
    RunResult,
    RunSettings,
    SettingsError,
    check_settings,
    choose_tasks,
    default_folder,
    load_policy,
    make_env,
    play_missing,
)
from trainers.policies.base import Policy, make_policy, parse_spec
from trainers.rollout.episodes import Job, make_jobs
from trainers.team import EVERYONE, Player, Team, TeamError

__all__ = ["DEFAULT_DEALS", "Entrant", "check_game", "parse_entrants", "run_tournament", "schedule"]

DEFAULT_DEALS = 50
SEATS = ("player_0", "player_1")

_NAMED = re.compile(r"([a-z]+(?:_[0-9]+)?)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Entrant:
    """Who takes part: a name for the tables, a policy spec, and the options that it is made with."""

    name: str
    spec: str
    options: Mapping[str, Any] = field(default_factory=dict)


def schedule(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return all matches as (first seat, second seat), each pairing in both orders; the order of ``names`` is nothing.

    Example:
        >>> schedule(["c", "a", "b"])
        [('a', 'b'), ('b', 'a'), ('a', 'c'), ('c', 'a'), ('b', 'c'), ('c', 'b')]
    """
    return [match for one, two in combinations(sorted(names), 2) for match in ((one, two), (two, one))]


def parse_entrants(policies: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> list[Entrant]:
    """Return who takes part.

    Args:
        policies: ``SPEC`` or ``name=SPEC``. Without a name the spec is the name.
        options: Options by name; those of :data:`trainers.team.EVERYONE` go to every policy that has a model.

    Raises:
        TeamError: If there are fewer than two, two have one name, or an option reaches nobody.
        PolicySpecError: If a spec has none of the forms.

    Example:
        >>> [(entrant.name, entrant.spec) for entrant in parse_entrants(["random", "deep=mcts:sims=500"], {})]
        [('random', 'random'), ('deep', 'mcts:sims=500')]
    """
    entrants: dict[str, Entrant] = {}
    for text in policies:
        match = _NAMED.fullmatch(text)
        name, spec = match.groups() if match else (text.strip(), text.strip())
        parse_spec(spec)
        if name in entrants:
            raise TeamError(f"Two players are called {name!r}. Name them: --policy one={spec} --policy two={spec}")
        entrants[name] = Entrant(name, spec)
    if len(entrants) < 2:
        raise TeamError("A tournament needs at least two players: --policy SPEC --policy SPEC …")
    given = {name: values for name, values in options.items() if values}
    for name in given:
        if name != EVERYONE and name not in entrants:
            raise TeamError(
                f"Options were given for {name!r}, but no player has that name; the names are {', '.join(entrants)}. "
                f"Give it one: --policy {name}=SPEC"
            )
    found = []
    for entrant in entrants.values():
        roles = [role for role in (EVERYONE, entrant.name) if Player(entrant.spec).takes(role)]
        mine = {key: value for role in roles for key, value in given.get(role, {}).items()}
        found.append(replace(entrant, options=mine))
    for name, values in given.items():
        reached = [entrant for entrant in found if name in (EVERYONE, entrant.name)]
        if not any(Player(entrant.spec).takes(name) for entrant in reached):
            raise TeamError(
                f"Option {', '.join(values)} has no effect: of {', '.join(repr(entrant.spec) for entrant in reached)} "
                "nobody takes it. Models take options for all; minimax and mcts take those of their own name"
            )
    return found


async def run_tournament(
    settings: RunSettings,
    observer: Observer,
    *,
    make: Callable[..., Policy] = make_policy,
    go_on: Callable[[], bool] | None = None,
) -> RunResult:
    """Play a tournament, or what is missing of it.

    Args:
        settings: As of a run. ``policies`` are the players, ``n`` is the number of deals (:data:`DEFAULT_DEALS` or all
            there are if None), ``samples`` is not read: it is the number of matches.
        observer: Is told how it goes.
        make: Makes the policies; each spec with its options once, for all matches.
        go_on: As :func:`benchmarks.runner.run`.

    Raises:
        SettingsError: If the environment is no zero-sum game of two players, or a number is out of its range.
        ResultsError, gymnasium.error.Error, TeamError, PolicySpecError, PolicyError: As :func:`benchmarks.runner.run`.
    """
    check_settings(settings)
    entrants = parse_entrants(settings.policies, settings.options)
    env = make_env(settings)
    check_game(env.unwrapped)
    size = len(env.unwrapped.tasks)
    deals = min(DEFAULT_DEALS, size) if settings.n is None else settings.n
    indices = choose_tasks(size, deals, settings.seed if settings.shuffle else None)
    specs = list(dict.fromkeys(entrant.spec for entrant in entrants))
    out = settings.out or default_folder(f"{env.unwrapped.spec.name}-tournament", specs)
    check_usable(out, resume=settings.resume)  # before a model is loaded for nothing
    observer.loading(specs)
    policies: dict[tuple[str, str], Policy] = {}
    try:
        for entrant in entrants:
            if _key(entrant) not in policies:
                policies[_key(entrant)] = load_policy(make, entrant.spec, entrant.options)
        for policy in policies.values():
            policy.check(env.unwrapped)
        players = {entrant.name: policies[_key(entrant)] for entrant in entrants}
        matches = schedule(list(players))
        who = {
            "tournament": {
                "players": {
                    entrant.name: {
                        "spec": entrant.spec,
                        "options": dict(entrant.options),
                        "label": players[entrant.name].label,
                    }
                    for entrant in sorted(entrants, key=lambda entrant: entrant.name)
                },
                "matches": [list(match) for match in matches],
            }
        }
        label = " vs ".join(sorted(players))
        config = describe_run(settings, env, indices, len(matches), who, specs, label)
        teams = [_team(match, players, settings) for match in matches]
        jobs = make_jobs(indices, len(matches), settings.seed)

        def team_of(job: Job) -> Team:
            return teams[job.sample]

        return await play_missing(out, config, settings, env, team_of, jobs, observer, go_on)
    finally:
        for policy in policies.values():
            await policy.close()


def _key(entrant: Entrant) -> tuple[str, str]:
    return entrant.spec, json.dumps(dict(entrant.options), sort_keys=True)


def _team(match: tuple[str, str], players: Mapping[str, Policy], settings: RunSettings) -> Team:
    """Return the team of a match: the name of a policy in it, and so in the record of a turn, is its player's."""
    return Team(
        {name: players[name] for name in match},
        dict(zip(SEATS, match, strict=True)),
        dict.fromkeys(match, settings.sampling),
    )


def check_game(env: Any) -> None:
    """Check that a game can be played in a tournament.

    Raises:
        SettingsError: If it is not zero-sum, or has other players than two.
    """
    agents = tuple(env.possible_agents)
    reasons = [
        f"its agents are {', '.join(agents)}" if agents != SEATS else "",
        "it is not zero-sum" if not env.metadata.get("zero_sum", False) else "",
    ]
    against = " and ".join(reason for reason in reasons if reason)
    if against:
        raise SettingsError(
            f"{env.spec.id} is no game for a tournament: {against}. A tournament needs a zero-sum game of player_0 and "
            "player_1, such as tictactoe, connect-four, kuhn-poker, negotiation or openspiel/<name>"
        )
