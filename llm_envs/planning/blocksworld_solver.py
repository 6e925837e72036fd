"""Plans for blocks world: shortest ones by A*, good ones in polynomial time, and a bound on what is left.

Shortest plans are NP-hard to find (Gupta and Nau 1992), but little has to be searched. A plan may be normalised without
becoming longer: a block that is dropped is either dropped where the goal wants it, on a block that need not move any
more, or on the table; blocks that need not move do not move; and a drop where the goal wants the block can be made as
soon as it is possible. What is left to choose is which block to put on the table while nothing else helps, and only
there the search branches.

The bound counts hand movements: every block that has to move is picked up once, or twice if it stands above a block
that must move and that it is to stand above in the end; whatever is picked up is dropped.
"""

from __future__ import annotations

import heapq
from functools import lru_cache

from llm_envs.planning.blocksworld import TABLE, Goal, Operator, State, apply, clear_blocks, held_block

__all__ = ["MAX_NODES", "best_plan", "bound", "greedy_plan", "shortest_plan"]

MAX_NODES = 10_000
"""States that :func:`shortest_plan` looks at before it gives up."""


def _towers(state: State) -> list[list[int]]:
    """The towers, each from bottom to top."""
    on = {support: block for block, support in enumerate(state) if support >= 0}
    towers = []
    for block, support in enumerate(state):
        if support == TABLE:
            tower = [block]
            while (above := on.get(tower[-1])) is not None:
                tower.append(above)
            towers.append(tower)
    return towers


def _must_move(state: State, goal: Goal) -> tuple[set[int], int]:
    """The blocks of the towers that have to be picked up, and how many of them have to be so twice."""
    carries = {place: block for block, place in enumerate(goal.place) if place is not None and place >= 0}
    moving: set[int] = set()
    twice = 0
    for tower in _towers(state):
        below: set[int] = set()  # the blocks of this tower that move
        support = TABLE
        for block in tower:
            place = goal.place[block]
            if (
                below
                or (place is not None and place != support)
                or (support >= 0 and (support in goal.clear or carries.get(support, block) != block))
            ):
                while place is not None and place >= 0:
                    if place in below:
                        twice += 1
                        break
                    place = goal.place[place]
                below.add(block)
            support = block
        moving |= below
    return moving, twice


def _may_end_holding(goal: Goal) -> bool:
    """Whether a shortest plan can end with a block in the hand: it uncovered another, and the goal leaves it free."""
    carrying = set(goal.place)
    return (
        bool(goal.clear)
        and not goal.handempty
        and any(
            place is None and block not in goal.clear and block not in carrying
            for block, place in enumerate(goal.place)
        )
    )


def bound(state: State, goal: Goal) -> int:
    """A lower bound of the number of operators from ``state`` to ``goal``; 0 only where the goal holds."""
    if goal.holds(state):
        return 0
    moving, picks = _must_move(state, goal)
    picks += len(moving)
    held = held_block(state)
    if held is not None:
        place = goal.place[held]
        if place is not None and place >= 0 and (place in moving or place in state):
            picks += 1  # its place is not ready, and the hand is needed to make it so
    return max(1, 2 * picks + (held is not None) - _may_end_holding(goal))


def _choices(state: State, goal: Goal, ends_holding: bool) -> list[Operator]:
    """Operators, of which at least one begins a shortest plan; several only where the choice matters."""
    moving, _ = _must_move(state, goal)
    held = held_block(state)
    clear = clear_blocks(state)
    if held is not None:
        place = goal.place[held]
        if place in clear and place not in moving:
            return [Operator("stack", held, place)]
        return [Operator("put-down", held)]
    choices = []
    for block in clear:
        if block not in moving:
            continue
        place, support = goal.place[block], state[block]
        pick = Operator("pick-up", block) if support == TABLE else Operator("unstack", block, support)
        ready = (place is None and not ends_holding) or place == TABLE or (place in clear and place not in moving)
        if ready:
            return [pick]
        if support != TABLE:
            choices.append(pick)
    return choices


def shortest_plan(state: State, goal: Goal, max_nodes: int = MAX_NODES) -> list[Operator] | None:
    """A shortest plan, by A* with :func:`bound`; the same one every time.

    Args:
        state: Where to start.
        goal: A goal that some state fulfils, as :class:`~llm_envs.planning.blocksworld_facts.Problem` checks.
        max_nodes: Give up after so many states.

    Returns:
        The operators, or None where ``max_nodes`` did not suffice.
    """
    ends_holding = _may_end_holding(goal)
    came: dict[State, tuple[State, Operator] | None] = {state: None}
    cost = {state: 0}
    queue = [(bound(state, goal), 0, 0, state)]
    order = nodes = 0
    while queue:
        _, depth, _, here = heapq.heappop(queue)
        if goal.holds(here):
            return _path(came, here)
        if -depth > cost[here]:
            continue
        nodes += 1
        if nodes > max_nodes:
            return None
        for operator in _choices(here, goal, ends_holding):
            there = apply(here, operator)
            reached = 1 - depth
            if reached < cost.get(there, reached + 1):
                cost[there] = reached
                came[there] = here, operator
                order += 1
                # Of equal sums the deepest first: less is left there.
                heapq.heappush(queue, (reached + bound(there, goal), -reached, order, there))
    return None


def _path(came: dict[State, tuple[State, Operator] | None], state: State) -> list[Operator]:
    plan = []
    while (step := came[state]) is not None:
        state, operator = step
        plan.append(operator)
    return plan[::-1]


def greedy_plan(state: State, goal: Goal) -> list[Operator]:
    """A plan in polynomial time, at most about twice as long as a shortest one.

    Where nothing can be dropped in its place it puts that block on the table after which the bound is least (the
    strategy GN2 of Gupta and Nau 1992 with another measure).
    """
    plan: list[Operator] = []
    while not goal.holds(state):
        choices = _choices(state, goal, ends_holding=False)
        operator = min(choices, key=lambda choice: bound(apply(state, choice), goal)) if choices[1:] else choices[0]
        plan.append(operator)
        state = apply(state, operator)
    return plan


@lru_cache(maxsize=4096)
def best_plan(state: State, goal: Goal) -> tuple[tuple[Operator, ...], bool]:
    """The best plan that is known, and whether it is a shortest one: of :func:`shortest_plan`, else greedy."""
    plan = shortest_plan(state, goal)
    return (tuple(greedy_plan(state, goal)), False) if plan is None else (tuple(plan), True)
