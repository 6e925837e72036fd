"""Critics, divergences and token limits in the training loop, for real, on a tiny model."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from trainers.algorithms.critic_config import CriticConfig
from trainers.algorithms.presets import presets
from trainers.api import train
from trainers.checkpoint import CheckpointError, load
from trainers.config import ConfigError, load_config
from trainers.measuring import fit_critics, measure
from trainers.models import build_tiny_model
from trainers.rollout.records import Episode, Turn
from trainers.tracking import read_metrics

VOCAB = [*(rf"\boxed{{{n}}}" for n in range(5)), "Problem:", "solver_0.", "You", "[check]", "[bet]", "[call]", "[fold]"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return build_tiny_model(folder, vocab=VOCAB, hidden_size=32, layers=1, intermediate_size=32, init_std=0.1, seed=0)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    path = tmp_path_factory.mktemp("tasks") / "four.jsonl"
    path.write_text("".join(json.dumps({"question": f"Say four ({i}).", "answer": "4"}) + "\n" for i in range(8)))
    return path


@pytest.fixture
def settings(model, tasks):
    def build(preset: str, overrides: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
        policy = {"model": str(model), "backend": "hf", "learning_rate": 0.01, "sampling": {"max_tokens": 2}}
        return {
            "env": {"id": "math-1agent", "tasks": str(tasks), "split": None},
            "algorithm": {"preset": preset, "overrides": overrides or {}},
            "policies": {"solver": policy | changes.pop("policy", {})},
            "tasks_per_update": 4,
            "samples_per_task": 4,
            "checkpoint": {"every": 1, "keep": 20},
            **changes,
        }

    return build


def rows(run_dir):
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in read_metrics(run_dir)]


def test_a_critic_learns_beside_its_policy(settings, tmp_path):
    values = settings("gae", {"critic": {"learning_rate": 0.01}}, updates=12, samples_per_task=8)
    found = rows(train(values, out=tmp_path / "run").run_dir)
    assert sum(row["train/success"] for row in found[-2:]) / 2 > 0.8
    assert found[0]["agent/solver_0/value"] == 0
    assert found[-1]["agent/solver_0/value"] > 0.4
    assert found[-1]["policy/solver/value_loss"] < found[0]["policy/solver/value_loss"] / 2


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_a_critic_is_resumed_bit_for_bit(settings, tmp_path, lora):
    def values(updates):
        critic = {"learning_rate": 0.01, "minibatches": 2, "value_clip": 0.2}
        return settings("gae", {"critic": critic}, updates=updates, policy={"lora": lora})

    train(values(4), out=tmp_path / "whole")
    train(values(2), out=tmp_path / "parts")
    train(values(4), out=tmp_path / "parts", resume=True)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    states = [load(tmp_path / run / "checkpoints" / "update-000004")[1]["solver"] for run in ("parts", "whole")]
    assert torch.equal(states[0]["critic"]["weights"]["head.weight"], states[1]["critic"]["weights"]["head.weight"])
    for part in ("weights", "optimizer"):
        one, other = (json.dumps(_plain(state["critic"][part])) for state in states)
        assert one == other
    assert states[0]["critic"]["weights"]["head.weight"].abs().sum() > 0
    assert any(name.startswith("backbone.") for name in states[0]["critic"]["weights"])


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return {key: _plain(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def test_a_checkpoint_without_a_critic_does_not_fit(settings, tmp_path):
    train(settings("reinforce_pp", updates=1), out=tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(path.read_text().replace('"reinforce_pp"', '"gae"'))
    with pytest.raises(CheckpointError, match="critic"):
        train(settings("gae", updates=2), out=tmp_path / "run", resume=True)


def test_divergence_in_the_reward_holds_the_policy_to_its_reference(settings, tmp_path):
    kl = {}
    for beta in (0.01, 3.0):
        values = settings("reinforce_pp", {"kl_in_reward": beta}, updates=8, samples_per_task=8)
        found = rows(train(values, out=tmp_path / str(beta)).run_dir)
        assert found[0]["agent/solver_0/kl"] == pytest.approx(0, abs=1e-6)  # the learner is its own reference still
        kl[beta] = found[-1]["agent/solver_0/kl"]
    assert kl[0.01] > 0.5
    assert kl[3.0] < kl[0.01] / 2


def test_answers_that_were_cut_are_not_trained_on(settings, tmp_path):
    short = {"sampling": {"max_tokens": 6}}
    found = {
        mode: rows(train(settings("grpo", {"overlong": mode}, updates=1, policy=short), out=tmp_path / mode).run_dir)[0]
        for mode in ("mask", "keep")
    }
    for row in found.values():
        assert 0 < row["agent/solver_0/truncated"] < 1
        assert (row["train/turns"], row["train/group_size"]) == (16, 4)  # they count in the statistics
    assert found["keep"]["policy/solver/samples"] == 16
    assert found["mask"]["policy/solver/samples"] == 16 * (1 - found["mask"]["agent/solver_0/truncated"])


def test_long_answers_are_paid_less(settings, tmp_path):
    values = settings(
        "grpo", {"overlong": "soft", "overlong_buffer": 3}, updates=1, policy={"sampling": {"max_tokens": 4}}
    )
    found = rows(train(values, out=tmp_path / "run").run_dir)[0]
    assert -1 <= found["agent/solver_0/overlong"] < 0
    values["algorithm"]["overrides"]["overlong_buffer"] = 4
    with pytest.raises(ValueError, match="overlong_buffer is 4 tokens and a turn may have 4"):
        train(values, out=tmp_path / "other")


def test_self_play_with_averages_of_each_seat(settings, tmp_path):
    def values(updates):
        return settings("rae", updates=updates, env={"id": "kuhn-poker", "split": None})

    train(values(3), out=tmp_path / "whole")
    train(values(2), out=tmp_path / "parts")
    train(values(3), out=tmp_path / "parts", resume=True)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    averages = load(tmp_path / "parts" / "checkpoints" / "update-000003")[0]["baseline"]["values"]
    assert sorted(averages) == ['["kuhn-poker-v0", "player_0"]', '["kuhn-poker-v0", "player_1"]']
    assert all(0 < abs(average) <= 1 for average in averages.values())


def test_an_unknown_field_of_a_critic_is_named(settings):
    with pytest.raises(ConfigError, match="Did you mean `lam`"):
        load_config(settings("gae", {"critic": {"lamb": 0.9}})).algorithm.build()


# --- on its own -----------------------------------------------------------------------------------------------------


class _Critic:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def values(self, prompts):
        return np.array([float(prompt[0]) for prompt in prompts])

    def update(self, prompts, targets, old):
        self.seen.append((list(prompts), targets.tolist(), old.tolist()))
        return {"value_loss": 1.0}


def _member(critic: _Critic | None) -> Any:
    learner = SimpleNamespace(reference_kl=lambda prompts, ids: [float(len(c)) for c in ids])
    config = SimpleNamespace(sampling=SimpleNamespace(max_tokens=7))
    return SimpleNamespace(critic=critic, learner=learner if critic is not None else None, config=config)


def _episode() -> Episode:
    one = Episode(id="t#0", env="e", task="t", task_index=0, task_hash="t", sample=0, seed=0)
    for index, (policy, agent, masked) in enumerate(
        [("a", "x_0", False), ("b", "y_0", False), ("a", "x_0", True), ("frozen", "z_0", False), ("a", "x_0", False)]
    ):
        own = [turn for turn in one.turns if turn.agent == agent]
        one.turns.append(
            Turn(
                episode=one.id, task="t", agent=agent, policy=policy, index=index, agent_turn=len(own),
                observation="", action="", prompt_ids=(index + 1,), completion_ids=(0,) * (index + 1), masked=masked,
                reward_parts={"team": 1.0},
            )
        )  # fmt: skip
    one.reward_parts = {agent: {"team": 1.0} for agent in ("x_0", "y_0", "z_0")}
    return one


def test_values_and_divergences_are_those_of_the_policies_that_learn() -> None:
    from dataclasses import replace

    members = {"a": _member(_Critic()), "b": _member(_Critic()), "frozen": _member(None)}
    algorithm = replace(presets["gae"], kl_in_reward=0.1, overlong="soft", critic=CriticConfig(lam=1.0))
    facts = measure([_episode()], algorithm, members, ["a"])
    np.testing.assert_equal(facts.values, [1, np.nan, np.nan, np.nan, 5])
    np.testing.assert_equal(facts.kl, [1, 0, 0, 0, 5])
    np.testing.assert_equal(facts.max_tokens, [7] * 5)
    metrics = fit_critics([_episode()], algorithm, members, ["a"], facts)
    assert metrics == {"policy/a/value_loss": 1.0}
    # Each of x_0's turns earned 1, less a tenth of its divergence; the masked one in between has none.
    (prompts, targets, old), *more = members["a"].critic.seen
    assert (prompts, old, more, members["b"].critic.seen) == ([(1,), (5,)], [1.0, 5.0], [], [])
    assert targets == pytest.approx([0.9 + 1.0 + 0.5, 0.5])
    nothing = measure([_episode()], presets["grpo"], members, ["a", "b"])
    assert (nothing.values, nothing.kl, nothing.max_tokens) == (None, None, None)


@pytest.mark.parametrize("lora", [None, {"r": 2, "target_modules": ["q_proj"]}])
def test_the_divergence_is_the_sum_over_a_turns_tokens(model, lora) -> None:
    from transformers import AutoModelForCausalLM

    from trainers.algorithms.loss_config import LossConfig
    from trainers.batching import Sample
    from trainers.learner import Learner
    from trainers.learner_config import LearnerConfig

    loss = LossConfig(importance="off")
    config = LearnerConfig(lr=0.05, dtype="float64")
    learner = Learner(AutoModelForCausalLM.from_pretrained(model), config, loss, lora=lora, reference=True)
    prompts, answers = [[1, 2], [3]], [[4, 5, 6], [7]]
    assert learner.reference_kl(prompts, answers) == pytest.approx([0, 0], abs=1e-12)
    before = [float(row.sum()) for row in learner.logprobs(prompts, answers)]
    learner.update([Sample(p, a, None, 1.0, "x") for p, a in zip(prompts, answers, strict=True)], epochs=3)
    after = [float(row.sum()) for row in learner.logprobs(prompts, answers)]
    assert learner.reference_kl(prompts, answers) == pytest.approx(np.subtract(after, before), abs=1e-9)
    assert after > before
    plain = Learner(AutoModelForCausalLM.from_pretrained(model), config, loss)
    with pytest.raises(ValueError, match="reference=True"):
        plain.reference_kl(prompts, answers)
