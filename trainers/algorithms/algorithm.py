"""An algorithm as data: how to sample, what a turn is worth, what it is compared with, how it is scaled, which loss.

The trainer never asks which algorithm it runs; it reads these fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trainers.algorithms.choices import check_choice
from trainers.algorithms.critic_config import CriticConfig
from trainers.algorithms.loss_config import LossConfig
from trainers.algorithms.scores import KEYS, LOOKING_AHEAD, SCORES

SAMPLING = ("episodes", "tree")
CHOICES = ("argmax", "softmax", "random", "first")
OVERLONG = ("keep", "mask", "soft")
WEIGHTS = ("turn", "episode")

Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Term:
    """One normalised score. An advantage is the sum of one or more of them (GiGPO has two).

    Attributes:
        score: Name of a function in :data:`trainers.algorithms.scores.SCORES`.
        mean_by: Keys (of :data:`trainers.algorithms.scores.KEYS`) that a turn must share with the turns whose mean
            is subtracted from its score; ``()`` is the whole batch, None subtracts nothing.
        std_by: The same for the standard deviation; None divides by nothing.
        weight: What counts once in those statistics: every ``turn``, or each ``episode`` of the group.
        leave_one_out: Scale by n/(n−1), which makes the mean that of the others (RLOO).
        center_first: Take the deviation over the scores *less their mean*, so that what separates the mean groups is
            no part of it (REINFORCE++ with a baseline). Otherwise it is that of the scores.
        coefficient: Factor of this term in the sum.
    """

    score: str = "episode_return"
    mean_by: Keys | None = ("task",)
    std_by: Keys | None = ("task",)
    weight: Literal["turn", "episode"] = "turn"
    leave_one_out: bool = False
    center_first: bool = False
    coefficient: float = 1.0

    def __post_init__(self) -> None:
        check_choice("score", self.score, SCORES)
        check_choice("weight mode", self.weight, WEIGHTS)
        for keys in (self.mean_by, self.std_by):
            for key in keys or ():
                check_choice("group key", key, KEYS)
        if self.leave_one_out and self.mean_by is None:
            raise ValueError("leave_one_out needs a group to leave one out of: set mean_by")
        if self.center_first and (self.mean_by is None or self.std_by is None):
            raise ValueError("center_first is about a deviation of scores less their mean: set mean_by and std_by")


@dataclass(frozen=True, slots=True)
class Baseline:
    """An exponential moving average of scores, remembered from batch to batch (SPIRAL's role-conditioned baseline).

    Attributes:
        by: Keys; one average for each combination of their values.
        decay: b ← decay·b + (1−decay)·score, once for each episode. It starts at 0.
    """

    by: Keys = ("env", "agent")
    decay: float = 0.95

    def __post_init__(self) -> None:
        for key in self.by:
            check_choice("baseline key", key, KEYS)
        if not 0 <= self.decay < 1:
            raise ValueError(f"A baseline's decay is in [0, 1), not {self.decay}")


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A published (or your own) algorithm.

    ``dataclasses.replace(presets["dr_mas"], eps=1e-4)`` is a variant.

    Attributes:
        name: What logs and recipes call it.
        paper: Where it comes from.
        score: See :class:`Term`, as the next five.
        mean_by: Groups for the mean.
        std_by: Groups for the standard deviation.
        weight: What counts once in the statistics.
        leave_one_out: Scale by n/(n−1).
        center_first: Take the deviation over scores less their mean.
        baseline: A moving average that is subtracted from the score first, or None.
        critic: A learned value that is subtracted from the score first, or None. The score is its target:
            ``lambda_return`` (GAE), or one that does not look at values.
        extra: Further terms of the sum.
        team_weight: α, the factor of the shared outcome in every score.
        discount: γ of scores that look ahead, per turn of the same agent.
        penalty_scale: Factor of a turn's penalties, which are added after normalisation.
        fold_penalties: Put the penalties into the score instead, as most published code does.
        overlong: What becomes of answers near or at the token limit (:mod:`trainers.algorithms.shaping`): ``keep``,
            ``mask`` (those that were cut are not trained on) or ``soft`` (a growing length penalty).
        overlong_buffer: Over how many last tokens the soft penalty grows; None: a fifth of the limit.
        kl_in_reward: β of the divergence from the reference model that is taken from a turn's reward. ``loss.kl_coef``
            puts it into the loss instead.
        eps: Added to every standard deviation (TRL: 1e-4, MARTI: 1e-9).
        ddof: 1 divides the squared deviations by n−1, as published code does; 0 by n, as the Dr. MAS paper writes.
        sampling: ``episodes`` (independent ones) or ``tree`` (K candidates for every turn, from the same prompt).
        choose: Which candidate of a tree the episode goes on with (:class:`trainers.rollout.tree.TreeSampling`).
        choose_temperature: Of ``choose="softmax"``.
        loss: The policy loss.
    """

    name: str
    paper: str = ""
    score: str = "episode_return"
    mean_by: Keys | None = ("task",)
    std_by: Keys | None = ("task",)
    weight: Literal["turn", "episode"] = "turn"
    leave_one_out: bool = False
    center_first: bool = False
    baseline: Baseline | None = None
    critic: CriticConfig | None = None
    extra: tuple[Term, ...] = ()
    team_weight: float = 1.0
    discount: float = 1.0
    penalty_scale: float = 1.0
    fold_penalties: bool = False
    overlong: Literal["keep", "mask", "soft"] = "keep"
    overlong_buffer: int | None = None
    kl_in_reward: float = 0.0
    eps: float = 1e-6
    ddof: int = 1
    sampling: Literal["episodes", "tree"] = "episodes"
    choose: Literal["argmax", "softmax", "random", "first"] = "argmax"
    choose_temperature: float = 1.0
    loss: LossConfig = field(default_factory=LossConfig)

    def __post_init__(self) -> None:
        check_choice("sampling", self.sampling, SAMPLING)
        check_choice("choice of candidates", self.choose, CHOICES)
        check_choice("overlong mode", self.overlong, OVERLONG)
        if self.sampling == "tree" and any(term.score in LOOKING_AHEAD for term in self.terms):
            raise ValueError(
                "sampling='tree' needs scores of the turn alone, such as 'turn_reward'; these look beyond it: "
                + ", ".join(sorted(LOOKING_AHEAD))
            )
        _ = self.terms  # checks the names
        if not self.eps >= 0:
            raise ValueError(f"eps is {self.eps}; it must not be negative")
        if self.ddof not in (0, 1):
            raise ValueError(f"ddof is {self.ddof}; it is 0 (divide by n) or 1 (divide by n-1)")
        if not 0 <= self.discount <= 1:
            raise ValueError(f"discount is {self.discount}; it is between 0 and 1")
        if self.overlong_buffer is not None and self.overlong_buffer < 1:
            raise ValueError(f"overlong_buffer is {self.overlong_buffer}; it is a number of tokens, at least 1")
        if not self.kl_in_reward >= 0:
            raise ValueError(f"kl_in_reward is {self.kl_in_reward}; it must not be negative")
        self._check_critic()

    @property
    def terms(self) -> tuple[Term, ...]:
        """All terms of the advantage, the main one first."""
        main = Term(self.score, self.mean_by, self.std_by, self.weight, self.leave_one_out, self.center_first)
        return (main, *self.extra)

    @property
    def needs_reference(self) -> bool:
        """Whether a reference model is part of the algorithm, in the loss or in the reward."""
        return self.kl_in_reward > 0 or self.loss.kl_coef > 0

    def _check_critic(self) -> None:
        scores = [term.score for term in self.terms]
        if self.critic is None and "lambda_return" in scores:
            raise ValueError("score='lambda_return' is made of a critic's values: set critic=CriticConfig()")
        if self.critic is not None and self.baseline is not None:
            raise ValueError("A critic and a baseline would both be subtracted from the score: choose one")
        if self.critic is not None and self.sampling == "tree":
            raise ValueError(
                "A critic learns what follows a turn, which a candidate of a tree does not have: sample episodes"
            )
