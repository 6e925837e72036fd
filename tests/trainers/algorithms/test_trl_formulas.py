"""Equality with TRL 1.16's published formulas on random data.

The functions here follow `GRPOTrainer` and `RLOOTrainer` of TRL (trl/trainer/grpo_trainer.py and rloo_trainer.py),
written again on their own data layout (rewards in a row, `num_generations` neighbours to a prompt) and in torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from trainers.algorithms.advantages import compute_advantages
from trainers.algorithms.loss_config import LossConfig
from trainers.algorithms.losses import policy_loss, turn_weights
from trainers.algorithms.presets import presets
from trainers.rollout.records import Episode

PROMPTS, GENERATIONS = 5, 6
Build = Callable[..., Episode]


def trl_grpo(rewards: torch.Tensor, *, scale: str, eps: float = 1e-4) -> torch.Tensor:
    grouped = rewards.view(-1, GENERATIONS)
    mean = grouped.nanmean(dim=1).repeat_interleave(GENERATIONS)
    advantages = rewards - mean
    if scale == "group":
        deviation = grouped.var(dim=1, unbiased=True).sqrt().repeat_interleave(GENERATIONS)
        advantages = advantages / (deviation + eps)
    elif scale == "batch":
        advantages = advantages / (rewards.std(unbiased=True) + eps)
    return advantages


def trl_rloo(rewards: torch.Tensor) -> torch.Tensor:
    grouped = rewards.view(-1, GENERATIONS)
    baselines = (grouped.sum(dim=1, keepdim=True) - grouped) / (GENERATIONS - 1)
    return rewards - baselines.view(-1)


def _data(episode: Build, seed: int) -> tuple[torch.Tensor, list[Episode]]:
    rewards = torch.from_numpy(np.random.default_rng(seed).normal(size=PROMPTS * GENERATIONS))
    episodes = [
        episode(f"t{i // GENERATIONS}", i % GENERATIONS, [("solver_0", {"team": float(r)})])
        for i, r in enumerate(rewards)
    ]
    return rewards, episodes


@pytest.mark.parametrize("seed", range(5))
def test_advantages(episode: Build, seed: int) -> None:
    rewards, episodes = _data(episode, seed)
    cases = {
        "grpo": trl_grpo(rewards, scale="group"),
        "dr_grpo": trl_grpo(rewards, scale="none"),
        "rloo": trl_rloo(rewards),
    }
    for name, expected in cases.items():
        got = compute_advantages(episodes, replace(presets[name], eps=1e-4))
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-12, atol=1e-12, err_msg=name)
    batch = replace(presets["grpo"], std_by=(), eps=1e-4)
    np.testing.assert_allclose(
        compute_advantages(episodes, batch), trl_grpo(rewards, scale="batch").numpy(), rtol=1e-12
    )


def trl_loss(
    logps: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    loss_type: str,
    *,
    level: str = "token",
    ref: torch.Tensor | None = None,
    beta: float = 0.0,
    low: float = 0.2,
    high: float = 0.2,
    max_completion_length: int = 0,
) -> torch.Tensor:
    """`GRPOTrainer._compute_loss` on padded [B, T] tensors, for one accumulation step on one process."""
    log_ratio = logps - old
    if level == "sequence":
        log_ratio = ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)
    coef = torch.exp(log_ratio)
    a = advantages.unsqueeze(1)
    if loss_type == "cispo":
        per_token = -torch.clamp(coef, max=high).detach() * a * logps
    else:
        per_token = -torch.min(coef * a, torch.clamp(coef, 1 - low, 1 + high) * a)
    if beta and ref is not None:
        per_token = per_token + beta * (torch.exp(ref - logps) - (ref - logps) - 1)
    if loss_type == "grpo":
        return ((per_token * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
    if loss_type == "dr_grpo":
        return (per_token * mask).sum() / (per_token.size(0) * max_completion_length)
    return (per_token * mask).sum() / mask.sum()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("loss_type", "level", "config"),
    [
        ("grpo", "token", LossConfig(aggregation="seq-mean-token-mean", importance="off")),
        ("grpo", "sequence", LossConfig(aggregation="seq-mean-token-mean", ratio="sequence", importance="off")),
        ("dr_grpo", "token", LossConfig(aggregation="seq-mean-token-sum-norm", norm_length=32, importance="off")),
        ("dapo", "token", LossConfig(aggregation="token-mean", clip_high=0.28, importance="off")),
        ("cispo", "token", LossConfig(kind="cispo", clip_low=1.0, clip_high=0.5, importance="off")),
        ("grpo", "token", LossConfig(aggregation="seq-mean-token-mean", importance="off", kl_coef=0.1)),
    ],
)
def test_losses_and_gradients(seed: int, loss_type: str, level: str, config: LossConfig) -> None:
    rng = torch.Generator().manual_seed(seed)
    lengths = [3, 7, 1, 5]
    mask = torch.tensor([[1.0] * n + [0.0] * (7 - n) for n in lengths], dtype=torch.float64)
    logps = -torch.rand(4, 7, generator=rng, dtype=torch.float64) * 3
    old = logps + 0.4 * torch.randn(4, 7, generator=rng, dtype=torch.float64)
    ref = logps + 0.4 * torch.randn(4, 7, generator=rng, dtype=torch.float64)
    advantages = torch.randn(4, generator=rng, dtype=torch.float64)

    theirs = logps.clone().requires_grad_()
    # TRL's epsilon_high is the cap itself for CISPO, and the distance from 1 elsewhere.
    high = 1 + config.clip_high if loss_type == "cispo" else config.clip_high
    expected = trl_loss(
        theirs, old, advantages, mask, loss_type, level=level, ref=ref, beta=config.kl_coef, high=high,
        max_completion_length=32,
    )  # fmt: skip
    expected.backward()

    ours = logps.clone().requires_grad_()
    rows = torch.repeat_interleave(torch.arange(4), torch.tensor(lengths))
    weights = torch.from_numpy(turn_weights(lengths, config))
    got, _ = policy_loss(
        ours[mask.bool()],
        advantages=advantages[rows],
        weights=weights[rows],
        segments=rows,
        config=config,
        old_logprobs=old[mask.bool()],
        ref_logprobs=ref[mask.bool()],
    )
    got.backward()
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-14)
