"""What a team costs: each arm is a run of its own that trains what it says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.performance import measure, team_memory
from trainers.config import load_config
from trainers.env_texts import env_texts
from trainers.models import build_tiny_model


@pytest.mark.parametrize("arm", list(team_memory.ARMS))
def test_arms_train_what_they_say(arm: str) -> None:
    config = load_config(team_memory.team_config(arm, "smollm2-135m", "vllm", 2))
    per_role, lora = team_memory.ARMS[arm]
    assert len(config.policies) == (4 if per_role else 1)
    assert all((policy.lora is not None) == lora for policy in config.policies.values())
    assert sorted(config.role_map()) == sorted(team_memory.ROLES)


@pytest.mark.slow
def test_the_arms_are_run_and_compared(tmp_path: Path) -> None:
    texts = [*env_texts("math-4agent", tasks=16), "What is 0 + 1 - 2?", "(no usable answer)"]
    model = build_tiny_model(tmp_path, texts=texts, hidden_size=32, layers=1, max_length=1024)
    rows = team_memory.measure_team_memory(str(model), backend="hf", updates=2)
    assert len(rows) == 6
    assert all(row.value > 0 for row in rows)
    (bound,) = [row for row in rows if row.target is not None]
    assert bound.met  # of a tiny model nearly all is the program


def test_an_arm_without_enough_memory_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        killed = command[3] == "a full model a role"
        return subprocess.CompletedProcess(command, -9 if killed else 0, '{"gib": 2.0, "seconds": 1.0}\n')

    monkeypatch.setattr(measure.subprocess, "run", run)
    names = [row.name for row in team_memory.measure_team_memory()]
    assert len(names) == 4
    assert not any("full model" in name for name in names)
