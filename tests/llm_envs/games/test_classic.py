"""PettingZoo's board games in text: agreement with independent rules, names of moves, the contract, errors."""

from __future__ import annotations

import pickle
import random
import sys

import pytest
from gymnasium import error

chess = pytest.importorskip("chess")
pytest.importorskip("pygame")

import pettingzoo  # noqa: E402

import llm_envs  # noqa: E402
from llm_envs import testing  # noqa: E402
from llm_envs.games import classic_catalog as catalog  # noqa: E402

NAMES = catalog.names()


def started(name):
    env = llm_envs.make(f"pettingzoo/{name}", order_enforcing=False)
    env.reset(seed=0)
    return env


def payoffs(env):
    return [env.infos[agent]["reward_parts"].get("team", 0.0) for agent in env.possible_agents]


# ---- agreement -------------------------------------------------------------------------------------------------------


def claimed(board):
    """What White is paid if the game is over: PettingZoo ends it as soon as a draw can be claimed."""
    if board.is_checkmate():
        return -1.0 if board.turn == chess.WHITE else 1.0
    drawn = board.is_stalemate() or board.is_insufficient_material() or board.can_claim_draw()
    return 0.0 if drawn else None


def openspiels_moves(board):
    """The number of legal moves that OpenSpiel's chess counts: rules that share nothing with python-chess."""
    pyspiel = pytest.importorskip("pyspiel")
    state = pyspiel.load_game("chess").new_initial_state(board.fen())
    return len(state.legal_actions())


@pytest.mark.parametrize("plies", [1_200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_chess_agrees_with_a_board_of_its_own(plies):
    rng, env, played, compared = random.Random(plies), started("chess_v6"), 0, 0
    while played < plies:
        env.reset(seed=played)
        board = chess.Board()
        while env.round_agents:
            legal = {f"[{board.san(move)}]": move for move in board.legal_moves}
            assert set(env.legal_actions(env.agent_selection)) == set(legal)
            assert env.agent_selection == ("player_0" if board.turn == chess.WHITE else "player_1")
            if played % 10 == 0:
                assert openspiels_moves(board) == len(legal)
                compared += 1
            text, move = rng.choice(sorted(legal.items(), key=lambda pair: pair[0]))
            env.step(text if played % 2 else f"[{move.uci()}]")
            board.push(move)
            played += 1
            outcome = claimed(board)
            assert (outcome is None) == bool(env.round_agents), board.fen()
        assert payoffs(env) == [outcome, -outcome]
    assert compared > plies // 20


CELL = {"tictactoe_v3": lambda name: 3 * (int(name) % 3) + int(name) // 3, "connect_four_v3": int}
"""PettingZoo numbers the cells of tic-tac-toe by columns, OpenSpiel by rows."""


@pytest.mark.parametrize(("name", "twin"), [("tictactoe_v3", "tic_tac_toe"), ("connect_four_v3", "connect_four")])
def test_small_games_agree_with_openspiel(name, twin):
    game = pytest.importorskip("pyspiel").load_game(twin)
    rng, env, endings = random.Random(0), started(name), set()
    for seed in range(60):
        env.reset(seed=seed)
        state = game.new_initial_state()
        while env.round_agents:
            legal = env.legal_actions(env.agent_selection)
            cells = [CELL[name](text[1:-1]) for text in legal]
            assert sorted(cells) == state.legal_actions()
            assert env.agent_selection == f"player_{state.current_player()}"
            move = rng.randrange(len(legal))
            env.step(legal[move])
            state.apply_action(cells[move])
            assert state.is_terminal() == (not env.round_agents)
        assert payoffs(env) == state.returns()
        endings.add(tuple(state.returns()))
    assert len(endings) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_turns_and_rewards_are_those_of_pettingzoo(name):
    """The same moves, by number, in the library's own environment with all its wrappers."""
    for seed in range(3):
        env, rng = started(name), random.Random(seed)
        theirs = pettingzoo.make("aec", f"classic/{name.replace('_v', '-v')}")
        theirs.reset(seed=0)
        first, second = theirs.possible_agents
        for _ in range(30):
            if not env.round_agents:
                break
            agent = env.agent_selection
            assert theirs.agent_selection == {"player_0": first, "player_1": second}[agent]
            mask = theirs.observe(theirs.agent_selection)["action_mask"]
            text = rng.choice(env.legal_actions(agent))
            assert sorted(env.position.moves.values()) == mask.nonzero()[0].tolist()
            theirs.step(env.position.moves[text[1:-1]])
            env.step(text)
        over = any(theirs.terminations.values())
        assert over == (not env.round_agents)
        if over:
            assert payoffs(env) == [theirs.rewards[first], theirs.rewards[second]]


# ---- text ------------------------------------------------------------------------------------------------------------


def test_boards():
    env = started("tictactoe_v3")
    for move in ("[1]", "[8]"):
        env.step(move)
    assert "0 3 6\nX 4 7\n2 5 O" in env.observe("player_0")
    env = started("connect_four_v3")
    for move in ("[3]", "[3]", "[0]"):
        env.step(move)
    assert env.position.board().splitlines()[-2:] == [". . . O . . .", "X . . X . . ."]
    env = started("chess_v6")
    env.step("[e4]")
    assert "4 . . . . P . . ." in env.observe("player_1")
    assert "FEN: rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1" in env.observe("player_1")
    assert env._context("player_1").endswith("Moves so far:\nplayer_0: [e4]")


def at(fen):
    env = started("chess_v6")
    env.position.raw.board.set_fen(fen)
    env.position.__dict__.pop("moves", None)
    env._legal = None
    return env


@pytest.mark.parametrize(
    ("fen", "texts", "move"),
    [
        ("4k3/8/8/8/8/8/4P3/4K3 w - - 0 1", ["[e4]", "[e2e4]", "[E2E4]", "I advance: [e4].", "[ e4 ]"], "[e4]"),
        ("r3k3/8/8/8/8/8/8/4K2R w K - 0 1", ["[O-O]", "[e1g1]"], "[O-O]"),
        ("8/4P1k1/8/8/8/8/8/4K3 w - - 0 1", ["[e8=Q]", "[e7e8q]"], "[e8=Q]"),
        ("8/4P1k1/8/8/8/8/8/4K3 w - - 0 1", ["[e8=N]", "[e8=N+]", "[e7e8n]"], "[e8=N+]"),
        ("4k3/8/8/8/8/2p5/1P6/B3K3 w - - 0 1", ["[bxc3]", "[b2c3]"], "[bxc3]"),
        ("4k3/8/8/8/8/2p5/1B6/4K3 w - - 0 1", ["[Bxc3]", "[b2c3]"], "[Bxc3]"),
    ],
)
def test_chess_moves_have_several_spellings(fen, texts, move):
    for text in texts:
        env = at(fen)
        env.step(text)
        assert "invalid_action" not in env.infos["player_0"], env.infos["player_0"]
        assert env._context("player_0").endswith(f"player_0: {move}")


@pytest.mark.parametrize(
    "text", ["", "e4", "[e5]", "[e4] [d4]", "[e2e4] [e4]", "[E4]", "[e4", "[bxc3]", "[0]", "[e2e4q]", "[--]", "[0000]"]
)
def test_unusable_chess_moves(text):
    env = started("chess_v6")
    env.step(text)
    assert env.infos["player_0"]["invalid_action"]
    assert env.agent_selection == "player_0"
    env.step(text)
    assert [env.infos[agent]["outcome"] for agent in env.possible_agents] == ["loss", "win"]
    assert not env.success


def test_en_passant_is_a_move_like_any_other():
    env = started("chess_v6")
    for move in ("[e4]", "[a6]", "[e5]", "[d5]", "[exd6]"):
        env.step(move)
    assert "rnbqkbnr/1pp1pppp/p2P4/8/8/8/PPPP1PPP/RNBQKBNR b" in env.observe("player_0")


def test_the_oracle_mates_and_takes():
    assert at("6k1/5ppp/8/8/8/8/8/R3K3 w Q - 0 1").oracle("player_0") == "[Ra8#]"
    assert at("4k3/8/8/3q4/4P3/8/8/4K3 w - - 0 1").oracle("player_0") == "[exd5]"
    # the pawn is defended: taking it with the queen loses her
    assert at("4k3/2p5/3p4/8/8/8/3Q4/4K3 w - - 0 1").oracle("player_0") != "[Qxd6]"


# ---- the contract ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_contract(name):
    testing.check_env(f"pettingzoo/{name}", episodes=1)


@pytest.mark.parametrize("name", NAMES)
def test_copies_and_pickles_go_their_own_way(name):
    env = started(name)
    for _ in range(3):
        env.step(env.legal_actions(env.agent_selection)[0])
    before = env.observe("player_0")
    copies = [env.fork(), pickle.loads(pickle.dumps(env))]
    for copied in copies:
        assert copied.observe("player_0") == before
        rng = random.Random(1)
        for _ in range(8):
            if copied.round_agents:
                copied.step(rng.choice(copied.legal_actions(copied.agent_selection)))
    assert env.observe("player_0") == before
    assert copies[0].observe("player_0") == copies[1].observe("player_0") != before


# ---- ids and errors --------------------------------------------------------------------------------------------------


def test_ids():
    for env_id in ("pettingzoo/chess_v6", "pettingzoo/chess", "pettingzoo/chess-v6"):
        env = llm_envs.make(env_id)
        assert env.unwrapped.spec.id == "pettingzoo/chess_v6"
        assert env.metadata["name"] == "pettingzoo_chess_v6"


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("pettingzoo/go_v5", "`go_v5` has no text rendering.*`openspiel/go`.*`pettingzoo/tictactoe_v3`"),
        ("pettingzoo/ches_v6", "Did you mean: `pettingzoo/chess_v6`"),
        ("pettingzoo/tictactoe_v2", "Did you mean: `pettingzoo/tictactoe_v3`"),
        ("pettingzoo/zzz", "doesn't exist. These games have a text rendering"),
    ],
)
def test_errors_name_what_there_is(env_id, message):
    with pytest.raises(error.NameNotFound, match=message):
        llm_envs.make(env_id)


def test_without_the_libraries_the_error_names_the_extra(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("pettingzoo.classic.chess")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "chess", None)
    with pytest.raises(error.DependencyNotInstalled, match=r"needs chess.*llm-envs\[classic\]"):
        llm_envs.make("pettingzoo/chess_v6")


def test_what_pettingzoo_has_is_known():
    ids = [name.removeprefix("classic/") for name in pettingzoo.aec_registry if name.startswith("classic/")]
    names = {name.replace("-", "_") for name in ids}
    assert set(catalog.GAMES) <= names
    assert names - set(catalog.GAMES) - set(catalog.INSTEAD) == set()
