"""The training loop on tiny models, for real: it learns, resumes bit for bit, and stops when something is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from trainers.algorithms.diagnostics import GradientSpike
from trainers.api import train
from trainers.cli import main
from trainers.config import ConfigError, load_config
from trainers.learner import Learner, NonFiniteGradient
from trainers.logprobs import CompletionForward
from trainers.models import build_tiny_model
from trainers.policies.base import PolicyError
from trainers.policies.hf import HFPolicy
from trainers.tracking import read_metrics
from trainers.trainer import RunError, Trainer
from trainers.weight_sync import HFSync, WeightSyncError

ANSWERS = [rf"\boxed{{{n}}}" for n in range(5)]
VOCAB = [
    *ANSWERS,
    "<verify>approve</verify>",
    "<verify>reject</verify>",
    "Problem:",
    "solver_0.",
    "verifier_0.",
    "You",
    "are",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of 60 thousand parameters whose words are answers and verdicts."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return build_tiny_model(folder, vocab=VOCAB, hidden_size=32, layers=2, intermediate_size=64, init_std=0.1, seed=0)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Eight questions with one answer, which such a model can learn."""
    path = tmp_path_factory.mktemp("tasks") / "four.jsonl"
    path.write_text(
        "".join(json.dumps({"question": f"Say four, please ({i}).", "answer": "4"}) + "\n" for i in range(8))
    )
    return path


@pytest.fixture
def settings(model, tasks):
    """A two-policy run through transformers."""

    def build(**changes):
        policy = {
            "model": str(model),
            "backend": "hf",
            "learning_rate": 0.01,
            "sampling": {"max_tokens": 2},
            **changes.pop("policy", {}),
        }
        return {
            "env": {"id": "math-2agent", "tasks": str(tasks), "split": None},
            "algorithm": {"preset": "dr_mas"},
            "policies": {"solver": dict(policy), "verifier": dict(policy)},
            "updates": 2,
            "tasks_per_update": 4,
            "samples_per_task": 4,
            "checkpoint": {"every": 1, "keep": 20},
            **changes,
        }

    return build


def deterministic(run_dir):
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in read_metrics(run_dir)]


def weights(run_dir, policy):
    (file,) = (run_dir / "models" / policy).glob("*.safetensors")
    return load_file(file)


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("preset", ["dr_mas", "grpo", "rloo"])
def test_it_learns(settings, tmp_path, preset):
    result = train(settings(updates=12, algorithm={"preset": preset}, samples_per_task=8), out=tmp_path / "run")
    success = [row["train/success"] for row in read_metrics(result.run_dir)]
    assert sum(success[:2]) / 2 < 0.4
    assert sum(success[-2:]) / 2 > 0.8


def test_a_run_leaves_everything_a_user_needs(settings, tmp_path):
    seen = []
    result = train(settings(), out=tmp_path / "run", on_progress=seen.append)
    assert result.plot.read_bytes().startswith(b"\x89PNG")
    assert [p.update for p in seen] == [0, 1, 2]
    for progress in seen:
        assert set(progress.synced) == {"solver", "verifier"}
        assert all(report.ok and report.n_tokens > 0 for report in progress.synced.values())
    rows = read_metrics(result.run_dir)
    for agent in ("solver_0", "verifier_0"):
        for name in ("return", "grad_norm", "invalid", "length", "spike_ratio", "version_lag"):
            assert f"agent/{agent}/{name}" in rows[0], name
        assert rows[0][f"agent/{agent}/grad_norm"] > 0
        assert rows[0][f"agent/{agent}/version_lag"] == 0
    assert any("agent/verifier_0/inflation" in row for row in rows)
    assert list((result.run_dir / "tensorboard").iterdir())
    assert (result.run_dir / "checkpoints" / "update-000002").is_dir()
    assert json.loads((result.run_dir / "config.json").read_text())["updates"] == 2


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
@pytest.mark.parametrize("shared", [False, True])
def test_kill_and_resume_is_bit_for_bit(settings, tmp_path, lora, shared):
    """Six updates in one go, against a run that is killed after the third and resumed."""
    values = settings(updates=6, policy={"lora": lora, "minibatches": 2})
    if shared:
        values["policies"] = {"everyone": values["policies"]["solver"]}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(values, out=whole)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps(values))
    command = [sys.executable, "-m", "trainers.cli", "--config", str(recipe), "--out", str(cut), "--quiet"]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    while len(read_metrics(cut)) < 3:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (cut / "models").exists()
    done = len(read_metrics(cut))
    train(values, out=cut, resume=True)
    assert done < 6
    assert deterministic(cut) == deterministic(whole)
    for name in values["policies"]:
        assert same(weights(cut, name), weights(whole, name))
    states = [json.loads((run / "checkpoints" / "update-000006" / "trainer.json").read_text()) for run in (whole, cut)]
    assert states[0] == states[1]


def test_resume_goes_on_beyond_the_last_update(settings, tmp_path):
    train(settings(updates=2), out=tmp_path / "parts")
    train(settings(updates=3), out=tmp_path / "parts", resume=True)
    train(settings(updates=3), out=tmp_path / "whole")
    assert deterministic(tmp_path / "parts") == deterministic(tmp_path / "whole")


def test_a_frozen_policy_does_not_change_by_a_bit(settings, model, tmp_path):
    values = settings(updates=2)
    values["policies"]["verifier"]["trainable"] = False
    result = train(values, out=tmp_path / "run")
    assert not (result.run_dir / "models" / "verifier").exists()
    assert not same(weights(result.run_dir, "solver"), load_file(model / "model.safetensors"))
    assert {"policy/solver/lr"} <= set(result.metrics)
    assert not any(name.startswith("policy/verifier/") for name in result.metrics)


@pytest.fixture
def divided(tmp_path):
    """Tasks enough to divide them."""
    path = tmp_path / "many.jsonl"
    lines = [json.dumps({"question": f"Say four, please ({i}).", "answer": "4"}) for i in range(60)]
    path.write_text("\n".join(lines))
    return {"id": "math-2agent", "tasks": str(path), "split": "train"}


def test_held_out_evaluation(settings, divided, tmp_path):
    values = settings(updates=2, env=divided, evaluation={"every": 1, "tasks": 3, "samples": 2})
    result = train(values, out=tmp_path / "run")
    rows = [row for row in read_metrics(result.run_dir) if "eval/success" in row]
    assert [row["update"] for row in rows] == [0, 1, 2]
    assert [(row["eval/episodes"], row["eval/failed_episodes"]) for row in rows] == [(6, 0)] * 3


@pytest.mark.parametrize(("split", "held_out"), [(None, "test"), ("train", "train"), (None, "train"), ("train", None)])
def test_tasks_that_are_trained_on_are_not_held_out(settings, divided, tmp_path, split, held_out):
    values = settings(env={**divided, "split": split}, evaluation={"every": 1, "split": held_out})
    with pytest.raises(ConfigError, match="is not held out"):
        Trainer(load_config(values), tmp_path / "run")


def test_held_out_tasks_may_come_from_another_set(settings, tasks, tmp_path):
    """A set without a test split is trained on whole, and another one is evaluated on, unless tasks are in both."""
    mine = tmp_path / "mine.jsonl"
    rows = [{"question": f"Say three ({i}).", "answer": "3"} for i in range(3)]
    mine.write_text("\n".join(map(json.dumps, rows)))
    evaluation = {"every": 1, "task_set": str(mine), "split": None}
    result = train(settings(updates=1, evaluation=evaluation), out=tmp_path / "run")
    assert result.metrics["eval/episodes"] == 3
    mine.write_text("\n".join([*map(json.dumps, rows), tasks.read_text().splitlines()[5]]))
    with pytest.raises(ConfigError, match="is not held out: 1 of its 4 tasks"):
        Trainer(load_config(settings(evaluation=evaluation)), tmp_path / "again")


@pytest.mark.parametrize("lora", [None, {"rank": 2}])
def test_the_model_that_is_left_is_played_by_any_policy(settings, tmp_path, lora):
    result = train(settings(policy={"lora": lora}), out=tmp_path / "run")
    folder = result.run_dir / "models" / "solver"
    played = train(settings(policy={"model": str(folder), "trainable": False}), out=tmp_path / "again")
    assert (folder / "adapter" / "adapter_model.safetensors").is_file() == (lora is not None)
    assert played.metrics["train/turns"] > 0


def test_tasks_are_read_once(settings, tasks, tmp_path):
    """Later environments are forks: the run neither reads the file again nor notices that it has changed."""
    mine = tmp_path / "mine.jsonl"
    mine.write_text(tasks.read_text())
    values = settings(updates=2, env={"id": "math-2agent", "tasks": str(mine), "split": None})
    train(values, out=tmp_path / "run", on_progress=lambda progress: mine.unlink(missing_ok=True))
    assert [row["update"] for row in read_metrics(tmp_path / "run")] == [1, 2]


def test_overrides_of_a_configuration_object(settings, tmp_path):
    result = train(load_config(settings(updates=9)), "updates=1", out=tmp_path / "run")
    assert [row["update"] for row in read_metrics(result.run_dir)] == [1]


def test_a_finished_run_that_is_resumed_is_finished(settings, tmp_path):
    first = train(settings(updates=1), out=tmp_path / "run")
    again = train(settings(updates=1), out=tmp_path / "run", resume=True)
    assert again.metrics == first.metrics
    assert again.metrics["train/turns"] > 0


def test_failed_episodes_are_counted_and_never_trained_on(settings, tmp_path, monkeypatch):
    generate, update = HFPolicy.generate, Learner.update
    trained = []

    async def sometimes(self, request):
        _, sample, turn, _ = request.key
        if sample == 1 and turn == 1:  # the solver has answered; the verifier cannot
            raise PolicyError("no answer")
        return await generate(self, request)

    def note(self, samples, **kwargs):
        trained.append(len(samples))
        return update(self, samples, **kwargs)

    monkeypatch.setattr(HFPolicy, "generate", sometimes)
    monkeypatch.setattr(Learner, "update", note)
    result = train(settings(updates=1), out=tmp_path / "run")
    assert result.metrics["train/episodes"] == 16
    assert result.metrics["train/failed_episodes"] == 4
    assert result.metrics["train/masked_turns"] == 4
    assert sum(trained) == result.metrics["train/turns"] - 4


@pytest.mark.parametrize(("temperature", "tolerance"), [(0.5, 2e-4), (1.0, 1e-4), (2.0, 1e-4)])
def test_the_proof_knows_the_temperature(settings, tmp_path, temperature, tolerance):
    """Dividing logits by 0.5 doubles every rounding error of a log-prob."""
    seen = []
    policy = {"sampling": {"max_tokens": 2, "temperature": temperature}}
    train(settings(updates=1, policy=policy), out=tmp_path / "run", on_progress=seen.append)
    assert {report.tol for report in seen[0].synced.values()} == {tolerance}


# ---- when something is wrong ----------------------------------------------------------------------------------------


def test_a_stale_output_layer_stops_the_run(settings, tmp_path_factory, tmp_path, monkeypatch, capsys):
    """The sync forgets the output head: the run stops and names it."""
    folder = build_tiny_model(
        tmp_path_factory.mktemp("untied") / "tiny", vocab=VOCAB, hidden_size=32, layers=2, tie_embeddings=False
    )
    push = HFSync.push

    async def forgetful(self, source, version):
        head = self.policy.model.lm_head.weight.detach().clone()
        await push(self, source, version)
        if version > 0:
            self.policy.model.lm_head.weight.data.copy_(head + 0.01 * torch.arange(len(head))[:, None])

    monkeypatch.setattr(HFSync, "push", forgetful)
    values = settings(policy={"model": str(folder)})
    with pytest.raises(WeightSyncError, match="output head") as caught:
        train(values, out=tmp_path / "run")
    assert caught.value.groups == ("output head",)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps(values))
    assert main(["--config", str(recipe), "--out", str(tmp_path / "again")]) == 1
    assert "output head" in capsys.readouterr().err


def test_the_proof_is_about_what_an_update_computes(settings, tmp_path, monkeypatch):
    """Not about another forward pass of the same weights: a learner with another temperature is found out."""
    score = CompletionForward.__call__

    def colder(self, batch, **kwargs):
        self.temperature = 0.5
        return score(self, batch, **kwargs)

    values = settings(policy={"sampling": {"max_tokens": 2, "temperature": 0.7}})
    train(values, out=tmp_path / "right")
    monkeypatch.setattr(CompletionForward, "__call__", colder)
    with pytest.raises(WeightSyncError):
        train(values, out=tmp_path / "wrong")


def test_policies_that_were_loaded_are_closed_when_a_later_one_fails(settings, tmp_path, monkeypatch, caplog):
    closed = []

    async def close(self):
        closed.append(self.name)
        raise PolicyError("this one does not close well either")

    monkeypatch.setattr(HFPolicy, "close", close)
    values = settings()
    values["policies"]["verifier"]["lora"] = {"target_modules": ["no_such_layer"]}
    with pytest.raises(ConfigError, match=r"policies.verifier: .*no_such_layer"):
        train(values, out=tmp_path / "run")
    assert len(closed) == 2
    assert "does not close well either" in caplog.text


def test_a_bound_on_spikes_may_be_raised_to_go_on(settings, tmp_path):
    values = settings(updates=6, max_gradient_spike=1.0000001)
    with pytest.raises(GradientSpike, match="raise the bound"):
        train(values, out=tmp_path / "run")
    train({**values, "max_gradient_spike": 1e9}, out=tmp_path / "run", resume=True)
    train({**values, "max_gradient_spike": None}, out=tmp_path / "whole")
    assert deterministic(tmp_path / "run") == deterministic(tmp_path / "whole")


def test_a_damaged_configuration_is_named(settings, tmp_path):
    train(settings(updates=1), out=tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text("{")
    with pytest.raises(RunError, match=r"config.json cannot be read"):
        train(settings(updates=2), out=tmp_path / "run", resume=True)


def test_there_must_be_a_run_to_resume(settings, tmp_path):
    with pytest.raises(RunError, match=r"holds no run to go on with"):
        train(settings(), out=tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_nan_stops_the_run_and_names_the_agent(settings, tmp_path, monkeypatch):
    values = settings(updates=4)
    update = Learner.update

    def poisoned(self, samples, **kwargs):
        if self.updates == 1 and samples[0].agent == "verifier_0":
            with torch.no_grad():
                next(iter(self._trainable.values())).fill_(float("nan"))
        return update(self, samples, **kwargs)

    monkeypatch.setattr(Learner, "update", poisoned)
    with pytest.raises(NonFiniteGradient, match="verifier_0"):
        train(values, out=tmp_path / "run")
    names = sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["stopped-000001", "update-000001"]
    monkeypatch.setattr(Learner, "update", update)
    train(values, out=tmp_path / "run", resume=True)  # from the last good one
    train(values, out=tmp_path / "whole")
    assert deterministic(tmp_path / "run") == deterministic(tmp_path / "whole")


def test_a_folder_with_a_run_is_not_overwritten(settings, tmp_path):
    train(settings(updates=1), out=tmp_path / "run")
    with pytest.raises(RunError, match=r"holds a run already.*--resume"):
        train(settings(updates=1), out=tmp_path / "run")
    with pytest.raises(RunError, match="seed: 0 -> 1"):
        train(settings(updates=1, seed=1), out=tmp_path / "run", resume=True)


def test_changed_tasks_are_noticed(settings, tmp_path, tasks):
    mine = tmp_path / "mine.jsonl"
    mine.write_text(tasks.read_text())
    values = settings(updates=1, env={"id": "math-2agent", "tasks": str(mine), "split": None})
    train(values, out=tmp_path / "run")
    mine.write_text(tasks.read_text().replace("four", "FOUR"))
    with pytest.raises(RunError, match="tasks differ"):
        train({**values, "updates": 2}, out=tmp_path / "run", resume=True)


def test_a_batch_larger_than_the_task_set(settings, tmp_path):
    with pytest.raises(ValueError, match="A batch of 9 different tasks cannot come from 8 tasks"):
        Trainer(load_config(settings(tasks_per_update=9)), tmp_path / "run")


def test_roles_that_do_not_fit_the_environment(settings, tmp_path):
    values = settings()
    values["roles"] = {"solver": "solver", "critic": "verifier"}
    with pytest.raises(Exception, match="critic"):
        train(values, out=tmp_path / "run")
