"""Which agent is played by which policy.

A team is three small maps: the policies by name, the role each of them plays, and how each is sampled. One policy may
play every role (shared weights), or each role may have its own; the rollout asks only :meth:`Team.for_agent`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from trainers.policies.base import Policy, Sampling

__all__ = ["EVERYONE", "Team", "TeamError", "check_roles", "parse_policy_specs"]

EVERYONE = "*"
"""The role that matches every agent which no other role matches."""

_ROLE_PREFIX = re.compile(r"([a-z]+(?:_[0-9]+)?)=(.*)", re.DOTALL)


class TeamError(ValueError):
    """The team does not fit the environment, or its description makes no sense."""


class Team:
    """Policies, who plays what, and how each is sampled.

    A role is an agent's name (``solver_0``), the name without its number (``solver``, every ``solver_<i>``), or
    :data:`EVERYONE`; the most exact one wins.

    Args:
        policies: Policy objects by name. Two names may hold the same object.
        roles: Name of the policy of every role.
        sampling: Sampling settings by policy name; a policy without an entry uses ``Sampling()``.

    Raises:
        TeamError: If a role or a sampling entry names a policy that is not there, or there is no role at all.

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
    ) -> None:
        sampling = dict(sampling or {})
        if not roles:
            raise TeamError("A team needs at least one role; use Team.single(policy) to have one policy play them all")
        for what, names in (("Role", roles.items()), ("Sampling", ((name, name) for name in sampling))):
            for key, name in names:
                if name not in policies:
                    raise TeamError(f"{what} {key!r} names policy {name!r}, but the team has {sorted(policies)}")
        self.policies = dict(policies)
        self.roles = dict(roles)
        self.sampling = {name: sampling.get(name, Sampling()) for name in self.policies}

    @classmethod
    def single(cls, policy: Policy, sampling: Sampling | None = None) -> Team:
        """Return the team in which one policy plays every agent."""
        return cls({policy.name: policy}, {EVERYONE: policy.name}, {policy.name: sampling or Sampling()})

    @classmethod
    def from_specs(
        cls,
        specs: Sequence[str],
        make: Callable[[str], Policy],
        sampling: Sampling | Mapping[str, Sampling] | None = None,
    ) -> Team:
        """Build a team from command-line policy specs.

        The same spec string gives one shared policy object, so ``solver=vllm:A verifier=vllm:A`` loads A once.

        Args:
            specs: ``SPEC`` for every agent, or ``role=SPEC`` for one role; see :func:`parse_policy_specs`.
            make: Turns one spec string into a policy; called once per distinct string.
            sampling: Settings for all policies, or by spec string.

        Raises:
            TeamError: If the specs contradict each other.
        """
        roles = parse_policy_specs(specs)
        policies = {spec: make(spec) for spec in dict.fromkeys(roles.values())}
        if sampling is None or isinstance(sampling, Sampling):
            sampling = dict.fromkeys(policies, sampling or Sampling())
        return cls(policies, roles, sampling)

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
        """What plays, for reports: one label, or ``role=label`` for each role."""
        if set(self.roles) == {EVERYONE}:
            return self.policies[self.roles[EVERYONE]].label
        return " ".join(f"{role}={self.policies[name].label}" for role, name in self.roles.items())

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


def check_roles(roles: Collection[str], agents: Iterable[str]) -> None:
    """Check that every agent has a role and every role has an agent.

    Raises:
        TeamError: Names the agent without a role, or the role that no agent has and the roles there are.
    """
    agents = list(agents)
    known = dict.fromkeys(name for agent in agents for name in (_role_of(agent), agent))
    for role in roles:
        if role != EVERYONE and role not in known:
            close = difflib.get_close_matches(role, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            there_are = ", ".join(dict.fromkeys(map(_role_of, agents)))
            raise TeamError(f"No agent has the role {role!r}; the roles of this environment are: {there_are}.{hint}")
    for agent in agents:
        _match(agent, roles)


def _match(agent: str, roles: Collection[str]) -> str:
    """Return the most exact of ``roles`` that ``agent`` has."""
    for role in (agent, _role_of(agent), EVERYONE):
        if role in roles:
            return role
    raise TeamError(
        f"No policy plays {agent!r}: the team has the roles {sorted(roles)}. "
        f"Add one for role {_role_of(agent)!r} (on a command line: --policy {_role_of(agent)}=SPEC)"
    )


def _role_of(agent: str) -> str:
    """Return an agent's name without its number, ``solver_0`` -> ``solver``."""
    role, _, number = agent.rpartition("_")
    return role if role and number.isdigit() else agent
