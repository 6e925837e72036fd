"""Refuse calls that come out of order."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pettingzoo import AECEnv
from pettingzoo.utils.env_logger import EnvLogger
from pettingzoo.utils.wrappers import OrderEnforcingWrapper


def _of_episode(name: str) -> property:
    """An attribute of the wrapped environment that is there after a reset only."""

    def read(self: OrderEnforcing) -> Any:
        if not self._has_reset:
            raise AttributeError(f"{name} cannot be accessed before reset")
        return getattr(self.env, name)

    return property(read, doc=f"``{name}`` of the wrapped environment.")


class OrderEnforcing(OrderEnforcingWrapper):
    """PettingZoo's ``OrderEnforcingWrapper``: an error for calls before ``reset``, for ``agent_iter`` without ``step``.

    The only one of PettingZoo's classic wrappers that suits text: the others check arrays and discrete actions. It
    refuses the same calls with the same words. From the first reset on, calls go to the wrapped environment without the
    search by name that PettingZoo's wrapper makes for every attribute, which takes longer than a turn of a small game.
    """

    agents = _of_episode("agents")
    agent_selection = _of_episode("agent_selection")
    rewards = _of_episode("rewards")
    _cumulative_rewards = _of_episode("_cumulative_rewards")
    terminations = _of_episode("terminations")
    truncations = _of_episode("truncations")
    infos = _of_episode("infos")

    def __init__(self, env: AECEnv) -> None:
        super().__init__(env)
        self._turns = _Turns(env)

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start an episode."""
        self._has_reset = True
        env, turns = self.env, self._turns
        # Bound methods, not closures: copying the wrapper copies what they are bound to with it.
        self.__dict__.update(
            reset=turns.reset,
            step=turns.step,
            agent_iter=turns.agent_iter,
            last=env.last,
            observe=env.observe,
            state=env.state,
        )
        turns.reset(seed=seed, options=options)


class _Turns:
    """Takes the turns of an environment that was reset, one step for each agent that was asked for."""

    __slots__ = ("env", "moved")

    def __init__(self, env: AECEnv) -> None:
        self.env = env
        self.moved = False

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start an episode."""
        self.moved = True
        self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> None:
        """Play ``action``. After the last agent is done this only warns, as PettingZoo's wrapper does."""
        self.moved = True
        env = self.env
        if env.agents:
            env.step(action)
        else:
            EnvLogger.warn_step_after_terminated_truncated()

    def agent_iter(self, max_iter: int = sys.maxsize) -> Iterator[str]:
        """Yield the agent whose turn it is, until nobody is left or ``max_iter`` times.

        Raises:
            AssertionError: The loop's body called neither ``step`` nor ``reset``.
        """
        env = self.env
        for _ in range(min(max_iter, sys.maxsize)):
            if not env.agents:
                return
            if not self.moved:
                raise AssertionError("need to call step() or reset() in a loop over `agent_iter`")
            self.moved = False
            yield env.agent_selection
