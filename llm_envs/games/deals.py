"""Deals: the tasks of a game. Deal ``i`` fixes everything that chance decides before the first move.

A game has no question to split by content, so deals have no train and test split: every agent meets the same rules, and
what is measured is how it plays them. Two policies are compared on the same deals, once in each seat.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_envs.tasks import Task, TaskError, TaskSet, load_tasks, reject_options, stable_hash

DEALS = "deals"
DEFAULT_SIZE = 1_000

Draw = Callable[..., Mapping[str, Any]]
"""``draw(rng, **options)`` returns what chance decides, as JSON values."""


def no_chance(rng: random.Random) -> dict[str, Any]:
    """The draw of a game in which nothing is left to chance."""
    return {}


class DealSet(TaskSet):
    """The deals of one game. ``task.data`` holds the number of the deal (``deal``) and what was drawn for it.

    Deal ``i`` is drawn with a generator of its own, seeded with (name, seed, i): it depends on nothing else, and the
    first deals of a smaller set are those of a larger one.

    Args:
        name: Name of the game, such as ``"kuhn-poker"``; tasks are called ``kuhn-poker/all/17``.
        question: One line that says what is played. Public.
        draw: A module-level function, so that the set can be sent to another process.
        options: Keyword arguments of ``draw``.
        size: Number of deals.
        seed: Another seed gives other deals.
        version: Raise it when ``draw`` changes what it returns.

    Raises:
        TaskError: ``size`` or ``seed`` is not a valid number.
    """

    split = "all"

    def __init__(
        self,
        name: str,
        question: str,
        draw: Draw = no_chance,
        *,
        options: Mapping[str, Any] | None = None,
        size: int = DEFAULT_SIZE,
        seed: int = 0,
        version: int = 1,
    ) -> None:
        self.name = name
        self.question = question
        self.options = dict(options or {})
        self.seed = _whole(name, "seed", seed, 0)
        self.version = version
        self._draw = draw
        self._tasks: list[Task | None] = [None] * _whole(name, "size", size, 1)

    def __len__(self) -> int:
        return len(self._tasks)

    def _task(self, index: int) -> Task:
        task = self._tasks[index]
        if task is None:
            rng = random.Random(stable_hash("deal", self.name, self.seed, index))
            drawn = self._draw(rng, **self.options)
            task = Task(f"{self.name}/{self.split}/{index}", self.question, "", {"deal": index, **drawn})
            self._tasks[index] = task
        return task

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits over what the deals depend on: name, version, options, seed, size."""
        options = (f"{key}={self.options[key]!r}" for key in sorted(self.options))
        return f"{stable_hash('deals', self.name, self.version, self.seed, len(self), *options):016x}"


def load_deals(
    tasks: str | TaskSet | Sequence[Task],
    name: str,
    question: str,
    draw: Draw = no_chance,
    *,
    options: Mapping[str, Any] | None = None,
    task_options: Mapping[str, Any] | None = None,
) -> TaskSet:
    """The deals that a user asked for.

    Args:
        tasks: ``"deals"``, a task set, or tasks whose ``data`` holds what the game draws.
        name: Name of the game.
        question: One line that says what is played.
        draw: Draws a deal.
        options: Keyword arguments of ``draw``.
        task_options: ``size`` and ``seed`` of the set.

    Raises:
        TaskError: There is no such set or option.
    """

    def deals(split: str | None, **given: Any) -> TaskSet:
        reject_options(DEALS, given, ("seed", "size"))
        return DealSet(name, question, draw, options=options, **given)

    return load_tasks(tasks, None, family={DEALS: deals}, **(task_options or {}))


def drawn(task: Task, key: str) -> Any:
    """What chance decided under ``key`` in the deal ``task``.

    Raises:
        TaskError: The task does not say.
    """
    if key not in task.data:
        raise TaskError(f"the task {task.id} has no {key!r} in its data; it has: {', '.join(task.data) or 'nothing'}")
    return task.data[key]


def _whole(name: str, what: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise TaskError(f"{name}: {what} must be a whole number of at least {least}, got {value!r}")
    return value
