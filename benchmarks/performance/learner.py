"""An update of the learner beside TRL's on the same batch: forward, loss, backward and optimiser step, in float32.

Useful tokens are those of all turns, prompt and completion, however often a program computes them and whatever it adds
as padding; so a ratio of useful tokens a second is a ratio of times. TRL's side is ``GRPOTrainer.compute_loss`` on
tensors as its trainer makes them: all prompts of a batch padded to the longest, all completions too, shuffled, cut into
micro-batches of ``per_device_train_batch_size`` (8, its default). Activation checkpointing, its default, is off on both
sides. Nothing is sampled, and the learning rate is 0: every update computes the same.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.performance.measure import Measurement

if TYPE_CHECKING:
    import torch

    from trainers.batching import Sample

__all__ = ["grpo_batch", "has_trl", "measure_learner", "missing_trl"]

MODEL = "smollm2-135m"
GROUP_SIZE = 8
TRL_MICRO_BATCH = 8
SHARED_TARGET, UNSHARED_TARGET, GRADIENT_TARGET = 1.5, 1.2, 1e-4


def grpo_batch(
    vocabulary: int,
    *,
    groups: int,
    size: int = GROUP_SIZE,
    prompt: tuple[int, int] = (72, 120),
    completion: tuple[int, int] = (16, 48),
    seed: int = 0,
) -> list[Sample]:
    """Draw turns of random tokens: groups of answers to one prompt.

    Args:
        vocabulary: Number of token ids.
        groups: Number of prompts.
        size: Answers to each.
        prompt: Least and greatest length of a prompt, drawn evenly. With the defaults prompts are three times as long
            as completions.
        completion: The same for completions.
        seed: Of the draw.
    """
    from trainers.batching import Sample

    rng = np.random.default_rng(seed)
    samples = []
    for _ in range(groups):
        asked = rng.integers(0, vocabulary, rng.integers(*prompt, endpoint=True)).tolist()
        for _ in range(size):
            answer = rng.integers(0, vocabulary, rng.integers(*completion, endpoint=True)).tolist()
            samples.append(Sample(asked, answer, None, float(rng.normal()), "solver_0"))
    return samples


def measure_learner(
    model: Any = None,
    *,
    groups: int = 2,
    repeats: int = 2,
    clock: Callable[[], float] = time.perf_counter,
    **lengths: Any,
) -> list[Measurement]:
    """Measure updates with and without shared prompts; the best of ``repeats`` tries of each program, in turn, counts.

    Args:
        model: A float32 causal language model; None: the bundled one.
        groups: Prompts of the batch with shared prompts. The other has as many turns, a prompt each.
        repeats: Tries after an unmeasured one.
        clock: Seconds.
        lengths: Of the turns, as in :func:`grpo_batch`.
    """
    name = MODEL if model is None else type(model).__name__
    if model is None:
        model = _bundled()
    vocabulary = model.config.vocab_size
    shared = grpo_batch(vocabulary, groups=groups, **lengths)
    single = grpo_batch(vocabulary, groups=groups * GROUP_SIZE, size=1, **lengths)
    return [
        *_compare(model, shared, f"K = {GROUP_SIZE} shared prompts, {name}", SHARED_TARGET, repeats, clock),
        *_compare(model, single, f"no shared prompt, {name}", UNSHARED_TARGET, repeats, clock),
    ]


def missing_trl() -> list[str]:
    """A line that says what is left out where TRL is not installed."""
    if has_trl():
        return []
    return ["trl not installed: skipped the comparison of the learner with it (pip install 'llm-envs[bench]')"]


def has_trl() -> bool:
    """Whether TRL is installed."""
    return importlib.util.find_spec("trl") is not None


def _bundled() -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from trainers.models import resolve_model

    return AutoModelForCausalLM.from_pretrained(str(resolve_model(MODEL)), dtype=torch.float32)


def _compare(
    model: Any, samples: Sequence[Sample], what: str, target: float, repeats: int, clock: Callable[[], float]
) -> list[Measurement]:
    tokens = sum(len(sample.prompt_ids) + len(sample.completion_ids) for sample in samples)
    updates = {packing: _our_update(model, samples, packing) for packing in ("shared", "padded")}
    if has_trl():
        updates["TRL"] = _trl_update(model, samples)
    gradients = {name: _gradient(model, update) for name, update in updates.items()}
    seconds = dict.fromkeys(updates, float("inf"))
    for _ in range(repeats):
        for name, update in updates.items():
            started = clock()
            update()
            seconds[name] = min(seconds[name], clock() - started)
    rows = [
        Measurement(f"learner, useful tokens, {what}", tokens / seconds["shared"], "/s"),
        Measurement(f"learner / its padded path, {what}", seconds["padded"] / seconds["shared"], "x"),
        _difference(gradients["shared"], gradients["padded"], f"gradient of shared and padded, {what}"),
    ]
    if "TRL" in updates:
        rows += [
            Measurement(f"learner / TRL, {what}", seconds["TRL"] / seconds["shared"], "x", target),
            Measurement(f"learner's padded path / TRL, {what}", seconds["TRL"] / seconds["padded"], "x"),
            _difference(gradients["shared"], gradients["TRL"], f"gradient of learner and TRL, {what}"),
        ]
    return rows


def _our_update(model: Any, samples: Sequence[Sample], packing: Any) -> Callable[[], object]:
    from trainers.algorithms.losses import LossConfig
    from trainers.learner import Learner, LearnerConfig

    config = LearnerConfig(lr=0.0, max_grad_norm=None, packing=packing)
    learner = Learner(model, config, LossConfig(importance="off"))
    return lambda: learner.update(samples)


def _trl_update(model: Any, samples: Sequence[Sample]) -> Callable[[], object]:
    """GRPO as TRL computes it, with the token mean over the batch as its loss (``dapo``, its default)."""
    import datasets
    from trl import GRPOConfig, GRPOTrainer

    steps = -(-len(samples) // TRL_MICRO_BATCH)
    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=TRL_MICRO_BATCH,
            gradient_accumulation_steps=steps,
            num_generations=GROUP_SIZE,
            learning_rate=0.0,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to="none",
            loss_type="dapo",
        )
        trainer = GRPOTrainer(
            model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=arguments,
            train_dataset=datasets.Dataset.from_list([{"prompt": ""}] * len(samples)),
            processing_class=_no_tokenizer(model.config.vocab_size),
        )
    trainer.current_gradient_accumulation_steps = steps
    optimizer = trainer.create_optimizer()
    batches = _trl_batches(samples)

    def update() -> None:
        model.train()
        for batch in batches:
            trainer.compute_loss(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        model.eval()

    return update


def _no_tokenizer(vocabulary: int) -> Any:
    """What the trainer wants to have for its construction; texts are not tokenised here."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"<{i}>": i for i in range(min(vocabulary, 8))}, unk_token="<0>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<1>", eos_token="<2>")


def _trl_batches(samples: Sequence[Sample]) -> list[dict[str, torch.Tensor]]:
    """Prompts padded on the left and completions on the right over the whole batch, shuffled, cut."""
    import torch

    width = max(len(sample.prompt_ids) for sample in samples)
    height = max(len(sample.completion_ids) for sample in samples)
    order = np.random.default_rng(0).permutation(len(samples))
    prompts = [samples[i].prompt_ids for i in order]
    completions = [samples[i].completion_ids for i in order]
    whole = {
        "prompt_ids": [[0] * (width - len(ids)) + list(ids) for ids in prompts],
        "prompt_mask": [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts],
        "completion_ids": [list(ids) + [0] * (height - len(ids)) for ids in completions],
        "completion_mask": [[1] * len(ids) + [0] * (height - len(ids)) for ids in completions],
        "advantages": [samples[i].advantage for i in order],
    }
    tensors = {name: torch.tensor(values) for name, values in whole.items()}
    total = torch.tensor(float(sum(map(len, completions))))
    cuts = range(0, len(samples), TRL_MICRO_BATCH)
    return [
        {name: tensor[start : start + TRL_MICRO_BATCH] for name, tensor in tensors.items()}
        | {"num_items_in_batch": total}
        for start in cuts
    ]


def _gradient(model: Any, update: Callable[[], object]) -> dict[str, torch.Tensor]:
    """What an update's optimiser saw: the gradients that its last backward pass left."""
    found: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            if parameter.grad is not None:
                found[name] = parameter.grad

        return hook

    hooks = [p.register_post_accumulate_grad_hook(keep(name)) for name, p in model.named_parameters()]
    update()
    for hook in hooks:
        hook.remove()
    return found


def _difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], what: str) -> Measurement:
    """The norm of the difference of two gradients over the norm of the second."""
    if one.keys() != other.keys():
        raise ValueError(f"These weights have one gradient only: {sorted(one.keys() ^ other.keys())[:4]}")
    apart = sum(float((one[name] - other[name]).double().square().sum()) for name in other)
    size = sum(float(gradient.double().square().sum()) for gradient in other.values())
    return Measurement(f"relative difference: {what}", (apart / size) ** 0.5, "", GRADIENT_TARGET, at_most=True)
