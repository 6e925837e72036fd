"""What an update did: the numbers of its optimiser steps, and the error that ends one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainers.algorithms.losses import LossMetrics
from trainers.batching import Sample

__all__ = ["NonFiniteGradient", "Step", "UpdateMetrics"]


class NonFiniteGradient(RuntimeError):
    """An agent's loss or gradient is NaN or infinite. It was not applied: the weights are those of the last step."""

    def __init__(self, agent: str, step: int, loss: float, norm: float) -> None:
        self.agent, self.step, self.loss, self.norm = agent, step, loss, norm
        super().__init__(
            f"Agent {agent!r} has loss {loss} and gradient norm {norm} at optimiser step {step}; the step was not "
            "taken. Look at this agent's log-probs and advantages, or lower the learning rate"
        )

    def __reduce__(self) -> tuple[type[NonFiniteGradient], tuple[str, int, float, float]]:
        """Say how another process makes the same error."""
        return type(self), (self.agent, self.step, self.loss, self.norm)


@dataclass(frozen=True, slots=True)
class Step:
    """One optimiser step.

    Attributes:
        loss: Its loss.
        norm: Norm of the gradient, before clipping.
        agent_norms: Norm of each agent's own gradient, before clipping.
    """

    loss: float
    norm: float
    agent_norms: dict[str, float]


@dataclass(slots=True)
class UpdateMetrics:
    """What an update did.

    Attributes:
        steps: Optimiser steps taken.
        samples: Turns trained on (once, however many epochs).
        tokens: Completion tokens trained on (once).
        loss: Mean loss of the steps.
        lr: Learning rate of the last step.
        grad_norm: Mean over the steps of the global gradient norm before clipping.
        grad_norm_max: Its maximum.
        agent_grad_norm: Mean over the steps of each agent's gradient norm before clipping (over steps in which the
            agent takes part).
        agent_grad_norm_max: Its maximum.
        mean: Token means of the loss metrics over all agents (see ``policy_loss``).
        agents: The same for each agent.
    """

    steps: int = 0
    samples: int = 0
    tokens: int = 0
    loss: float = 0.0
    lr: float = 0.0
    grad_norm: float = 0.0
    grad_norm_max: float = 0.0
    agent_grad_norm: dict[str, float] = field(default_factory=dict)
    agent_grad_norm_max: dict[str, float] = field(default_factory=dict)
    mean: dict[str, float] = field(default_factory=dict)
    agents: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, float]:
        """Return flat metrics; those of an agent are under ``agent/<name>/``."""
        flat: dict[str, float] = {**self.mean}
        for name in ("steps", "samples", "tokens", "loss", "lr", "grad_norm", "grad_norm_max"):
            flat[name] = getattr(self, name)
        for agent, metrics in self.agents.items():
            flat |= {f"agent/{agent}/{name}": value for name, value in metrics.items()}
            flat[f"agent/{agent}/grad_norm"] = self.agent_grad_norm[agent]
            flat[f"agent/{agent}/grad_norm_max"] = self.agent_grad_norm_max[agent]
        return flat

    @classmethod
    def of(
        cls, samples: Sequence[Sample], steps: Sequence[Step], metrics: Mapping[str, LossMetrics], lr: float
    ) -> UpdateMetrics:
        """Sum up the steps that were taken on ``samples``; ``metrics`` are the loss metrics of each agent."""
        everyone = LossMetrics()
        for agent_metrics in metrics.values():
            everyone.add(agent_metrics)
        norms = {agent: [s.agent_norms[agent] for s in steps if agent in s.agent_norms] for agent in sorted(metrics)}
        return cls(
            steps=len(steps),
            samples=len(samples),
            tokens=sum(len(sample.completion_ids) for sample in samples),
            loss=float(np.mean([step.loss for step in steps])),
            lr=lr,
            grad_norm=float(np.mean([step.norm for step in steps])),
            grad_norm_max=max(step.norm for step in steps),
            agent_grad_norm={agent: float(np.mean(values)) for agent, values in norms.items()},
            agent_grad_norm_max={agent: max(values) for agent, values in norms.items()},
            mean=everyone.to_dict(),
            agents={agent: metrics[agent].to_dict() for agent in norms},
        )
