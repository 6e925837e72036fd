"""Diagnostics: Lemma 4.2 by hand and as a law, groups, rates, lags, spikes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from trainers.algorithms.advantages import compute_advantages
from trainers.algorithms.diagnostics import GradientSpike, GradientSpikes, batch_metrics, inflation_factor
from trainers.algorithms.presets import presets
from trainers.rollout.records import Episode

S, V = "solver_0", "verifier_0"
Build = Callable[..., Episode]


def test_inflation_factor_by_hand() -> None:
    # Agent 0, 2 (mean 1, variance 1); other 8, 10. All: mean 5, variance (25+9+9+25)/4 = 17.
    assert inflation_factor(np.array([0.0, 2.0]), np.array([0.0, 2.0, 8.0, 10.0])) == pytest.approx((1 + 16) / 17)
    # A quiet agent far from the others: (0 + 16) / ...
    everyone = np.array([5.0, 5.0, 1.0, 1.0, 1.0, 1.0])
    assert inflation_factor(everyone[:2], everyone) == pytest.approx((5 - 7 / 3) ** 2 / everyone.var())
    with pytest.raises(ValueError, match="vary"):
        inflation_factor(np.ones(2), np.ones(4))


@pytest.fixture
def batch(episode: Build) -> list[Episode]:
    cut = {"finish_reason": "length", "completion_tokens": 9}
    bad = {"invalid": "no box", "completion_tokens": 3, "weight_version": 4}
    return [
        episode("t", 0, [(S, {"team": 1.0}, cut), (V, {"team": 1.0, "verdict": 0.5})], success=True),
        episode("t", 1, [(S, {"team": 0.0, "invalid": -0.1}, bad), (V, {"team": 0.0, "verdict": 0.5})]),
        episode("u", 0, [(S, {"team": 1.0}), (V, {"team": 1.0})], success=True),
        episode("u", 1, [(S, {"team": 1.0}), (V, {"team": 1.0})], success=True),
        episode("u", 2, [(S, {"team": 1.0}, {"masked": True})], error="lost"),
    ]


def test_metrics_by_hand(batch: list[Episode]) -> None:
    algorithm = presets["dr_mas"]
    got = batch_metrics(batch, algorithm, compute_advantages(batch, algorithm), weight_versions={"shared": 4})
    assert got["episodes"] == 5
    assert got["failed_episodes"] == 1
    assert got["success"] == 0.75
    assert (got["turns"], got["masked_turns"]) == (9, 1)
    # Groups: (t, S), (t, V) vary; (u, S), (u, V) do not.
    assert (got["groups"], got["group_size"], got["zero_variance"]) == (4, 2, 0.5)
    assert got[f"agent/{S}/groups"] == 2
    assert got[f"agent/{S}/zero_variance"] == 0.5
    assert got[f"agent/{S}/turns"] == 4
    assert got[f"agent/{S}/score"] == 0.75
    assert got[f"agent/{V}/score"] == 1.0
    assert got[f"agent/{V}/score_std"] == pytest.approx(np.std([1.5, 0.5, 1, 1]))
    # Task t: S 1, 0; V 1.5, .5. Mean .75, variance (.0625 + .5625 + .5625 + .0625)/4 = .3125. Task u has no spread.
    assert got[f"agent/{S}/score_gap"] == pytest.approx(-0.25)
    assert got[f"agent/{S}/std_ratio"] == pytest.approx(0.5 / np.sqrt(0.3125))
    assert got[f"agent/{S}/inflation"] == pytest.approx((0.25 + 0.0625) / 0.3125)
    assert got[f"agent/{S}/truncated"] == 0.25
    assert got[f"agent/{S}/invalid"] == 0.25
    assert got[f"agent/{V}/invalid"] == 0
    assert (got[f"agent/{S}/length"], got[f"agent/{S}/length_max"]) == (3, 9)
    assert got[f"agent/{S}/reward/team"] == 0.75
    assert got[f"agent/{S}/reward/invalid"] == pytest.approx(-0.025)
    assert got[f"agent/{V}/reward/verdict"] == 0.25
    assert (got[f"agent/{S}/version_lag"], got[f"agent/{S}/version_lag_max"]) == (3, 4)
    half = 1 / np.sqrt(2)
    assert got[f"agent/{S}/advantage_abs"] == pytest.approx((half + half + 0.1) / 4, rel=1e-5)
    json.dumps(got, allow_nan=False)


def test_grpo_groups_count_episodes(batch: list[Episode]) -> None:
    got = batch_metrics(batch, presets["grpo"])
    assert (got["groups"], got["group_size"], got["zero_variance"]) == (2, 2, 0.5)


def test_law_inflation_is_the_mean_square_of_globally_normalised_advantages(episode: Build) -> None:
    rng = np.random.default_rng(0)
    episodes = [
        episode("t", i, [(S, {"a": float(rng.normal())}), (V, {"a": float(rng.normal(2, 3))}), (S, {"a": 1.0})])
        for i in range(9)
    ]
    algorithm = replace(presets["step_grpo"], eps=0, ddof=0)
    advantages = compute_advantages(episodes, algorithm)
    got = batch_metrics(episodes, algorithm)
    agents = np.array([t.agent for e in episodes for t in e.turns])
    for agent in (S, V):
        assert got[f"agent/{agent}/inflation"] == pytest.approx((advantages[agents == agent] ** 2).mean())
    own = compute_advantages(episodes, replace(presets["dr_mas"], eps=0, ddof=0))
    for agent in (S, V):
        assert (own[agents == agent] ** 2).mean() == pytest.approx(1)


def test_no_spread_and_no_turns_leave_quantities_out(episode: Build) -> None:
    got = batch_metrics([episode("t", 0, [(S, {"team": 1.0})])], presets["dr_mas"])
    assert f"agent/{S}/inflation" not in got
    assert got["zero_variance"] == 1
    assert batch_metrics([], presets["dr_mas"])["turns"] == 0


def test_spikes_name_the_agent_and_resume() -> None:
    spikes = GradientSpikes(window=3, bound=5.0)
    assert spikes.check({S: 1.0, V: 0.0}) == {S: 1.0, V: 1.0}
    assert spikes.check({S: 2.0}) == {S: 2.0}
    assert spikes.check({S: 3.0})[S] == pytest.approx(3 / 1.5)
    copy = GradientSpikes(window=3, bound=5.0)
    copy.load_state_dict(json.loads(json.dumps(spikes.state_dict())))
    for one in (spikes, copy):
        with pytest.raises(GradientSpike, match=r"agent 'solver_0' is 20, 10.0 times its running median 2") as caught:
            one.check({S: 20.0})
        assert caught.value.agent == S
    assert spikes.check({S: 4.0}) == {S: 2.0}  # the spike was not remembered
    assert spikes.check({S: 3.0}) == {S: 1.0}  # window 3: median of 2, 3, 4
