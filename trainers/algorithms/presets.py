"""The published algorithms, by name. Each is one value of :class:`~trainers.algorithms.algorithm.Algorithm`."""

from __future__ import annotations

from dataclasses import replace

from trainers.algorithms.algorithm import Algorithm, Baseline, Term
from trainers.algorithms.choices import check_choice
from trainers.algorithms.critic_config import CriticConfig
from trainers.algorithms.loss_config import LossConfig

_GRPO = "GRPO: DeepSeekMath, arXiv 2402.03300"
_RPP = "REINFORCE++, arXiv 2501.03262"
_DR_MAS = "Dr. MAS, arXiv 2602.08847"

# The loss of the Dr. MAS release: token mean, clip 0.2, dual clip 3, no KL, no entropy
# (github.com/langfengQ/DrMAS, examples/drmas_trainer/run_math.sh over verl/trainer/config/ppo_trainer.yaml).
_DR_MAS_LOSS = LossConfig(aggregation="token-mean", dual_clip=3.0)


def _dr_mas(name: str, mean_by: tuple[str, ...], std_by: tuple[str, ...]) -> Algorithm:
    return Algorithm(
        name=name,
        paper=_DR_MAS,
        score="team_and_turn",
        mean_by=mean_by,
        std_by=std_by,
        weight="turn",
        loss=_DR_MAS_LOSS,
    )


_ALL = (
    Algorithm(
        name="grpo",
        paper=_GRPO,
        score="episode_return",
        weight="episode",
        loss=LossConfig(aggregation="seq-mean-token-mean"),
    ),
    Algorithm(
        name="dr_grpo",
        paper="Dr. GRPO: Understanding R1-Zero-Like Training, arXiv 2503.20783",
        score="episode_return",
        std_by=None,
        weight="episode",
        loss=LossConfig(aggregation="seq-mean-token-sum-norm"),
    ),
    Algorithm(
        name="rloo",
        paper="RLOO: Back to Basics, arXiv 2402.14740",
        score="episode_return",
        std_by=None,
        weight="episode",
        leave_one_out=True,
        loss=LossConfig(aggregation="seq-mean-token-sum"),
    ),
    _dr_mas("dr_mas", ("task", "agent"), ("task", "agent")),
    _dr_mas("dr_mas_task_mean_task_std", ("task",), ("task",)),
    _dr_mas("dr_mas_agent_mean_task_std", ("task", "agent"), ("task",)),
    _dr_mas("dr_mas_task_mean_agent_std", ("task",), ("task", "agent")),
    replace(
        _dr_mas("step_grpo", ("task",), ("task",)),
        paper="Control: Dr. MAS without agent identity (its task/task cell), GRPO with every turn counting",
    ),
    # Agent- and turn-wise groups: the K candidates of one turn, which share their prompt. With one tree a task these
    # are the groups (task, agent, turn) of the paper; several trees of a task have come by different states.
    # Penalties are part of a candidate's score, as published: candidates are compared by what their step paid, and one
    # that was refused (0, its penalty added later and unscaled) would beat a move that costs something.
    # The loss of the release: clip 0.2, token mean, no KL, no entropy (github.com/pettingllms-ai/PettingLLMs).
    Algorithm(
        name="at_grpo",
        paper="AT-GRPO: Stronger-MAS, arXiv 2510.11062",
        score="turn_reward",
        mean_by=("episode", "agent", "turn"),
        std_by=("episode", "agent", "turn"),
        fold_penalties=True,
        sampling="tree",
        loss=LossConfig(aggregation="token-mean"),
    ),
    # Equations 3 to 8 with gamma .95 and omega 1, as published (github.com/langfengQ/verl-agent, examples). An episode
    # counts once among the episodes of its task (equation 3; the release counts it once for each step by default). The
    # deviation is the paper's F_norm = std; std_by=None, also in the term, is its F_norm = 1. A state seen once has no
    # step advantage. Observations hold what was said before, so equal ones have equal histories.
    Algorithm(
        name="gigpo",
        paper="GiGPO, arXiv 2505.10978",
        score="episode_return",
        mean_by=("task", "agent"),
        std_by=("task", "agent"),
        weight="episode",
        extra=(
            Term(
                score="reward_to_go",
                mean_by=("task", "agent", "observation"),
                std_by=("task", "agent", "observation"),
            ),
        ),
        discount=0.95,
        loss=LossConfig(aggregation="token-mean", dual_clip=3.0),
    ),
    # Section 3: return-to-go with gamma 1, whitened over the batch; its KL to the reference is part of the reward
    # (`kl_in_reward`, published with .01 and off here as everywhere). Released code runs over the tokens of one
    # sequence, where verl's cuts the return at every observation; here turns pass it on through whatever lies between
    # them, and the batch is whitened over turns.
    Algorithm(
        name="reinforce_pp",
        paper=_RPP,
        score="reward_to_go",
        mean_by=(),
        std_by=(),
        loss=LossConfig(aggregation="token-mean"),
    ),
    # Its variant for several samples a task: less the task's mean, then whitened with the deviation of what is left.
    Algorithm(
        name="reinforce_pp_baseline",
        paper=_RPP,
        score="reward_to_go",
        mean_by=("task",),
        std_by=(),
        center_first=True,
        loss=LossConfig(aggregation="token-mean"),
    ),
    # Role-conditioned advantages: decay .95, averages from 0, gamma 1, no deviation, sums over a constant length
    # (github.com/spiral-rl/spiral, train_spiral.py). A role is a seat of an environment: the key is the agent, since
    # player_0 and player_1 differ in nothing but their number. Self-play is one policy in all roles.
    Algorithm(
        name="rae",
        paper="SPIRAL, arXiv 2506.24119",
        score="team_and_turn",
        mean_by=None,
        std_by=None,
        baseline=Baseline(by=("env", "agent"), decay=0.95),
        loss=LossConfig(aggregation="seq-mean-token-sum-norm"),
    ),
    # PPO with generalised advantages on the level of turns: gamma 1 as in every release for language models; lambda .95
    # (TRL; verl and OpenRLHF have 1). They whiten the batch too: mean_by=(), std_by=().
    Algorithm(
        name="gae",
        paper="GAE, arXiv 1506.02438, with PPO, arXiv 1707.06347",
        score="lambda_return",
        mean_by=None,
        std_by=None,
        critic=CriticConfig(lam=0.95),
        loss=LossConfig(aggregation="token-mean"),
    ),
)

presets: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in _ALL}
"""Every preset by name. ``dr_mas`` is the cell with the agent's own mean and deviation; the three others are its
ablation, with *true* task-wide statistics (over the turns of all agents) where the name says ``task``."""


def get_algorithm(name: str) -> Algorithm:
    """Return a preset.

    Raises:
        ValueError: If there is none of that name, with the nearest one.
    """
    return presets[check_choice("algorithm", name, presets)]
