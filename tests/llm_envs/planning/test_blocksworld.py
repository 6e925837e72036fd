"""Blocks world by hand and against unified-planning: rules, facts, operators."""

from __future__ import annotations

import random

import pytest

from llm_envs.planning.blocksworld import (
    HAND,
    TABLE,
    Goal,
    Operator,
    apply,
    clear_blocks,
    illegal,
    legal_operators,
)
from llm_envs.planning.blocksworld_facts import FactError, OperatorError, Problem
from llm_envs.planning.blocksworld_tasks import draw_state
from llm_envs.planning.pddl import DOMAIN, write_problem

# b on a, c alone.
STATE = (TABLE, 0, TABLE)
NAMES = ("a", "b", "c")
FACTS = ["ontable a", "on b a", "ontable c", "clear b", "clear c", "handempty"]
PROBLEM = Problem.from_facts(NAMES, FACTS, ["on a c"])


def problem(initial=FACTS, goal=("on a c",), blocks=NAMES):
    return Problem.from_facts(blocks, initial, goal)


# ---- operators ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "text", "after"),
    [
        (STATE, "unstack b a", (TABLE, HAND, TABLE)),
        (STATE, "pick-up c", (TABLE, 0, HAND)),
        ((TABLE, HAND, TABLE), "put-down b", (TABLE, TABLE, TABLE)),
        ((TABLE, HAND, TABLE), "stack b c", (TABLE, 2, TABLE)),
        ((TABLE, HAND, TABLE), "stack b a", STATE),
    ],
)
def test_what_an_operator_does(state, text, after):
    operator = PROBLEM.operator(text)
    assert illegal(state, operator, NAMES) is None
    assert operator in legal_operators(state)
    assert apply(state, operator) == after


@pytest.mark.parametrize(
    ("state", "text", "reason"),
    [
        (STATE, "pick-up a", "a is not clear: b is on it"),
        (STATE, "pick-up b", "b is not on the table but on a: it takes an unstack"),
        (STATE, "unstack b c", "b is not on c but on a"),
        (STATE, "unstack c a", "c is not on a but on the table"),
        (STATE, "put-down c", "the hand does not hold c: it is empty"),
        (STATE, "stack c b", "the hand does not hold c: it is empty"),
        ((TABLE, 0, HAND), "pick-up a", "the hand is not empty: it holds c"),
        ((TABLE, 0, HAND), "unstack b a", "the hand is not empty: it holds c"),
        ((TABLE, 0, HAND), "stack c a", "a is not clear: b is on it"),
        ((TABLE, 0, HAND), "stack c c", "c cannot be stacked on itself"),
        ((TABLE, 0, HAND), "put-down b", "the hand does not hold b: it holds c"),
        ((TABLE, 0, 1), "unstack b a", "b is not clear: c is on it"),
    ],
)
def test_why_an_operator_is_illegal(state, text, reason):
    operator = PROBLEM.operator(text)
    assert illegal(state, operator, NAMES) == reason
    assert operator not in legal_operators(state)


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("stack a b", Operator("stack", 0, 1)),
        (" UNSTACK  B   A ", Operator("unstack", 1, 0)),
        ("(pick-up c)", Operator("pick-up", 2)),
        ("put-down c", Operator("put-down", 2)),
        ("pick up the c block", Operator("pick-up", 2)),
        ("Put down the c block", Operator("put-down", 2)),
        ("stack the a block on top of the b block", Operator("stack", 0, 1)),
        ("stack a on b", Operator("stack", 0, 1)),
        ("unstack the b block from on top of the a block", Operator("unstack", 1, 0)),
        ("unstack b from a", Operator("unstack", 1, 0)),
    ],
)
def test_how_an_operator_may_be_written(text, operator):
    assert PROBLEM.operator(text) == operator
    assert PROBLEM.operator(PROBLEM.text(operator)) == operator


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "stack", "stack a", "stack a b c", "pick-up a b", "pick-up d", "fly a", "stack a, b", "put c down",
        "unstack the b block", "stack a b on c", "(stack a b", "((stack a b))", "stack(a b)", "pick-up ä",
    ],
)  # fmt: skip
def test_what_is_no_operator(text):
    with pytest.raises(OperatorError):
        PROBLEM.operator(text)


def test_sentences_are_not_understood_where_a_name_makes_them_ambiguous():
    named = problem(["ontable a", "ontable on", "clear a", "clear on", "handempty"], ["on a on"], ["a", "on"])
    assert named.operator("stack a on") == Operator("stack", 0, 1)
    for text in ("stack a on on", "pick up a"):
        with pytest.raises(OperatorError):
            named.operator(text)


# ---- facts -------------------------------------------------------------------------------------------------------


def test_facts_and_back():
    assert PROBLEM.initial == STATE
    assert PROBLEM.facts(STATE) == tuple(FACTS)
    held = (TABLE, HAND, TABLE)
    assert PROBLEM.facts(held) == ("ontable a", "ontable c", "clear a", "clear c", "holding b")
    goal = ["on a c", "ontable c", "clear a", "handempty"]
    for state in (STATE, held):
        again = problem([f"({fact.upper()})" for fact in reversed(PROBLEM.facts(state))], goal, ["A", "B", "C"])
        assert (again.names, again.initial, again.goal_facts) == (NAMES, state, tuple(goal))
        assert again.goal == Goal((2, None, TABLE), (0,), handempty=True)


@pytest.mark.parametrize(
    ("goal", "state", "holds"),
    [
        (["on b a"], STATE, True),
        (["on b c"], STATE, False),
        (["ontable a"], STATE, True),
        (["ontable b"], STATE, False),
        (["ontable b"], (TABLE, HAND, TABLE), False),
        (["clear b"], STATE, True),
        (["clear a"], STATE, False),
        (["clear b"], (TABLE, HAND, TABLE), False),
        (["clear a"], (TABLE, HAND, TABLE), True),
        (["clear a", "handempty"], (TABLE, HAND, TABLE), False),
        (["handempty"], STATE, True),
        (["on b a", "ontable c", "clear c"], STATE, True),
        (["on b a", "on c b"], STATE, False),
    ],
)
def test_when_a_goal_holds(goal, state, holds):
    starts = {
        "ontable b": ["ontable a", "on b a", "on c b", "clear c", "handempty"],
        "handempty": ["ontable b", "on a b", "clear a", "holding c"],
    }
    start = starts.get(
        goal[0], ["ontable b", "on a b", "on c a", "clear c", "handempty"]
    )  # where the goal does not hold
    assert problem(start, goal).goal.holds(state) is holds


@pytest.mark.parametrize(
    ("initial", "goal", "message"),
    [
        (FACTS[1:], ["on a c"], "where a is"),
        ([*FACTS, "on c b"], ["on a c"], "puts a block in a second place"),
        ([*FACTS, "ontable d"], ["on a c"], "names 'd', which is not one of the blocks: a, b, c"),
        ([*FACTS, "on a"], ["on a c"], "'on a' is not a fact"),
        ([*FACTS, "under a b"], ["on a c"], "'under a b' is not a fact"),
        ([*FACTS, "clear a"], ["on a c"], "'clear a', but that block is covered or held"),
        ([fact for fact in FACTS if fact != "clear c"], ["on a c"], "do not have 'clear c'"),
        (FACTS[:-1], ["on a c"], "either 'handempty' or one 'holding'"),
        (["ontable a", "on b a", "holding c", "clear b", "handempty"], ["on a c"], "either 'handempty' or one"),
        (["ontable a", "holding b", "holding c", "clear a"], ["on a c"], "a place that another block has"),
        (["ontable a", "on b a", "on c a", "clear b", "clear c", "handempty"], ["on a c"], "place that another block"),
        (["on a b", "on b c", "on c a", "handempty"], ["on a c"], "in a circle"),
        (["ontable c", "holding a", "on b a", "clear b", "clear c"], ["on a c"], "b is on a, which is in the hand"),
        (FACTS, [], "the goal has no facts"),
        (FACTS, ["on a a"], "in a circle"),
        (FACTS, ["on a b", "on b a"], "in a circle"),
        (FACTS, ["on a b", "ontable a"], "in a second place"),
        (FACTS, ["on a b", "on c b"], "that another block has"),
        (FACTS, ["on a b", "clear b"], "b is to be clear and to carry a block"),
        (FACTS, ["holding a"], "goal 'holding a' is not offered"),
        (FACTS, ["on b a"], "the goal holds in the initial state"),
    ],
)
def test_facts_that_are_no_problem_are_refused(initial, goal, message):
    with pytest.raises(FactError, match=message):
        problem(initial, goal)


@pytest.mark.parametrize(
    "blocks", [[], ["a", "a", "b"], ["a", "A", "b"], ["a b", "b", "c"], ["1", "b", "c"], ["", "b"]]
)
def test_names_that_are_no_names_are_refused(blocks):
    with pytest.raises(FactError, match=r"there are no blocks|cannot name one block"):
        problem(blocks=blocks)


# ---- against unified-planning ------------------------------------------------------------------------------------


def test_random_playouts_agree_with_the_simulator_of_unified_planning():
    reader_module = pytest.importorskip("unified_planning.io")
    engines = pytest.importorskip("unified_planning.engines")
    rng = random.Random(5)
    for blocks in (2, 4, 6):
        names = tuple("abcdef"[:blocks])
        state = draw_state(rng, blocks)
        ours = Problem(names, state, Goal((1, *[None] * (blocks - 1))))
        theirs = reader_module.PDDLReader().parse_problem_string(DOMAIN, write_problem(ours))
        simulator = engines.UPSequentialSimulator(theirs, error_on_failed_checks=False)
        there = simulator.get_initial_state()
        atoms = {
            " ".join([fluent.name, *(thing.name for thing in things)]): fluent(*things)
            for fluent in theirs.fluents
            for things in ([()], [(x,) for x in theirs.all_objects], pairs(theirs.all_objects))[fluent.arity]
        }
        for _ in range(25):
            true = {text for text, atom in atoms.items() if there.get_value(atom).is_true()}
            assert set(ours.facts(state)) == true
            assert ours.goal.holds(state) == simulator.is_goal(there)
            applicable = {
                " ".join([action.name, *(str(argument) for argument in arguments)])
                for action, arguments in simulator.get_applicable_actions(there)
            }
            assert {ours.text(operator) for operator in legal_operators(state)} == applicable
            chosen = rng.choice(sorted(applicable))
            state = apply(state, ours.operator(chosen))
            name, *arguments = chosen.split()
            there = simulator.apply(there, theirs.action(name), [theirs.object(argument) for argument in arguments])


def pairs(things):
    return [(x, y) for x in things for y in things]


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_every_text_is_legal_or_has_a_reason(blocks):
    rng = random.Random(blocks)
    names = tuple("abc"[:blocks])
    every = [Operator(name, x) for name in ("pick-up", "put-down") for x in range(blocks)]
    every += [Operator(name, x, y) for name in ("stack", "unstack") for x in range(blocks) for y in range(blocks)]
    state = draw_state(rng, blocks)
    for _ in range(60):
        legal = legal_operators(state)
        assert len(set(legal)) == len(legal)
        assert {operator for operator in every if illegal(state, operator, names) is None} == set(legal)
        state = apply(state, rng.choice(legal))
        assert state.count(HAND) <= 1
        assert clear_blocks(state) or HAND in state
