"""What an environment says and is told: texts to fit a tokenizer on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import llm_envs
from llm_envs.tasks import stable_hash

__all__ = ["env_texts"]

_MAX_TURNS = 1000


def env_texts(env_id: str, *, tasks: int = 256, seed: int = 0, **kwargs: Any) -> Iterator[str]:
    """Yield the observations and actions of played episodes, and every agent's first observation.

    Each task is played twice: by the oracle, and with a turn in two drawn from the action space, which holds malformed
    answers too, so that an environment's complaints are among the texts.

    Args:
        env_id: A registered environment.
        tasks: How many tasks, the first ones.
        seed: Of the draws.
        **kwargs: Arguments of the environment.

    Raises:
        gymnasium.error.Error: There is no such environment or argument.
    """
    env = llm_envs.make(env_id, **kwargs).unwrapped
    for index in range(min(tasks, len(env.tasks))):
        for drawn in (False, True):
            env.reset(seed=seed, options={"task_index": index})
            spaces = {agent: env.action_space(agent) for agent in env.possible_agents}
            for agent, space in spaces.items():
                space.seed(stable_hash("texts", seed, index, agent) >> 33)
                yield str(env.observe(agent))
            for turn in range(_MAX_TURNS):
                if not env.agents:
                    break
                agent = env.agent_selection
                if env.terminations[agent] or env.truncations[agent]:
                    env.step(None)
                    continue
                yield str(env.observe(agent))
                explore = drawn and stable_hash("turn", seed, index, turn) % 2 == 0
                action = spaces[agent].sample() if explore else env.oracle(agent)
                yield action
                env.step(action)
