"""The solver of blocks world against breadth-first search over whole state spaces."""

from __future__ import annotations

import itertools
import random
from collections import deque
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.planning.blocksworld import HAND, TABLE, Goal, apply, illegal, legal_operators
from llm_envs.planning.blocksworld_facts import Problem
from llm_envs.planning.blocksworld_solver import best_plan, bound, greedy_plan, shortest_plan
from llm_envs.planning.blocksworld_tasks import draw_state


def ends(links, block):
    """Whether following ``links`` from ``block`` leaves the blocks."""
    for _ in range(len(links) + 1):
        block = links[block]
        if block is None or block < 0:
            return True
    return False


@cache
def space(blocks):
    """Every state, and for each the states that an operator leads there from."""
    found = []
    for state in itertools.product(range(HAND, blocks), repeat=blocks):
        used = [support for support in state if support != TABLE]
        sound = len(set(used)) == len(used) and all(ends(state, block) for block in range(blocks))
        if sound and (HAND not in state or state.index(HAND) not in state):
            found.append(state)
    before = {state: [] for state in found}
    for state in found:
        for operator in legal_operators(state):
            before[apply(state, operator)].append(state)
    return before


@cache
def goals(blocks):
    """Every goal that some state fulfils."""
    found = []
    for place in itertools.product([None, *range(TABLE, blocks)], repeat=blocks):
        used = [support for support in place if support is not None and support != TABLE]
        if len(set(used)) < len(used) or not all(ends(place, block) for block in range(blocks)):
            continue
        free = [block for block in range(blocks) if block not in used]
        for count in range(len(free) + 1):
            for clear in itertools.combinations(free, count):
                found += [Goal(place, clear, handempty) for handempty in (False, True)]
    return found


def distances(blocks, goal):
    before = space(blocks)
    lengths = {state: 0 for state in before if goal.holds(state)}
    queue = deque(lengths)
    while queue:
        state = queue.popleft()
        for earlier in before[state]:
            if earlier not in lengths:
                lengths[earlier] = lengths[state] + 1
                queue.append(earlier)
    assert len(lengths) == len(before)
    return lengths


def follow(state, plan, blocks):
    for operator in plan:
        assert illegal(state, operator, "abcdefghijklmnopqrstuvwxyz"[:blocks]) is None
        state = apply(state, operator)
    return state


def test_the_state_spaces_have_the_known_sizes():
    # Without a held block: 1, 3, 13, 73 (OEIS A000262); with one held, n times as many as with n - 1 blocks.
    assert [len(space(n)) for n in (1, 2, 3, 4)] == [1 + 1, 3 + 2 * 1, 13 + 3 * 3, 73 + 4 * 13]


@pytest.mark.parametrize(("blocks", "sample"), [(1, None), (2, None), (3, 250), (4, 60), (5, 4)])
def test_plans_are_shortest_for_every_state_and_goal(blocks, sample):
    check_goals(blocks, sample, random.Random(blocks))


@pytest.mark.slow
def test_plans_are_shortest_for_every_state_and_many_goals_of_four_and_five_blocks():
    check_goals(3, None, random.Random(0))
    check_goals(4, 600, random.Random(1))
    check_goals(5, 30, random.Random(2))


def check_goals(blocks, sample, rng):
    chosen = goals(blocks) if sample is None else rng.sample(goals(blocks), sample)
    for goal in chosen:
        for state, length in distances(blocks, goal).items():
            plan = shortest_plan(state, goal)
            assert len(plan) == length, (state, goal)
            assert goal.holds(follow(state, plan, blocks))
            assert bound(state, goal) <= length
            assert (bound(state, goal) == 0) == (length == 0)
            quick = greedy_plan(state, goal)
            assert goal.holds(follow(state, quick, blocks))
            assert length <= len(quick) <= 2 * length + 2


def test_a_hand_case():
    # Sussman's anomaly: c on a, b alone; a on b on c is wanted.
    problem = Problem.from_facts(
        "abc", ["on c a", "ontable a", "ontable b", "clear c", "clear b", "handempty"], ["on a b", "on b c"]
    )
    plan = [problem.text(operator) for operator in shortest_plan(problem.initial, problem.goal)]
    assert plan == ["unstack c a", "put-down c", "pick-up b", "stack b c", "pick-up a", "stack a b"]


def test_a_deadlock_that_the_bound_does_not_see():
    # Two towers whose tops are each wanted below the other's bottom: one of the tops has to wait on the table.
    initial = ["on a b", "on c d", "ontable b", "ontable d", "clear a", "clear c", "handempty"]
    problem = Problem.from_facts("abcd", initial, ["on a d", "on c b"])
    assert bound(problem.initial, problem.goal) == 4
    assert len(shortest_plan(problem.initial, problem.goal)) == 6


def test_clearing_a_block_ends_with_the_other_in_the_hand():
    problem = Problem.from_facts("ab", ["on b a", "ontable a", "clear b", "handempty"], ["clear a"])
    assert [problem.text(operator) for operator in shortest_plan(problem.initial, problem.goal)] == ["unstack b a"]


def test_without_nodes_there_is_no_shortest_plan_but_a_good_one():
    state, goal = (1, 2, 3, TABLE), Goal((TABLE, 0, 1, 2))
    assert shortest_plan(state, goal, max_nodes=0) is None
    assert shortest_plan(state, goal) is not None
    rng = random.Random(0)
    large, wanted = draw_state(rng, 60), Goal(draw_state(rng, 60))
    plan, _ = best_plan(large, wanted)
    assert wanted.holds(follow(large, plan, 26)) if len(large) <= 26 else True
    for operator in plan:
        assert operator in legal_operators(large)
        large = apply(large, operator)
    assert wanted.holds(large)


@st.composite
def problems(draw):
    blocks = draw(st.integers(2, 12))
    rng = random.Random(draw(st.integers(0, 10**9)))
    state, final = draw_state(rng, blocks), draw_state(rng, blocks)
    place = tuple(support if rng.random() < 0.8 else None for support in final)
    return state, Goal(place, handempty=rng.random() < 0.5), rng


@given(problems())
def test_laws_of_distances(problem):
    state, goal, rng = problem
    for _ in range(3):
        plan, shortest = best_plan(state, goal)
        assert shortest
        assert bound(state, goal) <= len(plan) <= len(greedy_plan(state, goal))
        assert (not plan) == goal.holds(state)
        for step, operator in enumerate(plan, 1):  # every step of a shortest plan comes one closer
            if step == 1:
                assert len(best_plan(apply(state, operator), goal)[0]) == len(plan) - 1
        for operator in legal_operators(state):  # and no operator leads further than that
            assert abs(len(best_plan(apply(state, operator), goal)[0]) - len(plan)) <= 1
        state = apply(state, rng.choice(legal_operators(state)))
