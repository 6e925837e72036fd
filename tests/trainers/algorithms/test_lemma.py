"""Lemma 4.2 of Dr. MAS, numerically: gradients under everybody's statistics against the predicted factor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from trainers.algorithms.advantages import compute_advantages
from trainers.algorithms.diagnostics import batch_metrics
from trainers.algorithms.inflation import (
    InflationPoint,
    Speaker,
    log_log_fit,
    measure_inflation,
    play,
    predicted_inflation,
)
from trainers.algorithms.loss_config import LossConfig
from trainers.algorithms.presets import presets
from trainers.batching import Sample
from trainers.learner import Learner
from trainers.learner_config import LearnerConfig

SHIFTS = [-4.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0]


def team(shift: float) -> dict[str, Speaker]:
    """One agent speaks twelve times as often as another, whose rewards are shifted."""
    return {"planner": Speaker(1, mean=shift), "solver": Speaker(12), "critic": Speaker(3, mean=0.5, std=0.5)}


@pytest.fixture(scope="module")
def points() -> list[InflationPoint]:
    return [point for seed, shift in enumerate(SHIFTS) for point in measure_inflation(team(shift), seed=seed)]


def test_the_prediction_by_hand() -> None:
    # Shares 1/4 and 3/4. Mean 1; variance 1/4 (1 + 9) + 3/4 (4 + 1) = 6.25.
    got = predicted_inflation({"a": Speaker(1, mean=4.0, std=1.0), "b": Speaker(3, mean=0.0, std=2.0)})
    assert got == pytest.approx({"a": 10 / 6.25, "b": 5 / 6.25})


def test_no_factor_is_above_one_over_the_share() -> None:
    for shift in (0.0, 1e1, 1e3, 1e6):
        found = predicted_inflation(team(shift))
        assert found["planner"] <= 16
        shares = [speaker.turns / 16 for speaker in team(shift).values()]
        assert np.dot(shares, list(found.values())) == pytest.approx(1)
    assert found["planner"] == pytest.approx((1 - 1 / 16) / (1 / 16), rel=1e-3)


def test_measured_inflation_follows_the_lemma(points: list[InflationPoint]) -> None:
    slope, r2 = log_log_fit(points)
    assert slope == pytest.approx(1, abs=0.1)
    assert r2 >= 0.95
    # It is no line through two clouds: the rare agent alone, over the settings that differ, says the same.
    slope, r2 = log_log_fit([point for point in points if point.agent == "planner"])
    assert slope == pytest.approx(1, abs=0.1)
    assert r2 >= 0.95
    assert max(point.predicted for point in points) > 10


def test_with_its_own_statistics_no_agent_is_inflated(points: list[InflationPoint]) -> None:
    for point in points:
        assert point.agent_wise == pytest.approx(1, abs=0.1), point


def test_each_point_is_near_its_prediction(points: list[InflationPoint]) -> None:
    for point in points:
        assert point.inflation == pytest.approx(point.predicted, rel=0.25), point


def test_dr_mas_in_the_place_of_everybody_is_one() -> None:
    for point in measure_inflation(team(8.0), everybody=presets["dr_mas"]):
        assert point.inflation == pytest.approx(1, abs=1e-12)


def test_the_logged_diagnostic_is_the_predicted_factor() -> None:
    rng = np.random.default_rng(0)
    uniform = {name: np.full(8, 1 / 8) for name in team(0.0)}
    for shift in (1.0, 8.0):
        episodes = play(team(shift), uniform, 4, 64, rng)
        logged = batch_metrics(episodes, presets["step_grpo"])
        for agent, factor in predicted_inflation(team(shift)).items():
            assert logged[f"agent/{agent}/inflation"] == pytest.approx(factor, rel=0.2)


def test_a_fit_needs_points_that_differ() -> None:
    with pytest.raises(ValueError, match="different predicted"):
        log_log_fit([InflationPoint("a", 0.5, 1.0, 1.0, 1.0)] * 3)


# --- a transformer, through the learner that trains -------------------------------------------------------------------


def tiny_model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=12, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=8, initializer_range=0.3,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


def test_gradient_norms_of_a_model_follow_the_lemma() -> None:
    """Squared norms of whole batches' gradients, per agent, as a run logs them; answers are drawn from the model."""
    config = LearnerConfig(lr=0.0, max_grad_norm=None, dtype="float64", micro_batch_tokens=100_000)
    loss = LossConfig(kind="reinforce", importance="off", aggregation="seq-mean-token-sum", balance_agents=True)
    learner = Learner(tiny_model(), config, loss)
    prompts = {"planner": [1, 2, 3], "solver": [4, 5, 6], "critic": [7, 8, 9]}
    policies = {}
    for name, prompt in prompts.items():
        logprobs = learner.logprobs([prompt] * 12, [[token] for token in range(12)])
        policies[name] = np.exp([float(value[0]) for value in logprobs])
        policies[name] /= policies[name].sum()
    rng = np.random.default_rng(0)
    points = []
    for shift in SHIFTS[1::2] + SHIFTS[:3:2]:
        squares: dict[tuple[str, str], list[float]] = {}
        for _ in range(8):
            episodes = play(team(shift), policies, 1, 14, rng)
            turns = [turn for one in episodes for turn in one.turns]
            for name in ("step_grpo", "dr_mas"):
                advantages = compute_advantages(episodes, replace(presets[name], eps=0.0))
                samples = [
                    Sample(prompts[turn.agent], [int(turn.action)], None, float(value), turn.agent)
                    for turn, value in zip(turns, advantages, strict=True)
                ]
                for agent, norm in learner.update(samples).agent_grad_norm.items():
                    squares.setdefault((name, agent), []).append(norm**2)
        for agent, factor in predicted_inflation(team(shift)).items():
            ratio = np.mean(squares["step_grpo", agent]) / np.mean(squares["dr_mas", agent])
            points.append(InflationPoint(agent, team(shift)[agent].turns / 16, factor, float(ratio), 1.0))
    slope, r2 = log_log_fit(points)
    assert slope == pytest.approx(1, abs=0.1)
    assert r2 >= 0.95
