"""An environment of any size: ``agents`` speak in turn, ``rounds`` times each, and read all that was said before."""

from __future__ import annotations

import itertools
import zlib
from typing import Any

from llm_envs.core import Outcome, TextEnv
from llm_envs.registration import register, registry
from llm_envs.rewards import shared
from llm_envs.tasks import ListTaskSet, Task

__all__ = ["RELAY", "Relay", "register_relay", "relay_texts"]

RELAY = "relay-v0"
TASKS = 8192


class Relay(TextEnv):
    """Agents speak one after the other. The last answer's checksum decides what all of them are paid.

    Args:
        agents: How many.
        rounds: How often each of them speaks.
        render_mode: As of every environment.
    """

    metadata = {
        "name": "relay_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False
    }  # fmt: skip

    def __init__(self, *, agents: int = 2, rounds: int = 2, render_mode: Any = None) -> None:
        self.rounds = rounds
        tasks = ListTaskSet([Task(f"relay/{number}", f"task {number}", "") for number in range(TASKS)], name="relay")
        names = [f"speaker_{number}" for number in range(agents)]
        super().__init__(names, tasks, render_mode=render_mode)

    def _start(self) -> str:
        self._said = self.task.question
        self._turns = 0
        return self.possible_agents[0]

    def _context(self, agent: str) -> str:
        return self._said

    def _instructions(self, agent: str) -> str:
        return f"{agent}:"

    def _play(self, agent: str, action: str) -> Outcome:
        self._said += f"\n{agent}: {action}"
        self._turns += 1
        if self._turns < self.rounds * len(self.possible_agents):
            return Outcome(next=self.possible_agents[self._turns % len(self.possible_agents)])
        value = float(zlib.crc32(action.encode("utf-8", "surrogatepass")) % 2)
        return Outcome(rewards=shared(self.possible_agents, value), terminated=True, success=bool(value))

    def _oracle(self, agent: str) -> str:
        return next(word for word in ("a", "b", "c", "d") if zlib.crc32(word.encode()) % 2)


def relay_texts(agents: int, words: int = 26) -> list[str]:
    """Texts that hold all words which a model needs here, and ``words`` others.

    A model of random weights that knows few words ends its answers soon: one in as many tokens as it knows, about.
    """
    letters = "abcdefghijklmnopqrstuvwxyz"
    others = [*letters, *(a + b for a, b in itertools.product(letters, repeat=2))][:words]
    return [f"task 0 1 2 3 4 5 6 7 8 9\nspeaker_{number}: {' '.join(others)}" for number in range(agents)]


def register_relay() -> None:
    """Add the environment to the registry, if it is not there yet."""
    if RELAY not in registry:
        register(RELAY, Relay)
