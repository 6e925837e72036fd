"""What an update computes: facts, advantages, gradients, critics. Blocking, and without an event loop."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainers.algorithms.advantages import compute_advantages, make_baseline
from trainers.algorithms.algorithm import Algorithm
from trainers.algorithms.diagnostics import GradientSpikes, batch_metrics
from trainers.algorithms.shaping import TurnFacts
from trainers.batching import Sample, samples_by_policy
from trainers.measuring import fit_critics, measure
from trainers.members import Member
from trainers.rollout.records import Episode
from trainers.run_metrics import learner_metrics, rollout_metrics

if TYPE_CHECKING:
    from trainers.learner_api import PolicyLearner

__all__ = ["Compared", "Updater"]


@dataclass(frozen=True, slots=True)
class Compared:
    """A batch whose turns were compared with each other, before anything has learned from it.

    Attributes:
        facts: What only models can say of the turns.
        advantages: Of all turns, shape [N].
        metrics: What is logged of the batch.
    """

    facts: TurnFacts
    advantages: NDArray[np.float64]
    metrics: dict[str, float]


class Updater:
    """Compares the turns of a batch and lets the policies learn from it, one update after the other.

    Args:
        algorithm: How turns are compared.
        max_gradient_spike: Stop when an agent's gradient norm exceeds its running median by this factor, or never.
    """

    def __init__(self, algorithm: Algorithm, max_gradient_spike: float | None) -> None:
        self._algorithm = algorithm
        self._baseline = make_baseline(algorithm)
        self._spikes = GradientSpikes(bound=max_gradient_spike)

    def compare(
        self,
        episodes: list[Episode],
        members: Mapping[str, Member],
        learning: Collection[str],
        versions: Mapping[str, int],
    ) -> Compared:
        """Find out what each turn of a batch was worth.

        Args:
            episodes: What was collected.
            members: The policies of the run.
            learning: Those that are to learn from it.
            versions: Version of each policy's weights now, for the lag of the turns.
        """
        facts = measure(episodes, self._algorithm, members, learning)
        advantages = compute_advantages(episodes, self._algorithm, baseline=self._baseline, facts=facts)
        found = batch_metrics(episodes, self._algorithm, advantages, weight_versions=versions, facts=facts)
        return Compared(facts, advantages, rollout_metrics(episodes, found))

    def learn(
        self,
        episodes: Sequence[Episode],
        compared: Compared,
        members: Mapping[str, Member],
        learning: Collection[str],
        kept: NDArray[np.bool_] | None,
    ) -> dict[str, float]:
        """Update the policies whose turn it is on what they played. A policy without signal is left as it is.

        Args:
            episodes: What was collected.
            compared: What :meth:`compare` said of it.
            members: The policies of the run.
            learning: Those that learn.
            kept: Which turns the update is made of, shape [N]; None is all.

        Returns:
            Metrics.

        Raises:
            NonFiniteGradient: An agent's gradient is not finite.
            GradientSpike: An agent's gradient norm stands out by more than the bound.
        """
        acting = {name: members[name] for name in learning}
        learners = {name: member.learner for name, member in acting.items() if member.learner is not None}
        turns = [turn for episode in episodes for turn in episode.turns]
        samples = samples_by_policy(turns, compared.advantages, learners, kept)
        metrics: dict[str, float] = {}
        norms: dict[str, float] = {}
        for name, learner in learners.items():
            batch, settings = samples[name], acting[name].config
            if batch and _has_signal(batch, learner):
                done = learner.update(batch, epochs=settings.epochs, minibatches=min(settings.minibatches, len(batch)))
                metrics |= learner_metrics(name, done)
                norms |= done.agent_grad_norm_max
        metrics |= fit_critics(episodes, self._algorithm, members, learning, compared.facts)
        ratios = self._spikes.check(norms)
        return metrics | {f"agent/{agent}/spike_ratio": ratio for agent, ratio in ratios.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return moving averages and past gradient norms as a plain JSON object."""
        return {
            "baseline": None if self._baseline is None else self._baseline.state_dict(),
            "spikes": self._spikes.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._spikes.load_state_dict(state["spikes"])
        if self._baseline is not None:
            self._baseline.load_state_dict(state["baseline"])


def _has_signal(batch: list[Sample], learner: PolicyLearner) -> bool:
    """Whether the loss has a gradient: some advantage is not 0, or a term of the loss does without advantages."""
    return learner.loss.kl_coef > 0 or learner.loss.entropy_coef > 0 or any(sample.advantage for sample in batch)
