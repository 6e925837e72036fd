"""The ``llm-train`` command: help, errors with their exit status, interruption, resume."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time

import pytest

from trainers import trainer as trainer_module
from trainers.cli import main
from trainers.collecting import Collector
from trainers.config import recipe_names
from trainers.models import build_tiny_model
from trainers.tracking import read_metrics
from trainers.trainer import RunError


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    words = [r"\boxed{4}", r"\boxed{5}", "<verify>approve</verify>", "<verify>reject</verify>"]
    return build_tiny_model(tmp_path_factory.mktemp("m") / "tiny", vocab=words, hidden_size=16, layers=1, head_dim=8)


@pytest.fixture
def recipe(tmp_path, model):
    """A run of a second."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"question": f"Four ({i})?", "answer": "4"}) + "\n" for i in range(30)))
    policy = {"model": str(model), "backend": "hf", "sampling": {"max_tokens": 2}}
    values = {
        "env": {"id": "math-2agent", "tasks": str(tasks), "split": "train"},
        "policies": {"solver": policy, "verifier": policy},
        "updates": 1,
        "tasks_per_update": 2,
        "samples_per_task": 2,
        "checkpoint": {"every": 1},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(values))
    return str(path)


def test_list(capsys):
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.split() == recipe_names()


def test_help_explains_every_option(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for option in ("--config", "KEY=VALUE", "--out", "--resume", "--backend", "--quiet", "--list"):
        assert option in text
    assert "llm-train --config dr_mas_math_cpu" in text


def test_a_run_and_its_resume(recipe, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["--config", recipe, "--out", str(out), "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "update 1/1: success" in text
    assert "weights verified" in text
    assert str(out / "plot.png") in text
    assert main(["updates=2", "--config", recipe, "--resume", "--out", str(out), "policies.solver.epochs=1"]) == 0
    assert [row["update"] for row in read_metrics(out)] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--config is missing"),
        (["--config", "{recipe}", "--resume"], "--resume needs --out"),
        (["--config", "{recipe}", "--backend", "sglang"], "invalid choice"),
        (["--config", "{recipe}", "--speed", "9"], "unrecognized arguments"),
    ],
)
def test_wrong_arguments_show_the_usage(recipe, arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main([argument.format(recipe=recipe) for argument in arguments])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert "usage: llm-train" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "dr_mas_maths"], "dr_mas_math_cpu"),
        (["--config", "{recipe}", "updtes=1"], "Did you mean `updates`?"),
        (["--config", "{recipe}", "updates"], "not of the form key=value"),
        (["--config", "{recipe}", "env.id=math-2agnet"], "math-2agent"),
        (["--config", "{recipe}", "env.id=math-2agent-v9"], "v0"),
        (["--config", "{recipe}", "env.kwargs.max_round=3"], "max_round"),
        (["--config", "{recipe}", "env.tasks=gsm9k"], "There is no task set 'gsm9k'"),
        (["--config", "{recipe}", "env.tasks=nowhere.jsonl"], "nowhere.jsonl"),
        (["--config", "{recipe}", "env.split=dev"], "split 'dev'"),
        (["--config", "{recipe}", "tasks_per_update=99"], "99 different tasks cannot come from"),
        (["--config", "{recipe}", "roles={{solver: solver, critic: verifier}}"], "critic"),
        (["--config", "{recipe}", "roles={{solver: solver, verifier: solver, '*': verifier}}"], "plays nobody"),
        (["--config", "{recipe}", "policies.solver.model=smollm-135m"], "smollm-135m"),
        (["--config", "{recipe}", "policies.solver.sampling.temperature=0"], "must be sampled, not greedy"),
        (["--config", "{recipe}", "policies.solver.sampling.top_k=5"], "cuts the distribution"),
        (
            ["--config", "{recipe}", "policies.solver.lora={{}}", "policies.solver.trainable=false"],
            "frozen and has a lora",
        ),
        (
            ["--config", "{recipe}", "policies.solver.lora.target_modules=[wq]"],
            "policies.solver: Target modules",
        ),
        (
            ["--config", "{recipe}", "policies.solver.engine.system_prompt=x"],
            "engine.system_prompt cannot",
        ),
        (["--config", "{recipe}", "policies.solver.engine.speed=9"], "speed"),
        (["--config", "{recipe}", "evaluation.every=1", "evaluation.split=train"], "is not held out"),
        (["--config", "{recipe}", "evaluation.every=1", "env.split=null"], "is not held out"),
        (["--config", "{recipe}", "--out", "{out}", "--resume"], "holds no run to go on with"),
    ],
)
def test_a_configuration_that_cannot_run_leaves_nothing(recipe, tmp_path, arguments, message, capsys):
    out = tmp_path / "run"
    given = [argument.format(recipe=recipe, out=out) for argument in arguments]
    assert main([*given, *([] if "--out" in given else ["--out", str(out)])]) == 2
    error = capsys.readouterr().err
    assert "llm-train: " in error
    assert message in error
    assert "Traceback" not in error
    assert not out.exists()


def test_a_folder_with_a_run_is_left_alone(recipe, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["--config", recipe, "--out", str(out)]) == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert main(["--config", recipe, "--out", str(out)]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert main(["--config", recipe, "--out", str(out), "--resume", "policies.solver.learning_rate=1"]) == 2
    assert "policies.solver.learning_rate: 1e-06 -> 1.0" in capsys.readouterr().err
    (out / "config.json").unlink()  # the checkpoints alone are worth keeping
    assert main(["--config", recipe, "--out", str(out)]) == 2
    assert all(path.read_bytes() == content for path, content in before.items() if path.name != "config.json")


def test_a_run_that_stops_says_so_with_status_1(recipe, tmp_path, monkeypatch, capsys):
    async def fail(*args, **kwargs):
        raise RunError("nobody answers")

    monkeypatch.setattr(Collector, "collect", fail)
    assert main(["--config", recipe, "--out", str(tmp_path / "run")]) == 1
    assert f"the run in {tmp_path / 'run'} stopped: nobody answers" in capsys.readouterr().err


def test_what_a_server_said_does_not_reach_the_terminal_as_it_is(recipe, tmp_path, monkeypatch, capsys):
    said: dict = {}

    async def fail(*args, **kwargs):
        raise RunError("the server said \x1b[31m")

    monkeypatch.setattr(Collector, "collect", fail)
    monkeypatch.setattr(logging, "basicConfig", said.update)
    assert main(["--config", recipe, "--out", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert "\x1b[31m" not in error
    assert r"the server said \x1b[31m" in error
    record = logging.LogRecord("trainers", logging.WARNING, "", 0, "%s", ("red \x1b[31m",), None)
    assert said["handlers"][0].format(record) == r"red \x1b[31m"


def test_a_damaged_checkpoint_stops_the_resume(recipe, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["--config", recipe, "--out", str(out)]) == 0
    (out / "checkpoints" / "update-000001" / "solver.pt").write_bytes(b"")
    assert main(["--config", recipe, "--out", str(out), "--resume"]) == 1
    assert "update-000001 cannot be read" in capsys.readouterr().err
    (out / "checkpoints" / "update-000001" / "solver.pt").unlink()
    assert main(["--config", recipe, "--out", str(out), "--resume"]) == 1
    assert "does not fit policy 'solver'" in capsys.readouterr().err


def test_an_interrupted_run_goes_on_with_the_command_it_prints(recipe, tmp_path):
    """The message must hold everything that the configuration was made of."""
    out = tmp_path / "my run"
    command = [sys.executable, "-m", "trainers.cli", "--config", recipe, "updates=1000", "--backend", "hf"]
    process = subprocess.Popen(
        [*command, "policies.*.learning_rate=1e-3", "--out", str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(read_metrics(out)) < 2:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in error
    done = len(read_metrics(out))
    printed = error.strip().splitlines()[-1].partition("Go on with: llm-train ")[2]
    shell = f"{sys.executable} -m trainers.cli {printed} updates={done + 1}"
    again = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert [row["update"] for row in read_metrics(out)] == list(range(1, done + 2))


def test_an_interruption_before_the_run_began(recipe, tmp_path, monkeypatch, capsys):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer_module, "check_policies", interrupted)
    assert main(["--config", recipe, "--out", str(tmp_path / "run")]) == 130
    assert "had not begun" in capsys.readouterr().err
