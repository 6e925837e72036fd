"""Who the warm start of the sudoku study imitates: a player who knows the rules, and does not always think of them."""

from __future__ import annotations

import random
from math import isqrt
from typing import Any

from benchmarks.studies.demonstrator import Demonstrator
from benchmarks.studies.short_sudoku import word
from llm_envs.games.sudoku import Fill, Grid, geometry

__all__ = ["FillerPolicy", "fills"]


class FillerPolicy(Demonstrator):
    """Plays the environments of :mod:`benchmarks.studies.short_sudoku`.

    Args:
        skill: How often it thinks of the rules before a fill.

    It never looks ahead, and it does not know the solution (:func:`fills`). A planner whose proposer's proposal was
    seen to solve the puzzle repeats it.
    """

    def __init__(self, skill: float) -> None:
        super().__init__(f"filler(skill={skill:g})")
        self.skill = skill

    def _answer(self, env: Any, agent: str, rng: random.Random) -> str:
        if agent == "planner_0" and getattr(env, "tool", False) and env.proposal_solves:
            return f"[{', '.join(env.proposal)}]"
        made = fills(env._state, env._clues, rng, self.skill)
        return f"[{', '.join(word(fill, env._size) for fill in made)}]"


def fills(grid: Grid, clues: Grid, rng: random.Random, skill: float) -> list[Fill]:
    """Fill the blank cells in reading order.

    With probability ``skill`` a cell gets any value that is legal as the grid then stands, or is passed over where none
    is; else it gets any value. The list ends with the first illegal fill. In a grid where no blank cell has a legal
    value, all but the clues is cleared first.
    """
    size = isqrt(len(grid))
    peers, every = geometry(size).peers, range(1, size + 1)
    values = list(grid)

    def legal(cell: int) -> list[int]:
        taken = {values[other] for other in peers[cell]}
        return [value for value in every if value not in taken]

    blank = [cell for cell, value in enumerate(grid) if not value]
    if not any(map(legal, blank)):
        cleared = [Fill(cell, 0) for cell, value in enumerate(grid) if value and not clues[cell]]
        return cleared + fills(clues, clues, rng, skill)
    made: list[Fill] = []
    for cell in blank:
        allowed = legal(cell)
        thinks = rng.random() < skill
        if thinks and not allowed:
            continue
        made.append(Fill(cell, rng.choice(allowed if thinks else every)))
        if made[-1].value not in allowed:
            break
        values[cell] = made[-1].value
    return made
