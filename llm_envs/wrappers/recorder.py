"""Record every finished episode as one JSON line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pettingzoo.utils.wrappers import BaseWrapper

from llm_envs.core import TextEnv


class EpisodeRecorder(BaseWrapper):
    """Append one JSON object a finished episode to ``path``.

    Keys: ``id`` (``<task id>#<how often the task was played before>``), ``task``, ``success``, ``terminated``,
    ``truncated`` and ``turns``, each with ``agent``, ``index``, ``observation``, ``action``, ``reward`` (everything
    between this turn and the agent's next one) and ``invalid``. A ``replay:`` policy plays such a file back.

    Args:
        env: A text environment.
        path: The file; it and its folder are created when the first episode ends.
    """

    def __init__(self, env: Any, path: str | Path) -> None:
        if not isinstance(env.unwrapped, TextEnv):
            raise TypeError(f"EpisodeRecorder records text environments, got {type(env.unwrapped).__name__}.")
        super().__init__(env)
        self.path = Path(path)
        self._turns: list[dict[str, Any]] = []
        self._open: dict[str, dict[str, Any]] = {}
        self._played: dict[str, int] = {}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode; an unfinished one is dropped."""
        super().reset(seed=seed, options=options)
        self._turns, self._open = [], {}

    def step(self, action: str | None) -> None:
        """Play ``action`` and note it; on an agent's dead step note its final reward."""
        agent = self.env.agent_selection
        over = self.env.terminations[agent] or self.env.truncations[agent]
        if agent in self._open:
            turn = self._open.pop(agent)
            turn["reward"] = self.env.last(observe=False)[1]
        if over:
            flags = {"terminated": self.env.terminations[agent], "truncated": self.env.truncations[agent]}
            super().step(action)
            if not self.env.agents:
                self._write({"success": self.unwrapped.success, **flags})
            return
        turn = {
            "agent": agent,
            "index": len(self._turns),
            "observation": str(self.env.observe(agent)),
            "action": action,
        }
        super().step(action)
        turn["invalid"] = self.env.infos[agent].get("invalid_action")
        self._turns.append(turn)
        self._open[agent] = turn

    def _write(self, outcome: dict[str, Any]) -> None:
        task = self.unwrapped.task.id
        number = self._played.get(task, 0)
        self._played[task] = number + 1
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"id": f"{task}#{number}", "task": task, **outcome, "turns": self._turns}) + "\n")
