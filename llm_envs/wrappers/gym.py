"""One seat of a text environment as a `gymnasium.Env`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium import error

from llm_envs.core import TextEnv
from llm_envs.registration import make

Other = Callable[[TextEnv, str], str]


def play_oracle(env: TextEnv, agent: str) -> str:
    """The environment's own oracle in the other seats."""
    return env.oracle(agent)


class SingleAgentView(gymnasium.Env[str, str]):
    """A text environment seen from one seat; the other seats are played by ``others``.

    Args:
        env: A text environment, or the id of a registered one.
        agent: The seat; may be left out where there is only one.
        others: ``others(env, agent) -> text`` plays every other seat (:func:`play_oracle`, or a policy of your own).
        render_mode: As in the environment.
        **kwargs: Arguments of the environment, where ``env`` is an id.

    Raises:
        gymnasium.error.Error: The seat does not exist, or other seats have nobody to play them.

    >>> seat = SingleAgentView("math-2agent", agent="solver_0", others=play_oracle)
    >>> observation, info = seat.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = seat.step(seat.env.oracle("solver_0"))
    >>> reward, terminated, info["success"]
    (1.0, True, True)
    """

    def __init__(
        self,
        env: TextEnv | str,
        agent: str | None = None,
        others: Other | None = None,
        render_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        made = (
            make(env, order_enforcing=False, render_mode=render_mode, **kwargs)
            if isinstance(env, str)
            else env.unwrapped
        )
        if not isinstance(made, TextEnv):
            raise error.Error(f"SingleAgentView shows text environments, got {type(made).__name__}.")
        self.env = made
        seats = made.possible_agents
        if agent is None and len(seats) > 1:
            raise error.MissingArgument(f"Which seat? Pass agent= one of {', '.join(seats)}.")
        self.agent = seats[0] if agent is None else agent
        if self.agent not in seats:
            raise error.Error(f"Unknown agent {self.agent!r}. The agents are {', '.join(seats)}.")
        if others is None and len(seats) > 1:
            raise error.MissingArgument(
                "Who plays the other seats? Pass others=play_oracle, or a function (env, agent) -> text."
            )
        self._others = others
        self.metadata = made.metadata
        self.render_mode = made.render_mode
        self.observation_space = made.observation_space(self.agent)
        self.action_space = made.action_space(self.agent)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode and play it up to the seat's first turn. An episode without such a turn is an error."""
        super().reset(seed=seed)
        self.env.reset(seed=seed, options=options)
        self._play_others()
        if self._over():
            raise error.Error(f"The episode ended before {self.agent}'s first turn (task {self.env.task.id}).")
        return self.env.observe(self.agent), self.env.infos[self.agent]

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play ``action`` and go on to the seat's next turn, or the end."""
        if not self.env.agents or self._over():
            raise error.ResetNeeded("Cannot call `step` before calling `reset`, or after the episode has ended.")
        self.env.step(action)
        self._play_others()
        agent = self.agent
        return (
            self.env.observe(agent),
            self.env._cumulative_rewards[agent],
            self.env.terminations[agent],
            self.env.truncations[agent],
            self.env.infos[agent],
        )

    def render(self) -> Any:
        """As the environment renders."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _over(self) -> bool:
        return self.env.terminations[self.agent] or self.env.truncations[self.agent]

    def _play_others(self) -> None:
        while not self._over() and self.env.agent_selection != self.agent:
            other = self.env.agent_selection
            self.env.step(self._others(self.env, other))  # type: ignore[misc]
