"""Training in zero-sum games: against oneself, against a frozen opponent, and how that is measured."""

from __future__ import annotations

import asyncio

import pytest

import llm_envs
from trainers.api import train
from trainers.config import ConfigError, load_config
from trainers.evaluating import Evaluator
from trainers.models import build_tiny_model
from trainers.policies.base import Completion, Policy
from trainers.team import EVERYONE, Team
from trainers.tracking import read_metrics
from trainers.trainer import Trainer

MOVES = [f"[{cell}]" for cell in range(9)] + ["[check]", "[bet]", "[call]", "[fold]"]


@pytest.fixture(scope="module")
def gambler(tmp_path_factory):
    """A model whose words are the moves of two games and what a position is told by."""
    folder = tmp_path_factory.mktemp("models") / "gambler"
    words = [*MOVES, "J.", "Q.", "K.", "player_0.", "player_1.", "player_0:", "player_1:", "X", "O"]
    return build_tiny_model(folder, vocab=words, hidden_size=32, layers=2, init_std=0.1)


@pytest.fixture
def game(gambler):
    """A recipe of a game; ``policies`` and ``roles`` as given, or one policy that plays both seats."""

    def build(game="kuhn-poker", policies=None, **changes):
        learner = {"model": str(gambler), "backend": "hf", "learning_rate": 0.03, "sampling": {"max_tokens": 1}}
        return {
            "env": {"id": game, "split": None},
            "algorithm": {"preset": "dr_mas"},
            "policies": {name: policy or learner for name, policy in (policies or {"both": None}).items()},
            "updates": 2,
            "tasks_per_update": 4,
            "samples_per_task": 4,
            "checkpoint": {"every": 1, "keep": 20},
            **changes,
        }

    return build


@pytest.mark.parametrize("preset", ["dr_mas", "rae"])
@pytest.mark.parametrize("env", ["kuhn-poker", "tictactoe"])
def test_one_policy_plays_both_seats_and_learns_from_both(game, runs, gambler, tmp_path, env, preset):
    metrics = train(game(env, algorithm={"preset": preset}, samples_per_task=16), out=tmp_path / "run").metrics
    assert metrics["policy/both/samples"] == sum(metrics[f"agent/player_{i}/turns"] for i in (0, 1))
    assert metrics["agent/player_0/return"] == -metrics["agent/player_1/return"]
    assert all(metrics[f"agent/player_{i}/grad_norm"] > 0 for i in (0, 1))
    assert not runs.same(runs.weights(tmp_path / "run", "both"), runs.weights_of(gambler))


def test_it_learns_to_play_against_a_frozen_opponent(game, tmp_path):
    """Every move that does not exist loses the game, so it makes fewer of them."""
    values = game(
        policies={"player_0": {"backend": "random", "trainable": False}, "player_1": None},
        updates=10,
        tasks_per_update=8,
        evaluation={"every": 10, "tasks": 64, "opponent": "random"},
    )
    train(values, out=tmp_path / "run")
    rows = [row for row in read_metrics(tmp_path / "run") if "eval/win" in row]
    assert [row["update"] for row in rows] == [0, 10]
    for row in rows:
        assert not any(name.startswith("eval/player_0/") for name in row)  # nobody learns that seat
        assert row["eval/episodes"] == 64
        assert row["eval/win"] + row["eval/draw"] + row["eval/loss"] == pytest.approx(1)
        assert row["eval/win"] == row["eval/player_1/win"]
        assert row["eval/forfeit"] <= row["eval/loss"]
    assert rows[0]["eval/forfeit"] > 0.7
    assert rows[1]["eval/forfeit"] < 0.6  # within ten updates it finds a move that exists half of the time
    assert rows[1]["eval/return"] > rows[0]["eval/return"] + 0.2


def test_searching_players_are_opponents_in_training_and_in_evaluation(game, tmp_path):
    pytest.importorskip("pyspiel")
    values = game(
        "tictactoe",
        {"player_0": None, "player_1": {"backend": "mcts:sims=5", "trainable": False}},
        updates=1,
        tasks_per_update=2,
        evaluation={"every": 1, "tasks": 2, "opponent": "minimax"},
    )
    metrics = train(values, out=tmp_path / "run").metrics
    assert metrics["eval/win"] == 0  # minimax does not lose
    assert all(metrics[f"agent/player_{seat}/turns"] > 0 for seat in (0, 1))
    assert "agent/player_1/grad_norm" not in metrics


def test_self_play_resumes_bit_for_bit(game, runs, tmp_path):
    values = game("tictactoe", algorithm={"preset": "rae"}, evaluation={"every": 2, "tasks": 3, "opponent": "random"})
    train({**values, "updates": 4}, out=tmp_path / "whole")
    train(values, out=tmp_path / "cut")
    train({**values, "updates": 4}, out=tmp_path / "cut", resume=True)
    assert runs.metrics(tmp_path / "cut") == runs.metrics(tmp_path / "whole")
    assert runs.same(runs.state(tmp_path / "cut", 4, "both"), runs.state(tmp_path / "whole", 4, "both"))


# ---- evaluation by hand ---------------------------------------------------------------------------------------------


class Bettor(Policy):
    """Bets and calls whatever it holds; as ``player_1`` it says nothing usable on odd deals."""

    def __init__(self):
        super().__init__("bettor")

    async def generate(self, request):
        task, *_ = request.key
        legal = request.env.legal_actions(request.agent)
        text = "[bet]" if "[bet]" in legal else "[call]"
        return [Completion("?" if request.agent == "player_1" and task % 2 else text, "stop")] * request.n


def test_wins_draws_losses_and_forfeits_are_counted_seat_by_seat(game):
    """Against itself, in effect: who always bets against who always calls wins what the cards say."""
    config = load_config(game(evaluation={"every": 1, "tasks": 20, "opponent": "random"}))
    env = llm_envs.make("kuhn-poker").unwrapped
    evaluator = Evaluator(config, env, lambda **changes: None)
    evaluator._opponent = Caller()
    metrics = asyncio.run(evaluator.evaluate(Team({"both": Bettor()}, {EVERYONE: "both"})))
    higher = [cards_of(env, index)[0] > cards_of(env, index)[1] for index in range(20)]
    assert metrics["eval/episodes"] == 40
    assert metrics["eval/failed_episodes"] == 0
    assert metrics["eval/player_0/win"] == sum(higher) / 20
    assert metrics["eval/player_0/loss"] == 1 - sum(higher) / 20
    assert metrics["eval/player_0/forfeit"] == 0
    assert metrics["eval/player_1/forfeit"] == 0.5
    assert metrics["eval/player_1/win"] == sum(not high for high in higher[::2]) / 20
    for name in ("win", "draw", "loss", "forfeit", "return"):
        assert metrics[f"eval/{name}"] == (metrics[f"eval/player_0/{name}"] + metrics[f"eval/player_1/{name}"]) / 2


class Caller(Policy):
    """Checks, and calls every bet."""

    def __init__(self):
        super().__init__("caller")

    async def generate(self, request):
        legal = request.env.legal_actions(request.agent)
        return [Completion("[check]" if "[check]" in legal else "[call]", "stop")] * request.n


def cards_of(env, index):
    """The two cards of a deal, as their owners are told them."""
    env.reset(seed=0, options={"task_index": index})
    texts = [env.observe("player_0"), env.fork().observe("player_0")]
    own = "JQK".index(texts[0].split("Your card is ")[1][0])
    env.step("[check]")
    return own, "JQK".index(env.observe("player_1").split("Your card is ")[1][0])


# ---- what does not fit ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": {"id": "kuhn-poker"}}, r"env: .*unexpected keyword argument `split`.*set `env.split: null`"),
        ({"evaluation": {"every": 1}}, r"kuhn-poker is a game.*`evaluation.opponent: random`"),
        ({"evaluation": {"every": 1, "opponent": "randm"}}, r"evaluation: opponent: .*'randm' is no kind of policy"),
        ({"evaluation": {"every": 1, "opponent": "hf:m"}}, "opponent is 'hf:m'; it is a scripted player: oracle"),
        ({"evaluation": {"every": 1, "opponent": "mcts:sims=x"}}, "evaluation.opponent: .*sims"),
    ],
)
def test_what_a_game_cannot_do_is_said(game, tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        Trainer(load_config(game(**changes)), tmp_path / "run")


def test_an_opponent_needs_a_game(recipe, tmp_path):
    with pytest.raises(ConfigError, match="nobody plays against anybody"):
        Trainer(load_config(recipe(evaluation={"every": 1, "opponent": "random"})), tmp_path / "run")
