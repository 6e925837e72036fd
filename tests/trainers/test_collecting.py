"""What an update is made of: trees, and tasks played until enough of them say something."""

from __future__ import annotations

import asyncio
import json

import pytest

import llm_envs
import trainers.collecting
from trainers.algorithms.presets import get_algorithm
from trainers.api import train
from trainers.collecting import Collector
from trainers.config import load_config
from trainers.cursor import TaskCursor
from trainers.learner import Learner
from trainers.models import build_tiny_model
from trainers.policies.base import Completion, Policy
from trainers.rollout.tree import run_tree
from trainers.team import Team
from trainers.tracking import read_metrics
from trainers.trainer import Trainer

# ---- dynamic sampling, by hand --------------------------------------------------------------------------------------

TASKS, BATCH = 12, 4
ORDER = TaskCursor(TASKS, BATCH, seed=3).next(TASKS)  # the order in which the tasks come


class Table(Policy):
    """Answers right on the first of each task's samples; on the others if the task is not among ``mixed``."""

    def __init__(self, mixed, all_wrong=()):
        super().__init__("table")
        self.mixed, self.all_wrong = frozenset(mixed), frozenset(all_wrong)

    async def generate(self, request):
        task, sample, _, agent = request.key
        wrong = task in self.all_wrong or (task in self.mixed and sample > 0)
        text = "<verify>approve</verify>" if agent == "verifier_0" else rf"\boxed{{{5 if wrong else 4}}}"
        return [Completion(text, "stop", (1,), (2,), (-0.5,))] * request.n


@pytest.fixture
def questions(tmp_path):
    """Twelve questions with the answer 4."""
    path = tmp_path / "twelve.jsonl"
    path.write_text("".join(json.dumps({"question": f"Say four ({i}).", "answer": "4"}) + "\n" for i in range(TASKS)))
    return path


def collected(questions, mixed, rounds, updates=1, *, env="math-1agent", learning=("solver",), preset="grpo", **more):
    """Collect some updates: of each the positions of its tasks, the metrics, whose turns are kept, and the cursor."""
    policies = {
        name: {"model": "any", "backend": "hf"} for name in ("solver", "verifier")[: 1 + (env != "math-1agent")]
    }
    config = load_config(
        {
            "env": {"id": env},
            "policies": policies,
            "tasks_per_update": BATCH,
            "samples_per_task": 2,
            "dynamic_sampling": rounds,
            **more,
        }
    )
    make = llm_envs.make(env, tasks=str(questions)).unwrapped.fork
    table = Table([ORDER[position] for position in mixed])
    team = Team(dict.fromkeys(policies, table), {name: name for name in policies})
    cursor = TaskCursor(TASKS, BATCH, seed=3)
    collector = Collector(make, get_algorithm(preset), config)
    rows = []
    for update in range(updates):
        episodes, metrics = asyncio.run(collector.collect(team, cursor, update, learning))
        kept = collector.kept(episodes)
        turns = [turn for episode in episodes for turn in episode.turns]
        index = {episode.task: ORDER.index(episode.task_index) for episode in episodes}
        said = None if kept is None else [(index[t.task], t.agent) for t, k in zip(turns, kept, strict=True) if k]
        played = list(dict.fromkeys(index.values()))
        assert len(episodes) == 2 * len(played)
        rows.append((played, {name.removeprefix("train/"): v for name, v in metrics.items()}, said, cursor.position))
    return rows


def test_without_it_a_batch_is_what_the_cursor_says(questions):
    assert collected(questions, [0], 0) == [([0, 1, 2, 3], {}, None, 4)]


@pytest.mark.parametrize(
    ("rounds", "played", "refills", "informative"),
    [
        (1, 7, 1, 3),  # 3 are missing after the batch, which has one that says something (0): 4, 5, 6
        (2, 8, 2, 3),  # one is missing: 7, which says nothing
        (4, 10, 4, 4),  # 8 neither, 9 does
        (9, 10, 4, 4),  # enough is enough
    ],
)
def test_as_many_tasks_are_played_again_as_said_nothing(questions, rounds, played, refills, informative):
    ((tasks, metrics, kept, position),) = collected(questions, [0, 5, 6, 9], rounds)
    assert tasks == list(range(played))
    assert metrics == {"refills": refills, "tasks_played": played, "tasks_with_signal": informative}
    assert [place for place, _ in kept] == [place for place in (0, 5, 6, 9) if place < played for _ in range(2)]
    assert position == played


def test_the_next_update_goes_on_behind_the_refills(questions):
    (first, second) = collected(questions, [0, 4, 5, 6, 7, 8, 9, 10], 2, updates=2)
    assert first[0] == [0, 1, 2, 3, 4, 5, 6]
    assert second[0] == [7, 8, 9, 10]
    assert second[1] == {"refills": 0, "tasks_played": 4, "tasks_with_signal": 4}


def test_no_task_is_played_twice_in_an_update(questions):
    """The refills come round to the beginning of the next epoch, whose order has tasks of this batch."""
    rows = collected(questions, [], 5)
    played, metrics, kept, _ = rows[0]
    assert len(set(played)) == len(played) == metrics["tasks_played"] <= TASKS
    assert metrics["refills"] == 5
    assert kept == []


def test_a_policy_that_does_not_learn_is_no_reason_to_keep_a_task(questions):
    """Either of the two has turns with signal in all four tasks; where neither learns, none of them counts."""
    rows = [
        collected(questions, [0, 1, 2, 3], 1, env="math-2agent", preset="dr_mas", learning=learning)[0]
        for learning in (("solver", "verifier"), ("verifier",), ())
    ]
    assert [row[1]["refills"] for row in rows] == [0, 0, 1]
    assert [row[1]["tasks_with_signal"] for row in rows] == [4, 4, 0]


def test_the_metrics_are_those_of_everything_that_was_played_and_the_update_of_what_says_something(
    recipe, tmp_path, monkeypatch
):
    """Task 1 cannot be solved by this model, whose words end at 4; unusable text costs nothing here."""
    tasks = tmp_path / "half.jsonl"
    tasks.write_text(
        "".join(json.dumps({"question": f"Say it ({i}).", "answer": str(4 + i % 2)}) + "\n" for i in range(8))
    )
    seen, trained = [], []
    update = Learner.update

    def note(self, samples, **kwargs):
        trained.append(samples)
        return update(self, samples, **kwargs)

    monkeypatch.setattr(Learner, "update", note)
    values = recipe(updates=1, dynamic_sampling=2, tasks_per_update=2)
    del values["policies"]["verifier"]
    values["env"] = {"id": "math-1agent", "tasks": str(tasks), "split": None, "kwargs": {"invalid_penalty": 0}}
    values["algorithm"] = {"preset": "grpo"}
    trainer = Trainer(load_config(values), tmp_path / "run", on_episode=seen.append)
    metrics = asyncio.run(trainer.run()).metrics
    assert metrics["train/episodes"] == len(seen) == 4 * metrics["train/tasks_played"]
    assert metrics["train/refills"] >= 1
    by_task = {}
    for episode in seen:
        by_task.setdefault(episode.task, []).append(episode)
    mixed = [played for played in by_task.values() if 0 < sum(e.success for e in played) < 4]
    assert metrics["train/tasks_with_signal"] == len(mixed) > 0
    ((samples,),) = [trained]
    assert len(samples) == sum(len(episode.turns) for played in mixed for episode in played)
    assert all(sample.advantage != 0 for sample in samples)


# ---- trees ----------------------------------------------------------------------------------------------------------

MOVES = [f"[{moves}]" for moves in ("U", "D", "L", "R", "U,D", "L,R")]


@pytest.fixture(scope="module")
def mover(tmp_path_factory):
    """A model whose words are lists of one or two moves."""
    folder = tmp_path_factory.mktemp("models") / "mover"
    return build_tiny_model(folder, vocab=[*MOVES, "A", "G", "turn"], hidden_size=32, layers=1, init_std=0.1)


@pytest.fixture
def tree(mover):
    """Two agents, two turns each, on maps that two moves cannot solve: every tree has 2 · 2 · K turns."""
    policy = {"model": str(mover), "backend": "hf", "learning_rate": 0.02, "sampling": {"max_tokens": 1}}
    return {
        "env": {
            "id": "plan-path-2agent",
            "kwargs": {"max_rounds": 2, "task_options": {"grid_size": 5, "min_length": 5}},
        },
        # Not folded in, a penalty is a signal even where all candidates are refused: both policies always step.
        "algorithm": {"preset": "at_grpo", "overrides": {"fold_penalties": False}},
        "policies": {"coder": dict(policy), "planner": dict(policy)},
        "updates": 2,
        "tasks_per_update": 3,
        "samples_per_task": 4,
        "checkpoint": {"every": 1, "keep": 20},
    }


def test_at_grpo_trains_on_all_candidates_and_evaluates_plain_episodes(tree, mover, runs, tmp_path, monkeypatch):
    trees, seen, trained = [], [], []
    update = Learner.update

    async def count(*args, **kwargs):
        trees.append(await run_tree(*args, **kwargs))
        return trees[-1]

    def note(self, samples, **kwargs):
        trained.append(len(samples))
        return update(self, samples, **kwargs)

    monkeypatch.setattr(trainers.collecting, "run_tree", count)
    monkeypatch.setattr(Learner, "update", note)
    values = {**tree, "evaluation": {"every": 1, "tasks": 2, "samples": 2}}
    trainer = Trainer(load_config(values), tmp_path / "run", on_episode=seen.append)
    asyncio.run(trainer.run())
    rows = read_metrics(tmp_path / "run")
    candidates = 4 * 2 * 2  # K·T·N
    assert len(seen) == len(trees) == 2 * 3
    assert all(episode.tree and len(episode.turns) == candidates for episode in seen)
    assert trained == [3 * candidates // 2] * 4
    for row in rows[1:]:
        assert row["train/turns"] == 3 * candidates
        assert row["train/group_size"] == 4
        assert row["train/groups"] == 3 * 4
        assert row["train/path_success"] == 0
        assert "train/success" not in row
        assert row["agent/planner_0/zero_variance"] < 1
    assert [row["eval/episodes"] for row in rows] == [4, 4, 4]
    assert all("eval/success" in row for row in rows)
    start = runs.weights_of(mover)
    for name in ("coder", "planner"):
        assert not runs.same(runs.weights(tmp_path / "run", name), start)


def test_the_planner_learns_on_trees(tree, tmp_path):
    """Unusable text costs more than a move does, so there is ever less of it."""
    values = {**tree, "updates": 6, "tasks_per_update": 8}
    values["algorithm"] = {"preset": "at_grpo"}
    train(values, out=tmp_path / "run")
    invalid = [row["agent/planner_0/invalid"] for row in read_metrics(tmp_path / "run")]
    assert invalid[0] > 0.5
    assert sum(invalid[-2:]) / 2 < 0.2


def test_killed_in_the_middle_it_goes_on_bit_for_bit(tree, runs, tmp_path):
    """Trees and refills together: positions of the cursor and seeds of the refills are those of the whole run."""
    values = {**tree, "updates": 5, "dynamic_sampling": 2, "tasks_per_update": 4}
    values["algorithm"] = {
        "preset": "at_grpo",
        "overrides": {"fold_penalties": False, "penalty_scale": 0.0, "choose": "softmax"},
    }
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(values, out=whole)
    assert sum(row["train/refills"] for row in read_metrics(whole)) > 0
    reached = runs.kill(values, cut, after=2)
    assert reached < 5
    train(values, out=cut, resume=True)
    assert runs.metrics(cut) == runs.metrics(whole)
    for name in ("coder", "planner"):
        assert runs.same(runs.weights(cut, name), runs.weights(whole, name))
