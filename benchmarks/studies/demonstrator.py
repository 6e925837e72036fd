"""What plays the episodes that a warm start imitates."""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import Any

from trainers.policies.base import Completion, Policy, Request, candidate_seed
from trainers.policies.scripted import scripted_env

__all__ = ["Demonstrator"]


class Demonstrator(Policy):
    """A scripted player that sees the environment and draws; its draws depend on the request's seed alone."""

    async def generate(self, request: Request) -> list[Completion]:
        """Return `request.n` answers."""
        env: Any = scripted_env(self, request)
        return [
            Completion(self._answer(env, request.agent, random.Random(candidate_seed(request.seed, index))), "stop")
            for index in range(request.n)
        ]

    @abstractmethod
    def _answer(self, env: Any, agent: str, rng: random.Random) -> str:
        """What an agent says."""
