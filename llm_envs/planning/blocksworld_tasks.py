"""Blocks-world task sets: generated problems, PDDL instances, and rows of facts.

``blocksworld`` is generated. A ``.pddl`` file or a folder of them holds instances of the domain with four operators
(:mod:`llm_envs.planning.pddl`). A JSONL, JSON or Parquet file has the facts in the columns ``initial`` and ``goal``, as
a list or as text (and the names in ``blocks``, where some are in no fact)::

    {"initial": "(on a b) (ontable b) (clear a) (handempty)", "goal": ["on b a"]}

The question of a task is its facts, its answer a plan, and its data hold ``blocks``, ``initial``, ``goal`` and the
``optimal_length``, which is missing where no shortest plan was found (see
:data:`llm_envs.planning.blocksworld_solver.MAX_NODES`; it does not happen with the sizes that are generated).
"""

from __future__ import annotations

import math
import os
import random
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from typing import Any

from llm_envs import task_rows
from llm_envs.planning.blocksworld import TABLE, Goal, State
from llm_envs.planning.blocksworld_facts import FactError, Problem
from llm_envs.planning.blocksworld_solver import best_plan
from llm_envs.task_rows import Columns, ContentError, Row, RowError
from llm_envs.tasks import (
    Draft,
    ListTaskSet,
    ProceduralTaskSet,
    Task,
    TaskError,
    TaskSet,
    enumerate_tasks,
    load_tasks,
    reject_options,
)

__all__ = [
    "BLOCKSWORLD_TASKS",
    "DEFAULT_TASKS",
    "GOALS",
    "MAX_BLOCKS",
    "draw_blocksworld",
    "draw_state",
    "load_blocksworld",
    "load_blocksworld_tasks",
    "problem_of",
    "problem_text",
    "read_blocksworld_row",
]

DEFAULT_TASKS = "blocksworld"
GOALS = ("on", "full")
MIN_BLOCKS, MAX_BLOCKS = 3, 20
LISTED_BLOCKS = 4
"""Up to so many blocks all problems are listed."""
DEFAULTS: dict[str, Any] = {"blocks": 5, "goal": "on", "min_length": 1, "max_length": None}
_DRAWS = 2_000
_LETTERS = "abcdefghijklmnopqrst"


def draw_state(rng: random.Random, blocks: int) -> State:
    """A state of ``blocks`` blocks with an empty hand, each with the same probability.

    The states with m towers are the Lah number C(n−1, m−1)·n!/m!: permutations cut into m pieces, in any order.
    """
    counts = [math.comb(blocks - 1, m - 1) * math.factorial(blocks) // math.factorial(m) for m in range(1, blocks + 1)]
    towers = rng.choices(range(1, blocks + 1), counts)[0]
    order = rng.sample(range(blocks), blocks)
    bottoms = {0, *rng.sample(range(1, blocks), towers - 1)}
    state = [TABLE] * blocks
    for position, block in enumerate(order):
        if position not in bottoms:
            state[block] = order[position - 1]
    return tuple(state)


def _goal_of(state: State, goal: str) -> Goal:
    """What ``state`` is as a goal: its ``on`` facts alone, or the place of every block."""
    return Goal(tuple(place if goal == "full" or place != TABLE else None for place in state))


def draw_blocksworld(
    rng: random.Random, *, blocks: int = 5, goal: str = "on", min_length: int = 1, max_length: int | None = None
) -> Draft:
    """A random problem: two states, each uniform over all with an empty hand, one initial, one to be reached.

    Args:
        rng: Source of randomness.
        blocks: Number of blocks.
        goal: ``"on"``: the goal has the ``on`` facts of the final state, as PDDL instances do, so that blocks that are
            on the table there are free; ``"full"``: also ``ontable``, so that the final state is the only one.
        min_length: The least number of operators of a shortest plan.
        max_length: The greatest; None for no limit.

    Raises:
        TaskError: None of many draws was within the lengths.
    """
    for _ in range(_DRAWS):
        initial, final = draw_state(rng, blocks), draw_state(rng, blocks)
        draft = _within(initial, _goal_of(final, goal), min_length, max_length)
        if draft is not None:
            return draft
    raise TaskError(
        f"{DEFAULT_TASKS}: in {_DRAWS} draws with blocks={blocks}, none had a shortest plan of min_length={min_length} "
        f"to max_length={max_length} operators; choose wider limits"
    )


@lru_cache(maxsize=8)
def _listed(blocks: int, goal: str, min_length: int, max_length: int | None) -> tuple[Draft, ...]:
    """Every problem of ``blocks`` blocks."""
    states = sorted(set(_states(blocks)))
    goals = sorted({_goal_of(state, goal).place for state in states}, key=str)
    drafts = (_within(state, Goal(place), min_length, max_length) for state in states for place in goals)
    return tuple(draft for draft in drafts if draft is not None)


def _states(blocks: int) -> Iterator[State]:
    for order in permutations(range(blocks)):
        for cuts in range(2 ** (blocks - 1)):
            state = [TABLE] * blocks
            for position in range(1, blocks):
                if not cuts >> (position - 1) & 1:
                    state[order[position]] = order[position - 1]
            yield tuple(state)


def _within(initial: State, goal: Goal, min_length: int, max_length: int | None) -> Draft | None:
    """The task, if its shortest plan is known and neither too short nor too long."""
    draft = _draft(Problem(tuple(_LETTERS[: len(initial)]), initial, goal))
    length = draft.data.get("optimal_length")
    if length is None or length < min_length or (max_length is not None and length > max_length):
        return None
    return draft


def problem_text(problem: Problem, state: State) -> str:
    """A state and the goal as agents read them."""
    return f"State: {_in_brackets(problem.facts(state))}\nGoal: {_in_brackets(problem.goal_facts)}"


def _in_brackets(facts: Sequence[str]) -> str:
    return " ".join(f"({fact})" for fact in facts)


def _draft(problem: Problem) -> Draft:
    plan, shortest = best_plan(problem.initial, problem.goal)
    data: dict[str, Any] = {
        "blocks": problem.names,
        "initial": problem.facts(problem.initial),
        "goal": problem.goal_facts,
    }
    if shortest:
        data["optimal_length"] = len(plan)
    return Draft(problem_text(problem, problem.initial), f"[{', '.join(map(problem.text, plan))}]", data)


def load_blocksworld(split: str | None = None, *, size: int | None = None, seed: int = 0, **options: Any) -> TaskSet:
    """Returns generated problems; with up to :data:`LISTED_BLOCKS` blocks every one there is, once.

    Args:
        split: ``"train"`` (also for None) or ``"test"``. A problem is in one of the two.
        size: Number of tasks.
        seed: Another seed gives other problems, or the listed ones in another order.
        **options: Of :func:`draw_blocksworld`: blocks (3 to 20), goal, min_length (at least 1), max_length.

    Raises:
        TaskError: There is no such split or option, or no problem is possible with them.
    """
    reject_options(DEFAULT_TASKS, options, (*DEFAULTS, "size", "seed"))
    chosen = {**DEFAULTS, **options}
    _check_options(**chosen)
    if chosen["blocks"] <= LISTED_BLOCKS:
        listed = _listed(**chosen)
        if not listed:
            raise TaskError(
                f"{DEFAULT_TASKS}: no problem with blocks={chosen['blocks']} has a shortest plan of "
                f"min_length={chosen['min_length']} to max_length={chosen['max_length']} operators; choose wider limits"
            )
        return enumerate_tasks(DEFAULT_TASKS, split, listed, size=size, seed=seed)
    draw_blocksworld(random.Random(0), **chosen)  # impossible lengths are refused here and not at the first reset
    return ProceduralTaskSet(DEFAULT_TASKS, split, draw_blocksworld, options=chosen, size=size, seed=seed)


def _check_options(blocks: Any, goal: Any, min_length: Any, max_length: Any) -> None:
    def whole(name: str, value: Any, least: int, most: float = math.inf) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            span = f"from {least} to {most}" if most < math.inf else f"of at least {least}"
            raise TaskError(f"{DEFAULT_TASKS}: {name} must be a whole number {span}, got {value!r}")

    whole("blocks", blocks, MIN_BLOCKS, MAX_BLOCKS)
    if goal not in GOALS:
        raise TaskError(f"{DEFAULT_TASKS}: goal must be one of {', '.join(GOALS)}, got {goal!r}")
    whole("min_length", min_length, 1)
    if max_length is not None:
        whole("max_length", max_length, min_length)


def read_blocksworld_row(row: Row, columns: Columns) -> Draft:
    """How this family reads a row of a file: the columns ``initial``, ``goal`` and, if there is one, ``blocks``.

    Raises:
        RowError: A column is missing, or its facts are no problem.
    """
    initial = _facts(task_rows.pick(row, columns, "initial", ("initial",)))
    goal = _facts(task_rows.pick(row, columns, "goal", ("goal",)))
    named = task_rows.column(row, columns.get("blocks", "blocks"))
    if named is None:
        named = dict.fromkeys(word for fact in initial for word in fact.strip("() ").split()[1:])
    elif isinstance(named, str):
        named = named.replace(",", " ").split()
    elif not isinstance(named, Sequence) or not all(isinstance(name, str) for name in named):
        raise RowError(f"blocks are text or a list of names, got {named!r:.80}")
    try:
        draft = _draft(Problem.from_facts(named, initial, goal))
    except FactError as reason:
        raise ContentError(f"not a blocks-world problem: {reason}") from reason
    extra = task_rows.extra_data(row, columns)
    return draft._replace(data={**extra, **draft.data})


def _facts(value: Any) -> list[str]:
    """Facts of a column: a list, or a text with each in brackets, or with commas between them."""
    if isinstance(value, str):
        return re.findall(r"\([^()]*\)", value) if "(" in value else [fact for fact in value.split(",") if fact.strip()]
    if isinstance(value, Sequence) and all(isinstance(fact, str) for fact in value):
        return list(value)
    raise RowError(f"facts are text or a list of texts, got {value!r:.80}")


BLOCKSWORLD_TASKS = {DEFAULT_TASKS: load_blocksworld}
"""The named sets of blocks world."""


def load_blocksworld_tasks(
    tasks: str | os.PathLike[str] | TaskSet | Sequence[Task], split: str | None = None, **options: Any
) -> TaskSet:
    """Returns the tasks that a user asked for, as :func:`llm_envs.tasks.load_tasks`.

    A ``.pddl`` file is an instance, a folder with such files is one set. The domain is the option ``domain`` (a path),
    or the one file of the folder that holds a domain.

    Raises:
        TaskError: If there is no such set, split, file or option, the planning library is missing, or a file is no
            instance of the domain.
    """
    if isinstance(tasks, str | os.PathLike) and os.fspath(tasks) not in BLOCKSWORLD_TASKS:
        path = Path(tasks).expanduser()
        if path.suffix == ".pddl" or (path.is_dir() and any(path.glob("*.pddl"))):
            reject_options(str(path), options, ("domain",))
            return _load_pddl(path, split, **options)
    return load_tasks(tasks, split, family=BLOCKSWORLD_TASKS, reader=read_blocksworld_row, **options)


def _load_pddl(path: Path, split: str | None, domain: str | os.PathLike[str] | None = None) -> TaskSet:
    from llm_envs.planning import pddl

    problems = pddl.read_problems(path, None if domain is None else Path(domain).expanduser())
    folder = path if path.is_dir() else path.parent
    name = folder.resolve().name
    rows = ListTaskSet((Task(f"{name}/{file.stem}", *_draft(problem)) for file, problem in problems), name=name)
    return rows if split is None else rows.only(split)


def problem_of(task: Task) -> Problem:
    """The problem of a task.

    Raises:
        TaskError: The task has none, or facts that are no problem.
    """
    data = task.data
    try:
        return _problem(data["blocks"], data["initial"], data["goal"])
    except (KeyError, TypeError, FactError) as reason:
        raise TaskError(
            f"the task {task.id} has no blocks-world problem ({reason}); give data={{'blocks': ['a', 'b'], 'initial': "
            "['on a b', 'ontable b', 'clear a', 'handempty'], 'goal': ['on b a']}"
        ) from reason


_problem = lru_cache(maxsize=4096)(Problem.from_facts)  # as many as a procedural set keeps of its tasks
