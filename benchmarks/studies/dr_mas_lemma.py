r"""Lemma 4.2 of Dr. MAS measured on a model that plays: real episodes, real rewards, gradients through the learner.

One frozen model plays a few tasks many times, once for every shift of the answerer's rewards. Half of the episodes of a
task predict the factor (σ_k² + (μ_k − μ)²)/σ² of every role, from their scores alone. On the other half the second
moment E‖A·∇log π‖² of every role is measured, with the advantages A of ``step_grpo`` and of ``dr_mas`` and the gradient
of every turn taken by itself; their ratio is the measured factor. Nothing of the prediction enters the measurement.

The lemma takes a score and the length of its gradient to be uncorrelated. Where a model is often right they are not: it
is right where it is sure, and what it is sure of has a short gradient. So everything is measured twice: as played, and
with the outcomes of the episodes of a task dealt out anew among them, which leaves every distribution of scores, and
every gradient, as it is and makes the assumption true.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import llm_envs
from benchmarks.studies.dr_mas_arms import MAX_TOKENS, StudySettings
from benchmarks.studies.dr_mas_search import SEARCH
from llm_envs.rewards import TEAM
from trainers.algorithms.advantages import compute_advantages, score_turns
from trainers.algorithms.diagnostics import inflation_factor
from trainers.algorithms.inflation import InflationPoint, log_log_fit
from trainers.algorithms.loss_config import LossConfig
from trainers.algorithms.presets import presets
from trainers.algorithms.scores import TurnBatch
from trainers.batching import Sample
from trainers.learner import Learner
from trainers.learner_config import LearnerConfig
from trainers.policies.base import Sampling, make_policy
from trainers.rollout.episodes import collect, make_jobs
from trainers.rollout.records import Episode, Turn
from trainers.team import Team

__all__ = ["SHIFTS", "GradientNorms", "measure_lemma"]

SHIFTS = (-4.0, -1.0, 0.0, 0.5, 1.0, 2.0, 8.0)
"""What an answer costs the answerer."""
DEALS = 8
"""How often outcomes are dealt out anew; the moments are means over all of them."""


_Row = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class _Point(InflationPoint):
    """A role under a shift, with the outcomes as ``played`` or as ``dealt`` out anew."""

    shift: float
    outcomes: str


class GradientNorms:
    """Squared norms of ∇ log π of single turns, through the learner that trains; no step changes the weights.

    Args:
        model: Folder of the model.
    """

    def __init__(self, model: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        loss = LossConfig(kind="reinforce", importance="off", aggregation="seq-mean-token-sum")
        config = LearnerConfig(lr=0.0, max_grad_norm=None)
        self._learner = Learner(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32), config, loss)
        self._known: dict[tuple[Any, Any], float] = {}

    def of(self, turns: Sequence[Turn]) -> NDArray[np.float64]:
        """Return ‖∇ log π(turn)‖² of every turn, shape [N]. Equal turns are computed once."""
        return np.array([self._of(turn) for turn in turns])

    def _of(self, turn: Turn) -> float:
        key = (turn.prompt_ids, turn.completion_ids)
        if key not in self._known:
            sample = Sample(turn.prompt_ids or (), turn.completion_ids or (), None, 1.0, turn.agent)
            self._known[key] = self._learner.update([sample]).grad_norm ** 2
        return self._known[key]


def measure_lemma(
    model: Path, settings: StudySettings, shifts: Sequence[float] = SHIFTS, seed: int = 0
) -> dict[str, Any]:
    """Measure every role under every shift.

    Returns:
        ``points``; for either kind of outcomes the ``fit`` over all of them and by role (``slope``, ``r2``), and the
        least and greatest ``agent_wise`` by role.
    """
    norms = GradientNorms(model)
    points: list[_Point] = []
    for shift in shifts:
        episodes = asyncio.run(_play(model, settings, shift, seed))
        rows = _rows(episodes, settings, norms)
        points += _points(rows, shift, "played")
        rng = np.random.default_rng(seed)
        rows = defaultdict(list)
        for _ in range(DEALS):
            _deal(episodes, settings, rng)
            for agent, found in _rows(episodes, settings, norms).items():
                rows[agent] += found
        points += _points(rows, shift, "dealt")
    result: dict[str, Any] = {"tasks": settings.lemma_tasks, "samples": settings.lemma_samples}
    result["points"] = [asdict(point) for point in points]
    for kind in ("played", "dealt"):
        by_role: dict[str, list[_Point]] = defaultdict(list)
        for point in points:
            if point.outcomes == kind:
                by_role[point.agent].append(point)
        fits = {"all": log_log_fit([point for same in by_role.values() for point in same])}
        fits |= {role: log_log_fit(same) for role, same in by_role.items()}
        result[kind] = {
            "fit": {name: {"slope": slope, "r2": r2} for name, (slope, r2) in fits.items()},
            "agent_wise": {
                role: [min(point.agent_wise for point in same), max(point.agent_wise for point in same)]
                for role, same in by_role.items()
            },
        }
    return result


async def _play(model: Path, settings: StudySettings, shift: float, seed: int) -> list[Episode]:
    """Play the first tasks of the test split; the same answers whatever the shift, which no prompt tells."""
    kwargs = {"answer_cost": shift, "task_options": {"min_links": 2, "max_links": 3}}
    env: Any = llm_envs.make(SEARCH, split="test", order_enforcing=False, **kwargs).unwrapped
    team = Team({"all": make_policy(f"hf:{model}")}, {"*": "all"}, {"all": Sampling(1.0, max_tokens=MAX_TOKENS)})
    jobs = make_jobs(range(settings.lemma_tasks), settings.lemma_samples, seed)
    try:
        return await collect(env.fork, team, jobs, concurrency=len(jobs))
    finally:
        await team.close()


def _deal(episodes: Sequence[Episode], settings: StudySettings, rng: np.random.Generator) -> None:
    """Deal the outcomes of a task's episodes out anew among them, in either half."""
    groups: dict[tuple[str, bool], list[Episode]] = defaultdict(list)
    for episode in episodes:
        groups[episode.task, episode.sample < settings.lemma_samples // 2].append(episode)
    for group in groups.values():
        outcomes = [episode.team_return for episode in group]
        for episode, place in zip(group, rng.permutation(len(group)), strict=True):
            for parts in episode.reward_parts.values():
                parts[TEAM] = outcomes[place]


def _rows(episodes: Sequence[Episode], settings: StudySettings, norms: GradientNorms) -> dict[str, list[_Row]]:
    """Of every turn of the second half, by agent: what everybody's statistics make of its gradient, what its own do."""
    half = settings.lemma_samples // 2
    predicted = _predicted([episode for episode in episodes if episode.sample < half])
    measured = [episode for episode in episodes if episode.sample >= half]
    turns = [turn for episode in measured for turn in episode.turns]
    lengths = norms.of(turns).tolist()
    everybody, own = (
        compute_advantages(measured, replace(presets[name], eps=0.0)).tolist() for name in ("step_grpo", "dr_mas")
    )
    found: dict[str, list[_Row]] = defaultdict(list)
    for turn, length, a, b in zip(turns, lengths, everybody, own, strict=True):
        if turn.task in predicted and b != 0:  # a role whose scores are all equal in a task has no σ_k there
            found[turn.agent].append((a * a * length, b * b * length, length, predicted[turn.task][turn.agent]))
    return found


def _points(rows: Mapping[str, Sequence[_Row]], shift: float, outcomes: str) -> list[_Point]:
    count = sum(map(len, rows.values()))
    points = []
    for agent, mine in sorted(rows.items()):
        whole, alone, unit, factor = np.mean(mine, axis=0).tolist()
        points.append(_Point(agent, len(mine) / count, factor, whole / alone, alone / unit, shift, outcomes))
    return points


def _predicted(episodes: Sequence[Episode]) -> dict[str, dict[str, float]]:
    """The lemma's factor by task and agent, of the tasks in which the scores of every agent differ."""
    batch = TurnBatch.of(episodes)
    scores = score_turns(batch, presets["dr_mas"])
    by_task: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for turn, score in zip(batch.turns, scores, strict=True):
        by_task[turn.task][turn.agent].append(float(score))
    factors = {}
    for task, groups in by_task.items():
        if all(np.ptp(values) > 0 for values in groups.values()):
            everyone = np.concatenate([np.array(values) for values in groups.values()])
            factors[task] = {agent: inflation_factor(np.array(values), everyone) for agent, values in groups.items()}
    return factors
