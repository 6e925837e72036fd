"""A run on a Ray cluster with vLLM as its engine: weights arrive there, and the run is that of one process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading

import pytest
import ray

from trainers.config import load_config
from trainers.distributed.learners import RayLearner
from trainers.distributed.workers import RayWorkers
from trainers.trainer import Trainer

pytestmark = [pytest.mark.slow, pytest.mark.vllm]

UPDATES = 5


@pytest.fixture(scope="module")
def kept():
    """The metrics of runs in one process, which several tests compare with."""
    return {}


@pytest.fixture
def config(recipe, monkeypatch):
    """A recipe in which one policy plays both roles."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")

    def build(cluster, *, lora=None, updates=UPDATES, **engine):
        policy = {"backend": "vllm", "engine": {"max_model_len": 256, **engine}, "learning_rate": 0.003, "lora": lora}
        values = recipe(policy, cluster=cluster, threads=1, updates=updates)
        return load_config({**values, "policies": {"everyone": values["policies"]["solver"]}})

    return build


@pytest.mark.parametrize("lora", [None, {"rank": 8}], ids=["full", "lora"])
def test_every_sync_is_proved_and_the_numbers_are_those_of_one_process(config, tmp_path, runs, lora, kept):
    """One engine, one runner, one rank. The model's embeddings are tied, which is what a reload must not forget."""
    one = {"runners": 1, "engines": 1, "learner_ranks": 1}
    seen = []
    rows = []
    for name, workers, updates in (("alone", None, 2 if lora else UPDATES), ("cluster", RayWorkers("local:4"), 2)):
        settings = config(one, lora=lora, updates=updates)
        trainer = Trainer(settings, tmp_path / name, workers=workers, on_progress=seen.append)
        rows.append(runs.metrics(asyncio.run(trainer.run()).run_dir))
    if lora is None:
        kept["full"] = rows[0]
    reports = [progress.synced["everyone"] for progress in seen]
    assert [report.weight_version for report in reports] == [*range(len(rows[0]) + 1), 0, 1, 2]
    assert all(report.n_tokens > 0 and report.max_abs_diff <= 2e-5 for report in reports)
    assert reports[-1].policy.endswith("engine 0")
    assert len(rows[1]) == 2
    for one, other in zip(rows[0][:2], rows[1], strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-4)


class Disturber:
    """Watches how weights arrive, and ends an engine between two pushes, one in a push, and the learner in another."""

    def __init__(self, workers):
        self.workers = workers
        self.arrivals = []
        self.reports = []
        self.threads = []

    @property
    def engines(self):
        return self.workers.engines["everyone"].actors

    def pid(self, number):
        return ray.get(self.engines[number].ready.options(max_task_retries=-1).remote())["pid"]

    def progress(self, progress):
        """A version has arrived and was proved."""
        self.arrivals.append([ray.get(engine.arrivals.remote("everyone")) for engine in self.engines])
        self.reports.append(progress.synced["everyone"])
        if progress.update == 1:
            os.kill(self.pid(0), signal.SIGKILL)

    def send(self, learner, push):
        """A version is about to be sent."""
        if push.version == 3:
            self._hold(1, then=self.pid(1), resume=False)
        if push.version == 5:
            self._hold(1, then=learner.where[0]["pid"], resume=True)

    def _hold(self, number, then, resume):
        """Stop an engine, so that its part of the transfer does not end; kill a process a little later."""
        engine = self.pid(number)
        os.kill(engine, signal.SIGSTOP)

        def go_on():
            os.kill(then, signal.SIGKILL)
            if resume:
                os.kill(engine, signal.SIGCONT)

        self.threads.append(threading.Timer(2.0, go_on))
        self.threads[-1].start()


def test_weights_are_broadcast_and_whoever_is_killed_changes_nothing(config, tmp_path, runs, kept, monkeypatch, caplog):
    """Two engines, two ranks, gloo: six pushes, of which the third, the fourth and the last are disturbed."""
    if "full" not in kept:  # this test is run by itself
        kept["full"] = runs.metrics(asyncio.run(Trainer(config({}), tmp_path / "alone").run()).run_dir)
    cluster = {"runners": 1, "engines": 2, "learner_ranks": 2}
    workers = RayWorkers("local:6")
    disturber = Disturber(workers)
    send = RayLearner.send

    def disturbed(learner, push, payload):
        disturber.send(learner, push)
        return send(learner, push, payload)

    monkeypatch.setattr(RayLearner, "send", disturbed)
    settings = config(cluster, transfer="gloo", transfer_timeout=60)
    trainer = Trainer(settings, tmp_path / "group", workers=workers, on_progress=disturber.progress)
    with caplog.at_level(logging.WARNING):
        rows = runs.metrics(asyncio.run(trainer.run()).run_dir)
    for thread in disturber.threads:
        thread.join()
    assert [report.weight_version for report in disturber.reports] == list(range(UPDATES + 1))
    assert all(report.n_tokens > 0 and report.max_abs_diff <= 2e-5 for report in disturber.reports)
    assert disturber.arrivals[:2] == [[{"group": 1}] * 2, [{"group": 2}] * 2]
    first, second = zip(*disturber.arrivals[2:], strict=True)
    # Engine 0 was killed after version 1, is another process since, and was in the new group. It may have been asked
    # for something before, and have fetched version 1. In a push that fails, it may or may not have got all.
    total = sum(first[0].values())
    assert first[0]["group"] == 1
    assert total <= 2
    assert first[2]["group"] == first[1]["group"] + 1
    assert [sum(arrived.values()) for arrived in first] == [total, total + 1, total + 2, total + 3]
    # Engine 1 was killed in the push of version 3, and without a learner in that of version 5.
    assert second[:3] == ({"group": 3}, {"object store": 1}, {"object store": 1, "group": 1})
    assert sum(second[3].values()) == 3
    assert workers.learners["everyone"].restarts == 1
    warnings = [record.getMessage() for record in caplog.records if "did not reach all engines" in record.getMessage()]
    assert len(warnings) == 2
    assert "version 3, did not reach all engines by 'gloo': WeightSyncError: engine 1 died in `receive`" in warnings[0]
    assert "version 5, did not reach all engines by 'gloo': the first rank of the learner died" in warnings[1]
    assert len(rows) == UPDATES
    for one, other in zip(kept["full"], rows, strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-4)
