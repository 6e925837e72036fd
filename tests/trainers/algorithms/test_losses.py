"""The loss: hand-computed tokens, weights that add up, and gradients."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.algorithms.loss_config import AGGREGATIONS, LossConfig
from trainers.algorithms.losses import LossMetrics, kl_estimate, policy_loss, turn_weights

OFF = LossConfig(importance="off")


def one_token(config: LossConfig, *, ratio: float = 1.0, advantage: float = 1.0, **more: float) -> tuple[float, float]:
    """Loss of a single token of weight 1 and its gradient in log π, at log π = -1."""
    logprob = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
    tensors: dict[str, Any] = {k: torch.tensor([v], dtype=torch.float64) for k, v in more.items()}
    loss, _ = policy_loss(
        logprob,
        advantages=torch.tensor([advantage], dtype=torch.float64),
        weights=torch.ones(1, dtype=torch.float64),
        segments=torch.zeros(1, dtype=torch.int64),
        config=config,
        old_logprobs=torch.tensor([-1.0 - math.log(ratio)], dtype=torch.float64),
        **tensors,
    )
    loss.backward()
    assert logprob.grad is not None
    return float(loss.detach()), float(logprob.grad)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.4, 0.0),  # clipped above
        (0.5, 2.0, -1.0, -1.0),  # a good token that became rarer is still pushed up
        (0.5, -2.0, 1.6, 0.0),  # clipped below
        (1.5, -2.0, 3.0, 3.0),  # a bad token that became likelier is pushed down
        (4.0, -2.0, 8.0, 8.0),
    ],
)
def test_ppo_clip(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    assert one_token(OFF, ratio=ratio, advantage=advantage) == pytest.approx((loss, gradient), abs=1e-12)


def test_clip_higher() -> None:
    assert one_token(replace(OFF, clip_high=0.28), ratio=1.25)[1] == pytest.approx(-1.25)
    assert one_token(replace(OFF, clip_high=0.28), ratio=1.3)[1] == 0


def test_dual_clip_bounds_the_loss_of_bad_tokens_only() -> None:
    dual = replace(OFF, dual_clip=3.0)
    assert one_token(dual, ratio=4.0, advantage=-2.0) == pytest.approx((6.0, 0.0))
    assert one_token(dual, ratio=2.5, advantage=-2.0) == pytest.approx((5.0, 5.0))
    assert one_token(dual, ratio=0.5, advantage=2.0) == pytest.approx((-1.0, -1.0))


def test_cispo_keeps_the_gradient_of_clipped_tokens() -> None:
    cispo = replace(OFF, kind="cispo")
    assert one_token(cispo, ratio=1.5, advantage=2.0) == pytest.approx((1.2 * 2, -1.2 * 2))
    assert one_token(cispo, ratio=0.5, advantage=2.0) == pytest.approx((0.8 * 2, -0.8 * 2))
    assert one_token(replace(cispo, clip_low=1.0), ratio=0.5, advantage=2.0)[1] == pytest.approx(-0.5 * 2)


def test_reinforce_has_no_ratio() -> None:
    assert one_token(replace(OFF, kind="reinforce"), ratio=3.0, advantage=2.0) == pytest.approx((2.0, -2.0))


def test_sampler_as_reference() -> None:
    config = replace(OFF, reference="sampler")
    got = one_token(config, ratio=9.0, sampler_logprobs=-1.0 - math.log(1.1))
    assert got == pytest.approx((-1.1, -1.1))
    with pytest.raises(ValueError, match="correction would count twice"):
        LossConfig(reference="sampler")


@pytest.mark.parametrize(
    ("mode", "weight", "expected"),
    [("truncate", 0.5, 0.5), ("truncate", 3.0, 2.0), ("mask", 1.9, 1.9), ("mask", 3.0, 0.0)],
)
def test_importance_weight_corrects_the_sampler(mode: Any, weight: float, expected: float) -> None:
    # old = -1 - log(1.1); sampler = old - log(weight), so that π_old/π_sampler = weight.
    config = LossConfig(importance_mode=mode)
    sampler = -1.0 - math.log(1.1) - math.log(weight)
    assert one_token(config, ratio=1.1, sampler_logprobs=sampler) == pytest.approx((-1.1 * expected, -1.1 * expected))


def test_importance_needs_the_samplers_logprobs() -> None:
    with pytest.raises(ValueError, match="needs the sampler's log-probs"):
        one_token(LossConfig())


def sequences(
    config: LossConfig, lengths: list[int], log_ratios: list[float], *, sampler: list[float] | None = None
) -> tuple[torch.Tensor, torch.Tensor, LossMetrics]:
    """Loss and gradient for turns of advantage 1 with the given log-ratios of their tokens, all weights 1."""
    logprobs = torch.full((sum(lengths),), -1.0, dtype=torch.float64, requires_grad=True)
    old = logprobs.detach() - torch.tensor(log_ratios, dtype=torch.float64)
    loss, metrics = policy_loss(
        logprobs,
        advantages=torch.ones(sum(lengths), dtype=torch.float64),
        weights=torch.ones(sum(lengths), dtype=torch.float64),
        segments=torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)),
        config=config,
        old_logprobs=old,
        sampler_logprobs=None if sampler is None else old - torch.tensor(sampler, dtype=torch.float64),
    )
    loss.backward()
    assert logprobs.grad is not None
    return loss.detach(), logprobs.grad, metrics


def test_gspo_ratio_is_the_exponential_of_the_mean() -> None:
    # Turn one: mean log-ratio .05. Turn two: mean .3 -> clipped.
    loss, gradient, _ = sequences(replace(OFF, ratio="sequence"), [2, 1], [0.0, 0.1, 0.3])
    assert float(loss) == pytest.approx(-2 * math.exp(0.05) - 1.2)
    assert gradient.tolist() == pytest.approx([-math.exp(0.05), -math.exp(0.05), 0])


def test_importance_of_a_sequence_is_the_product() -> None:
    config = LossConfig(importance="sequence", importance_cap=10.0)
    loss, _, metrics = sequences(config, [2, 1], [0, 0, 0], sampler=[math.log(2), math.log(3), math.log(0.5)])
    assert float(loss) == pytest.approx(-(6 + 6 + 0.5))
    assert metrics.to_dict()["importance"] == pytest.approx(12.5 / 3)
    loss, _, metrics = sequences(replace(config, importance_cap=2.0), [2, 1], [0, 0, 0], sampler=[math.log(2)] * 3)
    assert float(loss) == pytest.approx(-6)
    assert metrics.to_dict()["importance_capped"] == pytest.approx(2 / 3)


def test_kl_estimators_by_hand() -> None:
    new, ref = torch.tensor([-1.0]), torch.tensor([-1.5])
    assert float(kl_estimate(new, ref, "k1")) == pytest.approx(0.5)
    assert float(kl_estimate(new, ref, "k2")) == pytest.approx(0.125)
    assert float(kl_estimate(new, ref, "k3")) == pytest.approx(math.exp(-0.5) + 0.5 - 1)
    with pytest.raises(ValueError, match="Did you mean 'k3'"):
        kl_estimate(new, ref, "k33")


def test_kl_estimators_agree_with_the_true_divergence() -> None:
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    q = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
    true = float((p * (p / q).log()).sum())
    for name in ("k1", "k3"):
        assert float((p * kl_estimate(p.log(), q.log(), name)).sum()) == pytest.approx(true, abs=1e-12)


def test_kl_and_entropy_terms() -> None:
    config = replace(OFF, kl_coef=2.0, kl_estimator="k2", entropy_coef=0.1)
    loss, gradient = one_token(config, ref_logprobs=-1.5, entropy=3.0)
    assert loss == pytest.approx(-1 + 2 * 0.125 - 0.3)
    assert gradient == pytest.approx(-1 + 2 * 0.5)
    with pytest.raises(ValueError, match="reference model"):
        one_token(config, entropy=3.0)
    with pytest.raises(ValueError, match="entropy of every token"):
        one_token(config, ref_logprobs=-1.5)


def test_metrics_by_hand() -> None:
    _, _, metrics = sequences(OFF, [2, 2], [math.log(1.5), 0.0, math.log(0.5), math.log(1.1)])
    got = metrics.to_dict()
    assert got["clip_high"] == 0.25
    assert got["clip_low"] == 0  # below the clip, but with a positive advantage the clip does not act
    assert got["ratio"] == pytest.approx((1.5 + 1 + 0.5 + 1.1) / 4)
    assert (got["ratio_max"], got["ratio_min"]) == pytest.approx((1.5, 0.5))
    k3 = [r - 1 - math.log(r) for r in (1.5, 1.0, 0.5, 1.1)]
    assert got["approx_kl"] == pytest.approx(sum(k3) / 4)
    _, _, metrics = sequences(LossConfig(), [2], [0, 0], sampler=[0.1, -0.3])
    assert metrics.to_dict()["sampler_diff"] == pytest.approx(0.2)
    assert metrics.to_dict()["sampler_diff_max"] == pytest.approx(0.3)


def test_weights_by_hand() -> None:
    lengths = [1, 3]
    cases = {
        "token-mean": [1 / 4, 1 / 4],
        "seq-mean-token-mean": [1 / 2, 1 / 6],
        "seq-mean-token-sum": [1 / 2, 1 / 2],
        "seq-mean-token-sum-norm": [1 / 20, 1 / 20],
    }
    assert set(cases) == set(AGGREGATIONS)
    for name, expected in cases.items():
        config = LossConfig(aggregation=name, norm_length=10)  # type: ignore[arg-type]
        np.testing.assert_allclose(turn_weights(lengths, config), expected, err_msg=name)
        np.testing.assert_allclose(turn_weights(lengths, config, sample_weights=[0, 2]), [0, 2 * expected[1]])


def test_balanced_agents_own_equal_shares_however_often_they_speak() -> None:
    config = LossConfig(balance_agents=True)
    got = turn_weights([2, 2, 2, 4], config, agents=["a", "a", "a", "b"])
    np.testing.assert_allclose(got, [1 / 12, 1 / 12, 1 / 12, 1 / 8])
    config = LossConfig(balance_agents=True, aggregation="seq-mean-token-mean")
    got = turn_weights([2, 2, 2, 4], config, agents=["a", "a", "a", "b"])
    np.testing.assert_allclose(got * [2, 2, 2, 4], [1 / 6, 1 / 6, 1 / 6, 1 / 2])
    with pytest.raises(ValueError, match="needs the agent"):
        turn_weights([1], config)


def test_wrong_weights_are_errors() -> None:
    with pytest.raises(ValueError, match="no turn"):
        turn_weights([], LossConfig())
    with pytest.raises(ValueError, match="Turn 1 has no completion token"):
        turn_weights([2, 0], LossConfig())
    with pytest.raises(ValueError, match="set norm_length"):
        turn_weights([2], LossConfig(aggregation="seq-mean-token-sum-norm"))
    config = LossConfig(aggregation="seq-mean-token-sum-norm").with_max_tokens(8)
    assert config.norm_length == 8
    assert config.with_max_tokens(9).norm_length == 8


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    aggregation=st.sampled_from(AGGREGATIONS),
    balance=st.booleans(),
    kind=st.sampled_from(["ppo", "cispo", "reinforce"]),
    ratio=st.sampled_from(["token", "sequence"]),
    importance=st.sampled_from(["off", "token", "sequence"]),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_law_the_parts_add_up_to_the_whole(
    lengths: list[int], aggregation: Any, balance: bool, kind: Any, ratio: Any, importance: Any, seed: int, data: Any
) -> None:
    """However turns are ordered and split into micro-batches, losses, gradients and metric sums are the same."""
    config = LossConfig(
        kind=kind, aggregation=aggregation, norm_length=7, balance_agents=balance, ratio=ratio, importance=importance,
        dual_clip=3.0, kl_coef=0.1, entropy_coef=0.01,
    )  # fmt: skip
    rng = torch.Generator().manual_seed(seed)
    agents = [f"agent_{i % 2}" for i in range(len(lengths))]
    weights = torch.from_numpy(turn_weights(lengths, config, agents=agents))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = {
        name: torch.randn(int(offsets[-1]), generator=rng, dtype=torch.float64) * 0.3
        for name in ("old_logprobs", "sampler_logprobs", "ref_logprobs", "advantages")
    }
    logits = torch.randn(int(offsets[-1]), 5, generator=rng, dtype=torch.float64)

    def run(parts: list[list[int]]) -> tuple[float, torch.Tensor, LossMetrics]:
        leaf = logits.clone().requires_grad_()
        total, metrics = 0.0, LossMetrics()
        for part in parts:
            index = torch.cat([torch.arange(offsets[i], offsets[i + 1]) for i in part])
            segments = torch.cat([torch.full((lengths[i],), k) for k, i in enumerate(part)])
            logs = torch.log_softmax(leaf[index], -1)
            loss, found = policy_loss(
                logs[:, 0],
                weights=torch.cat([weights[i].expand(lengths[i]) for i in part]),
                segments=segments,
                config=config,
                entropy=-(logs.exp() * logs).sum(-1),
                **{name: value[index] for name, value in values.items()},
            )
            loss.backward()
            total += float(loss.detach())
            metrics.add(found)
        assert leaf.grad is not None
        return total, leaf.grad, metrics

    whole = run([list(range(len(lengths)))])
    order = data.draw(st.permutations(range(len(lengths))))
    cut = data.draw(st.integers(0, len(order)))
    split = run([list(part) for part in (order[:cut], order[cut:]) if part])
    assert split[0] == pytest.approx(whole[0], abs=1e-12)
    torch.testing.assert_close(split[1], whole[1], rtol=0, atol=1e-12)
    assert split[2].to_dict() == pytest.approx(whole[2].to_dict(), abs=1e-12)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "pppo"}, "Did you mean 'ppo'"),
        ({"aggregation": "token_mean"}, "Did you mean 'token-mean'"),
        ({"ratio": "sequences"}, "Did you mean 'sequence'"),
        ({"importance": "none"}, "one of: off, token, sequence"),
        ({"importance_mode": "trunc"}, "Did you mean 'truncate'"),
        ({"kl_estimator": "k4"}, "k1, k2, k3"),
        ({"clip_low": -0.1}, "clip_low is -0.1"),
        ({"clip_high": math.nan}, "clip_high is nan"),
        ({"dual_clip": 0.5}, "above 1"),
        ({"importance_cap": 0}, "positive"),
        ({"norm_length": 0}, "at least 1"),
    ],
)
def test_unknown_modes_and_bad_numbers(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LossConfig(**fields)
