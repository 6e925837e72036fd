"""Which agent is played by which policy.

A team is three small maps: the policies by name, the role each of them plays, and how each is sampled. One policy may
play every role (shared weights), or each role may have its own; the rollout asks only :meth:`Team.for_agent`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainers.policies.base import Policy, Sampling

__all__ = [
    "EVERYONE",
    "Player",
    "Team",
    "TeamError",
    "assign_players",
    "check_roles",
    "parse_policy_specs",
    "role_of",
]

EVERYONE = "*"
"""The role that matches every agent which no other role matches."""

SCRIPTED = frozenset({"oracle", "random", "replay", "minimax", "mcts"})
"""Kinds of policies without a model. Options that are meant for every model are not theirs."""

WITHOUT_OPTIONS = frozenset({"oracle", "random", "replay"})
"""Kinds of policies that have no options at all."""

_SHOWN_CHARACTERS = 30  # of an option's value in a label

_ROLE_PREFIX = re.compile(r"([a-z]+(?:_[0-9]+)?)=(.*)", re.DOTALL)


class TeamError(ValueError):
    """The team does not fit the environment, or its description makes no sense."""


@dataclass(frozen=True)
class Player:
    """Who plays a role: a policy spec and the options that it is made with (JSON values)."""

    spec: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scripted(self) -> bool:
        """Whether no model is behind the spec."""
        return self.spec.partition(":")[0].strip() in SCRIPTED

    def takes(self, role: str) -> bool:
        """Whether options that are given for ``role``, :data:`EVERYONE` or its own, go to this player."""
        kind = self.spec.partition(":")[0].strip()
        return kind not in (SCRIPTED if role == EVERYONE else WITHOUT_OPTIONS)


class Team:
    """Policies, who plays what, and how each is sampled.

    A role is an agent's name (``solver_0``), the name without its number (``solver``, every ``solver_<i>``), or
    :data:`EVERYONE`; the most exact one wins.

    Args:
        policies: Policy objects by name. Two names may hold the same object.
        roles: Name of the policy of every role.
        sampling: Sampling settings by policy name; a policy without an entry uses ``Sampling()``.
        options: What each policy was made with, by policy name; only for the label.

    Raises:
        TeamError: If a role, a sampling or an options entry names a policy that is not there, or there is no role.

    Example:
        >>> from trainers.policies import make_policy
        >>> team = Team.single(make_policy("oracle"))
        >>> team.for_agent("solver_0")[0]
        'oracle'
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        roles: Mapping[str, str],
        sampling: Mapping[str, Sampling] | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        sampling, options = dict(sampling or {}), dict(options or {})
        if not roles:
            raise TeamError("A team needs at least one role; use Team.single(policy) to have one policy play them all")
        named = (("Role", roles), ("Sampling", {name: name for name in sampling}), ("Options", {n: n for n in options}))
        for what, names in named:
            for key, name in names.items():
                if name not in policies:
                    raise TeamError(f"{what} {key!r} names policy {name!r}, but the team has {sorted(policies)}")
        self.policies = dict(policies)
        self.roles = dict(roles)
        self.sampling = {name: sampling.get(name, Sampling()) for name in self.policies}
        self.options = {name: dict(options.get(name, {})) for name in self.policies}

    @classmethod
    def single(cls, policy: Policy, sampling: Sampling | None = None) -> Team:
        """Return the team in which one policy plays every agent."""
        return cls({policy.name: policy}, {EVERYONE: policy.name}, {policy.name: sampling or Sampling()})

    @classmethod
    def from_specs(
        cls,
        specs: Sequence[str],
        make: Callable[..., Policy],
        sampling: Sampling | Mapping[str, Sampling] | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Team:
        """Build a team from command-line policy specs.

        The same spec with the same options gives one shared policy object, so ``solver=vllm:A verifier=vllm:A`` loads A
        once.

        Args:
            specs: ``SPEC`` for every agent, or ``role=SPEC`` for one role; see :func:`parse_policy_specs`.
            make: Turns a spec and its options into a policy, ``make(spec, **options)``; called once for each distinct
                pair.
            sampling: Settings for all policies, or by spec string.
            options: Options by role; see :func:`assign_players`.

        Raises:
            TeamError: If the specs contradict each other, or an option reaches no model.
        """
        return cls.from_players(assign_players(specs, options), make, sampling)

    @classmethod
    def from_players(
        cls,
        players: Mapping[str, Player],
        make: Callable[..., Policy],
        sampling: Sampling | Mapping[str, Sampling] | None = None,
    ) -> Team:
        """Build a team from its players by role; see :meth:`from_specs`."""
        names: dict[tuple[str, str], str] = {}
        roles: dict[str, str] = {}
        chosen: dict[str, Player] = {}
        for role, player in players.items():
            key = (player.spec, json.dumps(dict(player.options), sort_keys=True))
            if key not in names:
                name = plain = player.spec + _describe(player.options)
                while name in chosen:  # two long values that start alike
                    name = f"{plain}#{len(names) + 1}"
                names[key] = name
                chosen[name] = player
            roles[role] = names[key]
        by_spec = sampling if isinstance(sampling, Mapping) else {}
        default = sampling if isinstance(sampling, Sampling) else Sampling()
        return cls(
            {name: make(player.spec, **player.options) for name, player in chosen.items()},
            roles,
            {name: by_spec.get(player.spec, default) for name, player in chosen.items()},
            {name: player.options for name, player in chosen.items()},
        )

    def policy_name(self, agent: str) -> str:
        """Return the name of the policy that plays ``agent``. Raises TeamError if none does."""
        return self.roles[_match(agent, self.roles)]

    def for_agent(self, agent: str) -> tuple[str, Policy, Sampling]:
        """Return name, policy and sampling settings of ``agent``. Raises TeamError if no role matches it."""
        name = self.policy_name(agent)
        return name, self.policies[name], self.sampling[name]

    def check(self, agents: Iterable[str]) -> None:
        """Check that every agent has a policy and every role has an agent (see :func:`check_roles`)."""
        check_roles(self.roles, agents)

    @property
    def label(self) -> str:
        """What plays, for reports: one label with the policy's options, or ``role=label`` for each role."""
        labels = {role: self.policies[name].label + _describe(self.options[name]) for role, name in self.roles.items()}
        if set(labels) == {EVERYONE}:
            return labels[EVERYONE]
        return " ".join(f"{role}={label}" for role, label in labels.items())

    async def close(self) -> None:
        """Close every policy once, even if two names share it."""
        for policy in {id(policy): policy for policy in self.policies.values()}.values():
            await policy.close()


def parse_policy_specs(specs: Sequence[str]) -> dict[str, str]:
    """Split ``SPEC`` and ``role=SPEC`` arguments into ``{role: spec}``.

    Args:
        specs: For example ``["vllm:A", "verifier=openai:B@http://localhost:8000/v1"]``. A spec without a role is for
            every agent that no other entry names.

    Raises:
        TeamError: If nothing is given, a spec is empty, or a role is given twice.

    Example:
        >>> parse_policy_specs(["solver=oracle", "random"])
        {'solver': 'oracle', '*': 'random'}
    """
    if not specs:
        raise TeamError("No policy was given. Give --policy SPEC for all agents, or --policy role=SPEC for each role")
    roles: dict[str, str] = {}
    for text in specs:
        match = _ROLE_PREFIX.fullmatch(text)
        role, spec = match.groups() if match else (EVERYONE, text)
        if not spec.strip():
            raise TeamError(f"--policy {text!r} holds no policy spec")
        if role in roles:
            whom = "all agents" if role == EVERYONE else f"role {role!r}"
            raise TeamError(f"Two policies were given for {whom}: {roles[role]!r} and {spec!r}")
        roles[role] = spec
    return roles


def assign_players(
    specs: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    agents: Iterable[str] | None = None,
) -> dict[str, Player]:
    """Bring policy specs and options together, role by role.

    Args:
        specs: ``SPEC`` and ``role=SPEC``; see :func:`parse_policy_specs`.
        options: Options by role. Those of :data:`EVERYONE` go to every policy that has a model; those of a role only to
            who plays it, and win over the former.
        agents: The environment's agents. With them, roles are checked (see :func:`check_roles`), those that no agent
            needs are left out, and :data:`EVERYONE` beside other roles becomes the roles that it stands for.

    Raises:
        TeamError: If the specs contradict each other, a role does not exist, or an option reaches no model.

    Example:
        >>> assign_players(["vllm:A"], {"*": {"seed": 1}, "solver": {"seed": 2}})["solver"]
        Player(spec='vllm:A', options={'seed': 2})
    """
    roles = parse_policy_specs(specs)
    options = {role: dict(values) for role, values in (options or {}).items() if values}
    for role in [role for role in options if role != EVERYONE]:
        fallback = roles.get(role_of(role), roles.get(EVERYONE))
        if role not in roles and fallback is not None:
            roles[role] = fallback
        if role not in roles and not any(role_of(name) == role for name in roles):
            raise TeamError(f"Options were given for role {role!r}, but no policy plays it. {_add_one(role)}")
    if agents is not None:
        agents = list(agents)
        check_roles(roles, agents)
        matches = {agent: _match(agent, roles) for agent in agents}
        if set(matches.values()) == {EVERYONE}:
            roles = {EVERYONE: roles[EVERYONE]}
        else:
            roles = {role if role != EVERYONE else role_of(agent): roles[role] for agent, role in matches.items()}
    players = {role: Player(spec) for role, spec in roles.items()}
    for role, values in options.items():
        reached = {name: player for name, player in players.items() if role in (name, role_of(name), EVERYONE)}
        if not any(player.takes(role) for player in reached.values()):
            by = ", ".join(dict.fromkeys(repr(player.spec) for player in reached.values()))
            whom = "" if role == EVERYONE else f" for role {role!r}"
            raise TeamError(
                f"Option {', '.join(values)}{whom} has no effect: {by or 'nobody'} plays, and only policies with a "
                "model (hf, vllm, openai) take options for all; minimax and mcts take those of their own role"
            )
    for name, player in players.items():
        roles_of = [role for role in dict.fromkeys((EVERYONE, role_of(name), name)) if player.takes(role)]
        mine = [options.get(role, {}) for role in roles_of]
        players[name] = Player(player.spec, {key: value for values in mine for key, value in values.items()})
    return players


def check_roles(roles: Collection[str], agents: Iterable[str]) -> None:
    """Check that every agent has a role and every role has an agent.

    Raises:
        TeamError: Names the agent without a role, or the role that no agent has and the roles there are.
    """
    agents = list(agents)
    known = dict.fromkeys(name for agent in agents for name in (role_of(agent), agent))
    for role in roles:
        if role != EVERYONE and role not in known:
            close = difflib.get_close_matches(role, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            there_are = ", ".join(dict.fromkeys(map(role_of, agents)))
            raise TeamError(f"No agent has the role {role!r}; the roles of this environment are: {there_are}.{hint}")
    for agent in agents:
        _match(agent, roles)


def _match(agent: str, roles: Collection[str]) -> str:
    """Return the most exact of ``roles`` that ``agent`` has."""
    for role in (agent, role_of(agent), EVERYONE):
        if role in roles:
            return role
    raise TeamError(f"No policy plays {agent!r}: the team has the roles {sorted(roles)}. {_add_one(role_of(agent))}")


def _add_one(role: str) -> str:
    return f"Add one for role {role!r} (on a command line: --policy {role}=SPEC)"


def _describe(options: Mapping[str, Any]) -> str:
    """Return `` (key=value, …)`` with long values cut, or nothing without options."""
    if not options:
        return ""
    shown = []
    for key, value in sorted(options.items()):
        text = " ".join(value.split()) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        shown.append(f"{key}={text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + '…'}")
    return f" ({', '.join(shown)})"


def role_of(agent: str) -> str:
    """Return an agent's name without its number.

    >>> role_of("solver_0")
    'solver'
    """
    role, _, number = agent.rpartition("_")
    return role if role and number.isdigit() else agent
