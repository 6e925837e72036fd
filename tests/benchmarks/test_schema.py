"""Versions of the results folder: older ones are read and resumed, newer ones refused."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import context
from benchmarks.context import describe_hardware, describe_source
from benchmarks.results import ResultsError, read_config
from benchmarks.schema import SCHEMA_VERSION, SchemaError, upgrade
from benchmarks.summary import summarize
from trainers.rollout.records import Episode, Turn


def as_version_1(folder: Path) -> bytes:
    """Make of a folder what the first version would have written; return its episodes."""
    config = json.loads((folder / "config.json").read_text())
    del config["schema_version"]
    for name in ("environment", "hardware", "variables"):
        del config["context"][name]
    for name in ("branch", "diff"):
        config["context"]["source"].pop(name)
    config["identity"]["versions"].pop("sympy")  # stands for a package that was not recorded then
    (folder / "config.json").write_text(json.dumps({"format": 1, **config}))
    lines = [json.loads(line) for line in (folder / "timings.jsonl").read_text().splitlines()]
    for line in lines:
        del line["ended"]
    (folder / "timings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return (folder / "episodes.jsonl").read_bytes()


def test_a_folder_of_version_1_is_read_and_resumed(play_run: Callable[..., Any]) -> None:
    result, _ = play_run()
    before = summarize(result.path)
    whole = as_version_1(result.path)
    after = summarize(result.path)
    timed = {"elapsed_s", "tokens_per_s"}
    assert {k: v for k, v in after.items() if k not in timed} == {k: v for k, v in before.items() if k not in timed}
    assert after["elapsed_s"] is None
    config = read_config(result.path)
    assert config["schema_version"] == 1
    assert config["context"]["hardware"] is None
    (result.path / "episodes.jsonl").write_bytes(whole.partition(b"\n")[2])
    play_run(resume=True)
    assert (result.path / "episodes.jsonl").read_bytes() == whole


def test_a_version_that_did_change_is_still_refused(play_run: Callable[..., Any]) -> None:
    result, _ = play_run()
    as_version_1(result.path)
    config = json.loads((result.path / "config.json").read_text())
    config["identity"]["versions"]["numpy"] = "0.1"
    (result.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ResultsError, match=r"versions.numpy: '0.1' in the folder"):
        play_run(resume=True)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "holds no JSON object but list"),
        ({"identity": {}, "context": {}}, "schema_version is None"),
        ({"schema_version": True, "identity": {}, "context": {}}, "schema_version is True"),
        ({"schema_version": 0, "identity": {}, "context": {}}, "schema_version is 0"),
        ({"schema_version": SCHEMA_VERSION + 1}, f"schema version {SCHEMA_VERSION + 1}, and this version"),
        ({"schema_version": 1, "context": {}}, "no 'identity'"),
        ({"schema_version": 1, "identity": {}, "context": 3}, "no 'context'"),
    ],
)
def test_what_cannot_be_read_is_said(config: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=message):
        upgrade(config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ResultsError, match=f"config.json: .*{message}"):
        read_config(tmp_path)


def test_config_says_what_a_run_depends_on(play_run: Callable[..., Any]) -> None:
    result, _ = play_run(env_kwargs={"max_rounds": 2})
    stored = read_config(result.path)
    assert stored["schema_version"] == SCHEMA_VERSION
    environment, hardware = stored["context"]["environment"], stored["context"]["hardware"]
    assert (environment["id"], environment["version"]) == ("math-2agent-v0", 0)
    assert environment["agents"] == ["solver_0", "verifier_0"]
    assert environment["arguments"]["max_rounds"] == 2
    assert environment["arguments"]["invalid_penalty"] == -0.1  # a default
    assert "tasks" not in environment["arguments"]
    assert hardware["cores"] >= 1
    assert hardware["memory_gib"] > 0
    assert set(hardware) == {"system", "processor", "cores", "memory_gib", "gpus"}


def test_gpus_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"nvidia-smi": "NVIDIA H200, 143771, 570.1\nNVIDIA H200, 143771, 570.1"}
    monkeypatch.setattr(context, "_output", lambda *command: said.get(command[0]))
    assert describe_hardware()["gpus"] == [{"name": "NVIDIA H200", "memory_mib": "143771", "driver": "570.1"}] * 2
    assert context.describe_machine().endswith("NVIDIA H200 + NVIDIA H200")
    monkeypatch.setattr(context, "_output", lambda *command: None)
    assert describe_hardware()["gpus"] == []


def test_states_of_a_checkout_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "llm_envs"
    package.mkdir()
    (package / "__init__.py").write_text("x = 1\n")
    monkeypatch.setattr(context.llm_envs, "__file__", str(package / "__init__.py"))
    assert describe_source() is None

    def git(*arguments: str) -> None:
        who = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "trunk")
    git("add", ".")
    git("commit", "-m", "first")
    clean = describe_source()
    assert clean is not None
    assert (clean["branch"], clean["changed"], clean["diff"]) == ("trunk", False, None)
    seen = []
    for text in ("x = 2\n", "x = 3\n"):
        (package / "__init__.py").write_text(text)
        found = describe_source()
        assert found is not None
        assert (found["commit"], found["changed"]) == (clean["commit"], True)
        seen.append(found["diff"])
    assert len(set(seen)) == 2
    git("checkout", "--detach")
    found = describe_source()
    assert found is not None
    assert found["branch"] is None


def test_every_field_is_documented(play_run: Callable[..., Any], repository: Path) -> None:
    page = (repository / "docs" / "results.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z_]+)`", page))
    result, _ = play_run(save_tokens=True)
    config = read_config(result.path)
    (timing, *_) = map(json.loads, (result.path / "timings.jsonl").read_text().splitlines())
    fields = {"schema_version", *config["identity"], *config["context"], *timing}
    for name in ("environment", "hardware", "source"):
        fields |= set(config["context"][name] or {})
    for name in ("tasks", "sampling"):
        fields |= set(config["identity"][name])
    fields |= {field.name for kind in (Episode, Turn) for field in dataclasses.fields(kind)}
    assert fields - documented == set()
    assert f"| {SCHEMA_VERSION} | " in page
