"""Self-consistency: the most frequent answer of several episodes of a task (Wang et al. 2022, arXiv 2203.11171)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llm_envs
from llm_envs.math.grading import Verdict, grade
from llm_envs.search.scoring import exact_match

__all__ = ["SameAnswer", "answer_of", "camps", "has_answer", "majority", "same_answer_in"]

SameAnswer = Callable[[str, str], bool]
"""Whether two answers are the same."""


def has_answer(episode: Mapping[str, Any]) -> bool:
    """Whether the record of an episode says what its answer was, be it that there was none."""
    return any("answer" in turn["info"] for turn in episode["turns"])


def answer_of(episode: Mapping[str, Any]) -> str | None:
    """Return the answer that an episode was judged by; None if there was none."""
    found = [turn["info"]["answer"] for turn in episode["turns"] if "answer" in turn["info"]]
    return found[-1] if found else None


def same_answer_in(env: str) -> SameAnswer | None:
    """Return how answers are compared in an environment; None where they cannot be (programs, plans, grids).

    In math they are the same if each would be correct were the other the gold, as in ``math-debate``; in search if they
    are the same after SQuAD's normalisation.
    """
    entry_point = str(llm_envs.spec(env).entry_point)
    for module, same in _SAME.items():
        if entry_point.startswith(module):
            return same
    return None


def camps(answers: Sequence[str], same: SameAnswer) -> list[list[int]]:
    """Return the places of answers that are the same, in order of first appearance.

    Example:
        >>> camps(["1/2", "3", "0.5"], lambda one, other: {one, other} == {"1/2", "0.5"})
        [[0, 2], [1]]
    """
    found: list[list[int]] = []
    for place, answer in enumerate(answers):
        mine = next((camp for camp in found if answers[camp[0]] == answer or same(answers[camp[0]], answer)), None)
        if mine is None:
            found.append([place])
        else:
            mine.append(place)
    return found


def majority(answers: Sequence[str | None], successes: Sequence[bool], same: SameAnswer) -> float:
    """Return the probability that the most frequent answer is right, ties being broken by chance.

    Args:
        answers: The answer of each episode of a task; None does not vote.
        successes: Whether each was right.
        same: Whether two answers are the same.

    Example:
        >>> majority(["7", "7", "8"], [False, False, True], str.__eq__), majority(["7", "8"], [False, True], str.__eq__)
        (0.0, 0.5)
    """
    votes = [(answer, right) for answer, right in zip(answers, successes, strict=True) if answer is not None]
    found = camps([answer for answer, _ in votes], same)
    most = max(map(len, found), default=0)
    winners = [camp for camp in found if len(camp) == most]
    return sum(votes[camp[0]][1] for camp in winners) / len(winners) if winners else 0.0


def _same_mathematics(one: str, other: str) -> bool:
    return all(
        grade(gold=gold, answer=answer, evaluated=True) is Verdict.CORRECT
        for gold, answer in ((one, other), (other, one))
    )


def _same_words(one: str, other: str) -> bool:
    return exact_match(one, [other])


_SAME: dict[str, SameAnswer] = {"llm_envs.math": _same_mathematics, "llm_envs.search": _same_words}
