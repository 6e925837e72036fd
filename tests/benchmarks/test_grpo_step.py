"""A whole step beside TRL's: what it plays, and that it is measured."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

import llm_envs
from benchmarks.performance import grpo_step
from llm_envs.registration import EnvSpec, register, registry

_SPECS: dict[str, EnvSpec] = {}  # an id can be given to PettingZoo only once


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """The environment, for one test at a time: other tests go through the whole registry."""
    registry.update(_SPECS)
    if grpo_step.ENV not in registry:
        register(grpo_step.ENV, grpo_step.Checksum1Agent)
    yield
    _SPECS[grpo_step.ENV] = registry.pop(grpo_step.ENV)


def test_an_answer_is_worth_its_checksum() -> None:
    env = llm_envs.make(grpo_step.ENV)
    paid = set()
    for text in ("a", "b", "c", "d"):
        env.reset(seed=0)
        env.step(text)
        assert env.rewards["solver_0"] == grpo_step.worth(text) == grpo_step._worth_of([[{"content": text}]])[0]
        paid.add(env.rewards["solver_0"])
    assert paid == {0.0, 1.0}


def test_ours_is_measured_and_learns_from_every_group() -> None:
    found = grpo_step.measure_grpo_steps({"tiny": 1}, max_tokens=4, backends=("hf",))
    assert found[0].name.startswith("ours through hf")
    assert all(row.value > 0 for row in found)
    if importlib.util.find_spec("trl") is None:
        assert len(found) == 1
    else:
        assert (found[-1].target, found[-1].name.split(",")[0]) == (1.3, "ours / TRL")
