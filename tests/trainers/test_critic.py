"""The critic: values of prompts, how it learns, what it leaves in a checkpoint."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from trainers.algorithms.critic_config import CriticConfig
from trainers.critic import Critic, value_losses
from trainers.learner import NonFiniteGradient

VOCABULARY = 11


def tiny_model(seed: int = 0, **fields: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        **{
            "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32,
            "initializer_range": 0.3, **fields,
        }
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def draw_prompts(number: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCABULARY, rng.integers(1, 7)).tolist() for _ in range(number)]


def known_values(prompts: list[list[int]]) -> np.ndarray:
    """A value that the prompt decides: whether its last token is even, and a little for its first."""
    return np.array([(prompt[-1] % 2) + 0.1 * (prompt[0] % 3) for prompt in prompts])


def trained(critic: Critic, updates: int, prompts: list[list[int]], targets: np.ndarray) -> dict[str, float]:
    found: dict[str, float] = {}
    for _ in range(updates):
        found = critic.update(prompts, targets, critic.values(prompts))
    return found


def test_the_first_values_are_zero_and_the_policy_is_left_alone() -> None:
    model = tiny_model()
    before = {name: p.clone() for name, p in model.named_parameters()}
    critic = Critic(model, CriticConfig(learning_rate=1e-2))
    prompts = draw_prompts(6)
    assert critic.values(prompts).tolist() == [0.0] * 6
    trained(critic, 2, prompts, known_values(prompts))
    assert critic.values(prompts).any()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.requires_grad


def test_it_learns_a_known_value_function() -> None:
    critic = Critic(tiny_model(hidden_size=32), CriticConfig(learning_rate=1e-2, minibatches=4, epochs=2))
    prompts, unseen = draw_prompts(160), draw_prompts(60, seed=1)
    found = trained(critic, 15, prompts, known_values(prompts))
    assert found["explained_variance"] > 0.9
    error = critic.values(unseen) - known_values(unseen)
    assert (error**2).mean() < 0.2 * known_values(unseen).var()


def test_a_frozen_decoder_learns_through_its_head_alone() -> None:
    critic = Critic(tiny_model(), CriticConfig(learning_rate=1e-2, train_backbone=False))
    prompts = draw_prompts(40)
    first = trained(critic, 1, prompts, known_values(prompts))["value_loss"]
    assert trained(critic, 30, prompts, known_values(prompts))["value_loss"] < 0.5 * first
    assert set(critic.state_dict()["weights"]) == {"head.weight", "head.bias"}


def test_values_are_those_of_the_unpadded_prompt_at_its_last_token() -> None:
    model = tiny_model().double()
    critic = Critic(model, CriticConfig(learning_rate=1e-2), dtype="float64", micro_batch_tokens=9)
    prompts = draw_prompts(7)
    trained(critic, 2, prompts, known_values(prompts))
    weights = critic.state_dict()["weights"]
    model.base_model.load_state_dict({n.removeprefix("backbone."): w for n, w in weights.items() if "head" not in n})
    for prompt, value in zip(prompts, critic.values(prompts), strict=True):
        with torch.no_grad():
            state = model.base_model(input_ids=torch.tensor([prompt])).last_hidden_state[0, -1]
        assert value == pytest.approx(float(state @ weights["head.weight"][0] + weights["head.bias"][0]), abs=1e-12)


def test_micro_batches_only_bound_memory() -> None:
    prompts = draw_prompts(9)
    states = []
    for tokens in (1, 13, 10_000):
        # The first step moves the head; the second has a gradient everywhere.
        critic = Critic(
            tiny_model(), CriticConfig(learning_rate=1e-2), dtype="float64", micro_batch_tokens=tokens, name="p"
        )
        trained(critic, 2, prompts, known_values(prompts))
        states.append(critic.state_dict()["weights"])
    for other in states[1:]:
        for name, weight in states[0].items():
            torch.testing.assert_close(other[name], weight, rtol=0, atol=1e-8, msg=name)


def test_clipped_value_loss_by_hand() -> None:
    # Moved by .3 towards the target 1 (only .2 of it counts) and by .3 away from the target 0 (all of it counts).
    losses = value_losses(torch.tensor([0.3, 0.3]), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0]), 0.2)
    torch.testing.assert_close(losses, torch.tensor([0.5 * 0.8**2, 0.5 * 0.3**2]))
    free = value_losses(torch.tensor([0.3]), torch.tensor([1.0]), torch.tensor([0.0]), None)
    torch.testing.assert_close(free, torch.tensor([0.5 * 0.7**2]))


def test_a_clipped_value_that_has_moved_far_enough_is_not_pulled_further() -> None:
    prompts = draw_prompts(20)
    targets = 5 + known_values(prompts)
    free, held = (Critic(tiny_model(), CriticConfig(learning_rate=0.02, epochs=40, value_clip=c)) for c in (None, 0.2))
    for critic in (free, held):
        critic.update(prompts, targets, np.zeros(20))
    assert np.abs(held.values(prompts)).max() < np.abs(free.values(prompts)).max() / 2


@pytest.mark.parametrize("train_backbone", [True, False])
def test_three_and_three_updates_equal_six(train_backbone: bool) -> None:
    config = CriticConfig(learning_rate=1e-2, epochs=2, minibatches=3, train_backbone=train_backbone, value_clip=0.2)
    prompts = [draw_prompts(10, seed) for seed in range(6)]

    def run(critic: Critic, batches: list[list[list[int]]]) -> list[dict[str, float]]:
        return [trained(critic, 1, batch, known_values(batch)) for batch in batches]

    whole = Critic(tiny_model(), config)
    metrics = run(whole, prompts)
    first = Critic(tiny_model(), config)
    halves = run(first, prompts[:3])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    run(first, prompts[:1])
    torch.manual_seed(999)
    second = Critic(tiny_model(), config)
    second.load_state_dict(torch.load(file, weights_only=True))
    halves += run(second, prompts[3:])
    assert metrics == halves
    assert (whole.steps, whole.updates) == (second.steps, second.updates) == (36, 6)
    one, other = whole.state_dict(), second.state_dict()
    assert all(torch.equal(one["weights"][name], other["weights"][name]) for name in one["weights"])
    assert one["optimizer"].keys() == other["optimizer"].keys()
    for i, moments in one["optimizer"].items():
        assert all(torch.equal(moments[key], other["optimizer"][i][key]) for key in moments)


def test_what_is_not_finite_is_not_learnt() -> None:
    critic = Critic(tiny_model(), CriticConfig(), name="solver")
    prompts = draw_prompts(2)
    with pytest.raises(ValueError, match="critic of 'solver' is not finite"):
        critic.update(prompts, np.array([0.0, np.nan]), np.zeros(2))
    before = critic.state_dict()
    with pytest.raises(NonFiniteGradient, match="Agent 'critic of solver'"):
        critic.update(prompts, np.array([0.0, 1e300]), np.zeros(2))
    after = critic.state_dict()
    assert all(torch.equal(before["weights"][name], after["weights"][name]) for name in before["weights"])


def test_wrong_arguments() -> None:
    critic = Critic(tiny_model())
    with pytest.raises(ValueError, match="0 prompts"):
        critic.update([], np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match="no state to value"):
        critic.values([[1], []])
    with pytest.raises(ValueError, match="dtype is 'float16'"):
        Critic(tiny_model(), dtype="float16")
    with pytest.raises(ValueError, match="differ in"):
        critic.load_state_dict(Critic(tiny_model(hidden_size=32)).state_dict())
    for field, value in {"lam": 1.5, "learning_rate": 0.0, "value_clip": 0.0, "epochs": 0}.items():
        with pytest.raises(ValueError, match=f"{field} is"):
            replace(CriticConfig(), **{field: value})  # type: ignore[arg-type]


def test_bfloat16_keeps_trained_weights_in_float32() -> None:
    critic = Critic(tiny_model().bfloat16(), CriticConfig(learning_rate=1e-2), dtype="bfloat16")
    prompts = draw_prompts(8)
    trained(critic, 2, prompts, known_values(prompts))
    assert {p.dtype for p in critic.state_dict()["weights"].values()} == {torch.float32}
    assert np.isfinite(critic.values(prompts)).all()
