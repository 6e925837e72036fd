"""Scripted opponents: they know the position, play by their rules, repeat themselves, and say what they do not know."""

from __future__ import annotations

import random
import sys
from collections import Counter
from itertools import pairwise

import pytest
from gymnasium import error

import llm_envs
from benchmarks.metrics import wilson_interval
from llm_envs.games import opponents_positions as positions
from llm_envs.games import tictactoe
from llm_envs.games.opponents import MCTS, Minimax, Opponent, make_opponent, read_options

pyspiel = pytest.importorskip("pyspiel")


def play(env, first: Opponent, second: Opponent, game: int, task: int = 0):
    """Play one game; return the outcome of player_0."""
    seats = {"player_0": first, "player_1": second}
    env.reset(seed=game, options={"task_index": task})
    move = 0
    while env.round_agents:
        agent = env.agent_selection
        env.step(seats[agent].choose(env, agent, 1000 * game + move))
        assert "invalid_action" not in env.infos[agent]
        move += 1
    assert "forfeit" not in env.infos["player_0"]
    return env.infos["player_0"]["outcome"]


def bare(env_id: str, **arguments):
    return llm_envs.make(env_id, **arguments).unwrapped


@pytest.mark.parametrize(
    ("env_id", "arguments"),
    [
        ("tictactoe", {}),
        ("tictactoe", {"opening_moves": 3}),
        ("connect-four", {"opening_moves": 4}),
        ("connect-four", {"width": 5, "height": 4, "connect": 3}),
        ("kuhn-poker", {}),
        ("openspiel/breakthrough", {"rows": 4, "columns": 4}),
        ("openspiel/leduc_poker", {}),
    ],
)
def test_the_position_is_that_of_the_environment(env_id, arguments) -> None:
    """Random games: OpenSpiel agrees all along on whose turn it is, on what is legal, and on who has won."""
    env = bare(env_id, **arguments)
    for game in range(12):
        rng = random.Random(game)
        env.reset(seed=game)
        while env.round_agents:
            agent = env.agent_selection
            position = positions.read(env, agent)
            assert position.player == position.state.current_player() == env.possible_agents.index(agent)
            legal = env.legal_actions(agent)
            texts = {position.text(move): move for move in position.state.legal_actions()}
            assert sorted(texts) == sorted(legal)
            choice = rng.choice(legal)
            position.state.apply_action(texts[choice])
            env.step(choice)
        while position.state.is_chance_node():
            pytest.fail("the last move of these games is no chance event")
        returns = position.state.returns()
        assert {"win": 1, "draw": 0, "loss": -1}[env.infos["player_0"]["outcome"]] == (returns[0] > 0) - (
            returns[0] < 0
        )


def test_reading_does_not_touch_the_environment() -> None:
    env = bare("openspiel/breakthrough", rows=4, columns=4)
    env.reset(seed=1)
    before = (env.observe("player_0"), env.state())
    for opponent in (Minimax(nodes=500), MCTS(sims=20)):
        opponent.choose(env, "player_0", 1)
    assert (env.observe("player_0"), env.state()) == before


def test_minimax_knows_the_value_of_every_tictactoe_move() -> None:
    """Its moves are exactly those of the greatest value, against the environment's own rules."""
    env, minimax, rng = bare("tictactoe"), Minimax(), random.Random(5)
    for game in range(25):
        env.reset(seed=game)
        while env.round_agents:
            agent = env.agent_selection
            own, other = (env._first, env._second) if agent == "player_0" else (env._second, env._first)
            worth = {
                f"[{cell}]": -tictactoe.value(other, own | 1 << cell) for cell in tictactoe.legal_cells(own, other)
            }
            best = {move for move, value in worth.items() if value == max(worth.values())}
            chosen = {minimax.choose(env, agent, seed) for seed in range(40)}
            assert chosen <= best
            if max(worth.values()) < 1 and len(best) > 1 and min(worth.values()) != max(worth.values()):
                assert len(chosen) > 1  # it does choose between equals
            env.step(rng.choice(env.legal_actions(agent)))


def test_minimax_never_loses_tictactoe_in_either_seat() -> None:
    env, minimax, other = bare("tictactoe"), Minimax(), make_opponent("random")
    first = Counter(play(env, minimax, other, game) for game in range(200))
    second = Counter(play(env, other, minimax, game) for game in range(200))
    assert first["loss"] == 0
    assert second["win"] == 0
    assert first["win"] > 150
    assert Counter(play(env, minimax, minimax, game) for game in range(10)) == {"draw": 10}


def test_minimax_wins_as_soon_and_loses_as_late_as_it_can() -> None:
    env, minimax, rng = bare("tictactoe"), Minimax(), random.Random(6)
    decided = Counter()
    for game in range(60):
        env.reset(seed=game)
        while env.round_agents:
            agent = env.agent_selection
            own, other = (env._first, env._second) if agent == "player_0" else (env._second, env._first)
            score = tictactoe.score(own, other)  # further from 0 the sooner the game is over
            if score:
                for seed in range(5):
                    cell = int(minimax.choose(env, agent, seed)[1])
                    assert -tictactoe.score(other, own | 1 << cell) == score
                decided[score > 0] += 1
            env.step(rng.choice(env.legal_actions(agent)))
    assert min(decided.values()) > 10


def test_minimax_sees_four_in_a_row() -> None:
    env = bare("connect-four")
    env.reset(seed=0)
    for move in ("[3]", "[0]", "[3]", "[0]", "[3]"):
        env.step(move)
    assert {Minimax(depth=4).choose(env, "player_1", seed) for seed in range(5)} == {"[3]"}  # blocks three in a column
    env.step("[1]")
    assert {Minimax(depth=4).choose(env, "player_0", seed) for seed in range(5)} == {"[3]"}  # wins at once


def test_mcts_beats_random_at_connect_four() -> None:
    """At least 90 % of the points: the 95 % interval of its wins lies above that."""
    env, mcts, other = bare("connect-four"), MCTS(sims=200), make_opponent("random")
    won = sum(play(env, mcts, other, game) == "win" for game in range(30))
    won += sum(play(env, other, mcts, game) == "loss" for game in range(30))
    assert wilson_interval(won, 60)[0] > 0.9


def test_more_simulations_play_better() -> None:
    env = bare("connect-four")
    strong, weak = MCTS(sims=400), MCTS(sims=10)
    won = sum(play(env, strong, weak, game) == "win" for game in range(10))
    won += sum(play(env, weak, strong, game) == "loss" for game in range(10))
    assert wilson_interval(won, 20)[0] > 0.5


def test_mcts_does_not_see_the_card_of_the_other() -> None:
    """Two deals that look the same to the player to move give the same move, whatever the other holds."""
    env, mcts = bare("kuhn-poker"), MCTS(sims=60)
    by_cards = {}
    for index in range(100):
        by_cards.setdefault(env.tasks[index].data["cards"], index)
    assert len(by_cards) == 6
    for card in range(3):
        hidden = [index for cards, index in by_cards.items() if cards[0] == card]
        moves = []
        for index in hidden:
            env.reset(seed=0, options={"task_index": index})
            moves.append([mcts.choose(env, "player_0", seed) for seed in range(20)])
        assert all(one == two for one, two in pairwise(moves))


def test_mcts_calls_with_the_king_and_folds_the_jack() -> None:
    env, mcts = bare("kuhn-poker"), MCTS(sims=200)
    for index in range(20):
        env.reset(seed=0, options={"task_index": index})
        env.step("[bet]")
        card = env.task.data["cards"][1]
        if card != 1:
            assert {mcts.choose(env, "player_1", seed) for seed in range(5)} == {"[call]" if card == 2 else "[fold]"}


@pytest.mark.parametrize(
    ("spec", "env_id"),
    [
        ("random", "connect-four"),
        ("minimax:nodes=2000", "connect-four"),
        ("mcts:sims=30", "connect-four"),
        ("mcts:sims=30", "kuhn-poker"),
        ("mcts:sims=30", "openspiel/leduc_poker"),
        ("oracle", "kuhn-poker"),
    ],
)
def test_same_seed_same_move(spec: str, env_id: str) -> None:
    one, two = make_opponent(spec), make_opponent(spec)
    env, twin = bare(env_id), bare(env_id)
    games = []
    for _ in range(2):
        for game in range(3):
            games.append(play(env, one, one, game))
            play(twin, two, two, game)
            assert env.transcript == twin.transcript
    assert games[:3] == games[3:]  # nothing of earlier games is left
    if spec != "oracle":
        env.reset(seed=0)
        assert len({one.choose(env, "player_0", seed) for seed in range(40)}) > 1


def test_random_is_uniform_over_the_legal_moves() -> None:
    env, other = bare("tictactoe"), make_opponent("random")
    env.reset(seed=0)
    env.step("[4]")
    count = Counter(other.choose(env, "player_1", seed) for seed in range(4000))
    assert set(count) == set(env.legal_actions("player_1"))
    # chi-squared with 7 degrees of freedom: 24.3 is its 99.9 % point
    assert sum((n - 500) ** 2 / 500 for n in count.values()) < 24.3
    with pytest.raises(error.Error, match="it is not to move"):
        other.choose(env, "player_0", 0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("minmax", "There is no opponent 'minmax'. Did you mean 'minimax'?"),
        ("mcts:simz=3", "'mcts' has no option 'simz'. Did you mean 'sims'? It has: sims, uct_c, rollouts, seed."),
        ("random:seed=1", "'random' has no option 'seed'. It has: none."),
        ("mcts:sims", "written key=value,key=value"),
        ("mcts:sims=1,sims=2", "given twice"),
        ("mcts:sims=0", "`sims` must be an integer of 1 or more, actual value: 0"),
        ("mcts:uct_c=-1", "`uct_c` must be a number of 0 or more"),
        ("minimax:depth=x", "`depth` must be an integer of 1 or more, actual value: 'x'"),
    ],
)
def test_wrong_specs_are_explained(spec: str, message: str) -> None:
    with pytest.raises(error.Error) as caught:
        make_opponent(spec)
    assert message in str(caught.value)


def test_options() -> None:
    assert read_options("sims=5, uct_c=0.5") == {"sims": 5, "uct_c": 0.5}
    opponent = make_opponent("mcts:sims=5", seed=3)
    assert isinstance(opponent, MCTS)
    assert (opponent.sims, opponent.seed) == (5, 3)
    with pytest.raises(error.Error, match="given twice"):
        make_opponent("mcts:sims=5", sims=6)


@pytest.mark.parametrize(
    ("spec", "env_id", "message"),
    [
        ("minimax", "math-2agent", "OpenSpiel does not know math-2agent-v0"),
        ("mcts", "math-2agent", "They know: tictactoe, connect-four, kuhn-poker, and openspiel/<name>"),
        ("minimax", "kuhn-poker", "which has chance in it and hides information"),
        ("minimax", "openspiel/matrix_rps", "is played in rounds"),
        ("mcts", "openspiel/matrix_rps", "it is played in rounds"),
        ("minimax", "openspiel/first_sealed_auction", "is not zero-sum"),
        ("mcts", "openspiel/liars_dice", "OpenSpiel cannot imagine what is hidden"),
        ("mcts", "openspiel/gin_rummy", "OpenSpiel cannot imagine what is hidden"),
        ("random", "math-2agent", "does not list legal moves"),
    ],
)
def test_a_game_that_is_not_known_is_refused(spec: str, env_id: str, message: str) -> None:
    with pytest.raises(error.Error) as caught:
        make_opponent(spec).check(bare(env_id))
    assert message in str(caught.value)


def test_without_openspiel_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    positions._load.cache_clear()
    with pytest.raises(error.DependencyNotInstalled, match=r"llm-envs\[games\]"):
        make_opponent("minimax").check(bare("tictactoe"))
