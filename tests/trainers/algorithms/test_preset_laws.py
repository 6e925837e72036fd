"""Laws of the published algorithms on random teams: what changes their advantages, and what must not."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.algorithms.advantages import compute_advantages, has_signal, make_baseline
from trainers.algorithms.algorithm import Algorithm, Baseline, Term
from trainers.algorithms.critic_config import CriticConfig
from trainers.algorithms.presets import presets
from trainers.algorithms.scores import TurnBatch
from trainers.rollout.records import Episode

S, V = "solver_0", "verifier_0"
Build = Callable[..., Episode]
Compute = Callable[..., np.ndarray]
SEEDS = st.integers(0, 10_000)
EPISODES = [name for name, algorithm in presets.items() if algorithm.sampling == "episodes"]
SCALED = [name for name in EPISODES if presets[name].std_by is not None]
UNSCALED = [name for name in EPISODES if presets[name].std_by is None]
COMPARED_IN_TASKS = [name for name in EPISODES if "task" in (presets[name].mean_by or ()) and not presets[name].extra]
LAWS = settings(max_examples=40, deadline=None)


def exact(name: str) -> Algorithm:
    return replace(presets[name], eps=0.0, penalty_scale=0.0)


def draw_team(build: Build, seed: int) -> list[Episode]:
    rng = random.Random(seed)
    team = []
    for task in "tuv"[: rng.randint(1, 3)]:
        for sample in range(rng.randint(2, 5)):
            outcome = rng.choice([0.0, 1.0])
            speakers = [S, V, *rng.choices([S, S, V], k=rng.randint(0, 3))]
            specs = [
                (agent, {"format": rng.choice([0.0, 0.25, -0.5])}, {"observation": f"{agent} {rng.randint(0, 1)}"})
                for agent in speakers
            ]
            for agent in (S, V):
                last = max(i for i, speaker in enumerate(speakers) if speaker == agent)
                specs[last][1]["team"] = outcome
            team.append(build(task, sample, specs))
    return team


def changed(team: list[Episode], part: str, change: Callable[[Episode, float], float]) -> list[Episode]:
    """The same episodes with another value of one part wherever it is paid, in turns and in totals."""
    team = copy.deepcopy(team)
    for one in team:
        for turn in one.turns:
            if part in turn.reward_parts:
                before = turn.reward_parts[part]
                turn.reward_parts[part] = change(one, before)
                one.reward_parts[turn.agent][part] += turn.reward_parts[part] - before
    return team


def turns(team: list[Episode]) -> list[tuple[str, str, str]]:
    return [(turn.task, turn.agent, one.id) for one in team for turn in one.turns]


@LAWS
@given(seed=SEEDS, factor=st.floats(0.1, 20), name=st.sampled_from(SCALED))
def test_law_the_scale_of_all_rewards_does_not_matter_where_there_is_a_deviation(
    episode: Build, seed: int, factor: float, name: str
) -> None:
    team = draw_team(episode, seed)
    larger = changed(changed(team, "team", lambda _, r: factor * r), "format", lambda _, r: factor * r)
    np.testing.assert_allclose(
        compute_advantages(larger, exact(name)), compute_advantages(team, exact(name)), atol=1e-7
    )


@LAWS
@given(seed=SEEDS, factor=st.floats(0.1, 20), name=st.sampled_from(UNSCALED))
def test_law_without_a_deviation_advantages_scale_with_the_rewards(
    episode: Build, advantages: Compute, seed: int, factor: float, name: str
) -> None:
    team = draw_team(episode, seed)
    larger = changed(changed(team, "team", lambda _, r: factor * r), "format", lambda _, r: factor * r)
    np.testing.assert_allclose(
        advantages(larger, exact(name)), factor * advantages(team, exact(name)), rtol=1e-9, atol=1e-9
    )


@LAWS
@given(seed=SEEDS, shifts=st.tuples(*[st.floats(-5, 5)] * 3), name=st.sampled_from(COMPARED_IN_TASKS))
def test_law_what_a_whole_task_is_paid_does_not_matter_within_tasks(
    episode: Build, seed: int, shifts: tuple[float, float, float], name: str
) -> None:
    """REINFORCE++ with a baseline too, since its deviation is that of the scores less their task's mean."""
    team = draw_team(episode, seed)
    easier = changed(team, "team", lambda one, r: r + shifts["tuv".index(one.task)])
    np.testing.assert_allclose(
        compute_advantages(easier, exact(name)), compute_advantages(team, exact(name)), atol=1e-6
    )


def test_what_a_whole_task_is_paid_does_matter_to_reinforce_pp(episode: Build) -> None:
    team = [*draw_team(episode, 2), episode("v", 9, [(S, {"team": 0.5})])]
    assert len({one.task for one in team}) > 1
    easier = changed(team, "team", lambda one, r: r + "tuv".index(one.task))
    got, before = (compute_advantages(episodes, exact("reinforce_pp")) for episodes in (easier, team))
    assert not np.allclose(got, before)


@LAWS
@given(seed=SEEDS, name=st.sampled_from(["reinforce_pp", "reinforce_pp_baseline"]), gamma=st.floats(0, 1))
def test_law_reinforce_pp_is_white(episode: Build, seed: int, name: str, gamma: float) -> None:
    team = draw_team(episode, seed)
    algorithm = replace(exact(name), discount=gamma)
    if not has_signal(TurnBatch.of(team), algorithm).any():
        return
    got = compute_advantages(team, algorithm)
    assert got.mean() == pytest.approx(0, abs=1e-9)
    assert got.std(ddof=1) == pytest.approx(1, abs=1e-9)


@LAWS
@given(seed=SEEDS)
def test_law_a_whitened_critic_is_white(episode: Build, advantages: Compute, seed: int) -> None:
    team = draw_team(episode, seed)
    values = np.random.default_rng(seed).normal(size=len(turns(team)))
    got = advantages(team, replace(exact("gae"), mean_by=(), std_by=()), values=values)
    assert got.mean() == pytest.approx(0, abs=1e-9)
    assert got.std(ddof=1) == pytest.approx(1, abs=1e-9)


@LAWS
@given(seed=SEEDS, name=st.sampled_from([n for n in EPISODES if presets[n].mean_by and not presets[n].extra]))
def test_law_a_group_sums_to_zero(episode: Build, seed: int, name: str) -> None:
    """Over turns, or over episodes where each counts once; a group that is finer than its deviation's too."""
    team = draw_team(episode, seed)
    algorithm = exact(name)
    # A turn whose deviation group is degenerate has 0 whatever its score is, which may leave a rest in its mean group.
    if algorithm.std_by not in (None, algorithm.mean_by, ()):
        algorithm = replace(algorithm, std_by=None)
    got = compute_advantages(team, algorithm)
    labels = TurnBatch.of(team).keys(algorithm.mean_by or ())
    sums: dict[object, float] = {}
    seen = set()
    for label, (_, _, one), value in zip(labels, turns(team), got, strict=True):
        if algorithm.weight == "turn" or (label, one) not in seen:
            sums[label] = sums.get(label, 0.0) + value
        seen.add((label, one))
    assert max(map(abs, sums.values())) < 1e-8


@LAWS
@given(seed=SEEDS, name=st.sampled_from(EPISODES))
def test_law_an_agents_name_does_not_matter(episode: Build, advantages: Compute, seed: int, name: str) -> None:
    team = draw_team(episode, seed)
    renamed = copy.deepcopy(team)
    for one in renamed:
        one.reward_parts = {f"x_{agent}": parts for agent, parts in one.reward_parts.items()}
        for turn in one.turns:
            turn.agent, turn.observation = f"x_{turn.agent}", f"x {turn.observation}"
    np.testing.assert_allclose(advantages(renamed, presets[name]), advantages(team, presets[name]), atol=1e-12)


@LAWS
@given(seed=SEEDS)
def test_law_gigpo_without_recurring_states_is_grpo_of_each_agent(episode: Build, seed: int) -> None:
    team = draw_team(episode, seed)
    for one in team:
        for turn in one.turns:
            turn.observation = f"{one.id} {turn.index}"
    got = compute_advantages(team, exact("gigpo"))
    np.testing.assert_allclose(got, compute_advantages(team, replace(exact("gigpo"), extra=())), atol=1e-12)


@LAWS
@given(seed=SEEDS, omega=st.floats(0, 3))
def test_law_gigpo_is_linear_in_omega(episode: Build, seed: int, omega: float) -> None:
    team = draw_team(episode, seed)
    (term,) = presets["gigpo"].extra

    def at(weight: float) -> np.ndarray:
        return compute_advantages(team, replace(exact("gigpo"), extra=(replace(term, coefficient=weight),)))

    np.testing.assert_allclose(at(omega), (1 - omega) * at(0.0) + omega * at(1.0), atol=1e-9)


@LAWS
@given(seed=SEEDS, decay=st.floats(0, 0.99))
def test_law_averages_do_not_depend_on_the_order_of_a_batch(episode: Build, seed: int, decay: float) -> None:
    algorithm = replace(presets["rae"], baseline=Baseline(decay=decay))
    one, other = make_baseline(algorithm), make_baseline(algorithm)
    rng = random.Random(seed)
    for batch in range(3):
        team = draw_team(episode, seed + batch)
        shuffled = rng.sample(team, len(team))
        by_id = dict(zip(turns(team), compute_advantages(team, algorithm, baseline=one), strict=True))
        again = dict(zip(turns(shuffled), compute_advantages(shuffled, algorithm, baseline=other), strict=True))
        assert by_id == again
    assert one is not None
    assert other is not None
    assert one.state_dict() == other.state_dict()


@LAWS
@given(seed=SEEDS, lam=st.floats(0, 1), gamma=st.floats(0, 1))
def test_law_a_constant_value_moves_the_last_turns_only_when_nothing_is_discounted(
    episode: Build, advantages: Compute, seed: int, lam: float, gamma: float
) -> None:
    """δ holds V_t − γV_{t+1}: with γ = 1 a constant cancels in all but an agent's last δ."""
    team = draw_team(episode, seed)
    algorithm = replace(exact("gae"), discount=1.0, critic=CriticConfig(lam=lam))
    plain = advantages(team, algorithm)
    moved = advantages(team, algorithm, values=np.full(len(turns(team)), 2.0))
    expected = []
    for one in team:
        for turn in one.turns:
            left = sum(t.agent == turn.agent and t.index > turn.index for t in one.turns)
            expected.append(-2.0 * lam**left)
    np.testing.assert_allclose(moved - plain, expected, atol=1e-9)


def test_has_signal_of_what_has_no_groups_and_of_what_was_cut(episode: Build) -> None:
    same = [
        episode("t", i, [(S, {"team": 1.0}, {"finish_reason": reason})]) for i, reason in enumerate(("stop", "length"))
    ]
    batch = TurnBatch.of(same)
    assert has_signal(batch, presets["grpo"]).tolist() == [False, False]
    assert has_signal(batch, presets["reinforce_pp_baseline"]).tolist() == [False, False]
    assert has_signal(batch, presets["rae"]).tolist() == [True, True]
    assert has_signal(batch, presets["gae"]).tolist() == [True, True]
    assert has_signal(batch, replace(presets["gae"], mean_by=(), std_by=())).tolist() == [True, True]
    assert has_signal(batch, replace(presets["rae"], overlong="mask")).tolist() == [True, False]
    # A difference between tasks is none within them.
    apart = [*same, episode("u", 0, [(S, {"team": 0.0})]), episode("u", 1, [(S, {"team": 0.0})])]
    assert has_signal(TurnBatch.of(apart), presets["reinforce_pp"]).all()
    assert not has_signal(TurnBatch.of(apart), presets["reinforce_pp_baseline"]).any()
    assert not compute_advantages(apart, presets["reinforce_pp_baseline"]).any()


def test_centring_first_needs_something_to_centre() -> None:
    with pytest.raises(ValueError, match="center_first"):
        Term(mean_by=None, center_first=True)
