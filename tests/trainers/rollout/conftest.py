"""A tiny environment with a parallel round, policies that do as told, and an event loop whose clock is virtual."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

import pytest

from llm_envs.core import Outcome, TextEnv
from llm_envs.parsing import InvalidAction
from llm_envs.tasks import ListTaskSet, Task
from trainers.policies.base import Completion, Policy, Request


class PairEnv(TextEnv):
    """left_0 and right_0 speak at once, then judge_0 closes the round; after ``rounds`` of them the team is paid 1.

    A speaker earns ``words`` 0.1 per word. The text ``bad`` is refused: it costs 0.1, and the judge retries once.
    Reward of the round reaches the speakers at its end; the judge's ``stop`` ends the episode unsolved.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "pair_v0", "render_modes": ["ansi"], "is_parallelizable": False}

    def __init__(self, rounds: int = 2, tasks: int = 8) -> None:
        rows = [Task(f"pair/{i}", f"Question {i}", "yes") for i in range(tasks)]
        super().__init__(["left_0", "right_0", "judge_0"], ListTaskSet(rows, name="pair"), max_retries=1)
        self.rounds = rounds

    def _start(self) -> tuple[str, ...]:
        self.round_number = 0
        self.said: dict[str, str] = {}
        self.log: list[str] = []
        return ("left_0", "right_0")

    def _context(self, agent: str) -> str:
        return "\n".join([self.task.question, *self.log])

    def _instructions(self, agent: str) -> str:
        return f"You are {agent}."

    def _play(self, agent: str, action: str) -> Outcome | None:
        if action == "bad":
            raise InvalidAction("the text was bad")
        if agent != "judge_0":
            self.said[agent] = action
            return None
        self.log.append(f"judge: {action}")
        self.round_number += 1
        if action == "stop":
            return Outcome(terminated=True, info={"judge_0": {"verdict": "stopped"}})
        if self.round_number < self.rounds:
            return Outcome(next=("left_0", "right_0"), info={"judge_0": {"verdict": "go on"}})
        team = {name: {"team": 1.0} for name in self.possible_agents}
        return Outcome(rewards=team, truncated=True, success=True, info={"judge_0": {"verdict": "done"}})

    def _end_round(self) -> Outcome:
        said, self.said = self.said, {}
        self.log += [f"{name}: {text}" for name, text in said.items()]
        paid = {name: {"words": 0.1 * len(text.split())} for name, text in said.items()}
        return Outcome(next="judge_0", rewards=paid)

    def _forfeit(self, agent: str) -> Outcome | None:
        return None if agent != "judge_0" else Outcome(terminated=True)

    def _oracle(self, agent: str) -> str:
        return "fine"


class CallPolicy(Policy):
    """Answers with what a function returns, after it may have waited. Records what was in flight."""

    def __init__(self, reply: Callable[[Request], Any], name: str = "call") -> None:
        super().__init__(name)
        self.reply = reply
        self.requests: list[Request] = []
        self.in_flight: set[tuple[Any, ...]] = set()
        self.seen_together: list[frozenset[tuple[Any, ...]]] = []
        self.joined = 0
        self.most_joined = 0

    def join(self) -> None:
        self.joined += 1
        self.most_joined = max(self.most_joined, self.joined)

    def leave(self) -> None:
        self.joined -= 1

    async def generate(self, request: Request) -> list[Completion]:
        self.requests.append(request)
        self.in_flight.add(request.key)
        self.seen_together.append(frozenset(self.in_flight))
        try:
            answer = self.reply(request)
            if asyncio.iscoroutine(answer):
                answer = await answer
            return [Completion(answer, "stop", prompt_tokens=3, completion_tokens=2)]
        finally:
            self.in_flight.discard(request.key)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time: its clock jumps to the next timer. Sleeps are exact."""

    def __init__(self) -> None:
        self._now = 0.0
        loop = self

        class JumpingSelector(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> list[Any]:
                events = super().select(0)
                if not events and timeout is None:
                    time.sleep(0.001)  # another thread is at work
                elif not events:
                    loop._now += max(timeout, 0.0)
                return events

        super().__init__(JumpingSelector())

    def time(self) -> float:
        return self._now


def run_virtual(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, float]:
    """Run a coroutine on a virtual clock; return its result and the virtual seconds that it took."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        result = runner.run(coroutine)
        return result, runner.get_loop().time()


@pytest.fixture
def pair_env() -> type[PairEnv]:
    return PairEnv


@pytest.fixture
def call_policy() -> type[CallPolicy]:
    return CallPolicy


@pytest.fixture
def virtual() -> Callable[[Coroutine[Any, Any, Any]], tuple[Any, float]]:
    return run_virtual
