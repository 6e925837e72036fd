"""A run of two adapters that is killed at random points, again and again, ends as the one that never was."""

from __future__ import annotations

import os
import random
import statistics

import pytest
import torch

from trainers.api import train
from trainers.learner import Learner, NonFiniteGradient
from trainers.tracking import read_metrics

KILLS = int(os.environ.get("LLM_ENVS_TEST_KILLS", "3"))


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0, 1])
def test_killed_at_random_points_it_ends_with_the_same_weights(recipe, runs, tmp_path, staleness):
    """``LLM_ENVS_TEST_KILLS`` says how often (3). Between two kills lie up to two updates and part of another.

    The delays are parts of an update as this machine makes it, and six updates are left after the last kill is due.
    """
    values = recipe(policy={"lora": {"rank": 4}, "minibatches": 2}, updates=2 * KILLS + 6, samples_per_task=8)
    values["checkpoint"] = {"every": 2, "keep": 2}  # every other update is done again
    values["max_staleness"] = staleness
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(values, out=whole)
    update_s = statistics.median(line["time/total_s"] for line in read_metrics(whole))
    rng = random.Random(int(os.environ.get("LLM_ENVS_TEST_SEED", "0")))
    reached = 0
    for kill in range(KILLS):
        target = min(reached + rng.randint(0, 2), 2 * kill + 2)
        reached = runs.kill(
            values, cut, after=target, delay=rng.uniform(0, 1.5) * update_s, resume=(cut / "config.json").exists()
        )
        assert reached < values["updates"]
    train(values, out=cut, resume=(cut / "config.json").exists())
    assert runs.metrics(cut) == runs.metrics(whole)
    for name in ("solver", "verifier"):
        assert runs.same(runs.weights(cut, name), runs.weights(whole, name))
        last = [runs.state(run, values["updates"], name) for run in (cut, whole)]
        assert runs.same(*last)


def test_a_nan_in_one_role_leaves_the_last_good_checkpoint_of_both(recipe, runs, tmp_path, monkeypatch):
    """The solver has stepped when the verifier's gradient turns out to be NaN: no checkpoint holds that half update."""
    values = recipe(updates=3)
    backward = Learner._backward

    def poisoned(self, samples, part, *args):
        loss = backward(self, samples, part, *args)
        if self.updates == 2 and samples[part[0]].agent == "verifier_0":
            next(iter(self._trainable.values())).grad[0, 0] = torch.nan
        return loss

    train(values, out=tmp_path / "whole")
    monkeypatch.setattr(Learner, "_backward", poisoned)
    with pytest.raises(NonFiniteGradient, match=r"'verifier_0'.*gradient norm nan"):
        train(values, out=tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["stopped-000002", "update-000001", "update-000002"]
    for name in ("solver", "verifier"):
        good = runs.state(tmp_path / "run", 2, name)
        assert runs.same(good, runs.state(tmp_path / "whole", 2, name))
        assert all(tensor.isfinite().all() for tensor in good["weights"].values())
    stopped = torch.load(folder / "stopped-000002" / "solver.pt", weights_only=True)
    assert not runs.same(stopped, runs.state(tmp_path / "run", 2, "solver"))
    monkeypatch.setattr(Learner, "_backward", backward)
    train(values, out=tmp_path / "run", resume=True)
    assert runs.metrics(tmp_path / "run") == runs.metrics(tmp_path / "whole")
