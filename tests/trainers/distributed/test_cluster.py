"""A run on a Ray cluster of two nodes, on this machine: the curve of one process, whoever is killed on the way."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal

import numpy as np
import pytest
import ray

from trainers.config import ConfigError, load_config
from trainers.distributed.cluster import plan, reserve
from trainers.distributed.learners import RayLearner
from trainers.distributed.sharded_state import read_whole
from trainers.distributed.workers import RayWorkers
from trainers.tracking import read_metrics
from trainers.trainer import Trainer
from trainers.update_metrics import NonFiniteGradient

pytestmark = pytest.mark.slow

MEMORY = 100 * 2**20  # bytes of each node's object store
ON_CLUSTER = {"runners": 4, "engines": 2, "learner_ranks": 2, "spread": "spread"}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of four CPUs each; CPUs are only counted, so they fit any machine."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # Ray's own would wait behind everything else on the machine
        node = {"num_cpus": 4, "object_store_memory": MEMORY}
        nodes = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        nodes.add_node(**node)
        ray.init(address=nodes.address, log_to_driver=False, logging_level="error")
        yield nodes
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture
def config(recipe):
    """A recipe in which one policy plays both roles."""

    def build(*, cluster=ON_CLUSTER, policy=None, **changes):
        values = recipe({"learning_rate": 0.003, **(policy or {})}, cluster=cluster, threads=1, **changes)
        return load_config({**values, "policies": {"everyone": values["policies"]["solver"]}})

    return build


def run(config, out, workers=None, *, on_episode=None, resume=False):
    trainer = Trainer(config, out, workers=workers, on_episode=on_episode, resume=resume)
    return asyncio.run(trainer.run()).run_dir


def episodes(folder):
    """What was played for each update, as it was recorded."""
    rows = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    return {
        (row["update"], row["id"]): [(turn["agent"], turn["action"], turn["reward_parts"]) for turn in row["turns"]]
        for row in rows
    }, len(rows)


def assert_same_run(mine, theirs, runs):
    """The same metrics to 1e-4, and the very same episodes, each once."""
    ours, others = runs.metrics(mine), runs.metrics(theirs)
    assert [row.keys() for row in ours] == [row.keys() for row in others]
    for row, other in zip(ours, others, strict=True):
        assert row == pytest.approx(other, rel=1e-4, abs=1e-4)
    (played, number), (expected, _) = episodes(mine), episodes(theirs)
    assert number == len(played)
    assert played == expected


class Killer:
    """Ends workers by SIGKILL: runners and engines at numbered episodes, ranks while they have a numbered call."""

    def __init__(self, workers, at_episodes, at_calls):
        self.workers = workers
        self.killed = []
        self._at_episodes = dict(at_episodes)
        self._at_calls = dict(at_calls)
        self._seen = itertools.count(1)
        self._asked = {}
        self._random = np.random.default_rng(0)

    def episode(self, episode):
        """An episode has ended."""
        kind = self._at_episodes.pop(next(self._seen), None)
        if kind is not None:
            pool = self.workers.runners if kind == "runner" else self.workers.engines["everyone"]
            victim = pool.actors[self._random.integers(len(pool.actors))]
            where = ray.get(victim.ready.options(max_task_retries=-1).remote())  # once it is back from its last death
            self._kill(kind, where["pid"])

    def submitted(self, learner, method):
        """The ranks were asked for something."""
        self._asked[method] = self._asked.get(method, 0) + 1
        rank = self._at_calls.pop((method, self._asked[method]), None)
        if rank is not None:
            self._kill("rank", learner.where[rank]["pid"])

    def _kill(self, kind, pid):
        os.kill(pid, signal.SIGKILL)
        self.killed.append(kind)


def watch(monkeypatch, killer):
    """Tell the killer what ranks are asked for; returns the list of it, which grows."""
    submit, asked = RayLearner._submit, []

    def submit_and_kill(learner, method, *args):
        refs = submit(learner, method, *args)
        asked.append(method)
        killer.submitted(learner, method)
        return refs

    monkeypatch.setattr(RayLearner, "_submit", submit_and_kill)
    return asked


def test_killed_workers_change_nothing(cluster, config, tmp_path, runs, monkeypatch):
    """Two ranks, two engines, four runners; ten of them are killed in four updates of 16 episodes."""
    settings = config(updates=4, record={"every": 1, "episodes": 16})
    alone = run(settings, tmp_path / "alone")
    workers = RayWorkers("auto")
    killer = Killer(
        workers,
        {2: "runner", 9: "engine", 17: "runner", 22: "engine", 30: "runner", 37: "runner", 45: "engine", 60: "runner"},
        {("update", 2): 1, ("publish", 4): 0},
    )
    watch(monkeypatch, killer)
    distributed = run(settings, tmp_path / "distributed", workers, on_episode=killer.episode)
    assert sorted(killer.killed) == ["engine"] * 3 + ["rank"] * 2 + ["runner"] * 5
    assert workers.learners["everyone"].restarts == 2
    assert_same_run(distributed, alone, runs)
    ours, theirs = runs.weights(distributed, "everyone"), runs.weights(alone, "everyone")
    for name, weight in theirs.items():
        np.testing.assert_allclose(ours[name], weight, atol=1e-3)


@pytest.mark.parametrize("on_new_weights", ["finish", "continue"])
def test_batches_are_played_beside_updates(cluster, config, tmp_path, runs, on_new_weights, monkeypatch):
    """With a staleness of 2 and each kind of worker killed: the run of one process, where that is deterministic."""
    values = {"max_staleness": 2, "on_new_weights": on_new_weights, "updates": 4, "verify_every": 4}
    settings = config(
        cluster={"runners": 2, "engines": 2, "learner_ranks": 2}, record={"every": 1, "episodes": 16}, **values
    )
    workers = RayWorkers("auto")
    killer = Killer(workers, {11: "runner", 27: "engine"}, {("update", 2): 1})
    watch(monkeypatch, killer)
    distributed = run(settings, tmp_path / "distributed", workers, on_episode=killer.episode)
    assert sorted(killer.killed) == ["engine", "rank", "runner"]
    rows = read_metrics(distributed)
    assert all(row["time/overlap_share"] > 0 for row in rows[:2])
    lags = [row["agent/solver_0/version_lag_max"] for row in rows]
    played, number = episodes(distributed)
    assert number == len(played) == 4 * 16
    if on_new_weights == "finish":
        assert lags == [0, 1, 2, 2]
        assert_same_run(distributed, run(settings, tmp_path / "alone"), runs)
    else:
        assert all(lag <= bound for lag, bound in zip(lags, [0, 1, 2, 2], strict=True))


def test_a_run_moves_between_a_cluster_and_one_process(cluster, config, tmp_path, runs):
    """An adapter: two updates on two ranks, then one more in this process."""
    values = {"policy": {"lora": {"rank": 4}}, "record": {"every": 1, "episodes": 16}}
    few = {"runners": 1, "engines": 1, "learner_ranks": 2}
    alone = run(config(updates=3, **values), tmp_path / "alone")
    run(config(updates=2, cluster=few, **values), tmp_path / "moved", RayWorkers("auto"))
    saved = tmp_path / "moved" / "checkpoints" / "update-000002" / "everyone"
    assert (saved / ".metadata").is_file()
    moved = run(config(updates=3, **values), tmp_path / "moved", resume=True)
    assert_same_run(moved, alone, runs)
    assert (moved / "models" / "everyone" / "adapter" / "adapter_model.safetensors").is_file()


def test_a_critic_lives_in_the_ranks_and_moves_with_them(cluster, config, tmp_path, runs, monkeypatch):
    """Two updates on two ranks, of which one is killed while the critic learns and one while it is asked; one update
    in this process; and one on ranks again.
    """
    overrides = {"critic": {"learning_rate": 0.003, "minibatches": 2, "value_clip": 0.2}}
    values = {"algorithm": {"preset": "gae", "overrides": overrides}, "record": {"every": 1, "episodes": 16}}
    few = {"runners": 1, "engines": 1, "learner_ranks": 2}
    alone = run(config(updates=4, **values), tmp_path / "alone")
    workers = RayWorkers("auto")
    killer = Killer(workers, {}, {("fit_values", 1): 1, ("values", 2): 0})
    asked = watch(monkeypatch, killer)
    run(config(updates=2, cluster=few, **values), tmp_path / "moved", workers)
    assert killer.killed == ["rank"] * 2
    # What was done is kept: the learner's update is not made again when the critic's is.
    assert [asked.count(method) for method in ("update", "fit_values", "values")] == [2, 3, 3]
    run(config(updates=3, **values), tmp_path / "moved", resume=True)
    moved = run(config(updates=4, cluster=few, **values), tmp_path / "moved", RayWorkers("auto"), resume=True)
    assert_same_run(moved, alone, runs)
    ours = read_whole(moved / "checkpoints" / "update-000004" / "everyone")["critic"]
    theirs = runs.state(alone, 4, "everyone")["critic"]
    assert (ours["steps"], ours["updates"]) == (theirs["steps"], theirs["updates"]) == (8, 4)
    for name, weight in theirs["weights"].items():
        np.testing.assert_allclose(ours["weights"][name], weight, atol=1e-3)


def test_the_error_of_a_critic_reaches_the_driver(cluster, config):
    """One rank. The step is not taken, and the ranks go on."""
    settings = config(algorithm={"preset": "gae"}, cluster={"runners": 1, "engines": 1, "learner_ranks": 1})
    placement = reserve(plan(settings), settings)
    learner = RayLearner("everyone", settings, placement)
    try:
        learner.start()
        with pytest.raises(NonFiniteGradient, match="Agent 'critic of everyone'"):
            learner.critic.update([[1], [2, 3]], np.array([0.0, 1e300]), np.zeros(2))
        assert learner.critic.values([[1], [2, 3]]).tolist() == [0, 0]
        assert learner.critic.update([[1], [2, 3]], np.array([0.0, 1.0]), np.zeros(2))["value_loss"] == 0.25
        assert learner.restarts == 0
    finally:
        learner.stop()
        placement.remove()


def test_engines_go_to_the_policy_that_is_loaded(cluster, recipe, tmp_path, runs, caplog):
    """The solver writes 16 times as many tokens as the verifier; an engine moves, and the run is the same."""
    pool = {"runners": 1, "engines": "auto", "engine_pool": 4, "balance_every": 1}
    values = recipe({"learning_rate": 0.003}, updates=3, cluster=pool, threads=1, record={"every": 1, "episodes": 16})
    values["policies"]["solver"]["sampling"] = {"max_tokens": 32}
    settings = load_config(values)
    alone = run(settings, tmp_path / "alone")
    workers = RayWorkers("auto")
    with caplog.at_level(logging.INFO):
        distributed = run(settings, tmp_path / "distributed", workers)
    assert_same_run(distributed, alone, runs)
    rows = read_metrics(distributed)
    shares = [(row["time/engines/solver"], row["time/engines/verifier"]) for row in rows]
    assert shares[0] == (2, 2)  # of the batch that was measured
    assert shares[1:] == [(3, 1), (3, 1)]
    assert all(row["time/engine_busy_s/solver"] > row["time/engine_busy_s/verifier"] > 0 for row in rows)
    assert "solver 2 -> 3, verifier 2 -> 1" in caplog.text
    assert {name: len(pool.actors) for name, pool in workers.engines.items()} == {"solver": 3, "verifier": 1}


def test_what_does_not_fit_is_refused_with_both_sides_named(cluster, config, tmp_path):
    many = {**ON_CLUSTER, "runners": 40}
    with pytest.raises(
        ConfigError,
        match=r"asks for 44 CPUs and 0 GPUs \(2 learners of 1 CPUs.*40 runners of 1 CPUs.*the cluster has 8 CPUs and 0 "
        r"GPUs on 2 node",
    ):
        Trainer(config(cluster=many), tmp_path / "many", workers=RayWorkers("auto"))
    wide = {**ON_CLUSTER, "learner_gpus": 1}
    with pytest.raises(ConfigError, match="no node has 1 CPUs and 1 GPUs for one learner; the nodes have: 4 CPUs"):
        Trainer(config(cluster=wide), tmp_path / "wide", workers=RayWorkers("auto"))
    assert not list(tmp_path.iterdir())
