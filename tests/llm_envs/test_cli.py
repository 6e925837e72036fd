from __future__ import annotations

import builtins
import inspect

import pytest

import llm_envs
from llm_envs.cli import main
from llm_envs.registration import ADAPTERS


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


def test_list_names_every_environment(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*llm_envs.registry, *(f"{library}/…" for library in ADAPTERS)]
    assert any(line.endswith("(parallel)") for line in lines)


def test_list_names_the_games_of_a_library(capsys):
    assert main(["list", "pettingzoo"]) == 0
    assert capsys.readouterr().out.split() == [
        f"pettingzoo/{n}" for n in ("chess_v6", "connect_four_v3", "tictactoe_v3")
    ]


@pytest.mark.parametrize("env_id", sorted(llm_envs.registry))
def test_info_teaches(env_id, capsys):
    assert main(["info", env_id]) == 0
    out = capsys.readouterr().out
    for heading in ("## Observations", "## Actions", "## Rewards", "## Episode end", "\nArguments\n  tasks: "):
        assert heading in out
    for name in inspect.signature(llm_envs.spec(env_id).load()).parameters:
        assert f"\n  {name}: " in out
    env = llm_envs.make(env_id)
    env.reset(seed=0)
    prompt = str(env.observe(env.agent_selection)).splitlines()
    assert out.endswith("".join(f"  | {line}\n" for line in prompt))


def test_info_on_a_game_of_openspiel_tells_its_parameters(capsys):
    pytest.importorskip("pyspiel")
    assert main(["info", "openspiel/hex"]) == 0
    out = capsys.readouterr().out
    assert "\n  board_size = 11 (of the game)\n" in out
    assert "game_name" not in out
    assert main(["info", "openspiel/misere"]) == 0  # which needs a parameter
    assert "  | You are playing Misere Tic Tac Toe" in capsys.readouterr().out


def test_unknown_id_is_an_error_with_a_suggestion(capsys):
    assert main(["info", "math-2agnet"]) == 2
    assert "Did you mean: `math-2agent`?" in capsys.readouterr().err


def test_a_person_plays_every_role(typed, capsys):
    left = typed(r"\boxed{0}", ":prompt", "<verify>reject</verify>", ":oracle")
    assert main(["play", "math-2agent", "--task-index", "0"]) == 0
    out = capsys.readouterr().out
    assert left == []
    assert out.count("You are verifier_0") == 2
    assert "Solved. The episode was stopped at its limit." in out
    assert "solver_0: +1.00" in out


def test_a_person_plays_with_the_oracle(typed, capsys):
    typed("nonsense", ":what", r"\boxed{1}")
    assert main(["play", "math-2agent", "--you", "solver_0", "--seed", "1"]) == 0
    out = capsys.readouterr().out
    assert "(unusable: No final answer was found." in out
    assert "--- verifier_0 (oracle) ---\n<verify>reject</verify>" in out
    assert "Unknown command :what" in out
    assert "Not solved." in out


def test_code_goes_on_until_its_block_is_closed(typed, capsys):
    left = typed("```python", "print(3)", "", "print(4)", "```", ":quit")
    assert main(["play", "math-tool-2agent", "--you", "coder_0", "--seed", "0"]) == 0
    assert left == []
    assert "[output of the program]\n3\n4\n" in capsys.readouterr().out


def test_leaving(typed, capsys):
    typed(":quit")
    assert main(["play", "math-1agent"]) == 0
    assert "You left" in capsys.readouterr().out
    typed()
    assert main(["play", "math-1agent"]) == 130


def test_unknown_seat(capsys):
    assert main(["play", "math-1agent", "--you", "verifier_0"]) == 2
    assert "The agents are solver_0" in capsys.readouterr().err


def test_model_text_cannot_control_the_terminal(typed, capsys):
    typed("\x1b[2J\\boxed{1}", ":quit")
    main(["play", "math-1agent", "--seed", "0"])
    assert "\x1b" not in capsys.readouterr().out
