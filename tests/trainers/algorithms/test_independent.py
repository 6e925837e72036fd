"""Every formula against an implementation that shares no code with it: plain loops over plain lists.

The functions here are written from the papers. They know nothing of keys, weights or groups; each says in its own words
which turns are compared.
"""

from __future__ import annotations

import copy
import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trainers.algorithms.advantages import compute_advantages, make_baseline
from trainers.algorithms.critic_config import CriticConfig
from trainers.algorithms.presets import presets
from trainers.algorithms.scores import ScoreError
from trainers.algorithms.shaping import TurnFacts, may_train, soft_overlong_penalty
from trainers.rollout.records import Episode, Turn

S, V = "solver_0", "verifier_0"
Build = Callable[..., Episode]
EPS = 1e-6


def random_team(build: Build, seed: int, *, masked: bool = True, env: str = "math-2agent-v0") -> list[Episode]:
    """Two agents with unequal numbers of turns; some observations recur; some turns and an episode do not count."""
    rng = random.Random(seed)
    episodes = []
    for task in ("t", "u", "v"):
        for sample in range(rng.randint(2, 5)):
            outcome = rng.choice([0.0, 1.0, 0.5])
            specs: list[Any] = []
            for k in range(rng.randint(1, 6)):
                agent = S if k == 0 else rng.choice([S, S, V])
                local = {"format": round(rng.uniform(-1, 1), 3)} | ({"invalid": -0.1} if rng.random() < 0.2 else {})
                extra = {
                    "masked": masked and rng.random() < 0.1,
                    "observation": f"seen {rng.randint(0, 2)}",
                    "completion_tokens": rng.randint(1, 100),
                    "finish_reason": rng.choice(["stop", "stop", "length"]),
                }
                specs.append((agent, local, extra))
            for agent in {name for name, *_ in specs}:
                last = max(i for i, (name, *_) in enumerate(specs) if name == agent)
                specs[last][1]["team"] = outcome
            episodes.append(build(task, sample, specs, env=env))
    lost = build("t", 99, [(S, {"team": 1.0}, {"masked": True})], error="lost")
    return [*episodes, lost]


def pairs(episodes: list[Episode]) -> list[tuple[Turn, Episode]]:
    return [(turn, episode) for episode in episodes for turn in episode.turns]


def counts(turn: Turn, episode: Episode) -> bool:
    return not turn.masked and episode.error is None


def local(parts: dict[str, float]) -> float:
    return parts.get("format", 0.0)


def episode_total(episode: Episode) -> float:
    """The outcome once, and everybody's own parts."""
    team = max((parts.get("team", 0.0) for parts in episode.reward_parts.values()), default=0.0)
    return team + sum(local(parts) for parts in episode.reward_parts.values())


def own_outcome(turn: Turn, episode: Episode) -> float:
    return episode.reward_parts[turn.agent].get("team", 0.0) + local(turn.reward_parts)


def earned(turn: Turn) -> float:
    return turn.reward_parts.get("team", 0.0) + local(turn.reward_parts)


def discounted_sum(turn: Turn, episode: Episode, gamma: float) -> float:
    later = [other for other in episode.turns if other.agent == turn.agent and other.index >= turn.index]
    return sum(gamma**k * earned(other) for k, other in enumerate(later))


def paid_penalty(turn: Turn) -> float:
    return turn.reward_parts.get("invalid", 0.0)


def compared(value: float, others: list[float], spread: list[float] | None) -> float:
    """(value − mean of the others) / (deviation of the spread), 0 where there is nothing to compare with."""
    if len(others) < 2 or max(others) - min(others) < 1e-12:
        return 0.0
    if spread is None:
        return value - statistics.fmean(others)
    if len(spread) < 2 or max(spread) - min(spread) < 1e-12:
        return 0.0
    return (value - statistics.fmean(others)) / (statistics.stdev(spread) + EPS)


def per_turn(episodes: list[Episode], one: Callable[[Turn, Episode], float]) -> list[float]:
    return [
        one(turn, episode) + paid_penalty(turn) if counts(turn, episode) else 0.0 for turn, episode in pairs(episodes)
    ]


def grpo(episodes: list[Episode], *, deviation: bool = True, others_only: bool = False) -> list[float]:
    def one(turn: Turn, episode: Episode) -> float:
        group = [e for e in episodes if e.task == turn.task and any(counts(t, e) for t in e.turns)]
        totals = [episode_total(e) for e in group]
        if others_only:
            rest = [episode_total(e) for e in group if e is not episode]
            return episode_total(episode) - statistics.fmean(rest) if rest else 0.0
        return compared(episode_total(episode), totals, totals if deviation else None)

    return per_turn(episodes, one)


def dr_mas(episodes: list[Episode], *, own_mean: bool = True, own_deviation: bool = True) -> list[float]:
    def one(turn: Turn, episode: Episode) -> float:
        everyone = [(t, e) for t, e in pairs(episodes) if counts(t, e) and t.task == turn.task]
        whole = [own_outcome(t, e) for t, e in everyone]
        mine = [own_outcome(t, e) for t, e in everyone if t.agent == turn.agent]
        mean, spread = mine if own_mean else whole, mine if own_deviation else whole
        return compared(own_outcome(turn, episode), mean, spread)

    return per_turn(episodes, one)


def gigpo(episodes: list[Episode], omega: float = 1.0, gamma: float = 0.95) -> list[float]:
    def one(turn: Turn, episode: Episode) -> float:
        group = [
            episode_total(e)
            for e in episodes
            if e.task == turn.task and any(counts(t, e) and t.agent == turn.agent for t in e.turns)
        ]
        anchors = [
            discounted_sum(t, e, gamma)
            for t, e in pairs(episodes)
            if counts(t, e) and (t.task, t.agent, t.observation) == (turn.task, turn.agent, turn.observation)
        ]
        macro = compared(episode_total(episode), group, group)
        return macro + omega * compared(discounted_sum(turn, episode, gamma), anchors, anchors)

    return per_turn(episodes, one)


def reinforce_pp(episodes: list[Episode], *, baseline: bool = False, gamma: float = 1.0) -> list[float]:
    returns = {id(t): discounted_sum(t, e, gamma) for t, e in pairs(episodes) if counts(t, e)}
    if baseline:
        by_task = {
            task: statistics.fmean([returns[id(t)] for t, _ in pairs(episodes) if id(t) in returns and t.task == task])
            for task in {t.task for t, _ in pairs(episodes)}
        }
        returns = {id(t): returns[id(t)] - by_task[t.task] for t, _ in pairs(episodes) if id(t) in returns}
    mean, deviation = statistics.fmean(returns.values()), statistics.stdev(returns.values())
    return per_turn(episodes, lambda turn, episode: (returns[id(turn)] - mean) / (deviation + EPS))


def at_grpo(trees: list[Episode]) -> list[float]:
    def one(turn: Turn, tree: Episode) -> float:
        siblings = [earned(t) for t in tree.turns if t.index == turn.index and t.agent == turn.agent]
        return compared(earned(turn), siblings, siblings)

    return per_turn(trees, one)


def gae(episodes: list[Episode], values: dict[int, float], gamma: float, lam: float) -> list[float]:
    """The truncated sum of temporal differences (GAE, equation 16), term by term."""

    def delta(own: list[Turn], t: int) -> float:
        following = values[id(own[t + 1])] if t + 1 < len(own) else 0.0
        return earned(own[t]) + gamma * following - values[id(own[t])]

    def one(turn: Turn, episode: Episode) -> float:
        own = [t for t in episode.turns if t.agent == turn.agent]
        start = own.index(turn)
        return sum((gamma * lam) ** (t - start) * delta(own, t) for t in range(start, len(own)))

    return per_turn(episodes, one)


FORMULAS: dict[str, Callable[[list[Episode]], list[float]]] = {
    "grpo": grpo,
    "dr_grpo": lambda episodes: grpo(episodes, deviation=False),
    "rloo": lambda episodes: grpo(episodes, others_only=True),
    "dr_mas": dr_mas,
    "dr_mas_agent_mean_task_std": lambda episodes: dr_mas(episodes, own_deviation=False),
    "dr_mas_task_mean_agent_std": lambda episodes: dr_mas(episodes, own_mean=False),
    "dr_mas_task_mean_task_std": lambda episodes: dr_mas(episodes, own_mean=False, own_deviation=False),
    "step_grpo": lambda episodes: dr_mas(episodes, own_mean=False, own_deviation=False),
    "gigpo": gigpo,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": lambda episodes: reinforce_pp(episodes, baseline=True),
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", FORMULAS)
def test_presets(episode: Build, name: str, seed: int) -> None:
    team = random_team(episode, seed)
    np.testing.assert_allclose(compute_advantages(team, presets[name]), FORMULAS[name](team), rtol=1e-8, atol=1e-9)


def test_every_preset_has_a_formula() -> None:
    elsewhere = {"at_grpo", "rae", "gae"}
    assert presets.keys() == FORMULAS.keys() | elsewhere


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9])
def test_reinforce_pp_discounts_over_the_agents_own_turns(episode: Build, gamma: float) -> None:
    team = random_team(episode, 3)
    got = compute_advantages(team, replace(presets["reinforce_pp"], discount=gamma))
    np.testing.assert_allclose(got, reinforce_pp(team, gamma=gamma), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_at_grpo_on_trees(episode: Build, seed: int) -> None:
    rng = np.random.default_rng(seed)
    trees = []
    for task in ("t", "u"):
        for sample in range(2):
            specs = [
                (agent, {"team": float(rng.integers(0, 2)), "format": round(float(rng.normal()), 3)})
                for agent in (S, V, S)
                for _ in range(4)
            ]
            tree = episode(task, sample, specs, tree=True)
            for k, turn in enumerate(tree.turns):
                turn.index, turn.agent_turn, turn.candidate = k // 4, k // 8, k % 4
            trees.append(tree)
    np.testing.assert_allclose(compute_advantages(trees, presets["at_grpo"]), at_grpo(trees), rtol=1e-9, atol=1e-10)


# --- averages of roles ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_rae_over_several_batches(episode: Build, seed: int) -> None:
    rng = random.Random(seed)
    rae, averages = presets["rae"], dict[tuple[str, str], float]()
    baseline = make_baseline(rae)
    for _ in range(4):
        games = []
        for sample in range(6):
            env, won = rng.choice(["chess-v0", "poker-v0"]), rng.choice([-1.0, 0.0, 1.0])
            first = ("player_0", {"team": won}, {})
            rest = [] if rng.random() < 0.2 else [("player_1", {"team": -won}, {})]
            games.append(episode("g", sample, [("player_0", {}), first, *rest], env=env, early={"player_1": {}}))
        expected = []
        for turn, game in pairs(games):
            outcome = game.reward_parts[turn.agent].get("team", 0.0)
            expected.append(outcome - averages.get((game.env, turn.agent), 0.0))
        np.testing.assert_allclose(compute_advantages(games, rae, baseline=baseline), expected, atol=1e-12)
        for game in games:
            for agent in {turn.agent for turn in game.turns}:
                before = averages.get((game.env, agent), 0.0)
                averages[game.env, agent] = 0.95 * before + 0.05 * game.reward_parts[agent].get("team", 0.0)


# --- the critic -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.5), (0.99, 0.0), (1.0, 1.0), (0.0, 0.7)])
def test_gae(episode: Build, gamma: float, lam: float) -> None:
    team = random_team(episode, 11, masked=False)
    rng = np.random.default_rng(0)
    values = rng.normal(size=len(pairs(team)))
    algorithm = replace(presets["gae"], discount=gamma, critic=CriticConfig(lam=lam))
    by_turn = {id(turn): float(value) for (turn, _), value in zip(pairs(team), values, strict=True)}
    got = compute_advantages(team, algorithm, facts=TurnFacts(values=values))
    np.testing.assert_allclose(got, gae(team, by_turn, gamma, lam), rtol=1e-10, atol=1e-12)


def test_gae_by_hand(episode: Build) -> None:
    # Solver: r 1, 2 and the outcome 4; V .5, 1.5, 3. gamma .5, lambda .5; the verifier's turn between costs nothing.
    one = episode("t", 0, [(S, {"format": 1.0}), (V, {"team": 4.0}), (S, {"format": 2.0}), (S, {"team": 4.0})])
    algorithm = replace(presets["gae"], discount=0.5, critic=CriticConfig(lam=0.5))
    got = compute_advantages([one], algorithm, facts=TurnFacts(values=np.array([0.5, 1.0, 1.5, 3.0])))
    third = 4 - 3
    second = (2 + 0.5 * 3 - 1.5) + 0.25 * third
    first = (1 + 0.5 * 1.5 - 0.5) + 0.25 * second
    np.testing.assert_allclose(got, [first, 4 - 1, second, third])


def test_gae_without_a_value_in_between_passes_the_return_on(episode: Build) -> None:
    one = episode("t", 0, [(S, {"format": 1.0}), (S, {"format": 2.0}, {"masked": True}), (S, {"team": 4.0})])
    algorithm = replace(presets["gae"], discount=0.5, critic=CriticConfig(lam=0.5))
    got = compute_advantages([one], algorithm, facts=TurnFacts(values=np.array([0.5, np.nan, 3.0])))
    middle = 2 + 0.5 * (0.5 * 3 + 0.5 * 4)
    np.testing.assert_allclose(got, [1 + 0.5 * middle - 0.5, 0, 1])


def test_turns_of_policies_without_a_critic_have_no_advantage_and_count_nowhere(episode: Build) -> None:
    team = [episode("t", i, [(S, {"team": float(i)}), (V, {"team": float(i)})]) for i in range(3)]
    whitened = replace(presets["gae"], mean_by=(), std_by=(), eps=0.0)
    values = np.array([0.0, np.nan] * 3)
    got = compute_advantages(team, whitened, facts=TurnFacts(values=values))
    np.testing.assert_allclose(got, [-1, 0, 0, 0, 1, 0], atol=1e-12)


def test_a_critic_that_knows_the_return_leaves_nothing(episode: Build) -> None:
    team = random_team(episode, 5, masked=False)
    values = np.array([discounted_sum(t, e, 0.9) if e.error is None else 0.0 for t, e in pairs(team)])
    algorithm = replace(presets["gae"], discount=0.9, penalty_scale=0.0)
    np.testing.assert_allclose(compute_advantages(team, algorithm, facts=TurnFacts(values=values)), 0, atol=1e-12)


def test_what_is_needed_must_be_given(episode: Build) -> None:
    one = [episode("t", 0, [(S, {"team": 1.0})])]
    with pytest.raises(ValueError, match=r"'gae' needs values .*TurnFacts\(values=…\)"):
        compute_advantages(one, presets["gae"])
    with pytest.raises(ValueError, match="needs kl"):
        compute_advantages(one, replace(presets["grpo"], kl_in_reward=0.1))
    with pytest.raises(ValueError, match="needs max_tokens"):
        compute_advantages(one, replace(presets["grpo"], overlong="soft"))
    with pytest.raises(ValueError, match=r"values has shape \(2,\) for 1 turns"):
        compute_advantages(one, presets["gae"], facts=TurnFacts(values=np.zeros(2)))
    with pytest.raises(ValueError, match="set critic"):
        replace(presets["gae"], critic=None)
    with pytest.raises(ValueError, match="choose one"):
        replace(presets["rae"], critic=CriticConfig())
    with pytest.raises(ValueError, match="center_first"):
        replace(presets["reinforce_pp_baseline"], std_by=None)
    tree = [episode("t", 0, [(S, {"team": 1.0})], tree=True)]
    with pytest.raises(ScoreError, match="is a tree"):
        compute_advantages(tree, presets["gae"], facts=TurnFacts(values=np.zeros(1)))


# --- length and divergence ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_soft_overlong_penalty(seed: int) -> None:
    """DAPO, equation 13, case by case."""
    rng = random.Random(seed)
    for _ in range(50):
        limit = rng.randint(10, 200)
        buffer, length = rng.randint(1, limit - 1), rng.randint(1, limit)
        if length <= limit - buffer:
            expected = 0.0
        elif length <= limit:
            expected = ((limit - buffer) - length) / buffer
        else:
            expected = -1.0
        got = soft_overlong_penalty([length], np.array([limit]), np.array([buffer]))
        assert got[0] == pytest.approx(expected, abs=1e-12)


def paid_by_length(team: list[Episode], part: str, limit: int, buffer: int) -> list[Episode]:
    """The same episodes, if the environment had paid the length penalty itself."""
    team = copy.deepcopy(team)
    for turn, one in pairs(team):
        paid = -min(1.0, max(0.0, (turn.completion_tokens - (limit - buffer)) / buffer))
        for parts in (turn.reward_parts, one.reward_parts[turn.agent]):
            parts[part] = parts.get(part, 0.0) + paid
    return team


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("name", ["grpo", "dr_mas", "gigpo", "reinforce_pp_baseline"])
def test_a_soft_penalty_is_one_more_penalty(episode: Build, name: str, fold: bool) -> None:
    team = random_team(episode, 7, masked=False)
    algorithm = replace(presets[name], fold_penalties=fold, penalty_scale=0.5)
    expected = compute_advantages(paid_by_length(team, "invalid", 100, 40), algorithm)
    facts = TurnFacts(max_tokens=np.full(len(pairs(team)), 100))
    got = compute_advantages(team, replace(algorithm, overlong="soft", overlong_buffer=40), facts=facts)
    np.testing.assert_allclose(got, expected, atol=1e-9)
    assert not np.allclose(got, compute_advantages(team, algorithm))


def test_the_buffer_is_a_fifth_of_the_limit_by_default(episode: Build) -> None:
    lengths = [79, 80, 90, 100]
    team = [episode("t", i, [(S, {"team": 1.0}, {"completion_tokens": n})]) for i, n in enumerate(lengths)]
    got = compute_advantages(
        team, replace(presets["grpo"], overlong="soft"), facts=TurnFacts(max_tokens=np.full(4, 100))
    )
    np.testing.assert_allclose(got, [0, 0, -0.5, -1])


def test_masked_cuts_count_in_the_statistics_and_are_not_trained_on(episode: Build) -> None:
    team = random_team(episode, 9)
    for name in FORMULAS:
        expected = np.array(FORMULAS[name](team))
        expected[[turn.finish_reason == "length" for turn, _ in pairs(team)]] = 0.0
        got = compute_advantages(team, replace(presets[name], overlong="mask"))
        np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-9, err_msg=name)
    from trainers.algorithms.scores import TurnBatch

    trained = may_train(TurnBatch.of(team), replace(presets["grpo"], overlong="mask"))
    assert trained.tolist() == [counts(t, e) and t.finish_reason == "stop" for t, e in pairs(team)]


@pytest.mark.parametrize("name", [*FORMULAS, "gae", "rae"])
def test_divergence_in_the_reward_is_one_more_local_part(
    episode: Build, advantages: Callable[..., np.ndarray], name: str
) -> None:
    team = random_team(episode, 13, masked=False)
    kl = np.random.default_rng(1).normal(size=len(pairs(team)))
    paid = copy.deepcopy(team)
    for (turn, one), value in zip(pairs(paid), kl, strict=True):
        for parts in (turn.reward_parts, one.reward_parts[turn.agent]):
            parts["format"] = parts.get("format", 0.0) - 0.3 * float(value)
    got = advantages(team, replace(presets[name], kl_in_reward=0.3), kl=kl)
    np.testing.assert_allclose(got, advantages(paid, presets[name]), rtol=1e-8, atol=1e-9)
    assert not np.allclose(got, advantages(team, presets[name]))
