"""One seat of a text environment as a `gymnasium.Env`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium import error

from llm_envs.core import TextEnv
from llm_envs.registration import make
from llm_envs.tasks import stable_hash

Other = Callable[[TextEnv, str], str]
"""``other(env, agent) -> text`` plays a seat."""

MAX_SKIPPED = 100
"""So many episodes in a row may end before the seat's first turn."""


def play_oracle(env: TextEnv, agent: str) -> str:
    """The environment's own oracle in the other seats."""
    return env.oracle(agent)


def play_random(env: TextEnv, agent: str) -> str:
    """A legal move drawn at random where the environment lists them, else one of the examples of the action space.

    The draw depends on the episode and on the turn only.
    """
    rng = random.Random(stable_hash("others", env._episode_seed, len(env.transcript), agent))
    legal = getattr(env, "legal_actions", None)
    texts = legal(agent) if callable(legal) else env.action_space(agent).examples
    return rng.choice(texts) if texts else ""


def as_gym(env_id: str, agent: str | None = None, others: Other | str | None = None, **kwargs: Any) -> SingleAgentView:
    """One seat of a registered environment as a `gymnasium.Env`.

    Args:
        env_id: Such as ``"math-2agent"`` or ``"openspiel/tic_tac_toe"``.
        agent: The seat; may be left out where there is only one.
        others: Who plays the other seats: ``"oracle"``, ``"random"``, in games also another opponent by name
            (``"mcts:sims=100"``, see :mod:`llm_envs.games.opponents`), or a function ``(env, agent) -> text``.
        **kwargs: Arguments of the environment, ``render_mode`` among them.

    Raises:
        gymnasium.error.Error: There is no such environment, seat or policy.

    >>> seat = as_gym("openspiel/tic_tac_toe", agent="player_1", others="random")
    >>> observation, info = seat.reset(seed=0)
    >>> "It is your turn" in observation
    True
    """
    return SingleAgentView(env_id, agent, others, **kwargs)


class SingleAgentView(gymnasium.Env[str, str]):
    """A text environment seen from one seat; the other seats are played by ``others``.

    Args:
        env: A text environment, or the id of a registered one.
        agent: The seat; may be left out where there is only one.
        others: Who plays every other seat: a policy by name or a function, as in :func:`as_gym`.
        render_mode: Of the environment, where ``env`` is an id.
        **kwargs: Arguments of the environment, where ``env`` is an id.

    Raises:
        gymnasium.error.Error: The seat does not exist, other seats have nobody to play them, or arguments are given for
            an environment that is made already.

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
        others: Other | str | None = None,
        render_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(env, str):
            made = make(env, order_enforcing=False, render_mode=render_mode, **kwargs)
        else:
            made = getattr(env, "unwrapped", env)
            given = [*kwargs, *(["render_mode"] if render_mode is not None else [])]
            if given:
                raise error.Error(
                    f"The environment is made already, {', '.join(given)} would change nothing. Pass its id, or make "
                    "it with them."
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
                "Who plays the other seats? Pass others='oracle', others='random', or a function (env, agent) -> text "
                "such as others=play_oracle."
            )
        if others is not None and not isinstance(others, str) and not callable(others):
            raise error.Error(f"`others` must be a name or a function (env, agent) -> text, actual value: {others!r}.")
        self._others = _named(others, made) if isinstance(others, str) else others
        self.metadata = made.metadata
        self.render_mode = made.render_mode
        self.observation_space = made.observation_space(self.agent)
        self.action_space = made.action_space(self.agent)
        self._early: tuple[float, dict[str, float]] = (0.0, {})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode and play it up to the seat's first turn.

        An episode that ends before that turn is skipped, and the next one of the seed's stream is played; how many were
        skipped is in ``info["skipped"]``, if any. What the seat is paid before its first turn joins the reward of its
        first step.

        Raises:
            gymnasium.error.Error: ``MAX_SKIPPED`` episodes ended before the seat's first turn.
        """
        super().reset(seed=seed)
        for skipped in range(MAX_SKIPPED):
            self.env.reset(seed=seed if skipped == 0 else None, options=options)
            self._play_others()
            if not self._over():
                break
        else:
            raise error.Error(
                f"{MAX_SKIPPED} episodes in a row ended before {self.agent}'s first turn, the last one with the task "
                f"{self.env.task.id}. Let others play who leave it one."
            )
        observation, reward, _, _, info = self._now((0.0, {}))
        self._early = reward, info["reward_parts"]
        if skipped:
            info["skipped"] = skipped
        return observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play ``action`` and go on to the seat's next turn, or the end."""
        if not self.env.agents or self._over():
            raise error.ResetNeeded("Cannot call `step` before calling `reset`, or after the episode has ended.")
        self.env.step(action)
        early, self._early = self._early, (0.0, {})
        self._play_others()
        return self._now(early)

    def render(self) -> Any:
        """As the environment renders."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _now(self, early: tuple[float, Mapping[str, float]]) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """What the seat is told now. ``early``, which it was paid before its first turn, is added to its reward."""
        env, agent = self.env, self.agent
        info = dict(env.infos[agent])
        parts = dict(info["reward_parts"])
        for name, value in early[1].items():
            parts[name] = parts.get(name, 0.0) + value
        info["reward_parts"] = parts
        reward = env._cumulative_rewards[agent] + early[0]
        return env.observe(agent), reward, env.terminations[agent], env.truncations[agent], info

    def _over(self) -> bool:
        return self.env.terminations[self.agent] or self.env.truncations[self.agent]

    def _play_others(self) -> None:
        while not self._over() and self.env.agent_selection != self.agent:
            other = self.env.agent_selection
            self.env.step(self._others(self.env, other))  # type: ignore[misc]


def _named(name: str, env: TextEnv) -> Other:
    """The policy of that name."""
    if name in _POLICIES:
        return _POLICIES[name]
    from llm_envs.games.opponents import make_opponent

    opponent = make_opponent(name)
    opponent.check(env)
    return lambda env, agent: opponent.choose(
        env, agent, stable_hash("others", env._episode_seed, len(env.transcript), agent)
    )


_POLICIES: dict[str, Other] = {"oracle": play_oracle, "random": play_random}
