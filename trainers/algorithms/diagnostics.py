r"""What every run logs about a batch, per agent.

The **inflation factor** is Lemma 4.2 of Dr. MAS (arXiv 2602.08847): if scores are normalised with statistics (μ, σ) of
all agents together, agent k's squared gradient norm is multiplied by (σ_k² + (μ_k − μ)²)/σ², where (μ_k, σ_k) are its
own. It equals the mean square of the agent's globally normalised advantages, and is 1 under agent-wise normalisation.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from trainers.algorithms.advantages import score_turns, statistic_weights
from trainers.algorithms.groups import GroupStatistics
from trainers.algorithms.scores import FloatArray, TurnBatch
from trainers.algorithms.shaping import TurnFacts, overlong_penalties

if TYPE_CHECKING:
    from trainers.algorithms.algorithm import Algorithm
    from trainers.rollout.records import Episode


def batch_metrics(
    episodes: Sequence[Episode],
    algorithm: Algorithm,
    advantages: FloatArray | None = None,
    *,
    weight_versions: Mapping[str, int] | None = None,
    facts: TurnFacts | None = None,
) -> dict[str, float]:
    """Describe a batch of episodes.

    Args:
        episodes: What was collected.
        algorithm: Its score and groups.
        advantages: The result of ``compute_advantages`` on the same episodes, to describe it as well.
        weight_versions: Newest version of each policy's weights, for the lag of the turns.
        facts: What the advantages were computed with beyond the records.

    Returns:
        Flat metrics. Batch: ``episodes``, ``failed_episodes``, ``turns``, ``masked_turns``, ``success`` (of episodes;
        trees have ``path_success``, of a path that was chosen by reward), ``groups``, ``group_size``,
        ``zero_variance`` (share of the algorithm's groups that carry no signal). Per agent under
        ``agent/<name>/``: the last three for its own groups, ``turns``, ``score`` (μ_k), ``score_std`` (σ_k),
        ``score_gap`` (μ_k − μ), ``std_ratio`` (σ_k/σ), ``inflation`` and ``inflation_max`` (over tasks),
        ``advantage_abs``, ``length``, ``length_max``, ``truncated``, ``invalid``, ``reward/<part>`` (per episode),
        ``version_lag``, ``version_lag_max``; means over the turns of what the algorithm uses of ``overlong`` (the
        length penalty), ``kl`` (to the reference, Σ over a turn's tokens) and ``value``.
        A quantity that no group defines (a batch in which all scores are equal has no σ) is left out.
    """
    batch = TurnBatch.of(episodes, facts)
    failed = sum(episode.error is not None for episode in episodes)
    played = [episode for episode in episodes if episode.error is None]
    plain = [episode for episode in played if not episode.tree]
    trees = [episode for episode in played if episode.tree]
    active = np.flatnonzero(batch.active)
    metrics: dict[str, float] = {
        "episodes": len(episodes),
        "failed_episodes": failed,
        "turns": len(batch),
        "masked_turns": len(batch) - active.size,
    }
    if plain:
        metrics["success"] = float(np.mean([episode.success for episode in plain]))
    if trees:
        metrics["path_success"] = float(np.mean([episode.success for episode in trees]))
    if active.size == 0:
        return metrics
    metrics |= _group_metrics(batch, algorithm)
    by_agent: dict[str, list[int]] = defaultdict(list)
    for i in active:
        by_agent[batch.turns[i].agent].append(int(i))
    scores = score_turns(batch, algorithm)
    spread = _spread(batch, scores)
    for agent, indices in sorted(by_agent.items()):
        values = scores[indices]
        found = {"turns": len(indices), "score": values.mean(), "score_std": values.std(), **spread.get(agent, {})}
        if advantages is not None:
            found["advantage_abs"] = np.abs(advantages[indices]).mean()
        turns = [batch.turns[i] for i in indices]
        lengths = [turn.completion_tokens for turn in turns]
        found |= {
            "length": np.mean(lengths),
            "length_max": max(lengths),
            "truncated": np.mean([turn.finish_reason == "length" for turn in turns]),
            "invalid": np.mean([turn.invalid is not None for turn in turns]),
        }
        found |= _fact_metrics(batch, algorithm, indices)
        if weight_versions is not None:
            lags = [
                weight_versions[turn.policy] - turn.weight_version for turn in turns if turn.policy in weight_versions
            ]
            if lags:
                found |= {"version_lag": np.mean(lags), "version_lag_max": max(lags)}
        metrics |= {f"agent/{agent}/{name}": float(value) for name, value in found.items()}
    metrics |= _reward_metrics(played)
    return metrics


def inflation_factor(agent: FloatArray, everyone: FloatArray) -> float:
    """Return (σ_k² + (μ_k − μ)²)/σ² for the scores of one agent and of all agents (population variances).

    Raises:
        ValueError: If either is empty or ``everyone`` has no variance.
    """
    if agent.size == 0 or everyone.size == 0 or not everyone.var() > 0:
        raise ValueError("The inflation factor needs scores of the agent, and scores of all agents that vary")
    return float((agent.var() + (agent.mean() - everyone.mean()) ** 2) / everyone.var())


class GradientSpikes:
    """Remembers gradient norms per agent and says how far the newest stands out.

    Args:
        window: How many past norms the median is taken over.
        bound: Ratio above which :meth:`check` raises; None never raises.
    """

    def __init__(self, window: int = 50, bound: float | None = None) -> None:
        if window < 1:
            raise ValueError(f"window is {window}; the median needs at least one past norm")
        self.window = window
        self.bound = bound
        self._norms: dict[str, deque[float]] = {}

    def check(self, norms: Mapping[str, float]) -> dict[str, float]:
        """Take in the newest norm of each agent and return its ratio to the running median of the earlier ones.

        The ratio is 1 for an agent without a history, and for one whose norms have all been 0.

        Raises:
            GradientSpike: If a ratio is above the bound. The norms are not remembered then.
        """
        ratios = {}
        for agent, norm in norms.items():
            past = self._norms.get(agent)
            usual = median(past) if past else 0.0
            ratios[agent] = norm / usual if usual > 0 else 1.0
            if self.bound is not None and ratios[agent] > self.bound:
                raise GradientSpike(agent, norm, usual, self.bound)
        for agent, norm in norms.items():
            self._norms.setdefault(agent, deque(maxlen=self.window)).append(norm)
        return ratios

    def state_dict(self) -> dict[str, Any]:
        """Return the remembered norms as a plain JSON object."""
        return {"norms": {agent: list(norms) for agent, norms in self._norms.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._norms = {agent: deque(norms, maxlen=self.window) for agent, norms in state["norms"].items()}


class GradientSpike(RuntimeError):
    """An agent's gradient norm stands too far above its usual one."""

    def __init__(self, agent: str, norm: float, usual: float, bound: float) -> None:
        self.agent, self.norm, self.usual, self.bound = agent, norm, usual, bound
        super().__init__(
            f"The gradient norm of agent {agent!r} is {norm:.4g}, {norm / usual:.1f} times its running median "
            f"{usual:.4g} (bound {bound:g}). Look at its scores and inflation factor, lower the learning rate, or "
            "raise the bound"
        )


def _group_metrics(batch: TurnBatch, algorithm: Algorithm) -> dict[str, float]:
    """Count the groups that scores are compared in: the mean groups, or the std groups where no mean is taken."""
    term = algorithm.terms[0]
    keys = term.mean_by if term.mean_by is not None else term.std_by
    if keys is None:
        return {}
    active = np.flatnonzero(batch.active)
    every = batch.keys(keys)
    labels = [every[i] for i in active]
    weights = statistic_weights(batch, term, labels, active)
    groups = GroupStatistics(labels, score_turns(batch, algorithm, term)[active], weights, algorithm.ddof)
    agents = np.array([batch.turns[i].agent for i in active])
    metrics = {}
    for prefix, members in [("", slice(None)), *((f"agent/{a}/", agents == a) for a in sorted(set(agents)))]:
        found = np.unique(groups.of[members])
        metrics[f"{prefix}groups"] = float(found.size)
        metrics[f"{prefix}group_size"] = float(groups.total[found].mean())
        metrics[f"{prefix}zero_variance"] = float(groups.degenerate[found].mean())
    return metrics


def _fact_metrics(batch: TurnBatch, algorithm: Algorithm, indices: list[int]) -> dict[str, float]:
    """Means over the turns of an agent of what the algorithm takes into account beside the rewards."""
    found: dict[str, float] = {}
    if algorithm.overlong == "soft" and batch.facts.max_tokens is not None:
        found["overlong"] = float(overlong_penalties(batch, algorithm)[indices].mean())
    if batch.facts.kl is not None:
        found["kl"] = float(batch.facts.kl[indices].mean())
    if batch.facts.values is not None and np.isfinite(batch.facts.values[indices]).all():
        found["value"] = float(batch.facts.values[indices].mean())
    return found


def _spread(batch: TurnBatch, scores: FloatArray) -> dict[str, dict[str, float]]:
    """Compare each agent's scores with everybody's, task by task, and average over the tasks whose scores vary."""
    active = np.flatnonzero(batch.active)
    values = scores[active]
    agents = np.array([batch.turns[i].agent for i in active])
    tasks = GroupStatistics([batch.turns[i].task for i in active], values, np.ones(active.size), ddof=0)
    rows: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for task in np.flatnonzero(~tasks.degenerate):
        members = tasks.of == task
        everyone = values[members]
        for agent in sorted(set(agents[members])):
            own = values[members & (agents == agent)]
            gap = float(own.mean() - tasks.mean[task])
            rows[agent].append((gap, float(own.std() / tasks.std[task]), inflation_factor(own, everyone)))
    result = {}
    for agent, found in rows.items():
        gap_, ratio, inflation = np.array(found).T
        result[agent] = {
            "score_gap": float(gap_.mean()),
            "std_ratio": float(ratio.mean()),
            "inflation": float(inflation.mean()),
            "inflation_max": float(inflation.max()),
        }
    return result


def _reward_metrics(played: Sequence[Episode]) -> dict[str, float]:
    """Average each agent's reward parts over the episodes it is part of; a part that did not occur is 0 there."""
    totals: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    counts: dict[str, int] = defaultdict(int)
    for episode in played:
        for agent, parts in episode.reward_parts.items():
            counts[agent] += 1
            for name, value in parts.items():
                totals[agent][name] += value
    return {
        f"agent/{agent}/reward/{name}": value / counts[agent]
        for agent, parts in sorted(totals.items())
        for name, value in sorted(parts.items())
    }
