"""Scripted players of games: the opponents of :mod:`llm_envs.games.opponents` as policies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import gymnasium.error

from llm_envs.games.opponents import Opponent, make_opponent
from trainers.policies.base import (
    Completion,
    MissingBackendError,
    Policy,
    PolicyError,
    PolicySpec,
    PolicySpecError,
    Request,
    candidate_seed,
)
from trainers.policies.scripted import scripted_env

if TYPE_CHECKING:
    from llm_envs.core import TextEnv


class OpponentPolicy(Policy):
    """Plays what an opponent chooses; which one, and with what options, the spec says (``mcts:sims=500``).

    The opponent is asked in a thread of its own: the event loop goes on while it searches.
    """

    def __init__(self, opponent: Opponent, name: str) -> None:
        """Wrap an opponent.

        Args:
            opponent: Who chooses the moves.
            name: The spec string.
        """
        super().__init__(name)
        self.opponent = opponent

    @classmethod
    def from_spec(cls, spec: str, parsed: PolicySpec, **options: Any) -> OpponentPolicy:
        """Make the policy that a spec names."""
        opponent = f"{parsed.kind}:{parsed.target}" if parsed.target else parsed.kind
        try:
            return cls(make_opponent(opponent, **options), spec)
        except gymnasium.error.Error as error:
            raise PolicySpecError(f"policy spec {spec!r}: {error}") from error

    def check(self, env: TextEnv) -> None:
        """Check that the opponent knows the game."""
        try:
            self.opponent.check(env)
        except gymnasium.error.DependencyNotInstalled as error:
            raise MissingBackendError(str(error)) from error
        except gymnasium.error.Error as error:
            raise PolicyError(str(error)) from error

    async def generate(self, request: Request) -> list[Completion]:
        """Return `request.n` moves. Candidate i draws from the seed `candidate_seed(request.seed, i)`."""
        env = scripted_env(self, request)
        seeds = [candidate_seed(request.seed, index) for index in range(request.n)]
        try:
            texts = await asyncio.to_thread(self._choose, env, request.agent, seeds)
        except gymnasium.error.Error as error:
            raise PolicyError(f"policy {self.name!r}: {error}") from error
        return [Completion(text, "stop") for text in texts]

    def _choose(self, env: TextEnv, agent: str, seeds: list[int]) -> list[str]:
        return [self.opponent.choose(env, agent, seed) for seed in seeds]
