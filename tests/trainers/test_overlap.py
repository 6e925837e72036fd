"""Whole runs with rollout and update at the same time: what they compute, how they resume, when they stop."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch

import llm_envs
from trainers.algorithms.advantages import compute_advantages
from trainers.api import train
from trainers.batching import samples_by_policy
from trainers.collecting import Collector
from trainers.config import load_config
from trainers.cursor import TaskCursor
from trainers.learner import Learner, NonFiniteGradient
from trainers.members import build_members, build_team, close_members
from trainers.policies.decode import decode
from trainers.policies.hf import HFPolicy
from trainers.tracking import read_metrics
from trainers.trainer import Trainer

UPDATES = 5
TREES = {"algorithm": {"preset": "at_grpo"}, "samples_per_task": 2}
MODES = {
    "episodes": {},
    "lora, minibatches": {"policy": {"lora": {"rank": 2}, "minibatches": 2}},
    "trees": TREES,
    "refills": {"dynamic_sampling": 2, "tasks_per_update": 2, "samples_per_task": 2},
    "trees, refills": {**TREES, "dynamic_sampling": 2, "tasks_per_update": 2},
    "critic": {"algorithm": {"preset": "gae"}},
    "in turn": {"alternate": {"order": [["solver"], ["verifier"]], "every": 2}},
}


@pytest.fixture
def overlapped(recipe):
    """Builds a recipe with a staleness of 1; every other update is saved."""

    def build(**changes):
        values = {"max_staleness": 1, "updates": UPDATES, "tasks_per_update": 3, "samples_per_task": 2, **changes}
        return recipe(**{"checkpoint": {"every": 2, "keep": 9}, **values})

    return build


class Stop(Exception):
    """What ends a run here."""


def cut(values, out, after):
    """Run until an update is done, and stop between two of its statements."""

    def stop(progress):
        if progress.update == after:
            raise Stop

    with pytest.raises(Stop):
        train(values, out=out, on_progress=stop)


def lags(out, agent="solver_0"):
    rows = read_metrics(out)
    return [(row[f"agent/{agent}/version_lag"], row[f"agent/{agent}/version_lag_max"]) for row in rows]


@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_run_ends_as_one_in_one_go(overlapped, runs, tmp_path, mode):
    """Bit for bit: metrics of all updates, weights, moments; with batches in flight when it stops."""
    values = overlapped(**MODES[mode])
    train(values, out=tmp_path / "whole")
    cut(values, tmp_path / "cut", after=3)
    saved = (tmp_path / "cut" / "checkpoints" / "update-000002" / "batches.jsonl").read_text()
    assert len(saved.splitlines()) == 1
    train(values, out=tmp_path / "cut", resume=True)
    assert runs.metrics(tmp_path / "cut") == runs.metrics(tmp_path / "whole")
    for name in ("solver", "verifier"):
        assert runs.same(*(runs.state(tmp_path / run, UPDATES, name) for run in ("whole", "cut")))
        assert runs.same(*(runs.weights(tmp_path / run, name) for run in ("whole", "cut")))
    assert lags(tmp_path / "whole") == [(0, 0), *[(1, 1)] * (UPDATES - 1)]


def test_what_is_checked_and_saved_in_between_changes_nothing(overlapped, runs, tmp_path):
    """With a staleness of 2 the rollout stands still for it, and weights are set aside where it does not."""
    often = overlapped(max_staleness=2, checkpoint={"every": 1, "keep": 9})
    seldom = {**often, "checkpoint": {"every": 4, "keep": 9}, "verify_every": 3}
    train(often, out=tmp_path / "often")
    train(seldom, out=tmp_path / "seldom")
    cut(seldom, tmp_path / "cut", after=4)
    train(seldom, out=tmp_path / "cut", resume=True)
    rows = [
        [{k: v for k, v in row.items() if not k.endswith("sync_difference")} for row in runs.metrics(tmp_path / run)]
        for run in ("often", "seldom", "cut")
    ]
    assert rows[0] == rows[1] == rows[2]
    assert lags(tmp_path / "often") == [(0, 0), (1, 1), *[(2, 2)] * (UPDATES - 2)]
    for name in ("solver", "verifier"):
        assert runs.same(*(runs.state(tmp_path / run, UPDATES, name) for run in ("often", "seldom")))


def test_without_staleness_a_run_is_the_plain_loop(recipe, runs, tmp_path):
    """Collect, compare, learn, push, in turn and in one thread: the same weights and moments to the last bit."""
    values = recipe(updates=3)
    train(values, out=tmp_path / "run")
    config = load_config(values)
    algorithm = config.algorithm.build()
    env = llm_envs.make(config.env.id, order_enforcing=False, **config.env.arguments()).unwrapped

    async def loop():
        collector = Collector(env.fork, algorithm, config)
        cursor = TaskCursor(len(env.tasks), config.tasks_per_update, config.seed)
        members = await build_members(config, tmp_path / "scratch")
        team = build_team(config, members)
        for update in range(3):
            for member in members.values():
                await member.push(update)
            episodes, _ = await collector.collect(team, cursor, update, list(members))
            advantages = compute_advantages(episodes, algorithm)
            turns = [turn for episode in episodes for turn in episode.turns]
            for name, samples in samples_by_policy(turns, advantages, members).items():
                if any(sample.advantage for sample in samples):
                    members[name].learner.update(samples)
        await close_members(members)
        return {name: member.state_dict() for name, member in members.items()}

    expected = asyncio.run(loop())
    assert sum(state["updates"] for state in expected.values()) >= 3
    for name, state in expected.items():
        assert runs.same(runs.state(tmp_path / "run", 3, name), state)


def test_it_is_the_run_without_overlap_as_long_as_nothing_is_stale(overlapped, runs, tmp_path):
    """The first update has version 0 to train on in both; the second has not."""
    train(overlapped(), out=tmp_path / "one")
    train(overlapped(max_staleness=0), out=tmp_path / "none")
    one, none = runs.metrics(tmp_path / "one"), runs.metrics(tmp_path / "none")
    assert one[0] == none[0]
    assert one[1] != none[1]
    assert lags(tmp_path / "none") == [(0, 0)] * UPDATES
    assert not list((tmp_path / "none").rglob("batches.jsonl"))
    importance = "agent/solver_0/importance"
    assert [row[importance] for row in none if importance in row] == pytest.approx([1.0] * len(none), abs=1e-4)
    assert any(abs(row.get(importance, 1.0) - 1) > 1e-3 for row in one[1:])


def test_rollout_and_update_are_under_way_at_the_same_time(overlapped, tmp_path, monkeypatch):
    """Each waits, in its own thread, until the other one has begun: without overlap neither would go on."""
    met, threads = [], set()
    both = threading.Barrier(2, action=lambda: met.append(True), timeout=60)
    update, answer = Learner.update, HFPolicy._answer

    def learning(self, samples, **kwargs):
        threads.add(threading.current_thread().name.partition("_")[0])
        if not met:
            both.wait()
        return update(self, samples, **kwargs)

    def playing(self, jobs):
        threads.add(threading.current_thread().name.partition("_")[0])
        if not met and jobs[0].request.key[0] >= 0 and played["episodes"] >= 6:
            both.wait()
        return answer(self, jobs)

    played = {"episodes": 0}

    def count(episode):
        played["episodes"] += 1

    monkeypatch.setattr(Learner, "update", learning)
    monkeypatch.setattr(HFPolicy, "_answer", playing)
    trainer = Trainer(load_config(overlapped(updates=2)), tmp_path / "run", on_episode=count)
    result = asyncio.run(trainer.run())
    assert met == [True]
    assert threads == {"learner", "policy"}
    for name in ("learner_waited_s", "rollout_waited_s", "rollout_s", "update_s", "sync_s"):
        assert result.metrics[f"time/{name}"] >= 0, name
    assert 0 < read_metrics(result.run_dir)[0]["time/overlap_share"] <= 1


def test_new_weights_are_taken_on_the_way(overlapped, tmp_path):
    """``continue``: weights come between two batches of the samplers; every sync is proved, and no turn is too old."""
    seen = []
    values = overlapped(on_new_weights="continue", concurrency=1, updates=4)
    train(values, out=tmp_path / "run", on_progress=seen.append)
    assert [set(progress.synced) for progress in seen] == [{"solver", "verifier"}] * 5
    for agent in ("solver_0", "verifier_0"):
        found = lags(tmp_path / "run", agent)
        assert found[0] == (0, 0)
        assert all(0 <= mean <= largest <= 1 for mean, largest in found)


def test_a_gradient_that_is_not_finite_stops_both_sides(overlapped, runs, tmp_path, monkeypatch):
    """A batch is in flight then; the run goes on from the last good state and ends as if nothing had been."""
    values = overlapped()
    train(values, out=tmp_path / "whole")
    backward = Learner._backward

    def poisoned(self, samples, part, *args):
        loss = backward(self, samples, part, *args)
        if self.updates == 3:
            next(iter(self._trainable.values())).grad[0, 0] = torch.nan
        return loss

    monkeypatch.setattr(Learner, "_backward", poisoned)
    with pytest.raises(NonFiniteGradient):
        train(values, out=tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    assert sorted(path.name for path in folder.iterdir())[0].startswith("stopped-")
    monkeypatch.setattr(Learner, "_backward", backward)
    train(values, out=tmp_path / "run", resume=True)
    assert runs.metrics(tmp_path / "run") == runs.metrics(tmp_path / "whole")


def test_evaluation_has_the_samplers_to_itself(overlapped, runs, tmp_path):
    """Held-out episodes are played by the newest weights, as in a run that is stopped at each of them."""
    rows = [{"question": f"Say three ({i}).", "answer": "3"} for i in range(3)]
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text("".join(f'{{"question": "{row["question"]}", "answer": "3"}}\n' for row in rows))
    evaluation = {"every": 2, "task_set": str(held_out), "split": None, "tasks": 3}
    values = overlapped(evaluation=evaluation, max_staleness=2, verify_every=9, checkpoint={"every": 2, "keep": 9})
    train(values, out=tmp_path / "whole")
    cut(values, tmp_path / "cut", after=2)
    train(values, out=tmp_path / "cut", resume=True)
    assert runs.metrics(tmp_path / "cut") == runs.metrics(tmp_path / "whole")
    assert [row["update"] for row in read_metrics(tmp_path / "whole") if "eval/success" in row] == [0, 2, 4, 5]


def test_a_token_budget_ends_the_run_at_the_same_update(overlapped, runs, tmp_path):
    """Tokens count when they are trained on; what was played ahead waits for a larger budget."""
    values = overlapped(updates=50, token_budget=60)
    train(values, out=tmp_path / "run")
    rows = read_metrics(tmp_path / "run")
    assert rows[-2]["train/total_tokens"] < 60 <= rows[-1]["train/total_tokens"]
    train({**values, "token_budget": 100}, out=tmp_path / "run", resume=True)
    train({**values, "token_budget": 100}, out=tmp_path / "whole")
    assert runs.metrics(tmp_path / "run") == runs.metrics(tmp_path / "whole")


def test_staleness_is_part_of_what_a_run_was_started_with(overlapped, tmp_path):
    train(overlapped(updates=1), out=tmp_path / "run")
    with pytest.raises(RuntimeError, match="max_staleness: 1 -> 2"):
        train(overlapped(updates=2, max_staleness=2), out=tmp_path / "run", resume=True)


def test_decoding_draws_from_generators_of_its_own(team_model):
    """So that a learner may seed the global one (for dropout) in the meantime."""
    from transformers import AutoModelForCausalLM

    from trainers.policies.base import Sampling
    from trainers.policies.decode import Row

    model = AutoModelForCausalLM.from_pretrained(team_model, dtype=torch.float32).eval()
    before = torch.get_rng_state()
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        found += decode(model, [Row((3, 4), 7)], Sampling(max_tokens=4), end_ids=(1,), pad_id=0, to_text=str)
        assert torch.equal(torch.get_rng_state(), state)
    assert found[0] == found[1]
    torch.set_rng_state(before)
