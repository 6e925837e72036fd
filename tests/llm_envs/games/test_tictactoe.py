"""Tic-tac-toe: the rules against OpenSpiel and PettingZoo, and perfect play."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llm_envs
from llm_envs.games import tictactoe as rules
from llm_envs.games.deals import DEALS

PLAYED = int(os.environ.get("LLM_ENVS_TEST_GAMES", "10000"))


def play(first: int, second: int, cell: int) -> tuple[int, int]:
    assert cell in rules.legal_cells(first, second)
    if first.bit_count() == second.bit_count():
        return first | 1 << cell, second
    return first, second | 1 << cell


def returns(first: int, second: int) -> int:
    return rules.HAS_LINE[first] - rules.HAS_LINE[second]


def reachable():
    """Every position that play can lead to."""
    found, waiting = {(0, 0)}, [(0, 0)]
    while waiting:
        position = waiting.pop()
        for cell in rules.legal_cells(*position):
            after = play(*position, cell)
            if after not in found:
                found.add(after)
                waiting.append(after)
    return found


def test_number_of_positions():
    """5,478 positions, 958 of them over (626 won by X, 316 by O, 16 drawn): known numbers."""
    positions = reachable()
    over = [position for position in positions if rules.is_over(*position)]
    results = Counter(returns(*position) for position in over)
    assert (len(positions), len(over)) == (5478, 958)
    assert results == {1: 626, -1: 316, 0: 16}


@pytest.mark.parametrize(
    ("cells", "line"), [((0, 1, 2), True), ((6, 7, 8), True), ((0, 4, 8), True), ((2, 4, 6), True), ((2, 3, 4), False)]
)
def test_lines(cells, line):
    assert bool(rules.HAS_LINE[sum(1 << cell for cell in cells)]) == line


def test_board_text():
    assert rules.board_text(0b000010000, 0b100000001) == " O | 1 | 2\n---+---+---\n 3 | X | 5\n---+---+---\n 6 | 7 | O"


def test_rules_agree_with_openspiel():
    pyspiel = pytest.importorskip("pyspiel")
    game, rng = pyspiel.load_game("tic_tac_toe"), random.Random(0)
    for _ in range(PLAYED):
        state, position, ply = game.new_initial_state(), (0, 0), 0
        while not state.is_terminal():
            assert not rules.is_over(*position)
            assert state.current_player() == ply % 2
            assert tuple(state.legal_actions()) == rules.legal_cells(*position)
            cell = rng.choice(state.legal_actions())
            state.apply_action(cell)
            position, ply = play(*position, cell), ply + 1
        assert rules.is_over(*position)
        assert rules.legal_cells(*position) == ()
        assert state.returns() == [returns(*position), -returns(*position)]


def test_rules_agree_with_pettingzoo():
    pytest.importorskip("pygame")
    from pettingzoo.classic.tictactoe.tictactoe import raw_env

    other, rng = raw_env(), random.Random(1)
    for _ in range(PLAYED):
        other.reset()
        position, ply = (0, 0), 0
        while not any(other.terminations.values()):
            assert other.agent_selection == other.possible_agents[ply % 2]
            assert tuple(other.board.legal_moves()) == rules.legal_cells(*position)
            cell = rng.choice(other.board.legal_moves())
            other.step(cell)
            position, ply = play(*position, cell), ply + 1
        assert rules.is_over(*position)
        assert [other.rewards[agent] for agent in other.possible_agents] == [returns(*position), -returns(*position)]


def test_environment_agrees_with_openspiel():
    pyspiel = pytest.importorskip("pyspiel")
    game, rng = pyspiel.load_game("tic_tac_toe"), random.Random(2)
    env = llm_envs.make("tictactoe", order_enforcing=False)
    for seed in range(PLAYED // 10):
        state = game.new_initial_state()
        env.reset(seed=seed)
        while not state.is_terminal():
            agent = env.agent_selection
            assert agent == f"player_{state.current_player()}"
            assert env.legal_actions(agent) == [f"[{cell}]" for cell in state.legal_actions()]
            board = "".join(str(env._table()).split("\n")[::2]).replace("|", "").replace(" ", "")
            assert "".join("." if mark.isdigit() else mark.lower() for mark in board) == str(state).replace("\n", "")
            cell = rng.choice(state.legal_actions())
            state.apply_action(cell)
            env.step(f"[{cell}]")
        assert all(env.terminations.values())
        assert [env.rewards[agent] for agent in env.possible_agents] == state.returns()


# ---- perfect play ---------------------------------------------------------------------------------------------------


def test_values_are_those_of_an_independent_minimax():
    """Minimax over OpenSpiel's game tree, without our rules."""
    pyspiel = pytest.importorskip("pyspiel")
    values: dict[str, float] = {}

    def value(state) -> float:
        key = str(state)
        if key not in values:
            if state.is_terminal():
                values[key] = state.returns()[0]
            else:
                after = [value(state.child(action)) for action in state.legal_actions()]
                values[key] = max(after) if state.current_player() == 0 else min(after)
        return values[key]

    assert value(pyspiel.load_game("tic_tac_toe").new_initial_state()) == 0
    for first, second in reachable():
        key = "\n".join(
            "".join("x" if first >> c & 1 else "o" if second >> c & 1 else "." for c in row)
            for row in ((0, 1, 2), (3, 4, 5), (6, 7, 8))
        )
        if first.bit_count() == second.bit_count():
            assert rules.value(first, second) == values[key]
        else:
            assert rules.value(second, first) == -values[key]


@pytest.mark.parametrize("seat", [0, 1])
def test_the_oracle_never_loses_to_any_replies(seat):
    """All games of the oracle in one seat against every reply in the other."""
    env = llm_envs.make("tictactoe", order_enforcing=False)
    env.reset(seed=0)
    results: Counter[str] = Counter()
    waiting = [env]
    while waiting:
        env = waiting.pop()
        if not env.round_agents:
            results[env.infos[f"player_{seat}"]["outcome"]] += 1
            continue
        agent = env.agent_selection
        moves = [env.oracle(agent)] if agent == f"player_{seat}" else env.legal_actions(agent)
        for move in moves:
            fork = env.fork()
            fork.step(move)
            waiting.append(fork)
    assert set(results) == {"win", "draw"}
    assert results["win"] > 10


def test_the_sooner_win_and_the_later_loss():
    """Wherever one can win at once one does; a lost game is not over at once where that can be helped."""

    def wins(own: int, other: int) -> set[int]:
        return {cell for cell in rules.free_cells(own | other) if rules.HAS_LINE[own | 1 << cell]}

    slower = lost = 0
    for first, second in reachable():
        if rules.is_over(first, second):
            continue
        own, other = (first, second) if first.bit_count() == second.bit_count() else (second, first)
        best, free = rules.best_cell(own, other), rules.free_cells(own | other)
        at_once = wins(own, other)
        if at_once:
            assert best == min(at_once)
            slower += any(rules.value(other, own | 1 << cell) == -1 for cell in free if cell < best)
        elif rules.value(own, other) == -1:
            holds = {cell for cell in free if not wins(other, own | 1 << cell)}
            assert best in holds or not holds
            lost += bool(holds) and free[0] not in holds
    assert min(slower, lost) > 20  # positions in which a player that only looks at win or loss errs


def test_no_move_at_the_end():
    with pytest.raises(ValueError, match="over"):
        rules.best_cell(0b000000111, 0b000011000)


@given(st.randoms(use_true_random=False), st.integers(0, 4))
def test_openings_are_legal(rng, plies):
    position = (0, 0)
    for cell in rules.random_opening(rng, plies):
        position = play(*position, cell)
    assert not rules.is_over(*position)


def test_the_environment_is_named_in_module_form():
    from llm_envs.games import tictactoe_v0

    env = tictactoe_v0.env(tasks=DEALS)
    env.reset(seed=0)
    assert env.metadata["name"] == "tictactoe_v0"
