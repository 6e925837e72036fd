"""Sets of the ``reasoning-gym`` library whose answers this family can grade, as ``rg:<name>``.

The list is explicit. A set is in it if its gold answer is one exact number (whole, decimal or fraction) that the
statement determines, if the gold scores 1.0 with the library's own scorer, and if the same index gives the same task in
every process. Left out on purpose: sets whose gold may be None (boxnet, graph_color, propositional_logic, rubiks_cube,
rush_hour) or differs between processes (list_functions); sets where repeating the question is an equal value
(fraction_simplification, prime_factorization); sets whose gold is rounded (power_function, coin_flip,
decimal_arithmetic, polynomial_equations) or whose candidates lie within a grader's tolerance (number_format); and those
whose statement has several answers (number_sequence, aiw, letter_counting: capitals count, which it does not say).
self_reference has too few tasks to split.

Only the task comes from the library. Its scorer gives credit for an answer that contains the gold; grading is ours.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from llm_envs.tasks import Draft, ProceduralTaskSet, TaskError, TaskSet, reject_options

__all__ = ["REASONING_GYM", "draw", "load_reasoning_gym"]

REASONING_GYM = (
    "basic_arithmetic",
    "binary_alternation",
    "chain_sum",
    "count_bits",
    "count_primes",
    "decimal_chain_sum",
    "dice",
    "gcd",
    "gsm_symbolic",
    "largest_island",
    "lcm",
    "leg_counting",
    "products",
    "rotten_oranges",
    "simple_equations",
    "simple_geometry",
)

_CONFIG: dict[str, dict[str, int]] = {
    "gsm_symbolic": {"size": 1_000_000},
    "largest_island": {"min_num_islands": 2, "min_island_size": 2},
    "lcm": {"max_value": 999},
    "products": {"min_digits": 2},
}
"""Settings that differ from the library's defaults, so that tasks seldom repeat."""
_INDICES = {"gsm_symbolic": 1_000_000}
"""Number of indices. The other data sets take any index; this one holds a table as long as its size."""
_ANY_INDEX = 2**31


def _library() -> Any:
    try:
        import reasoning_gym
    except ImportError as error:
        raise TaskError("the sets rg:<name> need reasoning-gym: pip install 'llm-envs[data]'") from error
    return reasoning_gym


@cache
def _dataset(name: str) -> Any:
    return _library().create_dataset(name, seed=0, **_CONFIG.get(name, {}))


def draw(rng: random.Random, *, dataset: str) -> Draft:
    """Returns the item of a library data set at a random index.

    Args:
        rng: Source of randomness.
        dataset: One of :data:`REASONING_GYM`.
    """
    item = _dataset(dataset)[rng.randrange(_INDICES.get(dataset, _ANY_INDEX))]
    return Draft(item["question"].strip(), item["answer"])


def load_reasoning_gym(
    name: str, split: str | None = None, *, size: int | None = None, seed: int = 0, **options: Any
) -> TaskSet:
    """Returns ``rg:<name>``.

    The library's version is part of the set's fingerprint and of what is drawn: results of different versions are not
    comparable.

    Args:
        name: ``rg:`` and one of :data:`REASONING_GYM`.
        split: ``"train"`` (also for None) or ``"test"``.
        size: Number of tasks.
        seed: Another seed gives other tasks of the same kind.
        **options: None are known; any is an error.

    Raises:
        TaskError: If reasoning-gym is not installed, or the split or an option is not valid.
    """
    from importlib.metadata import version

    reject_options(name, options, ("size", "seed"))
    _library()
    return ProceduralTaskSet(
        name,
        split,
        draw,
        options={"dataset": name.removeprefix("rg:")},
        size=size,
        seed=seed,
        version=version("reasoning-gym"),
    )
