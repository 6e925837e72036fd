"""A person plays a game at the terminal."""

from __future__ import annotations

import builtins

import pytest

from llm_envs.cli import main

pytest.importorskip("pyspiel")


@pytest.fixture
def typed(monkeypatch):
    """Answer the prompts of the terminal with these lines."""

    def with_lines(*lines):
        queue = list(lines)

        def answer(prompt):
            if not queue:
                raise EOFError
            return queue.pop(0)

        monkeypatch.setattr(builtins, "input", answer)
        return queue

    return with_lines


def test_a_draw_against_minimax(typed, capsys):
    left = typed(*[":oracle"] * 5)
    assert main(["play", "tictactoe", "--you", "player_0", "--opponent", "minimax", "--seed", "1"]) == 0
    out = capsys.readouterr().out
    assert left == []
    assert "You drew.\n  player_0: +0.00\n  player_1: +0.00\n" in out
    assert out.count("--- player_1 (minimax) ---") == 4
    assert out.count("Tic-tac-toe on a 3×3 board") == 1  # the rules are shown once, the board at every turn
    assert out.count("Board:") == 5
    board = out[: out.index("You drew.")].rstrip().splitlines()[-5:]
    assert not any(character.isdigit() for line in board for character in line)


def test_slips_are_explained_and_cost_nothing(typed, capsys):
    typed("nonsense", "[0] or [1]", "[9]", ":moves", ":what", ":prompt", "4", ":quit")
    assert main(["play", "tictactoe", "--opponent", "minimax", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert "[nonsense] is not a legal move now. Legal moves: [0] [1]" in out
    assert "2 different moves in square brackets were found." in out
    assert "[9] is not a legal move now." in out
    assert "\n[0] [1] [2] [3] [4] [5] [6] [7] [8]\n" in out
    assert "Unknown command :what" in out
    assert out.count("Tic-tac-toe on a 3×3 board") == 2  # once more for :prompt
    assert "--- player_1 (minimax) ---" in out  # the bare 4 was played: three slips did not forfeit the game
    assert "You left the episode." in out
    assert "forfeit" not in out


def test_winning_losing_and_playing_both_seats(typed, capsys):
    game = ["0", "3", "1", "4", "2"]
    typed(*game)
    assert main(["play", "tictactoe"]) == 0
    out = capsys.readouterr().out
    assert "player_0 won.\nplayer_1 lost.\n  player_0: +1.00\n  player_1: -1.00" in out
    assert " X | X | X" in out
    typed(*[":oracle"] * 21)
    assert main(["play", "connect-four", "--you", "player_1", "--opponent", "random", "--seed", "0"]) == 0
    assert "\nYou won.\n" in capsys.readouterr().out
    typed(*["4", "0", "1", "2", "3", "5", "6", "7", "8"] * 9)
    assert main(["play", "tictactoe", "--you", "player_1", "--others", "random", "--seed", "2"]) == 0
    out = capsys.readouterr().out
    assert "(random)" in out
    assert any(verdict in out for verdict in ("You won.", "You lost.", "You drew."))


def test_what_is_hidden_is_shown_only_at_the_end(typed, capsys):
    typed("check", "call", "fold")
    assert main(["play", "kuhn-poker", "--you", "player_0", "--opponent", "mcts:sims=20", "--task-index", "0"]) == 0
    out = capsys.readouterr().out
    assert "Cards: player_0:" in out
    assert out.index("Cards: player_0:") > out.rindex("player_0: [check]")
    assert "Cards:" not in out[: out.index("(mcts:sims=20)")]


def test_a_game_of_openspiel(typed, capsys):
    typed(*[":oracle"] * 5)
    assert main(["play", "openspiel/tic_tac_toe", "--opponent", "mcts:sims=50", "--seed", "0"]) == 0
    assert "You " in capsys.readouterr().out.rpartition("\n\n")[2]


def test_arguments_of_the_environment(typed, capsys):
    typed(":quit")
    assert main(["play", "openspiel/hex", "--env", "board_size=3", "--env", "string_rep=explicit"]) == 0
    assert "OpenSpiel's hex with board_size=3, string_rep='explicit'" in capsys.readouterr().out
    typed(":quit")
    assert main(["play", "kuhn-poker", "--env", 'task_options={"size": 5}', "--env", "hands=3"]) == 0
    assert "Kuhn poker, 3 hands." in capsys.readouterr().out


def test_a_choice_made_at_the_same_time_is_shown_after_ones_own(typed, capsys):
    asked = []
    typed("0")
    answer = builtins.input
    builtins.input = lambda prompt: asked.append(capsys.readouterr().out) or answer(prompt)
    assert main(["play", "openspiel/oshi_zumo", "--you", "player_1", "--opponent", "random", "--seed", "0"]) == 130
    first, second = asked[:2]
    assert "--- player_0 (random) ---" not in first
    assert second.count("--- player_0 (random) ---\n[") == 1


def test_a_move_that_the_game_hides_is_not_shown(typed, capsys):
    typed("0", "1", ":quit")
    assert main(["play", "openspiel/phantom_ttt", "--you", "player_0", "--opponent", "random", "--seed", "0"]) == 0
    out = capsys.readouterr().out
    assert "--- player_1 (random) ---\n(It has moved." in out
    assert "--- player_1 (random) ---\n[" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tictactoe", "--opponent", "minmax"], "Did you mean 'minimax'?"),
        (["kuhn-poker", "--opponent", "minimax"], "hides information"),
        (["math-2agent", "--opponent", "mcts"], "They know: tictactoe, connect-four, kuhn-poker"),
        (["tictactoe", "--opponent", "mcts:sims=0"], "`sims` must be an integer of 1 or more"),
        (["openspiel/hex", "--env", "board_size"], "--env takes KEY=VALUE, such as board_size=5, actual value"),
        (["openspiel/hex", "--env", "bord_size=5"], "Did you mean: `board_size`?"),
        (["tictactoe", "--you", "player_2"], "Unknown agent 'player_2'"),
        (
            ["tictactoe", "--you", "player_0", "--you", "player_1", "--opponent", "mcts"],
            "You play everybody, so --opponent mcts has nobody to play",
        ),
    ],
)
def test_mistakes_are_explained(arguments, message, capsys):
    assert main(["play", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_help_teaches(capsys):
    with pytest.raises(SystemExit):
        main(["play", "--help"])
    assert "llm-envs play tictactoe --you player_0 --opponent minimax" in capsys.readouterr().out
