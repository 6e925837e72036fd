"""Whether the policies of a run can play, and whether their samplers hold the learners' weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.config import ConfigError, TrainConfig
from trainers.members import Member
from trainers.policies.base import PolicyError
from trainers.team import Team
from trainers.weight_sync import SyncReport

__all__ = ["Prover"]

PROBE_TASKS = 2
"""Tasks whose first prompts the weight verification samples on."""


class Prover:
    """Looks at the policies of a run on prompts of its environment.

    Args:
        config: The configuration.
        env: The environment that is trained on, without wrappers.
    """

    def __init__(self, config: TrainConfig, env: Any) -> None:
        self._config = config
        self._env = env

    def check(self, team: Team, members: Mapping[str, Member]) -> None:
        """Check that every policy has somebody to play, and can.

        Raises:
            ConfigError: One has not, or cannot.
        """
        for name, member in members.items():
            if not self._agents_of(team, name):
                raise ConfigError(f"policies.{name} plays nobody: every agent has a role of another policy.")
            try:
                member.policy.check(self._env)
            except PolicyError as problem:
                raise ConfigError(f"policies.{name}: {problem}") from problem

    async def verify(self, team: Team, members: Mapping[str, Member]) -> dict[str, SyncReport]:
        """Prove that samplers hold the learners' weights. No episode may be in flight, and no update.

        Returns:
            The proof for each policy that learns.

        Raises:
            WeightSyncError: One does not.
        """
        reports = {}
        for name, member in members.items():
            probes = self._probes(team, name)
            report = await member.verify(probes, self._config.verify_tolerance, self._config.seed)
            if report is not None:
                reports[name] = report
        return reports

    def _probes(self, team: Team, policy: str) -> list[str]:
        """A few first prompts of the agents that ``policy`` plays, to compare log-probs on."""
        env = self._env.fork()
        agents = self._agents_of(team, policy)
        prompts = []
        for index in range(min(PROBE_TASKS, len(self._env.tasks))):
            env.reset(seed=0, options={"task_index": index})
            prompts += [str(env.observe(agent)) for agent in agents]
        return prompts

    def _agents_of(self, team: Team, policy: str) -> list[str]:
        return [agent for agent in self._env.possible_agents if team.policy_name(agent) == policy]
