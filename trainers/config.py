"""The configuration of a training run: typed, from YAML with command-line overrides.

A recipe is one YAML file of these fields. An unknown key is an error that suggests the right one, so a typing mistake
never trains with a default. ``llm-train --config RECIPE updates=10 policies.solver.learning_rate=1e-5`` overrides.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from trainers.algorithms.algorithm import Algorithm, Baseline, Term
from trainers.algorithms.loss_config import LossConfig
from trainers.algorithms.presets import get_algorithm
from trainers.policies.base import Sampling
from trainers.recipe_files import ConfigError, override, read_recipe, recipe_names, separate

__all__ = [
    "AlgorithmConfig",
    "CheckpointConfig",
    "ConfigError",
    "EnvConfig",
    "EvalConfig",
    "LoraConfig",
    "PolicyConfig",
    "SamplingConfig",
    "TrainConfig",
    "load_config",
    "recipe_names",
]

_POLICY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # names files, folders and metrics


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class EnvConfig(_Section):
    """What is played.

    Attributes:
        id: A registered environment, such as ``math-2agent``.
        tasks: A task set or a file; None is the environment's own default.
        split: The split to train on.
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

    def arguments(self, split: str | None = None) -> dict[str, Any]:
        """The keyword arguments for :func:`llm_envs.make`, with another ``split`` if given."""
        chosen = split or self.split
        given = {"tasks": self.tasks, "split": chosen}
        return {**{name: value for name, value in given.items() if value is not None}, **self.kwargs}


class AlgorithmConfig(_Section):
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
        _check_fields("algorithm.overrides", self.overrides, Algorithm)
        _check_fields("algorithm.loss", self.loss, LossConfig)
        if isinstance(baseline := self.overrides.get("baseline"), Mapping):
            _check_fields("algorithm.overrides.baseline", baseline, Baseline)
        for term in self.overrides.get("extra") or ():
            if isinstance(term, Mapping):
                _check_fields("algorithm.overrides.extra", term, Term)
        loss = _changed("algorithm.loss", preset.loss, self.loss)
        return _changed("algorithm.overrides", dataclasses.replace(preset, loss=loss), self.overrides)


class LoraConfig(_Section):
    """A low-rank adapter in place of full fine-tuning (arXiv 2106.09685).

    Attributes:
        rank: Rank of the update.
        alpha: Scale; the update is multiplied by alpha / rank.
        dropout: Dropout on the adapter's input.
        target_modules: Which linear layers; ``all-linear`` or a list of names.
    """

    rank: int = Field(16, ge=1)
    alpha: int = Field(32, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    target_modules: str | list[str] = "all-linear"


class SamplingConfig(_Section):
    """How completions are drawn. Log-probs are those of the distribution that was drawn from."""

    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = -1
    max_tokens: int = Field(512, ge=1)
    stop: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> SamplingConfig:
        self.build()
        return self

    def build(self) -> Sampling:
        """The policies' own form of it."""
        return Sampling(**self.model_dump())


_Decay = Annotated[float, Field(ge=0, lt=1)]


class PolicyConfig(_Section):
    """One policy of the team: its model, where it is sampled, and how it learns.

    Attributes:
        model: ``smollm2-135m``, a hub id or a local folder.
        backend: Where completions come from: ``vllm`` or ``hf`` (transformers).
        trainable: False holds the weights still: the policy plays and never learns.
        lora: Train an adapter; None trains all weights.
        learning_rate: Peak learning rate of AdamW.
        schedule: ``constant``, ``linear`` or ``cosine`` decay over the run. Like the warm-up it moves on with the
            optimiser's steps, of which an update in which all advantages of the policy are 0 takes none.
        warmup_updates: Updates of linear warm-up.
        final_learning_rate: Where a decay ends, as a share of the peak.
        betas: AdamW's moment decays.
        weight_decay: AdamW's decoupled weight decay.
        max_grad_norm: The norm that the gradient of the policy is clipped to.
        epochs: Passes over a batch.
        minibatches: Optimiser steps a pass.
        micro_batch_tokens: Most tokens in one forward pass; bounds memory, changes no result.
        gradient_checkpointing: Recompute activations in the backward pass; slower, less memory.
        sampling: How its completions are drawn.
        system_prompt: A system message before the observation; None leaves none.
        engine: Options of the back end (for vLLM: engine arguments such as ``max_model_len``).
    """

    model: str
    backend: Literal["vllm", "hf"] = "vllm"
    trainable: bool = True
    lora: LoraConfig | None = None
    learning_rate: float = Field(1e-6, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_updates: int = Field(0, ge=0)
    final_learning_rate: float = Field(0.0, ge=0, le=1)
    betas: tuple[_Decay, _Decay] = (0.9, 0.999)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    epochs: int = Field(1, ge=1)
    minibatches: int = Field(1, ge=1)
    micro_batch_tokens: int = Field(4096, ge=1)
    gradient_checkpointing: bool = False
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    system_prompt: str | None = None
    engine: dict[str, Any] = Field(default_factory=dict)


class CheckpointConfig(_Section):
    """When the state of the run is saved, and how much of it is kept.

    Attributes:
        every: Save after so many updates; the last update is always saved.
        keep: Keep so many of the newest checkpoints.
    """

    every: int = Field(10, ge=1)
    keep: int = Field(2, ge=1)


class EvalConfig(_Section):
    """Held-out evaluation during training. Policies are sampled as they are in training.

    Attributes:
        every: Evaluate before the first update and after so many; 0 never does.
        tasks: How many tasks of the test split, the first ones.
        samples: Episodes a task.
        split: The split; a local file has none of its own, so it is divided by content. A split whose tasks are trained
            on is refused.
    """

    every: int = Field(0, ge=0)
    tasks: int = Field(64, ge=1)
    samples: int = Field(1, ge=1)
    split: str = "test"


class TrainConfig(_Section):
    """A whole run.

    Attributes:
        env: What is played.
        algorithm: How turns are compared, and the loss.
        policies: The policies by name.
        roles: Which policy plays which role; may be left out where there is one policy (it plays all) or where the
            policies are called as the roles are.
        updates: Weight updates of the run.
        tasks_per_update: Different tasks in a batch.
        samples_per_task: Episodes of each task, or candidates of each turn of a tree: the group size.
        dynamic_sampling: Play further tasks, in at most so many rounds, in place of those whose groups carry no signal,
            and train on turns with signal only (DAPO, arXiv 2503.14476). 0: off.
        concurrency: Episodes in flight.
        seed: Decides tasks, sampling and every other draw.
        verify_every: Prove that samplers hold the learners' weights before the first update and after every so many.
        verify_tolerance: Largest difference of a log-prob in that proof (float32; bf16 needs a larger one).
        max_gradient_spike: Stop when an agent's gradient norm exceeds its running median by this factor, or never.
        threads: Torch threads; None leaves torch's own choice.
        checkpoint: Saving.
        evaluation: Held-out evaluation.
        wandb: Also log to Weights & Biases under this project.
    """

    env: EnvConfig
    algorithm: AlgorithmConfig = Field(default_factory=AlgorithmConfig)
    policies: dict[str, PolicyConfig]
    roles: dict[str, str] = Field(default_factory=dict)
    updates: int = Field(100, ge=1)
    tasks_per_update: int = Field(32, ge=1)
    samples_per_task: int = Field(8, ge=1)
    dynamic_sampling: int = Field(0, ge=0)
    concurrency: int = Field(64, ge=1)
    seed: int = Field(0, ge=0, lt=2**63)
    verify_every: int = Field(1, ge=1)
    verify_tolerance: float = Field(1e-4, gt=0)
    max_gradient_spike: float | None = Field(None, gt=1)
    threads: int | None = Field(None, ge=1)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    evaluation: EvalConfig = Field(default_factory=EvalConfig)
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
            if policy.schedule != "constant" and policy.warmup_updates >= self.updates:
                raise ConfigError(
                    f"policies.{name}.warmup_updates is {policy.warmup_updates}: {self.updates} updates leave "
                    f"nothing for the {policy.schedule} decay"
                )
        self.algorithm.build()
        return self

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
        raise ConfigError("\n".join(_explain(entry) for entry in problem.errors())) from problem


def _explain(entry: Any) -> str:
    """One line for one problem, with the closest known key where a key is unknown."""
    location = [str(part) for part in entry["loc"]]
    where = ".".join(location) or "config"
    if entry["type"] == "value_error":
        problem = entry["ctx"]["error"]
        return str(problem) if isinstance(problem, ConfigError) or not location else f"{where}: {problem}"
    if entry["type"] != "extra_forbidden":
        given = "" if entry["type"] == "missing" else f" (got {entry['input']!r})" if location else ""
        return f"{where}: {entry['msg']}{given}"
    known = _fields_at(location[:-1])
    close = difflib.get_close_matches(location[-1], known, n=1)
    hint = f" Did you mean `{close[0]}`?" if close else ""
    return f"{where}: unknown key `{location[-1]}`.{hint} Known keys: {', '.join(known)}"


def _fields_at(location: Sequence[str]) -> list[str]:
    """The fields of the section at ``location``. A part that is no field is a name in a mapping of sections."""
    section: type[BaseModel] = TrainConfig
    named = False
    for part in location:
        if named or part not in section.model_fields:
            named = False
            continue
        annotation = section.model_fields[part].annotation
        inner = [a for a in (annotation, *typing.get_args(annotation)) if isinstance(a, type)]
        found = next((a for a in inner if issubclass(a, BaseModel)), None)
        section, named = found or section, found is not None and typing.get_origin(annotation) is dict
    return list(section.model_fields)


def _check_fields(where: str, values: Mapping[str, Any], cls: type) -> None:
    known = [f.name for f in dataclasses.fields(cls)]
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean `{close[0]}`?" if close else ""
            raise ConfigError(f"{where}: unknown key `{name}`.{hint} Known keys: {', '.join(known)}")


_Data = typing.TypeVar("_Data", bound=Algorithm | LossConfig)


def _changed(where: str, data: _Data, changes: Mapping[str, Any]) -> _Data:
    """Return ``data`` with other values, each read as the type of its field."""
    fields = {f.name: getattr(data, f.name) for f in dataclasses.fields(data)}
    try:
        return TypeAdapter(type(data)).validate_python({**fields, **changes})
    except ValidationError as problem:
        lines = [_explain({**entry, "loc": (where, *entry["loc"])}) for entry in problem.errors()]
        raise ConfigError("\n".join(lines)) from problem
