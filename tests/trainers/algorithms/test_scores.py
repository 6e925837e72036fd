"""Scores and keys: what a turn is worth, team or no team."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from trainers.algorithms.advantages import advantages_of, compute_advantages, make_baseline, score_turns
from trainers.algorithms.algorithm import Algorithm, Baseline, Term
from trainers.algorithms.presets import presets
from trainers.algorithms.scores import SCORES, ScoreError, TurnBatch, register_score
from trainers.rollout.records import Episode

A, B = "player_0", "player_1"
S, V = "solver_0", "verifier_0"
Build = Callable[..., Episode]


def scores_of(episodes: list[Episode], **fields: object) -> list[float]:
    algorithm = Algorithm(name="x", **fields)  # type: ignore[arg-type]
    return score_turns(TurnBatch.of(episodes), algorithm).tolist()


def test_the_team_part_counts_once_and_early_parts_count(episode: Build) -> None:
    # The verifier received .25 before it ever spoke, which no turn is credited with.
    one = episode("t", 0, [(S, {"team": 1.0, "format": 0.5}), (V, {"team": 1.0})], early={V: {"bonus": 0.25}})
    assert scores_of([one], score="episode_return") == [1.75, 1.75]
    assert scores_of([one], score="team_and_turn") == [1.5, 1.0]
    assert scores_of([one], score="turn_reward") == [1.5, 1.0]


def test_team_and_turn_takes_the_outcome_of_the_whole_episode(episode: Build) -> None:
    one = episode("t", 0, [(S, {"format": 0.5}), (V, {"team": 1.0}), (S, {"team": 1.0})])
    assert scores_of([one], score="team_and_turn") == [1.5, 1.0, 1.0]
    assert scores_of([one], score="turn_reward") == [0.5, 1.0, 1.0]


def test_team_weight(episode: Build) -> None:
    one = episode("t", 0, [(S, {"team": 1.0, "format": 0.5})])
    for score in ("episode_return", "team_and_turn", "turn_reward", "reward_to_go"):
        assert scores_of([one], score=score, team_weight=3.0) == [3.5]


def test_penalties_enter_only_folded(episode: Build) -> None:
    one = episode("t", 0, [(S, {"team": 1.0, "invalid": -0.1}), (V, {"team": 1.0})])
    assert scores_of([one], score="episode_return") == [1, 1]
    assert scores_of([one], score="episode_return", fold_penalties=True) == [0.9, 0.9]
    assert scores_of([one], score="team_and_turn", fold_penalties=True) == [0.9, 1]


def test_reward_to_go_is_discounted_through_the_agents_own_turns(episode: Build) -> None:
    one = episode("t", 0, [(S, {"format": 1.0}), (V, {"team": 8.0}), (S, {"format": 2.0}), (S, {"team": 8.0})])
    assert scores_of([one], score="reward_to_go", discount=0.5) == [1 + 0.5 * (2 + 0.5 * 8), 8, 2 + 0.5 * 8, 8]


def test_reward_to_go_passes_through_a_masked_turn(episode: Build) -> None:
    one = episode("t", 0, [(S, {}), (S, {"format": 1.0}, {"masked": True}), (S, {"team": 4.0})])
    assert scores_of([one], score="reward_to_go", discount=0.5) == [1.5, 0, 4]


def test_zero_sum_outcomes_belong_to_each_agent(episode: Build) -> None:
    won = episode("g", 0, [(A, {"team": 1.0, "format": 0.5}), (B, {"team": -1.0})], env="duel-v0")
    draw = episode("g", 1, [(A, {"team": 0.0, "format": 0.5}), (B, {"team": 0.0})], env="duel-v0")
    assert scores_of([won], score="episode_return") == [1.5, -1]
    # A draw beside it is treated in the same way: B's return does not hold A's local part.
    assert scores_of([draw, won], score="episode_return") == [0.5, 0, 1.5, -1]
    # Alone it cannot be told from a team.
    assert scores_of([draw], score="episode_return") == [0.5, 0.5]
    assert scores_of([won], score="team_and_turn") == [1.5, -1]


def test_zero_sum_grpo_counts_each_player_of_an_episode_once(episode: Build) -> None:
    games = [
        episode("g", i, [(A, {}), (B, {"team": -x}), (A, {"team": x})], env="duel-v0")
        for i, x in enumerate([1.0, -1.0])
    ]
    got = compute_advantages(games, replace(presets["dr_grpo"]))
    # Four results (1, -1, -1, 1), mean 0, though player_0 speaks twice.
    np.testing.assert_allclose(got, [1, -1, 1, -1, 1, -1])


def test_keys(episode: Build) -> None:
    one = episode("t", 3, [(S, {"team": 0.0}), (V, {"team": 0.0}), (S, {})])
    batch = TurnBatch.of([one])
    names = ("env", "task", "episode", "agent", "role", "policy", "turn", "observation")
    assert batch.keys(names)[2] == ("math-2agent-v0", "t", "t#3", S, "solver", "shared", 1, "t solver_0")
    assert batch.keys(()) == [(), (), ()]


def test_an_episode_counts_once_only_if_it_has_one_score(episode: Build) -> None:
    one = episode("t", 0, [(S, {"team": 1.0, "format": 0.5}), (V, {"team": 1.0})])
    with pytest.raises(ScoreError, match="counts an episode once, but score 'team_and_turn'"):
        compute_advantages([one], replace(presets["grpo"], score="team_and_turn"))


def test_registering_a_score(episode: Build) -> None:
    def length(batch: TurnBatch, algorithm: Algorithm) -> np.ndarray:
        return np.array([float(len(turn.action)) for turn in batch.turns])

    try:
        register_score("test_length", length)
        register_score("test_length", length)
        assert scores_of([episode("t", 0, [(S, {})])], score="test_length") == [1]
        with pytest.raises(ValueError, match="already a score 'test_length'"):
            register_score("test_length", lambda batch, algorithm: np.zeros(len(batch)))
        SCORES["test_length"] = lambda batch, algorithm: np.zeros(len(batch) + 1)
        with pytest.raises(ScoreError, match="shape"):
            scores_of([episode("t", 0, [(S, {})])], score="test_length")
    finally:
        SCORES.pop("test_length", None)


# --- the interface holds what comes later ---------------------------------------------------------------------------


def test_at_grpo_as_data(episode: Build) -> None:
    """AT-GRPO: K candidates of one agent turn from one prompt; own turn reward; groups by task, agent and turn."""
    at_grpo = Algorithm(
        name="at_grpo",
        score="turn_reward",
        mean_by=("task", "agent", "turn"),
        std_by=("task", "agent", "turn"),
        sampling="tree",
        eps=0,
    )
    tree = episode("t", 0, [(S, {"team": r}) for r in (0.0, 1.0)] + [(V, {"team": r}) for r in (3.0, 7.0)])
    for k, turn in enumerate(tree.turns):
        turn.index, turn.agent_turn, turn.candidate = k // 2, 0, k % 2
    half = 1 / np.sqrt(2)
    np.testing.assert_allclose(compute_advantages([tree], at_grpo), [-half, half, -half, half])


def test_gigpo_as_data(episode: Build) -> None:
    """GiGPO: episode advantage + w · step advantage among turns with the identical observation."""
    gigpo = Algorithm(
        name="gigpo",
        std_by=None,
        weight="episode",
        extra=(Term("reward_to_go", mean_by=("task", "observation"), std_by=None, coefficient=0.5),),
    )
    episodes = [
        episode("t", 0, [(S, {}, {"observation": "o1"}), (S, {"team": 1.0}, {"observation": "o2"})]),
        episode("t", 1, [(S, {}, {"observation": "o1"}), (S, {"team": 0.0}, {"observation": "o3"})]),
    ]
    # Episode part ±.5. Step part: o1 has to-go 1 and 0; o2 and o3 are alone.
    np.testing.assert_allclose(compute_advantages(episodes, gigpo), [0.5 + 0.25, 0.5, -0.5 - 0.25, -0.5])


def test_reinforce_pp_as_data(episode: Build) -> None:
    """REINFORCE++: discounted reward-to-go, whitened over the whole batch."""
    rpp = Algorithm(name="reinforce_pp", score="reward_to_go", discount=0.5, mean_by=(), std_by=(), eps=0)
    episodes = [episode("t", 0, [(S, {}), (S, {"team": 2.0})]), episode("u", 0, [(S, {"team": 0.0})])]
    np.testing.assert_allclose(compute_advantages(episodes, rpp), [0, 1, -1])  # 1, 2, 0


def test_rae_as_data_and_its_state(episode: Build) -> None:
    """SPIRAL: a moving average per environment and role, read before its update."""
    rae = Algorithm(
        name="rae", score="team_and_turn", mean_by=None, std_by=None, baseline=Baseline(by=("env", "agent"), decay=0.5)
    )

    def games(sample: int) -> list[Episode]:
        return [episode("g", sample, [(A, {"team": 1.0}), (B, {"team": -1.0})], env="duel-v0")]

    baseline = make_baseline(rae)
    assert baseline is not None
    np.testing.assert_allclose(compute_advantages(games(0), rae, baseline=baseline), [1, -1])
    np.testing.assert_allclose(compute_advantages(games(1), rae, baseline=baseline), [0.5, -0.5])
    saved = json.loads(json.dumps(baseline.state_dict()))
    np.testing.assert_allclose(compute_advantages(games(2), rae, baseline=baseline), [0.25, -0.25])
    resumed = make_baseline(rae)
    assert resumed is not None
    resumed.load_state_dict(saved)
    np.testing.assert_allclose(compute_advantages(games(2), rae, baseline=resumed), [0.25, -0.25])
    with pytest.raises(ValueError, match="needs its baseline"):
        compute_advantages(games(3), rae)
    with pytest.raises(ValueError, match="has no baseline"):
        compute_advantages(games(3), presets["grpo"], baseline=resumed)
    with pytest.raises(ValueError, match="kept by"):
        make_baseline(replace(rae, baseline=Baseline(by=("agent",)))).load_state_dict(saved)  # type: ignore[union-attr]


def test_a_moving_average_does_not_depend_on_the_order_of_the_batch(episode: Build) -> None:
    rae = Algorithm(name="rae", score="team_and_turn", mean_by=None, std_by=None, baseline=Baseline(decay=0.9))
    games = [episode("g", i, [(A, {"team": float(i)})]) for i in range(4)]
    one, other = make_baseline(rae), make_baseline(rae)
    assert one is not None
    assert other is not None
    compute_advantages(games, rae, baseline=one)
    compute_advantages(games[::-1], rae, baseline=other)
    assert one.state_dict() == other.state_dict()


def test_a_critic_plugs_in_as_a_score(episode: Build) -> None:
    """GAE: a critic's advantages travel in the turn's info; nothing is normalised."""
    name = "test_gae"
    register_score(name, lambda batch, algorithm: np.array([t.info["gae"] for t in batch.turns]))
    try:
        one = episode("t", 0, [(S, {}, {"info": {"gae": 0.3}}), (S, {"invalid": -0.1}, {"info": {"gae": -0.2}})])
        gae = Algorithm(name="gae", score=name, mean_by=None, std_by=None)
        np.testing.assert_allclose(advantages_of(TurnBatch.of([one]), gae), [0.3, -0.3])
    finally:
        SCORES.pop(name)
