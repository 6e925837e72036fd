"""Which charts a report has, and which metrics are on each. ``docs/metrics.md`` defines the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SHARE = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart, or one for each agent.

    Attributes:
        title: Its title.
        about: What it shows, in a sentence.
        metrics: Metric name to what its line is called. ``*`` stands for one part of a name, which the line is then
            called by as well.
        unit: Limits by nature.
        log: Whether the scale may be logarithmic.
        reference: A value to mark.
        per_agent: One chart for each agent; the metrics are those of an agent.
    """

    title: str
    about: str
    metrics: Mapping[str, str]
    unit: tuple[float, float] | None = None
    log: bool = False
    reference: float | None = None
    per_agent: bool = False


def match(pattern: str, name: str) -> tuple[str, ...] | None:
    """Return what the ``*`` of the pattern stand for in ``name``, or None if it does not fit.

    >>> match("agent/*/reward/*", "agent/solver_0/reward/team")
    ('solver_0', 'team')
    """
    expected, parts = pattern.split("/"), name.split("/")
    if len(expected) != len(parts) or any(e not in ("*", part) for e, part in zip(expected, parts, strict=True)):
        return None
    return tuple(part for e, part in zip(expected, parts, strict=True) if e == "*")


def _agent(*names: str) -> dict[str, str]:
    return {f"agent/*/{name}": name.replace("_", " ") if len(names) > 1 else "" for name in names}


SECTIONS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Outcome",
        (
            Panel(
                "Success",
                "Share of episodes that solved their task, in training and on held-out tasks.",
                {"train/success": "in training", "eval/success": "held-out"},
                unit=SHARE,
            ),
            Panel(
                "Success of tree paths",
                "Not how the policies play: each path was chosen by reward among several candidates a turn.",
                {"train/path_success": "path chosen by reward"},
                unit=SHARE,
            ),
            Panel(
                "Against the opponent",
                "Share of the evaluation games that were won, drawn, lost, and lost by unusable text; over all seats.",
                {f"eval/{name}": name for name in ("win", "draw", "loss", "forfeit")},
                unit=SHARE,
            ),
            Panel("Wins in each seat", "Share of the evaluation games.", {"eval/*/win": ""}, unit=SHARE),
            Panel(
                "Outcome of the team",
                "Mean of the reward part that is shared by all agents.",
                {"train/team_return": "in training", "eval/team_return": "held-out"},
            ),
            Panel("Return of each agent", "Mean sum of all its rewards in an episode.", _agent("return")),
            Panel(
                "Reward parts of {agent}",
                "Mean sum in an episode of each named part.",
                {"agent/*/reward/*": ""},
                per_agent=True,
            ),
        ),
    ),
    (
        "Gradients",
        (
            Panel(
                "Gradient norm of each agent", "Before clipping, mean over the steps.", _agent("grad_norm"), log=True
            ),
            Panel(
                "Gradient norm of each policy",
                "All agents of the policy together, before clipping.",
                {"policy/*/grad_norm": ""},
                log=True,
            ),
            Panel(
                "Spike ratio",
                "Largest gradient norm of an update over the running median of the earlier ones.",
                _agent("spike_ratio"),
                log=True,
                reference=1.0,
            ),
            Panel(
                "Inflation factor",
                "(σ_k² + (μ_k − μ)²)/σ², Dr. MAS Lemma 4.2: how statistics of all agents together would scale the "
                "squared gradient norm of an agent.",
                _agent("inflation"),
                log=True,
                reference=1.0,
            ),
            Panel("Loss", "Mean over the steps.", {"policy/*/loss": ""}, reference=0.0),
            Panel("Loss of the critic", "Mean over its steps.", {"policy/*/value_loss": ""}),
            Panel(
                "Explained variance",
                "1 − Var(R − V)/Var(R) of the critic before its update: 1 is perfect, 0 no better than a constant.",
                {"policy/*/explained_variance": ""},
                reference=0.0,
            ),
            Panel("Learning rate", "Of the last step.", {"policy/*/lr": ""}),
        ),
    ),
    (
        "Signal",
        (
            Panel(
                "Groups without variance",
                "Share of groups whose scores are all equal, which teach nothing.",
                {"train/zero_variance": "all", **_agent("zero_variance")},
                unit=SHARE,
            ),
            Panel(
                "Group size",
                "Mean number of items in a group.",
                {"train/group_size": "all", **_agent("group_size")},
            ),
            Panel("μ_k − μ", "Mean score of an agent minus that of all agents.", _agent("score_gap"), reference=0.0),
            Panel(
                "σ_k / σ", "Spread of an agent's scores over that of all agents.", _agent("std_ratio"), reference=1.0
            ),
            Panel("Size of advantages", "Mean absolute advantage.", _agent("advantage_abs")),
            Panel(
                "Dynamic sampling",
                "Tasks that were played, and those among them with signal; further rounds that this took.",
                {
                    "train/tasks_played": "tasks played",
                    "train/tasks_with_signal": "tasks with signal",
                    "train/refills": "further rounds",
                },
            ),
        ),
    ),
    (
        "Policy",
        (
            Panel("Entropy", "Mean over the sampled tokens, nats.", _agent("entropy")),
            Panel(
                "Clipped tokens",
                "Share of tokens on which a clip of the loss acts.",
                _agent("clip_low", "clip_high", "dual_clip"),
            ),
            Panel("KL to the start of the update", "k3 estimate, nats a token.", _agent("approx_kl")),
            Panel("KL to the reference model", "Nats a token.", _agent("ref_kl")),
            Panel("Divergence in the reward", "Mean over the turns of Σ (log π − log π_ref).", _agent("kl")),
            Panel(
                "Sampler and learner",
                "Mean |log-prob of the learner − log-prob of the sampler| before the update.",
                _agent("sampler_diff"),
                log=True,
            ),
            Panel(
                "Proof of weights",
                "Largest difference of a log-prob in the check after a sync.",
                {"policy/*/sync_difference": ""},
                log=True,
            ),
            Panel(
                "Version lag",
                "How many versions the weights that wrote a turn are behind the newest.",
                _agent("version_lag", "version_lag_max"),
            ),
        ),
    ),
    (
        "Answers",
        (
            Panel("Length", "Mean tokens of an answer.", _agent("length")),
            Panel(
                "Truncated", "Share of answers that were cut off at the token limit.", _agent("truncated"), unit=SHARE
            ),
            Panel("Invalid", "Share of answers that the environment refused.", _agent("invalid"), unit=SHARE),
            Panel("Turns", "Turns of the batch that counted.", {"train/turns": "all", **_agent("turns")}),
            Panel(
                "Failed episodes",
                "Episodes that could not be played to their end; they are not trained on.",
                {"train/failed_episodes": "in training", "eval/failed_episodes": "held-out"},
            ),
        ),
    ),
    (
        "Time",
        (
            Panel(
                "Seconds by phase",
                "Of each update.",
                {f"time/{name}_s": name for name in ("rollout", "update", "sync", "verify", "evaluation", "total")},
            ),
            Panel("Tokens a second", "Of the rollout, all policies together.", {"time/rollout_tokens_per_s": ""}),
            Panel(
                "Waiting",
                "Seconds in which the learner had no batch, and the rollout no weights, where both overlap.",
                {"time/learner_waited_s": "learner", "time/rollout_waited_s": "rollout"},
            ),
            Panel(
                "Overlap",
                "Share of the learner's time in which a batch was being collected.",
                {"time/overlap_share": ""},
                unit=SHARE,
            ),
        ),
    ),
)
"""Sections and their panels. Metrics that are on none of them follow in a section of their own."""
