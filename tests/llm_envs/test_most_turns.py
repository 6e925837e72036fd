"""`most_turns` bounds what any policy can do, and is no larger than the longest episode where one can be forced."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import llm_envs

GAMES = ["openspiel/tic_tac_toe", "openspiel/kuhn_poker", "openspiel/goofspiel", "pettingzoo/tictactoe_v3"]
SUDOKU = {"task_options": {"grid_size": 4}}
SMALL = {"sudoku-1agent-v0": SUDOKU, "sudoku-2agent-v0": SUDOKU}


def play(env, act, seed):
    """Play one episode; return the turns of each agent."""
    env.reset(seed=seed)
    turns = Counter()
    while env.round_agents:
        agent = env.agent_selection
        turns[agent] += 1
        env.step(act(agent))
    return turns


def policies(env):
    draw = random.Random(0)
    legal = getattr(env, "legal_actions", None)

    def examples(agent):
        if legal is not None and draw.random() < 0.8:
            return draw.choice(legal(agent))
        return env.action_space(agent).sample()

    return {
        "nothing": lambda agent: "",
        "oracle": env.oracle,
        "examples": examples,
        "sometimes nothing": lambda agent: "" if draw.random() < 0.5 else examples(agent),
    }


@pytest.mark.parametrize("env_id", [*sorted(llm_envs.registry), *GAMES])
def test_nobody_exceeds_the_bound(env_id):
    env = llm_envs.make(env_id, **SMALL.get(env_id, {})).unwrapped
    for agent in env.possible_agents:
        env.action_space(agent).seed(0)
    for act in policies(env).values():
        for seed in range(2):
            turns = play(env, act, seed)
            assert sum(turns.values()) <= env.most_turns()
            for agent in env.possible_agents:
                assert turns[agent] <= env.most_turns([agent])


@pytest.mark.parametrize(
    ("env_id", "arguments", "expected"),
    [
        ("math-1agent", {"max_rounds": 3}, 3),
        ("math-2agent", {"max_rounds": 2}, 3),
        ("math-4agent", {"max_rounds": 2, "max_retries": 1}, 14),
        ("math-tool-2agent", {"max_rounds": 2}, 4),
        ("math-debate", {"max_rounds": 2, "n_agents": 3}, 6),
        ("search-1agent", {"max_rounds": 3}, 3),
        ("search-3agent", {"max_rounds": 4}, 7),
        ("plan-path-1agent", {"max_rounds": 3, "max_retries": 2}, 9),
        ("plan-path-2agent", {"max_rounds": 3}, 6),
        ("code-1agent", {"max_rounds": 2}, 2),
        ("code-2agent", {"max_rounds": 2}, 4),
        ("code-3agent", {"max_rounds": 2}, 5),
    ],
)
def test_whoever_says_nothing_useful_reaches_it(env_id, arguments, expected):
    env = llm_envs.make(env_id, **arguments).unwrapped
    assert env.most_turns() == expected
    assert sum(play(env, lambda agent: "", seed=0).values()) == expected


@pytest.mark.parametrize(
    ("env_id", "arguments", "first", "second"),
    [
        ("tictactoe", {}, 10, 8),
        ("tictactoe", {"max_retries": 0}, 5, 4),
        ("connect-four", {"max_retries": 0}, 21, 21),
        ("kuhn-poker", {"max_retries": 0}, 2, 1),
        ("negotiation", {"max_retries": 0, "max_turns": 5}, 3, 2),
        ("search-2agent", {"max_rounds": 4}, 4, 3),
    ],
)
def test_agents_have_bounds_of_their_own(env_id, arguments, first, second):
    env = llm_envs.make(env_id, **arguments).unwrapped
    assert [env.most_turns([agent]) for agent in env.possible_agents] == [first, second]
    assert env.most_turns() == first + second


def test_a_game_without_a_known_end_has_none():
    assert llm_envs.make("pettingzoo/chess_v6").unwrapped.most_turns() is None


def test_a_limit_of_turns_is_one_of_the_bound():
    env = llm_envs.make("openspiel/tic_tac_toe", max_retries=0, turn_limit=4).unwrapped
    assert env.most_turns() == 4
    assert sum(play(env, env.oracle, seed=0).values()) == 4
