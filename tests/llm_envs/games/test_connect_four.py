"""Connect four: the rules against OpenSpiel, PettingZoo and a plain board of lists; the solver against exhaustion."""

from __future__ import annotations

import copy
import os
import random
from functools import cache

import pytest
from gymnasium import error
from hypothesis import given, settings
from hypothesis import strategies as st

import llm_envs
from llm_envs.games.connect_four import ConnectFour
from llm_envs.games.connect_four_solver import WIN, search

PLAYED = int(os.environ.get("LLM_ENVS_TEST_GAMES", "10000"))
PLAYED_SLOWLY = int(os.environ.get("LLM_ENVS_TEST_GAMES", "2000"))
"""Games with PettingZoo's board of lists, which looks for a line cell by cell."""

GAME = ConnectFour()


def returns(game: ConnectFour, first: int, second: int) -> int:
    return game.has_line(first) - game.has_line(second)


def position_of(game: ConnectFour, *columns: int) -> tuple[int, int]:
    position = (0, 0)
    for column in columns:
        position = game.play(*position, column)
    return position


def plain_rows(game: ConnectFour, columns: list[int]) -> list[str]:
    """The board after ``columns``, by dropping marks into lists."""
    stacks: list[str] = [""] * game.width
    for ply, column in enumerate(columns):
        stacks[column] += "XO"[ply % 2]
    return ["".join(stack[row : row + 1] or "." for stack in stacks) for row in reversed(range(game.height))]


def plain_line(rows: list[str], mark: str, connect: int) -> bool:
    """Whether ``mark`` has a line, cell by cell."""
    height, width = len(rows), len(rows[0])
    return any(
        all(
            0 <= r + i * down < height and 0 <= c + i * right < width and rows[r + i * down][c + i * right] == mark
            for i in range(connect)
        )
        for r in range(height)
        for c in range(width)
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1))
    )


SIZES = st.tuples(st.integers(2, 8), st.integers(2, 8)).flatmap(
    lambda size: st.tuples(st.just(size[0]), st.just(size[1]), st.integers(2, max(size)))
)


@settings(deadline=None)
@given(SIZES, st.randoms(use_true_random=False))
def test_rules_agree_with_a_plain_board_of_any_size(size, rng):
    game = ConnectFour(*size)
    position, played = (0, 0), []
    while legal := game.legal_columns(*position):
        rows = plain_rows(game, played)
        assert game.rows(*position) == rows
        assert legal == tuple(c for c in range(game.width) if rows[0][c] == ".")
        assert not plain_line(rows, "X", game.connect)
        assert not plain_line(rows, "O", game.connect)
        played.append(rng.choice(legal))
        position = game.play(*position, played[-1])
    rows = plain_rows(game, played)
    assert game.rows(*position) == rows
    lines = [plain_line(rows, mark, game.connect) for mark in "XO"]
    assert lines == [game.has_line(discs) for discs in position]
    assert any(lines) or "." not in rows[0]


def test_no_line_runs_from_one_column_into_the_next():
    # The three top cells of column 0 and the lowest of column 1 are neighbours in a mask without a spare bit.
    assert not GAME.has_line(sum(1 << bit for bit in (3, 4, 5, 7)))
    assert GAME.has_line(sum(1 << bit for bit in (2, 3, 4, 5)))


def test_board_text():
    first, second = position_of(GAME, 3, 3, 0)
    assert GAME.board_text(first, second) == "\n".join(
        ["0 1 2 3 4 5 6", *[". . . . . . ."] * 4, ". . . O . . .", "X . . X . . ."]
    )


def test_rules_agree_with_openspiel():
    pyspiel = pytest.importorskip("pyspiel")
    game, rng = pyspiel.load_game("connect_four"), random.Random(0)
    for _ in range(PLAYED):
        state, position, ply = game.new_initial_state(), (0, 0), 0
        while not state.is_terminal():
            legal = state.legal_actions()
            assert state.current_player() == ply % 2
            assert tuple(legal) == GAME.legal_columns(*position)
            column = rng.choice(legal)
            state.apply_action(column)
            position, ply = GAME.play(*position, column), ply + 1
        assert GAME.is_over(*position)
        assert state.returns() == [returns(GAME, *position), -returns(GAME, *position)]


def test_rules_agree_with_pettingzoo():
    pytest.importorskip("pygame")
    from pettingzoo.classic.connect_four.connect_four import raw_env

    other, rng = raw_env(), random.Random(1)
    for _ in range(PLAYED_SLOWLY):
        other.reset()
        position, ply = (0, 0), 0
        while not any(other.terminations.values()):
            legal = other._legal_moves()
            assert other.agent_selection == other.possible_agents[ply % 2]
            assert tuple(legal) == GAME.legal_columns(*position)
            column = rng.choice(legal)
            other.step(column)
            position, ply = GAME.play(*position, column), ply + 1
        assert GAME.is_over(*position)
        rewards = [other.rewards[agent] for agent in other.possible_agents]
        assert rewards == [returns(GAME, *position), -returns(GAME, *position)]


def test_environment_agrees_with_openspiel():
    pyspiel = pytest.importorskip("pyspiel")
    game, rng = pyspiel.load_game("connect_four"), random.Random(2)
    env = llm_envs.make("connect-four", order_enforcing=False)
    for seed in range(PLAYED // 10):
        state = game.new_initial_state()
        env.reset(seed=seed)
        while not state.is_terminal():
            agent = env.agent_selection
            assert agent == f"player_{state.current_player()}"
            assert env.legal_actions(agent) == [f"[{column}]" for column in state.legal_actions()]
            assert env._table().partition("\n")[2].replace(" ", "") == str(state).strip().replace("x", "X").replace(
                "o", "O"
            )
            column = rng.choice(state.legal_actions())
            state.apply_action(column)
            env.step(f"[{column}]")
        assert all(env.terminations.values())
        assert [env.rewards[agent] for agent in env.possible_agents] == state.returns()


@pytest.mark.parametrize("size", [(4, 4, 3), (10, 9, 5), (2, 6, 4)])
def test_the_environment_shows_any_size_of_board(size):
    width, height, connect = size
    env = llm_envs.make("connect-four", width=width, height=height, connect=connect, order_enforcing=False)
    rules, rng = ConnectFour(*size), random.Random(0)
    for seed in range(20):
        env.reset(seed=seed)
        position = (0, 0)
        while env.round_agents:
            agent = env.agent_selection
            board = rules.board_text(*position)
            assert f"Board:\n{board}\n\nYou are {agent}" in env.observe(agent)
            legal = rules.legal_columns(*position)
            assert env.legal_actions(agent) == [f"[{column}]" for column in legal]
            column = rng.choice(legal)
            position = rules.play(*position, column)
            env.step(f"[{column}]")
        assert env.rewards["player_0"] == returns(rules, *position)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"width": 1}, "width"),
        ({"width": 11}, "width"),
        ({"height": 0}, "height"),
        ({"connect": 8}, "connect"),
        ({"connect": 1}, "connect"),
        ({"connect": 2, "opening_moves": 20}, "opening_moves"),
        ({"opening_moves": 21}, "opening_moves"),
    ],
)
def test_impossible_boards_are_refused(arguments, named):
    with pytest.raises(error.Error, match=f"`{named}` .*actual value: {arguments[named]}"):
        llm_envs.make("connect-four", **arguments)


@pytest.mark.parametrize("size", [(0, 6, 4), (7, 6, 8), (7, 6, 0)])
def test_impossible_rules_are_refused(size):
    with pytest.raises(ValueError, match=r"must be positive|fits on a board"):
        ConnectFour(*size)


def test_illegal_plays_are_refused():
    full = position_of(GAME, 0, 0, 0, 0, 0, 0)
    won = position_of(GAME, 0, 1, 0, 1, 0, 1, 0)
    assert GAME.legal_columns(*full) == (1, 2, 3, 4, 5, 6)
    assert GAME.legal_columns(*won) == ()
    for position, column in ((full, 0), (won, 3), ((0, 0), 7), ((0, 0), -1)):
        with pytest.raises(ValueError, match="takes no disc"):
            GAME.play(*position, column)
    assert copy.deepcopy(GAME) is GAME


# ---- the solver -----------------------------------------------------------------------------------------------------


@cache
def exhausted(game: ConnectFour, first: int, second: int) -> int:
    """The score of a position for the player to move, as the solver counts, by trying everything."""
    moved_last = second if first.bit_count() == second.bit_count() else first
    if game.has_line(moved_last):
        return (first | second).bit_count() - WIN
    return max((-exhausted(game, *game.play(first, second, c)) for c in game.legal_columns(first, second)), default=0)


SMALL = {size: ConnectFour(*size) for size in ((3, 3, 3), (4, 3, 3), (3, 4, 3), (4, 4, 4))}


@pytest.mark.parametrize("size", SMALL)
def test_the_solver_is_exact_on_small_boards(size):
    game, rng = SMALL[size], random.Random(0)
    checked = 0
    for _ in range(40):
        position = (0, 0)
        while legal := game.legal_columns(*position):
            if sum(discs.bit_count() for discs in position) >= (6 if size == (4, 4, 4) else 0):
                found = search(game, *position, None)
                assert found.exact
                assert found.score == exhausted(game, *position)
                assert -exhausted(game, *game.play(*position, found.column)) == found.score
                checked += 1
            position = game.play(*position, rng.choice(legal))
    assert checked > 100


@pytest.mark.parametrize(
    ("columns", "best"),
    [
        ((), 3),  # the centre
        ((0, 6, 1, 6, 2, 6), 3),  # wins at once, though O threatens a column
        ((0, 6, 1, 6, 5, 6), 6),  # must stop the column of O
        ((3, 0, 2, 0), 4),  # three in a row with both ends free
    ],
)
def test_the_oracle_sees_threats(columns, best):
    found = search(GAME, *position_of(GAME, *columns))
    assert found.column == best


def test_a_forced_win_is_known_as_one():
    found = search(GAME, *position_of(GAME, 3, 0, 2, 0))
    assert found.exact
    assert found.score == WIN - 7  # X plays 4, O one end, X the other: seven discs


def test_the_budget_counts_positions_and_the_result_is_the_same_again():
    rng = random.Random(5)
    for _ in range(5):
        position = position_of(GAME, *GAME.random_opening(rng, 2))
        shallow, deep = search(GAME, *position, 50), search(GAME, *position, 5_000)
        assert 2 <= shallow.depth < deep.depth
        search.cache_clear()
        assert (search(GAME, *position, 50), search(GAME, *position, 5_000)) == (shallow, deep)


def test_no_move_at_the_end():
    with pytest.raises(ValueError, match="over"):
        search(GAME, *position_of(GAME, 0, 1, 0, 1, 0, 1, 0))


def test_the_oracle_beats_random_play():
    env, rng = llm_envs.make("connect-four", order_enforcing=False), random.Random(0)
    for seed in range(10):
        env.reset(seed=seed)
        me = f"player_{seed % 2}"
        while env.round_agents:
            agent = env.agent_selection
            env.step(env.oracle(agent) if agent == me else rng.choice(env.legal_actions(agent)))
        assert env.infos[me]["outcome"] == "win"
