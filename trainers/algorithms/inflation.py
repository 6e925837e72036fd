r"""Lemma 4.2 of Dr. MAS (arXiv 2602.08847) measured: what everybody's statistics do to one agent's gradient.

With scores normalised by statistics (μ, σ) of all agents together, the second moment of agent k's gradient is
(σ_k² + (μ_k − μ)²)/σ² times what it is with the agent's own (μ_k, σ_k), as far as a score and the length of its policy
gradient are uncorrelated. Here both are computed with the very presets that train (``step_grpo``, ``dr_mas``), for
softmax policies whose gradients are known in closed form, and compared with the factor that the *distributions* of the
rewards predict.

The factor of an agent with a share p of the turns is at most 1/p, since σ² is at least p·(σ_k² + (μ_k − μ)²); a shift
of its rewards alone takes it to (1 − p)/p. So only agents that speak seldom can be inflated much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainers.algorithms.advantages import compute_advantages
from trainers.algorithms.algorithm import Algorithm
from trainers.algorithms.presets import presets
from trainers.rollout.records import Episode, Turn, episode_id

__all__ = ["InflationPoint", "Speaker", "log_log_fit", "measure_inflation", "play", "predicted_inflation"]

ACTIONS = 8


@dataclass(frozen=True, slots=True)
class Speaker:
    """An agent of the experiment.

    Attributes:
        turns: How often it speaks in an episode.
        mean: Mean of its scores, μ_k.
        std: Their standard deviation, σ_k.
    """

    turns: int
    mean: float = 0.0
    std: float = 1.0


@dataclass(frozen=True, slots=True)
class InflationPoint:
    """One agent under one setting of the rewards.

    Attributes:
        agent: Its name.
        share: Its share of the turns.
        predicted: (σ_k² + (μ_k − μ)²)/σ² of the distributions of the rewards.
        inflation: E‖g_k‖² with everybody's statistics over E‖g_k‖² with its own.
        agent_wise: E‖g_k‖² with its own statistics over E‖∇ log π‖²; 1 says that nothing is inflated.
    """

    agent: str
    share: float
    predicted: float
    inflation: float
    agent_wise: float


def predicted_inflation(speakers: Mapping[str, Speaker]) -> dict[str, float]:
    """Return the lemma's factor of every agent, from the distributions of the rewards."""
    share = np.array([speaker.turns for speaker in speakers.values()], dtype=np.float64)
    share /= share.sum()
    mean = np.array([speaker.mean for speaker in speakers.values()])
    square = np.array([speaker.std**2 for speaker in speakers.values()])
    around = square + (mean - share @ mean) ** 2
    return dict(zip(speakers, (around / (share @ around)).tolist(), strict=True))


def measure_inflation(
    speakers: Mapping[str, Speaker],
    *,
    tasks: int = 4,
    samples: int = 64,
    seed: int = 0,
    everybody: Algorithm | None = None,
    own: Algorithm | None = None,
) -> list[InflationPoint]:
    """Play a batch, normalise it in both ways and compare the gradients.

    Args:
        speakers: Who speaks how often, and how it is paid.
        tasks: Groups of the batch.
        samples: Episodes a task.
        seed: Decides everything that is drawn.
        everybody: What normalises with everybody's statistics. Default: ``step_grpo``.
        own: What normalises with the agent's own. Default: ``dr_mas``.
    """
    rng = np.random.default_rng(seed)
    # Half-sized logits leave no action so rare that its score and its gradient would be large together.
    policies = {name: _softmax(0.5 * rng.normal(size=ACTIONS)) for name in speakers}
    episodes = play(speakers, policies, tasks, samples, rng)
    turns = [turn for episode in episodes for turn in episode.turns]
    # log pi is a softmax over actions: its gradient is the action's unit vector less the probabilities.
    gradients = np.array([np.eye(ACTIONS)[int(turn.action)] - policies[turn.agent] for turn in turns])
    lengths = (gradients**2).sum(1)
    agents = np.array([turn.agent for turn in turns])
    squares = {
        name: compute_advantages(episodes, replace(algorithm, eps=0.0)) ** 2 * lengths
        for name, algorithm in (("all", everybody or presets["step_grpo"]), ("own", own or presets["dr_mas"]))
    }
    predicted = predicted_inflation(speakers)
    points = []
    for name in speakers:
        mine = agents == name
        whole, alone = float(squares["all"][mine].mean()), float(squares["own"][mine].mean())
        unit = float(lengths[mine].mean())
        points.append(InflationPoint(name, float(mine.mean()), predicted[name], whole / alone, alone / unit))
    return points


def play(
    speakers: Mapping[str, Speaker],
    policies: Mapping[str, NDArray[np.float64]],
    tasks: int,
    samples: int,
    rng: np.random.Generator,
) -> list[Episode]:
    """Draw episodes in which every agent acts by its policy and is paid by its distribution.

    A tenth of the variance of what it is paid is due to its action, the rest to luck.

    Args:
        speakers: Who speaks how often, and how it is paid.
        policies: Probabilities of every agent's actions.
        tasks: Number of tasks.
        samples: Episodes of each.
        rng: Decides everything.
    """
    worth = {name: _standard(rng.normal(size=len(policy)), policy) for name, policy in policies.items()}
    episodes = []
    for task in range(tasks):
        for sample in range(samples):
            one = Episode(
                id=episode_id(f"task/{task}", sample), env="speakers-v0", task=f"task/{task}", task_index=task,
                task_hash=str(task), sample=sample, seed=sample,
            )  # fmt: skip
            for name, speaker in speakers.items():
                for k in range(speaker.turns):
                    action = int(rng.choice(len(policies[name]), p=policies[name]))
                    luck = np.sqrt(0.1) * worth[name][action] + np.sqrt(0.9) * rng.normal()
                    parts = {"reward": float(speaker.mean + speaker.std * luck)}
                    one.turns.append(
                        Turn(
                            episode=one.id, task=one.task, agent=name, policy=name, index=len(one.turns), agent_turn=k,
                            observation=one.task, action=str(action), reward_parts=parts,
                        )
                    )  # fmt: skip
            for turn in one.turns:
                total = one.reward_parts.setdefault(turn.agent, {"reward": 0.0})
                total["reward"] += turn.reward_parts["reward"]
            episodes.append(one)
    return episodes


def log_log_fit(points: Sequence[InflationPoint]) -> tuple[float, float]:
    """Fit log(inflation) by a line in log(predicted); return its slope and R².

    Raises:
        ValueError: If the predictions do not differ.
    """
    x = np.log([point.predicted for point in points])
    y = np.log([point.inflation for point in points])
    if len(points) < 2 or not x.var() > 0:
        raise ValueError("A slope needs points of different predicted inflation")
    slope = float(np.cov(x, y, ddof=0)[0, 1] / x.var())
    rest = y - y.mean() - slope * (x - x.mean())
    return slope, float(1 - (rest**2).mean() / y.var())


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _standard(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean 0 and variance 1 under the weights."""
    centred = values - weights @ values
    return np.asarray(centred / np.sqrt(weights @ centred**2), dtype=np.float64)
