"""Every option of the loss, with every aggregation, split in every way: the same loss and the same gradient."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.algorithms.loss_config import (
    AGGREGATIONS,
    IMPORTANCE,
    IMPORTANCE_MODES,
    KINDS,
    KL_ESTIMATORS,
    RATIOS,
    REFERENCES,
    LossConfig,
)
from trainers.algorithms.losses import policy_loss, turn_weights
from trainers.batching import Sample
from trainers.learner import Learner
from trainers.learner_config import LearnerConfig

VOCABULARY = 19


@st.composite
def losses(draw: st.DrawFn) -> LossConfig:
    """Any valid loss."""
    reference = draw(st.sampled_from(REFERENCES))
    return LossConfig(
        kind=draw(st.sampled_from(KINDS)),
        ratio=draw(st.sampled_from(RATIOS)),
        reference=reference,
        clip_low=draw(st.sampled_from([0.0, 0.2, 1.0])),
        clip_high=draw(st.sampled_from([0.0, 0.28, 5.0])),
        dual_clip=draw(st.sampled_from([None, 1.5, 3.0])),
        aggregation=draw(st.sampled_from(AGGREGATIONS)),
        norm_length=7,
        balance_agents=draw(st.booleans()),
        importance="off" if reference == "sampler" else draw(st.sampled_from(IMPORTANCE)),
        importance_mode=draw(st.sampled_from(IMPORTANCE_MODES)),
        importance_cap=draw(st.sampled_from([0.9, 2.0])),
        kl_coef=draw(st.sampled_from([0.0, 0.1])),
        kl_estimator=draw(st.sampled_from(KL_ESTIMATORS)),
        entropy_coef=draw(st.sampled_from([0.0, 0.01])),
    )


@settings(max_examples=150, deadline=None)
@given(
    config=losses(),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=7),
    speakers=st.lists(st.sampled_from(["a", "b", "c"]), min_size=7, max_size=7),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_law_any_partition_has_the_sum_of_the_whole(
    config: LossConfig, lengths: list[int], speakers: list[str], seed: int, data: Any
) -> None:
    """Formulas alone, in float64: any order, any number of parts, unequal agents, also whole parts of one agent."""
    rng = torch.Generator().manual_seed(seed)
    agents = speakers[: len(lengths)]
    weights = torch.from_numpy(turn_weights(lengths, config, agents=agents))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    names = ("old_logprobs", "sampler_logprobs", "ref_logprobs", "advantages")
    values = {
        name: torch.randn(int(starts[-1]), generator=rng, dtype=torch.float64) * (1.0 if name == "advantages" else 0.5)
        - (0.0 if name == "advantages" else 1.5)
        for name in names
    }
    logits = torch.randn(int(starts[-1]), 5, generator=rng, dtype=torch.float64)

    def run(parts: list[list[int]]) -> tuple[float, torch.Tensor]:
        leaf, total = logits.clone().requires_grad_(), 0.0
        for part in parts:
            index = torch.cat([torch.arange(starts[i], starts[i + 1]) for i in part])
            logs = torch.log_softmax(leaf[index], -1)
            loss, _ = policy_loss(
                logs[:, 0],
                weights=torch.cat([weights[i].expand(lengths[i]) for i in part]),
                segments=torch.cat([torch.full((lengths[i],), k) for k, i in enumerate(part)]),
                config=config,
                entropy=-(logs.exp() * logs).sum(-1),
                **{name: value[index] for name, value in values.items()},
            )
            loss.backward()
            total += float(loss.detach())
        assert leaf.grad is not None
        return total, leaf.grad

    whole = run([list(range(len(lengths)))])
    order = data.draw(st.permutations(range(len(lengths))))
    ends = sorted(data.draw(st.sets(st.integers(1, len(order)))) | {len(order)})
    split = run([list(order[a:b]) for a, b in itertools.pairwise([0, *ends])])
    assert split[0] == pytest.approx(whole[0], abs=1e-12)
    torch.testing.assert_close(split[1], whole[1], rtol=0, atol=1e-12)


OPTIONS: dict[str, dict[str, Any]] = {
    "ppo": {"dual_clip": 3.0, "clip_high": 0.28},
    "gspo": {"ratio": "sequence"},
    "cispo": {"kind": "cispo"},
    "reinforce": {"kind": "reinforce"},
    "sampler": {"reference": "sampler", "importance": "off"},
    "sampler-gspo": {"reference": "sampler", "importance": "off", "ratio": "sequence"},
    "sequence-importance": {"importance": "sequence"},
    "masked-importance": {"importance_mode": "mask", "importance_cap": 1.05},
    "masked-sequence-importance": {"importance": "sequence", "importance_mode": "mask", "importance_cap": 1.05},
    "kl-k1": {"kl_coef": 0.1, "kl_estimator": "k1"},
    "kl-k2": {"kl_coef": 0.1, "kl_estimator": "k2"},
    "kl-k3": {"kl_coef": 0.1, "kl_estimator": "k3"},
    "entropy": {"entropy_coef": 0.05},
}


def test_every_option_is_covered() -> None:
    """A new field of the loss must be added here."""
    assert {field for changes in OPTIONS.values() for field in changes} == set(LossConfig.__slots__) - {
        "clip_low", "aggregation", "norm_length", "balance_agents",
    }  # fmt: skip


def tiny_model(seed: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=True, initializer_range=0.1,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """Three agents that speak 7, 2 and 1 times, at different lengths."""
    rng = np.random.default_rng(0)
    drawn = []
    for agent in ["a"] * 7 + ["b"] * 2 + ["c"]:
        prompt = rng.integers(0, VOCABULARY, rng.integers(1, 8)).tolist()
        answer = rng.integers(0, VOCABULARY, rng.integers(1, 7)).tolist()
        logprobs = (-2.9 + 0.2 * rng.normal(size=len(answer))).tolist()
        drawn.append(Sample(prompt, answer, logprobs, float(rng.normal()), agent))
    return drawn


def gradient(samples: list[Sample], loss: LossConfig, tokens: int) -> tuple[dict[str, torch.Tensor], float]:
    """What AdamW sees, read off its first moment; and the loss."""
    config = LearnerConfig(lr=0.0, max_grad_norm=None, micro_batch_tokens=tokens)
    learner = Learner(tiny_model(0), config, loss, ref_model=tiny_model(1) if loss.kl_coef else None)
    value = learner.update(samples).loss
    state = learner.state_dict()["optimizer"]
    return {i: moments["exp_avg"] / (1 - 0.9) for i, moments in state.items()}, value


@pytest.mark.parametrize(("aggregation", "balance"), list(itertools.product(AGGREGATIONS, [False, True])))
@pytest.mark.parametrize("option", OPTIONS)
def test_micro_batches_of_a_model_in_float32(
    samples: list[Sample], option: str, aggregation: Any, balance: bool
) -> None:
    """Turn by turn, three at a time or so, and all at once in another order: to 1e-6."""
    loss = LossConfig(aggregation=aggregation, norm_length=8, balance_agents=balance, **OPTIONS[option])
    whole, value = gradient(samples, loss, 10_000)
    assert max(float(g.abs().max()) for g in whole.values()) > 1e-3
    for order, tokens in ((samples, 1), (samples[::-1], 40)):
        split, other = gradient(order, loss, tokens)
        assert other == pytest.approx(value, abs=1e-6)
        for i, expected in whole.items():
            torch.testing.assert_close(split[i], expected, rtol=0, atol=1e-6)


def test_balanced_agents_have_equal_shares_of_the_gradient_however_often_they_speak(samples: list[Sample]) -> None:
    """Said again by one agent, its turns change nothing for the others, and nothing for itself."""
    loss = LossConfig(aggregation="seq-mean-token-mean", balance_agents=True, importance="off")
    once, _ = gradient(samples, loss, 10_000)
    again, _ = gradient([*samples, *(s for s in samples if s.agent == "a")], loss, 10_000)
    plain, _ = gradient(
        [*samples, *(s for s in samples if s.agent == "a")], replace(loss, balance_agents=False), 10_000
    )
    for i, expected in once.items():
        torch.testing.assert_close(again[i], expected, rtol=0, atol=1e-6)
    assert any(float((plain[i] - expected).abs().max()) > 1e-3 for i, expected in once.items())
