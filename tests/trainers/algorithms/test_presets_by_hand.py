"""Every preset on a small team whose advantages are computed by hand, and the rules that hold for all of them."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.algorithms.advantages import compute_advantages
from trainers.algorithms.presets import get_algorithm, presets
from trainers.algorithms.scores import ScoreError
from trainers.rollout.records import Episode

S, V = "solver_0", "verifier_0"
Build = Callable[..., Episode]
Compute = Callable[..., np.ndarray]
GROUPED = [name for name, algorithm in presets.items() if algorithm.mean_by is not None]
WITHIN_TASKS = [name for name in GROUPED if {"task", "episode"} & set(presets[name].mean_by or ())]

# The team is right in the first two episodes. The solver speaks twice in the second. Local part: the verdict.
#           solver           verifier                          score of a turn (team + own local)
# t#0       team 1           team 1, verdict .5                1, 1.5
# t#1       team 0 | team 1  team 0, verdict 0 | team 1        1, 1, 1       (S V S, the team part arrives at the end)
# t#2       team 0           team 0, verdict .5                0, .5


@pytest.fixture
def team(episode: Build) -> list[Episode]:
    return [
        episode("t", 0, [(S, {"team": 1.0}), (V, {"team": 1.0, "verdict": 0.5})]),
        episode("t", 1, [(S, {}), (V, {"team": 1.0, "verdict": 0.0}), (S, {"team": 1.0})]),
        episode("t", 2, [(S, {"team": 0.0}), (V, {"team": 0.0, "verdict": 0.5})]),
    ]


def test_grpo(team: list[Episode]) -> None:
    # Episode returns 1.5, 1, .5: each counts once whatever its number of turns. Mean 1, std .5.
    got = compute_advantages(team, replace(presets["grpo"], eps=0))
    np.testing.assert_allclose(got, [1, 1, 0, 0, 0, -1, -1], atol=1e-12)


def test_grpo_eps_is_1e_6(team: list[Episode]) -> None:
    got = compute_advantages(team, presets["grpo"])
    np.testing.assert_allclose(got[0], 0.5 / (0.5 + 1e-6), rtol=1e-12)


def test_dr_grpo(team: list[Episode]) -> None:
    np.testing.assert_allclose(compute_advantages(team, presets["dr_grpo"]), [0.5, 0.5, 0, 0, 0, -0.5, -0.5])


def test_rloo(team: list[Episode]) -> None:
    # Against the mean of the other two episodes: 1.5 - .75, 1 - 1, .5 - 1.25.
    np.testing.assert_allclose(compute_advantages(team, presets["rloo"]), [0.75, 0.75, 0, 0, 0, -0.75, -0.75])


def test_step_grpo(team: list[Episode]) -> None:
    # Seven turns: 1, 1.5, 1, 1, 1, 0, .5. Mean 6/7.
    scores = np.array([1, 1.5, 1, 1, 1, 0, 0.5])
    expected = (scores - 6 / 7) / math.sqrt(((scores - 6 / 7) ** 2).sum() / 6)
    got = compute_advantages(team, replace(presets["step_grpo"], eps=0))
    np.testing.assert_allclose(got, expected)


def test_dr_mas(team: list[Episode]) -> None:
    # Solver turns 1, 1, 1, 0: mean .75, squares 3/16+9/16 = .75, std .5. Verifier turns 1.5, 1, .5: mean 1, std .5.
    got = compute_advantages(team, replace(presets["dr_mas"], eps=0))
    np.testing.assert_allclose(got, [0.5, 1, 0.5, 0, 0.5, -1.5, -1])


def test_dr_mas_cells(team: list[Episode]) -> None:
    scores = np.array([1, 1.5, 1, 1, 1, 0, 0.5])
    task_std = scores.std(ddof=1)
    own_mean = np.array([0.75, 1, 0.75, 1, 0.75, 0.75, 1])

    def cell(name: str) -> np.ndarray:
        return compute_advantages(team, replace(presets[name], eps=0))

    np.testing.assert_allclose(cell("dr_mas_agent_mean_task_std"), (scores - own_mean) / task_std)
    np.testing.assert_allclose(cell("dr_mas_task_mean_agent_std"), (scores - 6 / 7) / 0.5)
    np.testing.assert_allclose(cell("dr_mas_task_mean_task_std"), (scores - 6 / 7) / task_std)


def test_step_grpo_is_the_task_task_cell_under_its_own_name() -> None:
    cell = presets["dr_mas_task_mean_task_std"]
    assert replace(presets["step_grpo"], name=cell.name, paper=cell.paper) == cell


def test_for_one_agent_with_one_turn_dr_mas_step_grpo_and_grpo_agree(episode: Build) -> None:
    alone = [episode("t", i, [(S, {"team": float(i % 2), "format": 0.1 * i})]) for i in range(5)]
    grpo = compute_advantages(alone, presets["grpo"])
    for name in ("dr_mas", "step_grpo", "dr_mas_task_mean_agent_std"):
        np.testing.assert_allclose(compute_advantages(alone, presets[name]), grpo, rtol=1e-12)


def test_tasks_are_not_mixed(team: list[Episode], episode: Build) -> None:
    other = [episode("u", i, [(S, {"team": 5.0 * i})]) for i in range(2)]
    for name in (name for name in WITHIN_TASKS if presets[name].std_by != ()):
        together = compute_advantages([*team, *other], presets[name])
        np.testing.assert_allclose(together[:7], compute_advantages(team, presets[name]), atol=1e-12)


# --- penalties ------------------------------------------------------------------------------------------------------


def _one_penalty(episode: Build) -> list[Episode]:
    return [episode("t", i, [(S, {"team": 1.0, **({"invalid": -0.01} if i == 3 else {})})]) for i in range(8)]


@pytest.mark.parametrize("name", [name for name in GROUPED if not presets[name].fold_penalties])
def test_a_small_penalty_in_an_all_correct_group_stays_small(name: str, episode: Build) -> None:
    got = compute_advantages(_one_penalty(episode), presets[name])
    assert got.tolist() == [0, 0, 0, -0.01, 0, 0, 0, 0]


@pytest.mark.parametrize("name", ["grpo", "dr_mas", "step_grpo"])
def test_folded_as_published_the_same_penalty_becomes_minus_2_47(name: str, episode: Build) -> None:
    # (-7/8 * .01) / (.01 / sqrt(8)) = -7 / sqrt(8)
    got = compute_advantages(_one_penalty(episode), replace(presets[name], fold_penalties=True, eps=0))
    assert got[3] == pytest.approx(-7 / math.sqrt(8), rel=1e-9)
    assert round(got[3], 2) == -2.47
    assert got[0] == pytest.approx(1 / math.sqrt(8), rel=1e-9)


def test_penalty_scale_and_only_the_turn_that_earned_it(team: list[Episode]) -> None:
    plain = compute_advantages(team, presets["dr_mas"])
    team[1].turns[2].reward_parts["invalid"] = -0.2
    team[1].reward_parts[S]["invalid"] = -0.2
    got = compute_advantages(team, replace(presets["dr_mas"], penalty_scale=3.0))
    expected = plain.copy()
    expected[4] -= 0.6
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_folded_penalties_count_in_the_episode_return_of_grpo(team: list[Episode]) -> None:
    team[0].turns[0].reward_parts["invalid"] = -0.5
    team[0].reward_parts[S]["invalid"] = -0.5
    # Returns 1, 1, .5.
    got = compute_advantages(team, replace(presets["dr_grpo"], fold_penalties=True))
    np.testing.assert_allclose(got, np.repeat([1 / 6, 1 / 6, -1 / 3], [2, 3, 2]))


# --- which turns and episodes count ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(presets))
def test_masked_turns_have_zero_and_touch_no_statistic(
    name: str, team: list[Episode], episode: Build, advantages: Compute
) -> None:
    without = advantages(team, presets[name])
    odd = episode("t", 9, [(S, {"team": 99.0}, {"masked": True}), (V, {"team": 99.0}, {"masked": True})])
    got = advantages([odd, *team], presets[name])
    assert got[:2].tolist() == [0, 0]
    np.testing.assert_allclose(got[2:], without, atol=1e-12)


def test_a_masked_first_turn_does_not_take_its_episode_out_of_the_statistics(team: list[Episode]) -> None:
    for one in team:
        one.turns[0].masked = True
    got = compute_advantages(team, replace(presets["grpo"], eps=0))
    np.testing.assert_allclose(got, [0, 1, 0, 0, 0, 0, -1], atol=1e-12)


def test_failed_episodes_do_not_count_and_may_lack_rewards(team: list[Episode], episode: Build) -> None:
    without = compute_advantages(team, presets["dr_mas"])
    failed = episode("t", 9, [(S, {"team": math.nan})], error="the request failed")
    got = compute_advantages([*team, failed], presets["dr_mas"])
    np.testing.assert_allclose(got, [*without, 0])


def test_nothing_to_compare_is_zero(episode: Build) -> None:
    assert compute_advantages([], presets["dr_mas"]).tolist() == []
    for name in GROUPED:
        assert compute_advantages([episode("t", 0, [(S, {"team": 1.0})])], presets[name]).tolist() == [0]


@pytest.mark.parametrize("name", list(presets))
def test_duplicates_are_refused(name: str, team: list[Episode]) -> None:
    with pytest.raises(ScoreError, match=r"Turn 0 \(solver_0\) of episode 't#0' appears twice"):
        compute_advantages([*team, team[0]], presets[name])
    team[1].turns.append(team[1].turns[2])
    with pytest.raises(ScoreError, match=r"Turn 2 \(solver_0\) of episode 't#1' appears twice"):
        compute_advantages(team, presets[name])


def test_a_missing_reward_names_the_turn(team: list[Episode]) -> None:
    team[2].turns[1].reward_parts["team"] = math.nan
    with pytest.raises(ScoreError, match=r"Turn 1 \(verifier_0\) of episode 't#2': reward part 'team' is nan"):
        compute_advantages(team, presets["dr_mas"])
    team[2].turns[1].reward_parts["team"] = None  # type: ignore[assignment]
    with pytest.raises(ScoreError, match="'team' is None"):
        compute_advantages(team, presets["dr_mas"])
    team[2].turns[1].reward_parts["team"] = 0.0
    del team[2].reward_parts[V]
    with pytest.raises(ScoreError, match="no reward for 'verifier_0'"):
        compute_advantages(team, presets["dr_mas"])


# --- laws on random teams -------------------------------------------------------------------------------------------


def _random_team(build: Build, seed: int) -> list[Episode]:
    rng = random.Random(seed)
    episodes = []
    for task in "tuv"[: rng.randint(1, 3)]:
        for sample in range(rng.randint(1, 5)):
            outcome = float(rng.randint(0, 1))
            specs = []
            for k in range(rng.randint(1, 5)):
                local = {"format": rng.choice([0.0, 0.1, 0.25]), "invalid": rng.choice([0.0, 0.0, -0.1])}
                specs.append(([S, V][k % 2], local, {"masked": rng.random() < 0.1}))
            for agent in {name for name, *_ in specs}:
                last = max(i for i, (name, *_) in enumerate(specs) if name == agent)
                specs[last][1]["team"] = outcome
            episodes.append(build(task, sample, specs))
    return episodes


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), name=st.sampled_from(sorted(presets)))
def test_law_order_of_episodes_does_not_matter(episode: Build, advantages: Compute, seed: int, name: str) -> None:
    team = _random_team(episode, seed)

    def by_turn() -> dict[tuple[str, int], float]:
        turns = [(t.episode, t.index) for e in team for t in e.turns]
        return dict(zip(turns, advantages(team, presets[name]), strict=True))

    values = by_turn()
    random.Random(seed + 1).shuffle(team)
    moved = by_turn()
    assert values.keys() == moved.keys()
    for key, value in values.items():
        assert moved[key] == pytest.approx(value, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.floats(0.1, 10), shift=st.floats(-3, 3))
def test_law_dr_mas_is_invariant_to_an_affine_change_of_one_agents_scores(
    episode: Build, seed: int, scale: float, shift: float
) -> None:
    """What Dr. MAS is for: no agent's reward scale touches another's advantages, or its own."""
    team = _random_team(episode, seed)
    algorithm = replace(presets["dr_mas"], eps=0, penalty_scale=0)
    before = compute_advantages(team, algorithm)
    for one in team:
        outcome = one.reward_parts[S].get("team", 0.0)
        for turn in one.turns:
            if turn.agent == S:
                local = turn.reward_parts.get("format", 0.0)
                turn.reward_parts["format"] = scale * (local + outcome) + shift - outcome
    np.testing.assert_allclose(compute_advantages(team, algorithm), before, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_law_groups_sum_to_zero(episode: Build, seed: int) -> None:
    team = _random_team(episode, seed)
    turns = [t for e in team for t in e.turns]
    got = compute_advantages(team, replace(presets["dr_mas"], penalty_scale=0))
    for key in {(t.task, t.agent) for t in turns}:
        assert abs(sum(a for a, t in zip(got, turns, strict=True) if (t.task, t.agent) == key)) < 1e-8


# --- names ----------------------------------------------------------------------------------------------------------


def test_names() -> None:
    assert {"grpo", "dr_grpo", "step_grpo", "dr_mas", "rloo"} <= set(presets)
    assert all(name == algorithm.name and algorithm.paper for name, algorithm in presets.items())
    with pytest.raises(ValueError, match="Did you mean 'dr_mas'"):
        get_algorithm("drmas")
    with pytest.raises(ValueError, match="Did you mean 'task'"):
        replace(presets["grpo"], mean_by=("tasks",))
    with pytest.raises(ValueError, match="Did you mean 'episode_return'"):
        replace(presets["grpo"], score="episode_returns")
    with pytest.raises(ValueError, match="ddof"):
        replace(presets["grpo"], ddof=2)


def test_presets_are_read_without_torch() -> None:
    import subprocess

    code = "import sys, trainers.algorithms.presets, trainers.learner_config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
