"""The arms of the Dr. MAS study, and the settings that they are compared in, as training configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.studies.dr_mas_search import SEARCH
from trainers.config import TrainConfig, load_config

__all__ = ["ARMS", "REGIMES", "ROLES", "SWEEP_ARMS", "Arm", "Regime", "StudySettings", "train_config"]

ROLES = ("verifier", "searcher", "answerer")
MAX_TOKENS = 3
"""Of an answer: one word and the end, and one to spare."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to compare turns. Everything else, the loss included, is the same in all arms.

    Attributes:
        label: What tables call it.
        preset: The algorithm.
        overrides: What differs from it.
        balance: Weight 1/n_agent in the loss; it means something where roles share a policy only.
    """

    label: str
    preset: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    balance: bool = False


ARMS: Mapping[str, Arm] = {
    "grpo": Arm("`grpo`: episode return, an episode counts once", "grpo"),
    "grpo_turns": Arm("`grpo_turns`: episode return, every turn counts", "grpo", {"weight": "turn"}),
    "step_grpo": Arm("`step_grpo`: (μ, σ)", "step_grpo"),
    "agent_mean": Arm("`agent_mean`: (μ_k, σ)", "dr_mas_agent_mean_task_std"),
    "agent_std": Arm("`agent_std`: (μ, σ_k)", "dr_mas_task_mean_agent_std"),
    "dr_mas": Arm("`dr_mas`: (μ_k, σ_k)", "dr_mas"),
    "step_grpo_balanced": Arm("`step_grpo_balanced`: (μ, σ), loss weight 1/n_agent", "step_grpo", balance=True),
    "dr_mas_balanced": Arm("`dr_mas_balanced`: (μ_k, σ_k), loss weight 1/n_agent", "dr_mas", balance=True),
}
SWEEP_ARMS = ("step_grpo", "agent_std", "dr_mas")
"""Arms of the regimes that only search for spikes and collapses."""


@dataclass(frozen=True, slots=True)
class Regime:
    """What the arms are compared in.

    Attributes:
        label: What tables call it.
        every_arm: Run all arms, and not just those of the sweep.
        shared: One policy plays all roles; else one a role.
        answer_cost: What a call costs the answerer, the rare role: a shift of its rewards.
        search_cost: What a call costs the searcher.
        wrong_cost: What a wrong answer costs the answerer.
        links: Least and most links of a task: how long episodes are, how rare the answerer and how sparse success.
        learning_rate: AdamW's.
        minibatches: Optimiser steps an update.
        updates: Updates of a run.
    """

    label: str
    every_arm: bool = False
    shared: bool = False
    answer_cost: float = 0.0
    search_cost: float = 0.0
    wrong_cost: float = 0.0
    links: tuple[int, int] = (2, 4)
    learning_rate: float = 1e-3
    minibatches: int = 1
    updates: int = 20

    def env_kwargs(self) -> dict[str, Any]:
        """Arguments of the environment."""
        costs = {name: getattr(self, name) for name in ("answer_cost", "search_cost", "wrong_cost")}
        return costs | {"task_options": {"min_links": self.links[0], "max_links": self.links[1]}}

    def arms(self) -> list[str]:
        """Names of the arms that are run; a balance of agents means something only where they share a policy."""
        if not self.every_arm:
            return list(SWEEP_ARMS)
        return [name for name, arm in ARMS.items() if self.shared or not arm.balance]


REGIMES: Mapping[str, Regime] = {
    # All arms: rewards that hardly differ between the roles, and rewards of the rare role that are shifted by twice the
    # outcome.
    "mild": Regime("cost .05, one policy a role", every_arm=True, answer_cost=0.05),
    "mild_shared": Regime("cost .05, shared policy", every_arm=True, answer_cost=0.05, shared=True),
    "shift": Regime("cost 2, one policy a role", every_arm=True, answer_cost=2.0),
    "shift_shared": Regime("cost 2, shared policy", every_arm=True, answer_cost=2.0, shared=True),
    # One thing changed at a time; one policy a role.
    "shift_8": Regime("cost 8", answer_cost=8.0),
    "shift_up": Regime("cost −2: the rare role is paid", answer_cost=-2.0),
    "search_cost": Regime("cost 2 for the searcher, who is called often", search_cost=2.0),
    "wrong_2": Regime("a wrong answer costs 2", wrong_cost=2.0),
    "wrong_8": Regime("a wrong answer costs 8", wrong_cost=8.0),
    "rate_4": Regime("cost 2, learning rate × 4", answer_cost=2.0, learning_rate=4e-3),
    "rate_16": Regime("cost 2, learning rate × 16", answer_cost=2.0, learning_rate=1.6e-2),
    "steps_8": Regime("cost 2, 8 steps an update", answer_cost=2.0, minibatches=8),
    "sparse": Regime("cost 2, 5 to 6 links", answer_cost=2.0, links=(5, 6)),
    "long": Regime("cost 2, 60 updates", answer_cost=2.0, updates=60),
    # Much of it at once.
    "harsh": Regime("cost 8, rate × 4, 8 steps", answer_cost=8.0, learning_rate=4e-3, minibatches=8),
    "harsh_shared": Regime(
        "cost 8, rate × 4, 8 steps, shared policy", answer_cost=8.0, learning_rate=4e-3, minibatches=8, shared=True
    ),
}
"""The grid, written down before any of it was run. Every point is reported."""


@dataclass(frozen=True, slots=True)
class StudySettings:
    """What is the same in all runs. Everything here is part of a result's identity.

    Attributes:
        tasks: Tasks an update.
        samples: Episodes a task: the group.
        eval_tasks: Held-out tasks.
        hidden: Width of the model.
        layers: Its layers.
        init_std: Of its first weights.
        demo_tasks: Tasks that the crew demonstrates.
        skill: How often one of the crew does the right thing.
        sft_epochs: Passes over the demonstrations.
        sft_learning_rate: Peak.
        lemma_tasks: Tasks that the lemma is measured on.
        lemma_samples: Episodes of each.
    """

    tasks: int = 12
    samples: int = 8
    eval_tasks: int = 400
    hidden: int = 64
    layers: int = 2
    init_std: float = 0.1
    demo_tasks: int = 1500
    skill: float = 0.75
    sft_epochs: int = 4
    sft_learning_rate: float = 5e-3
    lemma_tasks: int = 6
    lemma_samples: int = 128


def train_config(arm: Arm, regime: Regime, settings: StudySettings, model: Path, seed: int) -> TrainConfig:
    """The training run of an arm in a regime.

    Loss of the Dr. MAS release in all arms: token mean, clip .2, dual clip 3, gradients clipped to norm 1, no KL, no
    entropy.

    Args:
        arm: How turns are compared.
        regime: In what.
        settings: The study.
        model: The warm start.
        seed: Of tasks and sampling; arms of one seed begin with the same episodes.
    """
    policy = {
        "model": str(model),
        "backend": "hf",
        "learning_rate": regime.learning_rate,
        "minibatches": regime.minibatches,
        "micro_batch_tokens": 16384,
        "sampling": {"temperature": 1.0, "max_tokens": MAX_TOKENS},
    }
    loss = {"aggregation": "token-mean", "dual_clip": 3.0, "balance_agents": arm.balance}
    return load_config(
        {
            "env": {"id": SEARCH, "split": "train", "kwargs": regime.env_kwargs()},
            "algorithm": {"preset": arm.preset, "overrides": dict(arm.overrides), "loss": loss},
            "policies": dict.fromkeys(("all",) if regime.shared else ROLES, policy),
            "updates": regime.updates,
            "tasks_per_update": settings.tasks,
            "samples_per_task": settings.samples,
            "concurrency": settings.tasks * settings.samples,
            "seed": seed,
            "verify_every": regime.updates,
            "threads": 1,
            "checkpoint": {"every": regime.updates, "keep": 1},
        }
    )
