"""Warm start: supervised fine-tuning on recorded episodes.

The loss is the mean of −log π over the tokens of the answers, their end token included; prompts are read, never
learned. In the terms of :mod:`trainers.algorithms.losses` this is REINFORCE with advantage 1 on somebody else's
answers, so the learner is the same as in reinforcement learning.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainers.algorithms.loss_config import LossConfig
from trainers.learner_config import LearnerConfig
from trainers.models import resolve_model
from trainers.sft_data import Demonstrations, SFTError, end_token, read_demonstrations, split_by_task, tokenise

if TYPE_CHECKING:
    from trainers.batching import Sample
    from trainers.learner import Learner

__all__ = ["SFTConfig", "SFTError", "SFTProgress", "SFTResult", "sft"]

SETTINGS_FILE = "sft.json"
PLOT_FILE = "plot.png"


@dataclass(frozen=True, slots=True)
class SFTConfig:
    """A warm start.

    Attributes:
        episodes: Results folders of ``llm-bench run``, or files of episodes.
        model: The model to start from: a bundled name, a folder, or a hub id.
        out: The folder of the new model; it must not exist, or be empty.
        agents: Agents or roles whose turns are imitated; empty is all. One model a role: one call for each.
        all_episodes: Also imitate episodes without success.
        epochs: Passes over the demonstrations.
        learning_rate: Peak learning rate; it rises over the first twentieth of the steps and then falls to a tenth of
            the peak as a cosine.
        batch: Turns an optimiser step.
        held_out: Share of the tasks whose turns are not trained on: their loss is logged.
        seed: Decides which tasks are held out, and the order of the turns.
        system_prompt: As of the policies that will play the model.
        chat_template_kwargs: The same.
        weight_decay: AdamW's decoupled weight decay.
        max_grad_norm: The norm that the gradient is clipped to.
        micro_batch_tokens: Most tokens in one forward pass; changes no result.
        threads: Torch threads; None leaves torch's own choice.

    Raises:
        SFTError: At construction, if a number is out of its range.
    """

    episodes: Sequence[str | Path]
    model: str | Path
    out: Path
    agents: Sequence[str] = ()
    all_episodes: bool = False
    epochs: int = 3
    learning_rate: float = 1e-5
    batch: int = 32
    held_out: float = 0.05
    seed: int = 0
    system_prompt: str | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    micro_batch_tokens: int = 4096
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise SFTError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise SFTError(f"learning_rate must be above 0, got {self.learning_rate}")
        if not 0 <= self.held_out < 1:
            raise SFTError(f"held_out must be at least 0 and below 1, got {self.held_out}")
        if not self.episodes:
            raise SFTError("no episodes were given")


@dataclass(slots=True)
class SFTProgress:
    """What happened in one step.

    Attributes:
        step: The step, from 1; 0 is before the first.
        steps: Steps in all.
        metrics: What is logged: ``sft/loss``, ``sft/lr``, ``sft/grad_norm``, and ``sft/held_out_loss`` after an epoch.
    """

    step: int
    steps: int
    metrics: dict[str, float]


@dataclass(slots=True)
class SFTResult:
    """Where the new model is, and what it was made of.

    Attributes:
        folder: An ordinary model folder, with ``metrics.jsonl``, ``plot.png`` and ``sft.json`` beside the weights.
        turns: Turns trained on.
        held_out_turns: Turns held out.
        left_out: Episodes and turns that were left out, by reason.
        loss: Loss of the last step in nats a token.
        held_out_loss: Loss on the held-out turns at the end; None without any.
    """

    folder: Path
    turns: int
    held_out_turns: int
    left_out: dict[str, int]
    loss: float
    held_out_loss: float | None


def sft(config: SFTConfig, on_progress: Callable[[SFTProgress], None] | None = None) -> SFTResult:
    """Fine-tune a model on recorded episodes. The same settings give the same weights, bit for bit, on one machine.

    Args:
        config: The settings.
        on_progress: Called before the first step and after every one.

    Raises:
        SFTError: The episodes cannot be trained on, or the folder is taken.
        trainers.models.ModelNotFoundError: There is no such model.
        trainers.learner.NonFiniteGradient: The loss or a gradient is not finite.
    """
    _check_free(config.out)
    found = read_demonstrations(config.episodes, agents=config.agents, successful_only=not config.all_episodes)
    source = str(resolve_model(config.model))
    learner, tokenizer, samples, tasks = _load(config, source, found)
    held = split_by_task(tasks, config.held_out, config.seed)
    train = [sample for sample, out in zip(samples, held, strict=True) if not out]
    test = [sample for sample, out in zip(samples, held, strict=True) if out]
    steps = config.epochs * -(-len(train) // config.batch)
    learner.config = _schedule(config, steps)
    config.out.mkdir(parents=True, exist_ok=True)
    metrics = _train(learner, train, test, config, steps, on_progress or (lambda progress: None))
    learner.save_pretrained(config.out)
    tokenizer.save_pretrained(config.out)
    left_out = dict(found.left_out)
    result = SFTResult(
        config.out, len(train), len(test), left_out, metrics["sft/loss"], metrics.get("sft/held_out_loss")
    )
    _note(config, result)
    return result


def _load(config: SFTConfig, source: str, found: Demonstrations) -> tuple[Learner, Any, list[Sample], list[str]]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trainers.learner import Learner
    from trainers.policies.chat import Prompter, end_token_ids

    if config.threads is not None:
        torch.set_num_threads(config.threads)
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    if torch.cuda.is_available():
        model = model.cuda()
    prompter = Prompter(tokenizer, system_prompt=config.system_prompt, chat_template_kwargs=config.chat_template_kwargs)
    end_id = end_token(tokenizer, end_token_ids(tokenizer, model.generation_config))
    longest = int(model.config.get_text_config().max_position_embeddings)
    samples, tasks, too_long = tokenise(found.turns, prompter, end_id, longest)
    if too_long:
        found.left_out["turns that are too long"] += too_long
    loss = LossConfig(kind="reinforce", importance="off", aggregation="token-mean")
    return Learner(model, _schedule(config, None), loss), tokenizer, samples, tasks


def _schedule(config: SFTConfig, steps: int | None) -> LearnerConfig:
    import torch

    warmup = 0 if steps is None else min(steps - 1, -(-steps // 20))
    return LearnerConfig(
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        schedule="constant" if steps is None else "cosine",
        warmup_steps=warmup,
        total_steps=steps,
        min_lr_ratio=0.1,
        micro_batch_tokens=config.micro_batch_tokens,
        dtype="bfloat16" if torch.cuda.is_available() else "float32",
        seed=config.seed,
    )


def _train(
    learner: Learner,
    train: Sequence[Sample],
    test: Sequence[Sample],
    config: SFTConfig,
    steps: int,
    on_progress: Callable[[SFTProgress], None],
) -> dict[str, float]:
    """Take all steps and log each; returns the last metrics."""
    from trainers.tracking import Tracker

    tracker = Tracker(config.out)
    last: dict[str, float] = {}
    step = 0

    def log(metrics: dict[str, float]) -> None:
        tracker.log(step, metrics)
        last.update(metrics)
        on_progress(SFTProgress(step, steps, metrics))

    try:
        log(_held_out_loss(learner, test))
        for epoch in range(config.epochs):
            order = np.random.default_rng([config.seed, epoch]).permutation(len(train))
            for start in range(0, len(train), config.batch):
                done = learner.update([train[i] for i in order[start : start + config.batch]])
                step += 1
                metrics = {"sft/loss": done.loss, "sft/lr": done.lr, "sft/grad_norm": done.grad_norm}
                if start + config.batch >= len(train):
                    metrics |= _held_out_loss(learner, test)
                log(metrics)
    finally:
        tracker.close()
    _plot(config.out)
    return last


def _held_out_loss(learner: Learner, test: Sequence[Sample]) -> dict[str, float]:
    """Mean −log π over the answers' tokens, without dropout."""
    if not test:
        return {}
    values = learner.logprobs([s.prompt_ids for s in test], [s.completion_ids for s in test])
    total = sum(float(value.double().sum()) for value in values)
    return {"sft/held_out_loss": -total / sum(len(sample.completion_ids) for sample in test)}


def _check_free(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SFTError(f"{folder} is not empty: choose another folder for the new model")


def _note(config: SFTConfig, result: SFTResult) -> None:
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name != "out"}
    settings |= {"episodes": [str(path) for path in config.episodes], "model": str(config.model)}
    outcome = {name: value for name, value in dataclasses.asdict(result).items() if name != "folder"}
    text = json.dumps({"settings": settings, "result": outcome}, indent=1, default=list) + "\n"
    (config.out / SETTINGS_FILE).write_text(text, encoding="utf-8")


def _plot(folder: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    from trainers.tracking import read_metrics

    rows = read_metrics(folder)
    figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, label, style in (("sft/loss", "training batch", "-"), ("sft/held_out_loss", "held-out tasks", "o-")):
        points = [(row["update"], row[name]) for row in rows if row.get(name) is not None]
        if points:
            axis.plot(*zip(*points, strict=True), style, markersize=4, linewidth=1, label=label)
    axis.set(xlabel="step", ylabel="loss in nats a token", title=folder.name)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.savefig(folder / PLOT_FILE, dpi=130)
    plt.close(figure)
