"""The command line, as people type it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.cli import main

BENCH = [sys.executable, "-m", "benchmarks.cli"]


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_run_and_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "math-2agent", "--policy", "oracle", "-n", "5", "-k", "2", "--out", "r"]) == 0
    shown = capsys.readouterr()
    assert "100.0 % [56.6, 100.0]" in shown.out
    assert shown.out.rstrip().endswith("results: r")
    assert "oracle: 10 episodes -> r" in shown.err
    assert main(["report", "r"]) == 0
    assert "pass@2" in capsys.readouterr().out
    assert main(["report", "r", "--json"]) == 0
    (summary,) = json.loads(capsys.readouterr().out)
    assert summary["complete"]
    assert summary["agents"]["verifier_0"]["return"] == 1.0


def test_default_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "math-1agent", "--policy", "oracle", "-n", "2", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert re.search(r"results: runs/math-1agent-oracle-\d{8}-\d{6}$", shown.out.rstrip())
    (run,) = Path("runs").iterdir()
    config = json.loads((run / "config.json").read_text())
    assert config["context"]["command"] == [
        "llm-bench",
        "run",
        "math-1agent",
        "--policy",
        "oracle",
        "-n",
        "2",
        "--quiet",
    ]
    assert "cores" in config["context"]["machine"]


def test_resume_without_arguments_takes_them_from_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "math-2agent", "--policy", "random", "-n", "4", "--env", "max_rounds=1", "--out", "r", "--quiet"]
    assert main(command) == 0
    whole = Path("r/episodes.jsonl").read_bytes()
    rest = whole.partition(b"\n")[2]
    Path("r/episodes.jsonl").write_bytes(rest)
    assert main(["run", "--resume", "--out", "r"]) == 0
    assert Path("r/episodes.jsonl").read_bytes() == whole
    capsys.readouterr()
    assert main(["run", "--resume", "--out", "r", "--seed", "4"]) == 2
    assert "leave out: --seed" in capsys.readouterr().err
    assert main(["run", "--resume"]) == 2
    assert "Name an environment" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["math-2agnet", "--policy", "oracle"], "Did you mean: `math-2agent`"),
        (["math-2agent"], "No policy was given"),
        (["math-2agent", "--policy", "orcale"], "The forms are: oracle, random, replay:<run folder>"),
        (["math-2agent", "--policy", "critic=oracle", "--policy", "oracle"], "roles of this environment are: solver"),
        (["math-2agent", "--policy", "oracle", "--env", "max_rounds"], "--env takes key=value, got 'max_rounds'"),
        (["math-2agent", "--policy", "oracle", "--env", "max_rond=1"], "max_rounds"),
        (["math-2agent", "--policy", "oracle", "--env", "tasks=x"], "use --tasks instead"),
        (["math-2agent", "--policy", "oracle", "--env", "max_rounds=1", "--env", "max_rounds=2"], "given twice"),
        (["math-2agent", "--policy", "oracle", "--temperature", "-1"], "temperature must be >= 0"),
        (["math-2agent", "--policy", "oracle", "-n", "1001"], "the set has 1000"),
        (["math-2agent", "--policy", "oracle", "--tasks", "no.jsonl"], "no.jsonl"),
        (["math-2agent", "--policy", "oracle", "--tasks", "gsm9k"], "gsm8k"),
        (["math-2agent", "--policy", "oracle", "--split", "dev"], "'dev'"),
        (["math-2agent", "--policy", "oracle", "--option", "x=1"], "Option x has no effect: 'oracle' plays"),
        (["math-2agent", "--policy", "hf:x", "--option", "verifier."], "takes key=value or role.key=value"),
        (["math-2agent", "--policy", "hf:x", "--option", "a=1", "--option", "a=2"], "--option a was given twice"),
        (["math-2agent", "--policy", "hf:x", "--option", "slover.a=1"], "Did you mean 'solver'"),
        (["math-2agent", "--policy", "openai:m@http://h/v1", "--option", "api_key=x"], "set $OPENAI_API_KEY instead"),
        (["math-2agent", "--policy", "openai:m@http://h/v1", "--option", "sytem_prompt=x"], "no option sytem_prompt"),
        (["math-2agent", "--policy", "openai:m@http://h/v1", "--option", "retries=-1"], "retries must be >= 0"),
        (["math-2agent", "--policy", "hf:smolm2-135m"], "Did you mean 'smollm2-135m'"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_options_are_stored_and_compared(capsys: pytest.CaptureFixture[str]) -> None:
    spec = "openai:m@http://127.0.0.1:9/v1"  # nobody listens there
    options = ["--option", "retries=0", "--option", "verifier.system_prompt=Trust: nobody"]
    command = ["run", "math-2agent", "--policy", spec, "-n", "1", "--out", "r", "--quiet"]
    assert main([*command, *options]) == 1
    config = json.loads(Path("r/config.json").read_text())
    assert config["identity"]["options"] == {"*": {"retries": 0}, "verifier": {"system_prompt": "Trust: nobody"}}
    assert config["context"]["label"] == (
        f"solver={spec} (retries=0) verifier={spec} (retries=0, system_prompt=Trust: nobody)"
    )
    assert main([*command, *options, "--resume"]) == 1
    assert main(["run", "--resume", "--out", "r", "--quiet"]) == 1
    capsys.readouterr()
    assert main([*command, "--option", "retries=0", "--resume"]) == 2
    changed = [line for line in capsys.readouterr().err.splitlines() if " in the folder, " in line]
    assert changed == ["  options.verifier: {'system_prompt': 'Trust: nobody'} in the folder, None now"]
    assert main(["run", "--resume", "--out", "r", "--option", "retries=1"]) == 2
    assert "leave out: --option" in capsys.readouterr().err


def test_an_existing_folder_points_to_resume(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "math-2agent", "--policy", "oracle", "-n", "1", "--out", "r", "--quiet"]
    assert main(command) == 0
    assert main(command) == 2
    assert "Add --resume" in capsys.readouterr().err


def test_failed_episodes_give_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "math-2agent", "--policy", "random", "-n", "2", "--out", "short", "--quiet"]) == 0
    assert main(["run", "math-2agent", "--policy", "replay:short", "-n", "3", "--out", "r", "--quiet"]) == 1
    shown = capsys.readouterr()
    assert "1 episodes failed, 1 of 3 are missing. Go on with: llm-bench run --resume --out r" in shown.err
    assert "2 of 3" in shown.out


def test_report_of_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "nothing"]) == 2
    assert "nothing is no results folder" in capsys.readouterr().err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "llm-bench run math-2agent --policy oracle -n 20" in text
    assert "--policy role=SPEC plays one" in text
    assert '--option solver.system_prompt="Answer in one line."' in text


def test_ctrl_c_keeps_what_was_played(repository: Path, tmp_path: Path) -> None:
    arguments = ["run", "math-tool-2agent", "--policy", "oracle", "-n", "1000", "--concurrency", "2", "--out", "r"]
    process = subprocess.Popen(
        [*BENCH, *arguments], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(repository)},
    )  # fmt: skip
    file = tmp_path / "r" / "episodes.jsonl"
    deadline = time.monotonic() + 60
    while not file.exists() or file.read_bytes().count(b"\n") < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Go on with: llm-bench run --resume --out r" in errors
    assert "Traceback" not in errors
    records = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert 3 <= len(records) < 1000
    assert all(record["success"] for record in records)
    assert not (tmp_path / "r" / "errors.jsonl").read_bytes()
