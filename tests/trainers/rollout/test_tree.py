"""Tree sampling against trees that were worked out by hand."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

import llm_envs
from llm_envs.core import Outcome, TextEnv
from llm_envs.parsing import InvalidAction
from llm_envs.tasks import ListTaskSet, Task
from trainers.algorithms.advantages import compute_advantages
from trainers.algorithms.presets import get_algorithm
from trainers.algorithms.scores import ScoreError
from trainers.policies.base import Completion, Policy, Request
from trainers.policies.scripted import OraclePolicy, RandomPolicy
from trainers.rollout.episodes import collect, make_jobs
from trainers.rollout.records import Episode
from trainers.rollout.tree import TreeSampling, run_tree
from trainers.team import Team

A, B = "adder_0", "doubler_0"


class Numbers(TextEnv):
    """adder_0 adds its number to the total, doubler_0 then multiplies it by its own; two rounds. The state is shown.

    Each turn pays its agent a local part ``gain`` of a tenth of the growth of the total. A total of 40 or more at the
    end pays the team 1.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "numbers_v0", "render_modes": ["ansi"], "is_parallelizable": False}

    def __init__(self) -> None:
        super().__init__([A, B], ListTaskSet([Task(f"n/{i}", "Grow it.", "") for i in range(4)], name="n"))

    def _start(self) -> str:
        self.total, self.turns, self.log = 1, 0, ""
        return A

    def _context(self, agent: str) -> str:
        return self.task.question + self.log

    def _instructions(self, agent: str) -> str:
        return f"You are {agent}. The total is {self.total}."

    def _play(self, agent: str, action: str) -> Outcome:
        if not action.isdigit():
            raise InvalidAction("a number is needed")
        before = self.total
        self.total = before + int(action) if agent == A else before * int(action)
        self.log += f"\n{agent}: {action}"
        return self._after(agent, {"gain": (self.total - before) / 10})

    def _forfeit(self, agent: str) -> Outcome:
        return self._after(agent, {})

    def _after(self, agent: str, parts: dict[str, float]) -> Outcome:
        self.turns += 1
        if self.turns < 4:
            return Outcome(next=B if agent == A else A, rewards={agent: parts})
        solved = self.total >= 40
        team = {"team": float(solved)}
        rewards = {name: {**team, **parts} if name == agent else team for name in (A, B)}
        return Outcome(rewards=rewards, terminated=True, success=solved)

    def _oracle(self, agent: str) -> str:
        return "9"


class Script(Policy):
    """Gives fixed candidates, by agent and turn of the agent, and keeps what it was asked."""

    def __init__(self, answers: dict[tuple[str, int], list[str]]) -> None:
        super().__init__("script")
        self.answers = answers
        self.asked: list[Request] = []

    async def generate(self, request: Request) -> list[Completion]:
        turn = sum(other.agent == request.agent for other in self.asked)
        self.asked.append(request)
        assert len(self.answers[request.agent, turn]) == request.n
        return [Completion(text, "stop") for text in self.answers[request.agent, turn]]

    @property
    def prompts(self) -> list[str]:
        return [request.observation.splitlines()[-1] for request in self.asked]


ANSWERS = {(A, 0): ["1", "3", "2"], (B, 0): ["2", "1", "3"], (A, 1): ["0", "x", "8"], (B, 1): ["1", "2", "0"]}


def grow(policy: Policy, env: TextEnv | None = None, **sampling: Any) -> Episode:
    settings = TreeSampling(**{"candidates": 3, **sampling})
    team, jobs = Team.single(policy), make_jobs([0], 1, seed=0)
    made = env or Numbers()
    (episode,) = asyncio.run(collect(made.fork, team, jobs, run=partial(run_tree, sampling=settings)))
    assert episode.error is None, episode.error
    return episode


def test_two_agents_two_turns_three_candidates_by_hand() -> None:
    """Argmax: 1 → +3 = 4 → ×3 = 12 → +8 = 20 → ×2 = 40. Every agent is asked on the state the choice has led to."""
    policy = Script(ANSWERS)
    tree = grow(policy)
    assert policy.prompts == [
        f"You are {A}. The total is 1.",
        f"You are {B}. The total is 4.",
        f"You are {A}. The total is 12.",
        f"You are {B}. The total is 20.",
    ]
    assert [(t.agent, t.index, t.agent_turn, t.candidate) for t in tree.turns] == [
        (agent, index, index // 2, k) for index, agent in enumerate((A, B, A, B)) for k in range(3)
    ]
    assert [turn.candidate for turn in tree.turns if turn.chosen] == [1, 2, 2, 1]
    scores = [turn.reward for turn in tree.turns]
    # Gains: of 1 by 1, 3, 2; of 4 to 8, 4, 12; of 12 by 0, (unusable) and 8; of 20 to 20, 40 (and the team's 1), 0.
    np.testing.assert_allclose(scores, [0.1, 0.3, 0.2, 0.4, 0, 0.8, 0, -0.1, 0.8, 0, 2 + 1, -2])
    assert tree.turns[7].invalid == "a number is needed"
    assert tree.turns[7].reward_parts == {"invalid": -0.1}
    assert tree.tree
    assert tree.success
    assert tree.terminated
    # The path's totals: all that its agents were paid on it, the team's part for both.
    np.testing.assert_allclose([tree.returns[A], tree.returns[B]], [0.3 + 0.8 + 1, 0.8 + 2 + 1])
    assert tree.reward_parts[A]["team"] == tree.reward_parts[B]["team"] == 1


def test_groups_and_advantages_of_that_tree() -> None:
    """Each turn's three candidates are one group; the penalty is part of what a step paid."""
    advantages = compute_advantages([grow(Script(ANSWERS))], get_algorithm("at_grpo")).reshape(4, 3)

    def group(*scores: float) -> np.ndarray:
        r = np.array(scores)
        return (r - r.mean()) / (r.std(ddof=1) + 1e-6)

    expected = [
        group(0.1, 0.3, 0.2),
        group(0.4, 0, 0.8),
        group(0, -0.1, 0.8),
        group(0, 3, -2),
    ]
    np.testing.assert_allclose(advantages, expected, atol=1e-12)
    assert (np.abs(advantages).max(axis=1) > 0.5).all(), "later agents have a signal of their own"


def test_what_a_turn_earns_later_is_not_its_own() -> None:
    """The team's 1 at the end reaches adder_0's total, and none of its candidates."""
    tree = grow(Script(ANSWERS))
    assert tree.reward_parts[A]["team"] == 1
    assert all("team" not in turn.reward_parts for turn in tree.turns if turn.agent == A)


@pytest.mark.parametrize(("env_id", "turns"), [("plan-path-2agent", 8), ("math-4agent", None), ("math-debate", None)])
def test_cost_is_turns_times_candidates(env_id: str, turns: int | None) -> None:
    """T·N·K answers, in rounds of agents too: K a turn of the path."""
    env = llm_envs.make(env_id).unwrapped
    tree = grow(RandomPolicy(), env, candidates=5)
    path = [turn for turn in tree.turns if turn.chosen]
    assert len(tree.turns) == 5 * len(path)
    assert turns is None or len(path) <= turns
    assert sorted({turn.index for turn in tree.turns}) == list(range(len(path)))
    for turn in path:
        siblings = [other for other in tree.turns if other.index == turn.index]
        assert [other.candidate for other in siblings] == list(range(5))
        assert len({(o.observation, o.agent, o.agent_turn) for o in siblings}) == 1


@pytest.mark.parametrize("env_id", ["math-2agent", "math-debate", "plan-path-2agent", "sudoku-1agent", "tictactoe"])
def test_one_candidate_is_an_ordinary_episode(env_id: str) -> None:
    env = llm_envs.make(env_id).unwrapped
    team, jobs = Team.single(RandomPolicy()), make_jobs([0, 1, 2], 1, seed=3)
    plain = asyncio.run(collect(env.fork, team, jobs))
    trees = asyncio.run(collect(env.fork, team, jobs, run=partial(run_tree, sampling=TreeSampling(candidates=1))))
    for episode, tree in zip(plain, trees, strict=True):
        assert [turn.action for turn in tree.turns] == [turn.action for turn in episode.turns]
        assert tree.success == episode.success
        assert tree.reward_parts == episode.reward_parts
        assert tree.returns == pytest.approx(episode.returns)


def test_the_oracle_solves_every_candidate() -> None:
    tree = grow(OraclePolicy(), llm_envs.make("plan-path-2agent").unwrapped)
    assert tree.success
    planner = [turn for turn in tree.turns if turn.agent == "planner_0"]
    assert all(turn.reward_parts["team"] == 1 for turn in planner)


def test_choices() -> None:
    scores, rng = [0.0, 2.0, 1.0, 2.0], random.Random(0)
    assert TreeSampling(choose="argmax").pick(scores, rng) == 1, "the first of equals"
    assert TreeSampling(choose="first").pick(scores, rng) == 0
    drawn = np.bincount([TreeSampling(choose="random").pick(scores, rng) for _ in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(drawn, 0.25, atol=0.03)
    soft = TreeSampling(choose="softmax", temperature=0.5)
    drawn = np.bincount([soft.pick(scores, rng) for _ in range(4000)], minlength=4) / 4000
    weights = np.exp(np.array(scores) / 0.5)
    np.testing.assert_allclose(drawn, weights / weights.sum(), atol=0.03)
    assert TreeSampling(choose="softmax", temperature=1e-9).pick([-1e9, 5.0, 1e9], rng) == 2, "no overflow"


def test_the_choice_weighs_team_and_own_parts() -> None:
    """α = −1 turns the last choice around; penalties count."""
    assert [t.candidate for t in grow(Script(ANSWERS), team_weight=-3.0).turns if t.chosen] == [1, 2, 2, 0]


@pytest.mark.parametrize("choose", ["softmax", "random"])
def test_the_same_seed_gives_the_same_tree(choose: Any) -> None:
    env = llm_envs.make("plan-path-1agent").unwrapped
    first, second = (grow(RandomPolicy(), env, choose=choose).to_json(timings=False) for _ in range(2))
    assert first == second


def test_a_record_is_read_back() -> None:
    tree = grow(Script(ANSWERS))
    assert Episode.from_json(tree.to_json()) == tree


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"candidates": 0}, "candidates is 0"),
        ({"choose": "best"}, "choice of candidates"),
        ({"temperature": 0.0}, "temperature is 0.0"),
    ],
)
def test_settings_that_make_no_sense(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        TreeSampling(**values)


@pytest.mark.parametrize("preset", ["grpo", "dr_mas"])
def test_a_tree_has_no_episode_return_to_compare(preset: str) -> None:
    with pytest.raises(ScoreError, match="is a tree"):
        compute_advantages([grow(Script(ANSWERS))], get_algorithm(preset))


def test_a_failed_request_masks_the_whole_tree() -> None:
    class Broken(Script):
        async def generate(self, request: Request) -> list[Completion]:
            if len(self.asked) == 2:
                raise RuntimeError("no server")
            return await super().generate(request)

    team, jobs = Team.single(Broken(ANSWERS)), make_jobs([0], 1, seed=0)
    (tree,) = asyncio.run(collect(Numbers().fork, team, jobs, run=partial(run_tree, sampling=TreeSampling(3))))
    assert tree.error == "RuntimeError: no server"
    assert not tree.success
    assert len(tree.turns) == 6
    assert all(turn.masked for turn in tree.turns)
