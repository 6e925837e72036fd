"""Put an agent's own earlier turns in front of its observation."""

from __future__ import annotations

from typing import Any

from pettingzoo.utils.wrappers import BaseWrapper

from llm_envs.spaces import TextObs


class ConversationMemory(BaseWrapper):
    """Prefix every observation with the agent's own earlier observations and actions of this episode.

    The environments of this suite already put what an agent may know into each observation; this is for agents that
    should also see their own earlier prompts and answers word for word. Nothing survives a reset.

    Args:
        env: A text environment.
        max_turns: Keep at most so many earlier turns of the agent; None keeps all.
    """

    def __init__(self, env: Any, max_turns: int | None = None) -> None:
        if max_turns is not None and max_turns < 0:
            raise ValueError(f"`max_turns` must be 0 or more, or None, actual value: {max_turns}.")
        super().__init__(env)
        self.max_turns = max_turns
        self._memory: dict[str, list[tuple[str, str]]] = {}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode with empty memories."""
        self._memory = {}
        super().reset(seed=seed, options=options)

    def step(self, action: str | None) -> None:
        """Play ``action`` and remember it with what the agent saw."""
        agent = self.env.agent_selection
        if action is None or self.env.terminations[agent] or self.env.truncations[agent]:
            super().step(action)
            return
        seen = str(self.env.observe(agent))
        super().step(action)  # raises for what is no text, which is then nothing to remember
        self._memory.setdefault(agent, []).append((seen, action))

    def observe(self, agent: str) -> TextObs:
        """The agent's earlier turns, then its observation. Pure."""
        turns = self._memory.get(agent, [])
        kept = turns if self.max_turns is None else turns[len(turns) - min(self.max_turns, len(turns)) :]
        earlier = [f"{observation}\n\nYour answer:\n{action}" for observation, action in kept]
        return TextObs("\n\n".join([*earlier, str(self.env.observe(agent))]))

    def last(self, observe: bool = True) -> Any:
        """As ``AECEnv.last``, with the remembered turns in the observation."""
        _, reward, termination, truncation, info = self.env.last(observe=False)
        return self.observe(self.env.agent_selection) if observe else None, reward, termination, truncation, info
