"""The configuration of a training run: typed, from YAML with command-line overrides.

A recipe is one YAML file of these fields. An unknown key is an error that suggests the right one, so a typing mistake
never trains with a default. ``llm-train --config RECIPE updates=10 policies.solver.learning_rate=1e-5`` overrides.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from trainers.algorithms.algorithm import Algorithm, Baseline, Term
from trainers.algorithms.critic_config import CriticConfig
from trainers.algorithms.loss_config import LossConfig
from trainers.algorithms.presets import get_algorithm
from trainers.cluster_config import ClusterConfig
from trainers.config_checks import Section, changed, check_fields, check_staleness, explain
from trainers.policies.base import PolicySpecError, parse_spec
from trainers.policy_config import SCRIPTED, LoraConfig, PolicyConfig, SamplingConfig
from trainers.recipe_files import ConfigError, override, read_recipe, recipe_names, separate
from trainers.serving_config import ServingConfig, check_serving

__all__ = [
    "AlgorithmConfig",
    "AlternateConfig",
    "CheckpointConfig",
    "ClusterConfig",
    "ConfigError",
    "EnvConfig",
    "EvalConfig",
    "LoraConfig",
    "PolicyConfig",
    "RecordConfig",
    "SamplingConfig",
    "ServingConfig",
    "TrainConfig",
    "load_config",
    "recipe_names",
]

_POLICY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # names files, folders and metrics


class EnvConfig(Section):
    """What is played.

    Attributes:
        id: A registered environment, such as ``math-2agent``.
        tasks: A task set or a file; None is the environment's own default.
        split: The split to train on; None for an environment without splits, such as a game.
        kwargs: Further arguments of the environment.
    """

    id: str
    tasks: str | None = None
    split: str | None = "train"
    kwargs: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> EnvConfig:
        for name in ("tasks", "split"):
            if name in self.kwargs:
                raise ConfigError(f"env.kwargs.{name} would take the place of env.{name}: set that one")
        return self

    def arguments(self, **changes: str | None) -> dict[str, Any]:
        """The keyword arguments for :func:`llm_envs.make`, with other ``tasks`` or another ``split`` if given."""
        given = {"tasks": self.tasks, "split": self.split, **changes}
        return {**{name: value for name, value in given.items() if value is not None}, **self.kwargs}


class AlgorithmConfig(Section):
    """Which algorithm, and what differs from its preset.

    Attributes:
        preset: A name of :data:`trainers.algorithms.presets.presets`.
        loss: Fields of :class:`~trainers.algorithms.loss_config.LossConfig` that differ from the preset's loss.
        overrides: Fields of :class:`~trainers.algorithms.algorithm.Algorithm` that differ from the preset.
    """

    preset: str = "dr_mas"
    loss: dict[str, Any] = Field(default_factory=dict)
    overrides: dict[str, Any] = Field(default_factory=dict)

    def build(self) -> Algorithm:
        """The algorithm as data.

        Raises:
            ConfigError: The preset, a field or a value does not exist.
        """
        try:
            preset = get_algorithm(self.preset)
        except ValueError as problem:
            raise ConfigError(f"algorithm.preset: {problem}") from problem
        if "loss" in self.overrides:
            raise ConfigError("algorithm.overrides.loss: fields of the loss go under algorithm.loss")
        check_fields("algorithm.overrides", self.overrides, Algorithm)
        check_fields("algorithm.loss", self.loss, LossConfig)
        if isinstance(baseline := self.overrides.get("baseline"), Mapping):
            check_fields("algorithm.overrides.baseline", baseline, Baseline)
        if isinstance(critic := self.overrides.get("critic"), Mapping):
            check_fields("algorithm.overrides.critic", critic, CriticConfig)
        for term in self.overrides.get("extra") or ():
            if isinstance(term, Mapping):
                check_fields("algorithm.overrides.extra", term, Term)
        loss = changed("algorithm.loss", preset.loss, self.loss)
        return changed("algorithm.overrides", dataclasses.replace(preset, loss=loss), self.overrides)


class CheckpointConfig(Section):
    """When the state of the run is saved, and how much of it is kept.

    Attributes:
        every: Save after so many updates; the last update is always saved.
        keep: Keep so many of the newest checkpoints.
    """

    every: int = Field(10, ge=1)
    keep: int = Field(2, ge=1)


class RecordConfig(Section):
    """Which of the episodes, or trees, that are trained on are written to ``episodes.jsonl`` for people to read.

    Attributes:
        every: Record the first update, the last, and every so many; 0 records none.
        episodes: The first so many of the batch: all samples of its first task, then those of the next.
        max_mib: Room for one update, in MiB. An episode that would not fit is left out.
    """

    every: int = Field(10, ge=0)
    episodes: int = Field(8, ge=1)
    max_mib: float = Field(4.0, gt=0)


class EvalConfig(Section):
    """Evaluation during training, on held-out tasks or against an opponent. Policies are sampled as in training.

    Attributes:
        every: Evaluate before the first update and after so many; 0 never does.
        tasks: How many tasks of the test split, the first ones; of a game: deals.
        samples: Episodes a task.
        task_set: Another task set, or file, than the one that is trained on (which may have no other split).
        split: The split; a local file has none of its own, so it is divided by content. None is the whole of it. Tasks
            that are trained on are refused. Without effect where there is an opponent.
        opponent: For a zero-sum game, which has no split to hold out: a scripted player (``random``, ``minimax``,
            ``mcts:sims=500``, ``oracle``). Every seat that a policy learns to play is played by it against this one,
            and wins, draws and losses are counted.
    """

    every: int = Field(0, ge=0)
    tasks: int = Field(64, ge=1)
    samples: int = Field(1, ge=1)
    task_set: str | None = None
    split: str | None = "test"
    opponent: str | None = None

    @model_validator(mode="after")
    def _check(self) -> EvalConfig:
        if self.opponent is None:
            return self
        if self.task_set is not None:
            raise ValueError(f"task_set {self.task_set!r} has no effect: a game is played against `opponent`")
        try:
            kind = parse_spec(self.opponent).kind
        except PolicySpecError as problem:
            raise ValueError(f"opponent: {problem}") from problem
        if kind not in SCRIPTED:
            raise ValueError(f"opponent is {self.opponent!r}; it is a scripted player: {', '.join(SCRIPTED)}")
        return self


class AlternateConfig(Section):
    """Which policies learn in which updates. The others play on, and not a bit of them changes.

    Attributes:
        order: The phases, each a list of policies; after the last one comes the first again.
        every: Updates of a phase.
    """

    order: list[list[str]] = Field(min_length=2)
    every: int = Field(1, ge=1)

    def learning(self, update: int) -> list[str]:
        """The policies that learn in the update with this number, from 0."""
        return self.order[update // self.every % len(self.order)]

    def updates_of(self, policy: str, updates: int) -> int:
        """In how many of the first ``updates`` updates ``policy`` learns."""
        return sum(policy in self.learning(update) for update in range(updates))


class TrainConfig(Section):
    """A whole run.

    Attributes:
        env: What is played.
        algorithm: How turns are compared, and the loss.
        policies: The policies by name.
        roles: Which policy plays which role; may be left out where there is one policy (it plays all) or where the
            policies are called as the roles are.
        alternate: Train the policies in turn; None trains all of them in every update.
        updates: Weight updates of the run, at most.
        token_budget: End with the update in which the run has generated so many completion tokens in all; None sets no
            bound. A learning rate that decays does so over ``updates``.
        tasks_per_update: Different tasks in a batch.
        samples_per_task: Episodes of each task, or candidates of each turn of a tree: the group size.
        dynamic_sampling: Play further tasks, in at most so many rounds, in place of those whose groups carry no signal,
            and train on turns with signal only (DAPO, arXiv 2503.14476). 0: off.
        max_staleness: How many weight versions a turn may be behind when it is trained on. 0: an update trains on what
            the newest weights have played. S > 0: the next S batches are played while the learner updates.
        on_new_weights: What episodes that are under way do when new weights arrive: ``finish`` on the old ones (then
            update u trains on what version max(0, u - S) has played, whatever the clock says) or ``continue`` with the
            new ones. Without effect, and refused, where ``max_staleness`` is 0.
        uncorrected_staleness: Allow S > 0 with a loss that does not correct for it.
        concurrency: Episodes in flight.
        seed: Decides tasks, sampling and every other draw.
        verify_every: Prove that samplers hold the learners' weights before the first update and after every so many.
        verify_tolerance: Largest difference of a log-prob in that proof (float32; bf16 needs a larger one).
        max_gradient_spike: Stop when an agent's gradient norm exceeds its running median by this factor, or never.
        threads: Torch threads; None leaves torch's own choice.
        checkpoint: Saving.
        evaluation: Held-out evaluation.
        record: Episodes that are kept for people to read.
        serving: How engines share the devices with learners, where the run is in one process.
        cluster: Workers of the run where it is given a cluster.
        wandb: Also log to Weights & Biases under this project.
    """

    env: EnvConfig
    algorithm: AlgorithmConfig = Field(default_factory=AlgorithmConfig)
    policies: dict[str, PolicyConfig]
    roles: dict[str, str] = Field(default_factory=dict)
    alternate: AlternateConfig | None = None
    updates: int = Field(100, ge=1)
    token_budget: int | None = Field(None, ge=1)
    tasks_per_update: int = Field(32, ge=1)
    samples_per_task: int = Field(8, ge=1)
    dynamic_sampling: int = Field(0, ge=0)
    max_staleness: int = Field(0, ge=0)
    on_new_weights: Literal["finish", "continue"] = "finish"
    uncorrected_staleness: bool = False
    concurrency: int = Field(64, ge=1)
    seed: int = Field(0, ge=0, lt=2**63)
    verify_every: int = Field(1, ge=1)
    verify_tolerance: float = Field(1e-4, gt=0)
    max_gradient_spike: float | None = Field(None, gt=1)
    threads: int | None = Field(None, ge=1)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    evaluation: EvalConfig = Field(default_factory=EvalConfig)
    record: RecordConfig = Field(default_factory=RecordConfig)
    serving: ServingConfig = Field(default_factory=ServingConfig)
    cluster: ClusterConfig = Field(default_factory=ClusterConfig)
    wandb: str | None = None

    @model_validator(mode="after")
    def _check(self) -> TrainConfig:
        if not self.policies:
            raise ValueError("`policies` is empty: name at least one policy")
        for role, name in self.roles.items():
            if name not in self.policies:
                raise ValueError(f"roles.{role} names the policy {name!r}; the policies are {', '.join(self.policies)}")
        for name, policy in self.policies.items():
            if not _POLICY_NAME.fullmatch(name):
                raise ConfigError(f"policies: the name {name!r} may hold letters, digits and `_.-` only")
            if self.roles and name not in self.roles.values():
                raise ConfigError(f"policies.{name} plays no role; `roles` gives {self.roles}. Give it one, or drop it")
            learns_in = self.updates_of(name)
            if policy.schedule != "constant" and 0 < learns_in <= policy.warmup_updates:
                raise ConfigError(
                    f"policies.{name}.warmup_updates is {policy.warmup_updates}: the {learns_in} updates in which it "
                    f"learns leave nothing for the {policy.schedule} decay"
                )
            self.loss_of(name)
        if self.alternate is not None:
            self._check_alternate(self.alternate)
        check_staleness(self)
        check_serving(self)
        return self

    def _check_alternate(self, alternate: AlternateConfig) -> None:
        trained = [name for name, policy in self.policies.items() if policy.trainable]
        for phase in alternate.order:
            for name in phase:
                if name not in trained:
                    what = "is frozen" if name in self.policies else "does not exist"
                    raise ConfigError(f"alternate.order: the policy {name!r} {what}; those that learn: {trained}")
            if not phase or len(set(phase)) < len(phase):
                raise ConfigError(f"alternate.order: the phase {phase} must name one policy or more, each once")
        never = [name for name in trained if not any(name in phase for phase in alternate.order)]
        if never:
            raise ConfigError(
                f"alternate.order: no phase trains {', '.join(never)}. Add it to one, or set `trainable: false`"
            )

    def learning(self, update: int) -> list[str]:
        """The policies that learn in the update with this number, from 0."""
        if self.alternate is not None:
            return self.alternate.learning(update)
        return [name for name, policy in self.policies.items() if policy.trainable]

    def updates_of(self, policy: str) -> int:
        """In how many updates of the run ``policy`` learns."""
        if not self.policies[policy].trainable:
            return 0
        return self.updates if self.alternate is None else self.alternate.updates_of(policy, self.updates)

    def loss_of(self, policy: str) -> LossConfig:
        """The loss of ``policy``: the algorithm's, with what differs for this one.

        Raises:
            ConfigError: A field or a value does not exist.
        """
        changes = self.policies[policy].loss
        check_fields(f"policies.{policy}.loss", changes, LossConfig)
        return changed(f"policies.{policy}.loss", self.algorithm.build().loss, changes)

    def role_map(self) -> dict[str, str]:
        """Role to policy name, with the defaults filled in (``*`` is every role)."""
        if self.roles:
            return dict(self.roles)
        if len(self.policies) == 1:
            return {"*": next(iter(self.policies))}
        return {name: name for name in self.policies}


def load_config(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a recipe.

    Args:
        source: A YAML file, the name of a recipe that ships with the package (``dr_mas_math_cpu``), or a mapping.
        overrides: ``key.sub=value`` strings; values are read as YAML.

    Raises:
        ConfigError: The file does not exist, is not YAML, or holds an unknown key or a value out of range.

    >>> load_config("dr_mas_math_cpu", ["updates=5"]).updates
    5
    """
    values = separate(source if isinstance(source, Mapping) else read_recipe(Path(source)))
    for text in overrides:
        override(values, text)
    try:
        return TrainConfig.model_validate(values)
    except ValidationError as problem:
        raise ConfigError("\n".join(explain(entry, TrainConfig) for entry in problem.errors())) from problem
