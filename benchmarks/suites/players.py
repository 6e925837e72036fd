"""Who plays in an entry: the policy under test, put where the suite leaves a place for it, and the options of all."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.suites.config import POLICY, EntryConfig, SuiteConfig
from benchmarks.tournament import parse_entrants
from trainers.team import EVERYONE, Player, TeamError, assign_players, parse_policy_specs, role_of

__all__ = ["Given", "check_given_options", "check_given_roles", "entry_players"]

Options = dict[str, dict[str, Any]]


class Given:
    """The policy under test, as the command line or the suite names it.

    Args:
        suite: The suite.
        policies: ``SPEC`` or ``role=SPEC``; nothing stands for the suite's own policy.
        options: Options from the command line, by role.

    Raises:
        TeamError: If nothing is given and the suite names no policy, or two are given for one role.
    """

    def __init__(self, suite: SuiteConfig, policies: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> None:
        if not policies and suite.policy is None:
            raise TeamError("The suite leaves its policy to you: give --policy SPEC, or --policy role=SPEC for each")
        self.policies = list(policies) or [str(suite.policy)]
        self.by_role = parse_policy_specs(self.policies)
        self.own_options = {} if policies else suite.policy_options
        self.options = {role: dict(values) for role, values in options.items() if values}


def entry_players(
    suite: SuiteConfig, entry: EntryConfig, given: Given, agents: Sequence[str]
) -> tuple[list[str], Options]:
    """Return the policies of an entry, as ``llm-bench run`` (or ``tournament``) takes them, and their options.

    Options of the suite that reach no model are left out; so are those of the command line, which
    :func:`check_given_options` looks after.

    Args:
        suite: The suite.
        entry: One of its entries.
        given: The policy under test.
        agents: The agents of its environment.

    Raises:
        TeamError: If somebody has no policy, or a role of the suite does not exist.
    """
    return _entrants(suite, entry, given) if entry.tournament else _roles(suite, entry, given, agents)


def check_given_roles(given: Given, entries: Iterable[tuple[EntryConfig, Sequence[str]]]) -> None:
    """Check that each role of the command line stands in some entry, or names an entrant of a tournament.

    Args:
        given: The policy under test.
        entries: Each with the agents of its environment.

    Raises:
        TeamError: If one does not.
    """
    known: dict[str, None] = {}
    for entry, agents in entries:
        names = given.by_role if entry.tournament and POLICY in entry.players else ()
        known.update(dict.fromkeys([*names, *(name for agent in agents for name in (role_of(agent), agent))]))
    for role in given.by_role:
        if role != EVERYONE and role not in known:
            close = difflib.get_close_matches(role, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise TeamError(f"No entry of the suite has the role {role!r}; the roles are {', '.join(known)}.{hint}")


def check_given_options(given: Given, options: Iterable[Options]) -> None:
    """Check that each option of the command line has an effect in some entry.

    Args:
        given: The policy under test.
        options: Those of the entries.

    Raises:
        TeamError: If one has none.
    """
    reached = {role for of_entry in options for role in of_entry}
    for role, values in given.options.items():
        if role not in reached:
            raise TeamError(
                f"Option {', '.join(values)}{'' if role == EVERYONE else f' for {role!r}'} has no effect in any entry: "
                "only policies with a model (hf, vllm, openai) take options for all"
            )


def _roles(suite: SuiteConfig, entry: EntryConfig, given: Given, agents: Sequence[str]) -> tuple[list[str], Options]:
    names = dict.fromkeys(name for agent in agents for name in (role_of(agent), agent))
    found: dict[str, str] = {}
    tested: list[str] = []
    for role, spec in entry.who().items():
        if spec != POLICY:
            found[role] = spec
        elif role == EVERYONE:
            mine = {name: value for name, value in given.by_role.items() if name in names or name == EVERYONE}
            found = {**mine, **found}
            tested += mine
        else:
            exact = [name for name in (role, role_of(role), EVERYONE) if name in given.by_role]
            if not exact:
                raise TeamError(f"Entry {entry.name!r} has no policy for {role!r}: give --policy {role}=SPEC")
            found[role] = given.by_role[exact[0]]
            tested.append(role)
    policies = [spec if role == EVERYONE else f"{role}={spec}" for role, spec in found.items()]
    try:
        players = assign_players(policies, None, agents)
    except TeamError as error:
        raise TeamError(f"Entry {entry.name!r}: {error}") from error
    by_agent = {
        agent: next(players[name] for name in (agent, role_of(agent), EVERYONE) if name in players) for agent in agents
    }
    own = dict.fromkeys(tested, given.own_options)
    options: Options = {}
    for role, values in _merged(suite.options_of(entry), own, given.options).items():
        reached = [player for agent, player in by_agent.items() if role in (EVERYONE, agent, role_of(agent))]
        if any(player.takes(role) for player in reached):
            options[role] = values
    return policies, options


def _entrants(suite: SuiteConfig, entry: EntryConfig, given: Given) -> tuple[list[str], Options]:
    texts = [text for player in entry.players for text in (given.policies if player == POLICY else [player])]
    texts = list(dict.fromkeys(texts))  # a policy under test that is one of the opponents meets the others only,
    if len(texts) == 1:  # unless there is no other
        texts.append(f"policy={texts[0]}")
    try:
        entrants = parse_entrants(texts, {})
        tested = [each.name for each, text in zip(entrants, texts, strict=True) if text in given.policies]
        own = dict.fromkeys(tested, given.own_options)
        options = {
            role: values
            for role, values in _merged(suite.options_of(entry), own, given.options).items()
            if any(Player(each.spec).takes(role) for each in entrants if role in (EVERYONE, each.name))
        }
    except TeamError as error:
        raise TeamError(f"Entry {entry.name!r}: {error}") from error
    return texts, options


def _merged(*layers: Mapping[str, Mapping[str, Any]]) -> Options:
    """Return options by role, later layers on top of earlier ones."""
    roles = dict.fromkeys(role for layer in layers for role, values in layer.items() if values)
    return {role: {key: value for layer in layers for key, value in layer.get(role, {}).items()} for role in roles}
