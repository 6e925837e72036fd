"""What tests of whole training runs share: tiny models, tasks that they can learn, and how two runs are compared."""

from __future__ import annotations

import json
import multiprocessing
import time

import pytest
import torch
from safetensors.torch import load_file

from trainers.api import train
from trainers.models import build_tiny_model
from trainers.tracking import read_metrics

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


@pytest.fixture(scope="session")
def team_model(tmp_path_factory):
    """A model of 60 thousand parameters whose words are answers and verdicts."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return build_tiny_model(folder, vocab=VOCAB, hidden_size=32, layers=2, intermediate_size=64, init_std=0.1, seed=0)


@pytest.fixture(scope="session")
def four_tasks(tmp_path_factory):
    """Eight questions with one answer, which such a model can learn."""
    path = tmp_path_factory.mktemp("tasks") / "four.jsonl"
    path.write_text(
        "".join(json.dumps({"question": f"Say four, please ({i}).", "answer": "4"}) + "\n" for i in range(8))
    )
    return path


@pytest.fixture
def recipe(team_model, four_tasks):
    """Builds a recipe on ``math-2agent`` with two policies; ``policy`` holds settings of both."""

    def build(policy=None, **changes):
        one = {"model": str(team_model), "backend": "hf", "learning_rate": 0.01, "sampling": {"max_tokens": 2}}
        one |= policy or {}
        return {
            "env": {"id": "math-2agent", "tasks": str(four_tasks), "split": None},
            "algorithm": {"preset": "dr_mas"},
            "policies": {"solver": dict(one), "verifier": dict(one)},
            "updates": 2,
            "tasks_per_update": 4,
            "samples_per_task": 4,
            "checkpoint": {"every": 1, "keep": 20},
            **changes,
        }

    return build


class Runs:
    """How to look at what a run has left, and how to end one."""

    @staticmethod
    def metrics(run_dir):
        """All that is logged, without what differs between two equal runs."""
        return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in read_metrics(run_dir)]

    @staticmethod
    def weights(run_dir, policy):
        """The final weights."""
        (file,) = (run_dir / "models" / policy).glob("*.safetensors")
        return load_file(file)

    @staticmethod
    def weights_of(model):
        """The weights in a model folder."""
        return load_file(model / "model.safetensors")

    @staticmethod
    def state(run_dir, update, policy):
        """The learner's state in a checkpoint: weights, moments, counters."""
        return torch.load(run_dir / "checkpoints" / f"update-{update:06d}" / f"{policy}.pt", weights_only=True)

    @classmethod
    def same(cls, one, other):
        """Whether two nested states are equal to the last bit."""
        if isinstance(one, torch.Tensor):
            return torch.equal(one, other)
        if isinstance(one, dict):
            return one.keys() == other.keys() and all(cls.same(one[key], other[key]) for key in one)
        return one == other

    @staticmethod
    def kill(values, out, *, after, delay=0.0, resume=False):
        """Start or resume a run in a process of its own, and kill it ``delay`` seconds after so many updates.

        The process is forked from a server that has imported the libraries, so it is at work within a second. Returns
        the number of updates that it had logged.
        """
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["trainers.trainer", "trainers.policies.hf", "transformers", "peft"])
        process = context.Process(target=train, args=(values,), kwargs={"out": out, "resume": resume})
        process.start()
        while len(read_metrics(out)) < after:
            assert process.is_alive(), "the run ended before it could be killed"
            time.sleep(0.005)
        time.sleep(delay)
        process.kill()
        process.join()
        assert process.exitcode == -9, "the run ended before it could be killed"
        return len(read_metrics(out))


@pytest.fixture(scope="session")
def runs():
    """See :class:`Runs`."""
    return Runs
