"""The learner on a tiny random Llama: exact gradients, norms per agent, resume, LoRA, failures."""

from __future__ import annotations

import copy
import io
import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainers.algorithms.loss_config import AGGREGATIONS, LossConfig
from trainers.algorithms.losses import policy_loss, turn_weights
from trainers.batching import MicroBatch
from trainers.learner import Learner, NonFiniteGradient, Sample
from trainers.learner_config import LearnerConfig
from trainers.logprobs import CompletionForward, token_logprobs

VOCABULARY = 37
EXACT = LearnerConfig(dtype="float64", lr=1e-2, max_grad_norm=None)
OFF = LossConfig(importance="off")
LORA = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]}


def tiny_model(seed: int = 0, **fields: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        **{
            "vocab_size": VOCABULARY,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": 64,
            "tie_word_embeddings": True,
            "initializer_range": 0.3,
            **fields,
        }
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def draw_samples(number: int = 9, seed: int = 0, agents: tuple[str, ...] = ("solver_0", "verifier_0")) -> list[Sample]:
    rng = np.random.default_rng(seed)
    samples = []
    for i in range(number):
        prompt = rng.integers(0, VOCABULARY, rng.integers(1, 9)).tolist()
        completion = rng.integers(0, VOCABULARY, rng.integers(1, 7)).tolist()
        logprobs = (-3 + 0.5 * rng.normal(size=len(completion))).tolist()
        samples.append(Sample(prompt, completion, logprobs, float(rng.normal()), agents[i % len(agents)]))
    return samples


def naive_logprobs(model: Any, sample: Sample, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """One turn at a time, all logits, no padding."""
    ids = torch.tensor([[*sample.prompt_ids, *sample.completion_ids]])
    logs = torch.log_softmax(model(input_ids=ids).logits[0, :-1] / temperature, -1)[len(sample.prompt_ids) - 1 :]
    chosen = logs.gather(-1, torch.tensor(sample.completion_ids).unsqueeze(-1)).squeeze(-1)
    return chosen, -(logs.exp() * logs).sum(-1)


def captured_gradient(learner: Learner, samples: list[Sample], **arguments: int) -> dict[str, torch.Tensor]:
    """The gradient that AdamW sees: its first moment after the first step is (1 - beta1) times it."""
    learner.update(samples, **arguments)
    state = learner._optimizer.state_dict()["state"]
    names = {id(p): name for name, p in learner._trainable.items()}
    ordered = [names[id(p)] for group in learner._optimizer.param_groups for p in group["params"]]
    return {name: state[i]["exp_avg"] / (1 - learner.config.betas[0]) for i, name in enumerate(ordered) if i in state}


# --- log-probs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_equal_the_plain_forward(tied: bool, temperature: float) -> None:
    learner = Learner(tiny_model(tie_word_embeddings=tied), replace(EXACT, temperature=temperature), OFF)
    samples = draw_samples()
    got = learner.logprobs([s.prompt_ids for s in samples], [s.completion_ids for s in samples])
    for sample, values in zip(samples, got, strict=True):
        expected, _ = naive_logprobs(learner.model, sample, temperature)
        assert not values.requires_grad
        torch.testing.assert_close(values, expected.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", [{"micro_batch_tokens": 1}, {"micro_batch_tokens": 31}, {"logits_chunk": 2}])
def test_logprobs_do_not_depend_on_packing(settings: dict[str, int]) -> None:
    samples = draw_samples()
    prompts, completions = [s.prompt_ids for s in samples], [s.completion_ids for s in samples]
    one = Learner(tiny_model(), LearnerConfig(), OFF).logprobs(prompts, completions)
    other = Learner(tiny_model(), LearnerConfig(**settings), OFF).logprobs(prompts, completions)  # type: ignore[arg-type]
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-6)


def test_token_logprobs_and_entropy_by_hand() -> None:
    logprobs, entropy = token_logprobs(torch.tensor([[0.0, math.log(3.0)]]), torch.tensor([1]), 1.0)
    assert float(logprobs) == pytest.approx(math.log(0.75))
    assert float(entropy) == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    logprobs, _ = token_logprobs(torch.tensor([[0.0, math.log(3.0)]]), torch.tensor([1]), 0.5)
    assert float(logprobs) == pytest.approx(math.log(0.9))
    half, _ = token_logprobs(torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16), torch.tensor([0]), 1.0)
    assert half.dtype == torch.float32


def test_the_output_layer_never_sees_prompt_positions() -> None:
    learner = Learner(tiny_model(), replace(EXACT, logits_chunk=4), OFF)
    seen: list[int] = []
    learner.model.lm_head.register_forward_hook(
        lambda module, inputs, output: seen.append(output.numel() // VOCABULARY)
    )
    samples = draw_samples()
    learner.logprobs([s.prompt_ids for s in samples], [s.completion_ids for s in samples])
    assert sum(seen) == sum(len(s.completion_ids) for s in samples)
    assert max(seen) <= 4


def test_a_model_that_changes_its_logits_is_still_right_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, final_logit_softcapping=2.0, initializer_range=0.5, pad_token_id=0,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        learner = Learner(Gemma2ForCausalLM(config), EXACT, OFF)
    assert "changes its logits" in caplog.text
    samples = draw_samples()
    got = learner.logprobs([s.prompt_ids for s in samples], [s.completion_ids for s in samples])
    for sample, values in zip(samples, got, strict=True):
        torch.testing.assert_close(values, naive_logprobs(learner.model, sample)[0].detach(), rtol=0, atol=1e-10)


# --- gradients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss",
    [
        OFF,
        LossConfig(aggregation="seq-mean-token-mean", importance="sequence", importance_cap=1.1),
        LossConfig(kind="cispo", aggregation="seq-mean-token-sum", importance_mode="mask"),
        LossConfig(aggregation="seq-mean-token-sum-norm", norm_length=8, ratio="sequence", dual_clip=3.0),
        LossConfig(balance_agents=True, entropy_coef=0.05),
        LossConfig(kl_coef=0.3, kl_estimator="k2", kind="reinforce"),
        LossConfig(reference="sampler", importance="off"),
    ],
    ids=["ppo", "seq-mean", "cispo", "gspo", "balanced-entropy", "kl-reinforce", "sampler-reference"],
)
def test_gradient_equals_autograd_of_the_naive_formula(loss: LossConfig) -> None:
    """Turn by turn, unpadded, in one graph, with every formula written out."""
    samples = draw_samples()
    model = tiny_model().double()
    reference = tiny_model(seed=1).double() if loss.kl_coef else None
    total = torch.zeros((), dtype=torch.float64)
    for sample, weight in zip(samples, _naive_weights(samples, loss), strict=True):
        new, entropy = naive_logprobs(model, sample)
        sampler = torch.tensor(sample.sampler_logprobs, dtype=torch.float64)
        old, a = new.detach(), sample.advantage
        log_ratio = new - (sampler if loss.reference == "sampler" else old)
        ratio = log_ratio.mean().exp() if loss.ratio == "sequence" else log_ratio.exp()
        if loss.kind == "ppo":
            value = -torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a)
            if loss.dual_clip and a < 0:
                value = torch.minimum(value, torch.tensor(-loss.dual_clip * a))
        elif loss.kind == "cispo":
            value = -ratio.detach().clamp(0.8, 1.2) * a * new
        else:
            value = -a * new
        value = value.expand_as(new)
        if loss.importance != "off":
            w = (old - sampler).sum().exp() if loss.importance == "sequence" else (old - sampler).exp()
            w = torch.where(w > loss.importance_cap, 0.0 if loss.importance_mode == "mask" else loss.importance_cap, w)
            value = value * w
        if reference is not None:
            value = value + loss.kl_coef * 0.5 * (naive_logprobs(reference, sample)[0].detach() - new) ** 2
        value = value - loss.entropy_coef * entropy
        total = total + weight * value.sum()
    total.backward()
    expected = {name: p.grad for name, p in model.named_parameters()}

    learner = Learner(tiny_model(), replace(EXACT, micro_batch_tokens=25), loss, ref_model=reference)
    metrics_loss = copy.deepcopy(learner).update(samples).loss
    got = captured_gradient(learner, samples)
    assert metrics_loss == pytest.approx(float(total.detach()), abs=1e-12)
    assert got.keys() == expected.keys()
    for name, gradient in got.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-13, msg=name)


def _naive_weights(samples: list[Sample], loss: LossConfig) -> list[float]:
    lengths = [len(s.completion_ids) for s in samples]
    if loss.balance_agents:
        tokens = {
            a: sum(n for n, s in zip(lengths, samples, strict=True) if s.agent == a) for a in {s.agent for s in samples}
        }
        return [1 / (len(tokens) * tokens[s.agent]) for s in samples]
    n = len(samples)
    return {
        "token-mean": [1 / sum(lengths)] * n,
        "seq-mean-token-mean": [1 / (n * length) for length in lengths],
        "seq-mean-token-sum": [1 / n] * n,
        "seq-mean-token-sum-norm": [1 / (n * (loss.norm_length or 1))] * n,
    }[loss.aggregation]


@pytest.mark.parametrize(("aggregation", "balance"), list(itertools.product(AGGREGATIONS, [False, True])))
def test_gradient_does_not_depend_on_the_micro_batch_size(aggregation: Any, balance: bool) -> None:
    """In float32, as it is used: to 1e-6."""
    loss = LossConfig(aggregation=aggregation, norm_length=8, balance_agents=balance, entropy_coef=0.01)
    samples = draw_samples(12)
    gradients, metrics = [], []
    for tokens in (1, 24, 10_000):
        config = replace(EXACT, dtype="float32", micro_batch_tokens=tokens)
        learner = Learner(tiny_model(initializer_range=0.1), config, loss)
        metrics.append(copy.deepcopy(learner).update(samples).to_dict())
        gradients.append(captured_gradient(learner, samples))
    for other in gradients[1:]:
        for name, gradient in gradients[0].items():
            torch.testing.assert_close(other[name], gradient, rtol=0, atol=1e-6, msg=name)
    for other_metrics in metrics[1:]:
        assert other_metrics == pytest.approx(metrics[0], abs=2e-5)


def test_order_and_neighbours_of_a_sample_do_not_matter() -> None:
    samples = draw_samples()
    one = captured_gradient(Learner(tiny_model(), EXACT, OFF), samples)
    other = captured_gradient(Learner(tiny_model(), EXACT, OFF), samples[::-1])
    for name, gradient in one.items():
        torch.testing.assert_close(other[name], gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", [{"logits_chunk": 2}, {"gradient_checkpointing": True}])
def test_recomputation_changes_nothing(settings: dict[str, Any]) -> None:
    loss = LossConfig(entropy_coef=0.01)
    plain = captured_gradient(Learner(tiny_model(), EXACT, loss), draw_samples())
    recomputed = captured_gradient(Learner(tiny_model(), replace(EXACT, **settings), loss), draw_samples())
    for name, gradient in plain.items():
        torch.testing.assert_close(recomputed[name], gradient, rtol=0, atol=1e-12)


def test_advantages_per_token() -> None:
    samples = draw_samples()
    spelled = [replace(s, advantage=[s.advantage] * len(s.completion_ids)) for s in samples]  # type: ignore[list-item]
    one = captured_gradient(Learner(tiny_model(), EXACT, OFF), samples)
    other = captured_gradient(Learner(tiny_model(), EXACT, OFF), spelled)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_ratios_are_taken_to_the_policy_at_the_start_of_the_update() -> None:
    """Second epoch: log-probs of the moved policy against those before the first step, not against themselves."""
    learner = Learner(tiny_model(), replace(EXACT, lr=3e-2), OFF)
    samples = draw_samples()
    once = copy.deepcopy(learner).update(samples)
    assert once.mean["ratio_max"] == once.mean["ratio_min"] == 1.0
    start = learner.logprobs([s.prompt_ids for s in samples], [s.completion_ids for s in samples])
    moved = copy.deepcopy(learner)
    moved.update(samples)
    after = moved.logprobs([s.prompt_ids for s in samples], [s.completion_ids for s in samples])
    ratios = torch.cat([(b - a).exp() for a, b in zip(start, after, strict=True)])
    twice = learner.update(samples, epochs=2)
    assert twice.steps == 2
    assert twice.mean["ratio_max"] == pytest.approx(float(ratios.max()), abs=1e-9)
    assert twice.mean["clip_high"] > 0
    assert once.mean["clip_high"] == 0


def test_minibatches_are_a_partition_that_changes_with_epoch_and_update(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = draw_samples(8)
    seen: list[list[int]] = []
    step = Learner._step

    def spy(self: Learner, batch: Any, chosen: Any, *rest: Any) -> Any:
        seen.append(list(chosen))
        return step(self, batch, chosen, *rest)

    monkeypatch.setattr(Learner, "_step", spy)
    learner = Learner(tiny_model(), LearnerConfig(), OFF)
    for _ in range(2):
        learner.update(samples, epochs=2, minibatches=2)
    passes = [seen[i] + seen[i + 1] for i in range(0, 8, 2)]
    assert all(len(part) == 4 for part in seen)
    assert all(sorted(order) == list(range(8)) for order in passes)
    assert len({tuple(order) for order in passes}) == 4
    seen.clear()
    Learner(tiny_model(), LearnerConfig(), OFF).update(samples, epochs=2, minibatches=2)
    assert [seen[0] + seen[1], seen[2] + seen[3]] == passes[:2]
    seen.clear()
    Learner(tiny_model(), LearnerConfig(seed=1), OFF).update(samples, epochs=1, minibatches=2)
    assert seen[0] + seen[1] != passes[0]


def test_training_makes_good_tokens_likelier() -> None:
    learner = Learner(tiny_model(), LearnerConfig(lr=1e-2), OFF)
    good = [replace(draw_samples()[0], advantage=1.0)]
    before = learner.logprobs([good[0].prompt_ids], [good[0].completion_ids])[0].sum()
    for _ in range(5):
        learner.update(good)
    assert learner.logprobs([good[0].prompt_ids], [good[0].completion_ids])[0].sum() > before + 1


# --- per agent ------------------------------------------------------------------------------------------------------


def test_gradient_norm_of_each_agent_equals_one_computed_alone() -> None:
    agents = ("coder_0", "solver_0", "verifier_0")
    samples = draw_samples(11, agents=agents)
    loss = LossConfig(aggregation="seq-mean-token-sum-norm", norm_length=8)
    metrics = Learner(tiny_model(), EXACT, loss).update(samples)
    assert tuple(metrics.agent_grad_norm) == agents
    combined = {}
    for agent in agents:
        # Other agents' turns with weight 0: the same denominators, nothing of their gradient.
        alone = [replace(s, weight=float(s.agent == agent)) for s in samples]
        gradient = captured_gradient(Learner(tiny_model(), EXACT, loss), alone)
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradient.values()))
        assert metrics.agent_grad_norm[agent] == pytest.approx(norm, rel=1e-9)
        for name, g in gradient.items():
            combined[name] = combined.get(name, 0) + g
    whole = captured_gradient(Learner(tiny_model(), EXACT, loss), samples)
    for name, gradient in whole.items():
        torch.testing.assert_close(combined[name], gradient, rtol=0, atol=1e-12)
    assert metrics.grad_norm == pytest.approx(math.sqrt(sum(float((g**2).sum()) for g in whole.values())), rel=1e-9)


def test_clipping_is_global_and_norms_are_those_before_it() -> None:
    samples = draw_samples()
    free = Learner(tiny_model(), EXACT, OFF)
    unclipped = captured_gradient(free, samples)
    norm = math.sqrt(sum(float((g**2).sum()) for g in unclipped.values()))
    learner = Learner(tiny_model(), replace(EXACT, max_grad_norm=norm / 4), OFF)
    metrics = copy.deepcopy(learner).update(samples)
    assert metrics.grad_norm == pytest.approx(norm)
    for name, gradient in captured_gradient(learner, samples).items():
        torch.testing.assert_close(gradient, unclipped[name] / 4, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("agent", ["solver_0", "verifier_0"])
def test_a_gradient_that_is_not_finite_names_the_agent_and_changes_nothing(agent: str) -> None:
    learner = Learner(tiny_model(), LearnerConfig(lr=1e-2), LossConfig(kind="reinforce", importance="off"))
    samples = draw_samples()
    learner.update(samples)
    before = learner.state_dict()
    # Finite in the sample, infinite once multiplied: the sum of 3e38-scaled float32 losses overflows.
    spoiled = [replace(s, advantage=3e38) if s.agent == agent else s for s in samples]
    with pytest.raises(NonFiniteGradient, match=f"Agent '{agent}' has loss .* at optimiser step 1") as caught:
        learner.update(spoiled)
    assert caught.value.agent == agent
    assert_same(before, learner.state_dict())
    learner.update(samples)  # and it can go on


def test_nan_weights_name_the_first_agent_that_meets_them() -> None:
    learner = Learner(tiny_model(), LearnerConfig(), OFF)
    with torch.no_grad():
        next(iter(learner.model.parameters()))[:] = math.nan
    with pytest.raises(NonFiniteGradient) as caught:
        learner.update(draw_samples())
    assert caught.value.agent == "solver_0"


def test_metrics_are_flat_and_per_agent() -> None:
    got = Learner(tiny_model(), LearnerConfig(), LossConfig(dual_clip=3.0)).update(draw_samples()).to_dict()
    for name in ("loss", "lr", "grad_norm", "grad_norm_max", "samples", "tokens", "steps", "entropy", "approx_kl"):
        assert math.isfinite(got[name]), name
    for name in ("grad_norm", "clip_low", "clip_high", "entropy", "sampler_diff", "sampler_diff_max", "importance"):
        assert math.isfinite(got[f"agent/verifier_0/{name}"]), name


# --- refusals -------------------------------------------------------------------------------------------------------


def test_an_empty_batch_and_impossible_samples_are_errors() -> None:
    learner = Learner(tiny_model(), LearnerConfig(), LossConfig())
    samples = draw_samples()
    with pytest.raises(ValueError, match="no sample to train on"):
        learner.update([])
    with pytest.raises(ValueError, match="do not fit 9 samples"):
        learner.update(samples, minibatches=10)
    with pytest.raises(ValueError, match=r"Sample 1 .*no completion token"):
        learner.update([samples[0], replace(samples[1], completion_ids=[], sampler_logprobs=[])])
    with pytest.raises(ValueError, match=r"Sample 0 .*has no sampler log-probs"):
        learner.update([replace(samples[0], sampler_logprobs=None)])
    with pytest.raises(ValueError, match=r"Item 0 .*no completion token"):
        learner.logprobs([[1]], [[]])
    assert learner.steps == learner.updates == 0


def test_samples_without_sampler_logprobs_train_when_the_loss_needs_none() -> None:
    samples = [replace(s, sampler_logprobs=None) for s in draw_samples()]
    metrics = Learner(tiny_model(), LearnerConfig(), OFF).update(samples)
    assert "sampler_diff" not in metrics.mean


# --- resume ---------------------------------------------------------------------------------------------------------


def assert_same(one: Any, other: Any) -> None:
    """Equal bit for bit."""
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    else:
        assert one == other


@pytest.mark.parametrize(
    ("lora", "loss"),
    [
        (None, LossConfig()),
        (None, LossConfig(kl_coef=0.1)),
        (LORA, LossConfig(kl_coef=0.1)),
        ({**LORA, "lora_dropout": 0.3}, LossConfig()),
    ],
    ids=["full", "full-kl", "lora-kl", "lora-dropout"],
)
def test_three_and_three_updates_equal_six(lora: Any, loss: LossConfig) -> None:
    config = LearnerConfig(
        lr=1e-2, weight_decay=0.1, schedule="cosine", warmup_steps=2, total_steps=40, micro_batch_tokens=24
    )
    batches = [draw_samples(seed=seed) for seed in range(6)]

    def build() -> Learner:
        return Learner(tiny_model(), config, loss, lora=lora)

    straight = build()
    metrics = [straight.update(batch, epochs=2, minibatches=2).to_dict() for batch in batches]
    first = build()
    resumed_metrics = [first.update(batch, epochs=2, minibatches=2).to_dict() for batch in batches[:3]]
    state = first.state_dict()
    first.update(batches[0])  # what happens after the checkpoint must not reach it
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    torch.manual_seed(999)  # nor may the global generator
    second = build()
    second.load_state_dict(torch.load(file, weights_only=True))
    resumed_metrics += [second.update(batch, epochs=2, minibatches=2).to_dict() for batch in batches[3:]]
    assert_same(straight.state_dict(), second.state_dict())
    for (name, one), (other_name, other) in zip(
        straight.full_named_tensors(), second.full_named_tensors(), strict=True
    ):
        assert name == other_name
        assert torch.equal(one, other)
    assert metrics == resumed_metrics
    assert straight.steps == 24


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    learner = Learner(tiny_model(), LearnerConfig(), OFF, lora={**LORA, "lora_dropout": 0.3})
    learner.update(draw_samples(), minibatches=2)
    assert torch.equal(torch.rand(3), expected)


def test_state_of_another_model_is_refused_and_changes_nothing() -> None:
    learner = Learner(tiny_model(), LearnerConfig(), OFF)
    before = learner.state_dict()
    other = Learner(tiny_model(hidden_size=32), LearnerConfig(), OFF)
    with pytest.raises(ValueError, match="differ in"):
        learner.load_state_dict(other.state_dict())
    assert_same(before, learner.state_dict())


def test_learning_rate_schedule() -> None:
    config = LearnerConfig(lr=1.0, warmup_steps=2, schedule="cosine", total_steps=6, min_lr_ratio=0.2)
    rates = [config.lr_at(step) for step in range(8)]
    half = 0.2 + 0.8 * 0.5
    quarter, three = 0.2 + 0.8 * (0.5 + math.sqrt(2) / 4), 0.2 + 0.8 * (0.5 - math.sqrt(2) / 4)
    assert rates == pytest.approx([0.5, 1.0, 1.0, quarter, half, three, 0.2, 0.2])
    learner = Learner(tiny_model(), replace(config, lr=1e-3), OFF)
    assert [learner.update(draw_samples()).lr for _ in range(3)] == pytest.approx([5e-4, 1e-3, 1e-3])
    with pytest.raises(ValueError, match="needs total_steps"):
        LearnerConfig(schedule="linear")
    with pytest.raises(ValueError, match="Did you mean 'cosine'"):
        LearnerConfig(schedule="cosin", total_steps=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="micro_batch_tokens is 0"):
        LearnerConfig(micro_batch_tokens=0)


# --- LoRA and weight export -----------------------------------------------------------------------------------------


def test_lora_trains_adapters_only_and_merges_exactly() -> None:
    base = tiny_model()
    original = {name: p.detach().clone() for name, p in base.named_parameters()}
    learner = Learner(base, LearnerConfig(lr=1e-2), OFF, lora=LORA)
    assert all("lora_" in name for name, _ in learner.trainable_named_tensors())
    start = dict(learner.full_named_tensors())
    assert list(start) == list(original)
    for name, tensor in start.items():
        assert torch.equal(tensor, original[name]), name  # B starts at 0
    samples = draw_samples()
    for _ in range(3):
        learner.update(samples)
    merged = dict(learner.full_named_tensors())
    changed = {name for name, tensor in merged.items() if not torch.equal(tensor, original[name])}
    assert changed == {name for name in original if any(m in name for m in LORA["target_modules"])}  # type: ignore[attr-defined]
    for name, p in learner.model.named_parameters():
        if "lora_" not in name:
            assert torch.equal(p, original[name.removeprefix("base_model.model.").replace(".base_layer", "")]), name
    plain = tiny_model()
    plain.load_state_dict(merged, strict=False)
    expected = Learner(plain, LearnerConfig(), OFF)
    prompts, completions = [s.prompt_ids for s in samples], [s.completion_ids for s in samples]
    for a, b in zip(expected.logprobs(prompts, completions), learner.logprobs(prompts, completions), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.parametrize("tied", [True, False])
def test_what_is_saved_is_the_model_with_lora_merged(tmp_path: Path, lora: Any, tied: bool) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = tiny_model(tie_word_embeddings=tied)
    first = copy.deepcopy(base)
    learner = Learner(base, LearnerConfig(lr=1e-2), OFF, lora=lora)
    samples = draw_samples()
    learner.update(samples)
    learner.save_pretrained(tmp_path)
    prompts, completions = [s.prompt_ids for s in samples], [s.completion_ids for s in samples]
    read = [AutoModelForCausalLM.from_pretrained(tmp_path)]
    if lora is not None:
        read.append(PeftModel.from_pretrained(first, tmp_path / "adapter"))
    for model in read:
        expected = Learner(model.requires_grad_(True), LearnerConfig(), OFF).logprobs(prompts, completions)
        for a, b in zip(expected, learner.logprobs(prompts, completions), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_the_lora_reference_is_the_model_without_adapters() -> None:
    learner = Learner(tiny_model(), LearnerConfig(lr=1e-2), LossConfig(kl_coef=0.1), lora=LORA)
    assert learner.update(draw_samples()).mean["ref_kl"] == pytest.approx(0, abs=1e-6)
    assert learner.update(draw_samples()).mean["ref_kl"] > 1e-4


def test_bfloat16_keeps_trained_weights_in_float32() -> None:
    """A step of 1e-6 on a weight of about 0.3 would be lost in the 8 bits of a bfloat16."""
    learner = Learner(tiny_model(), LearnerConfig(lr=1e-6, dtype="bfloat16"), OFF)
    start = {name: tensor.clone() for name, tensor in learner.full_named_tensors()}
    metrics = learner.update(draw_samples())
    assert math.isfinite(metrics.grad_norm)
    for name, tensor in learner.full_named_tensors():
        assert tensor.dtype == torch.float32
        assert (tensor != start[name]).float().mean() > 0.5, name
    sample = draw_samples()[0]
    got = learner.logprobs([sample.prompt_ids], [sample.completion_ids])[0]
    assert got.dtype == torch.float32
    exact = naive_logprobs(learner.model, sample)[0].detach()
    torch.testing.assert_close(got, exact, rtol=0, atol=0.1)
    assert not torch.allclose(got, exact, rtol=0, atol=1e-5)  # it is computed in bfloat16


def test_bfloat16_lora_has_float32_adapters_on_bfloat16_weights() -> None:
    learner = Learner(tiny_model(), LearnerConfig(lr=1e-6, dtype="bfloat16"), OFF, lora=LORA)
    for name, p in learner.model.named_parameters():
        assert p.dtype == (torch.float32 if "lora_" in name else torch.bfloat16), name
    learner.update(draw_samples())
    changed = [bool((t != 0).any()) for name, t in learner.trainable_named_tensors() if "lora_B" in name]
    assert changed
    assert all(changed)
    assert all(tensor.dtype == torch.bfloat16 for _, tensor in learner.full_named_tensors())


def test_lora_that_cannot_be_merged_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be merged exactly"):
        Learner(tiny_model(), LearnerConfig(), OFF, lora={**LORA, "use_dora": True})


def test_full_tensors_are_the_plain_models() -> None:
    learner = Learner(tiny_model(), LearnerConfig(), OFF)
    learner.update(draw_samples())
    names = [name for name, _ in learner.full_named_tensors()]
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names  # tied
    plain = tiny_model(seed=5)
    plain.load_state_dict(dict(learner.full_named_tensors()), strict=False)
    sample = draw_samples()[0]
    mine = learner.logprobs([sample.prompt_ids], [sample.completion_ids])[0]
    torch.testing.assert_close(naive_logprobs(plain, sample)[0].detach(), mine, rtol=0, atol=2e-6)


def test_the_loss_of_micro_batches_is_the_loss_function_itself() -> None:
    """The learner adds nothing of its own to `policy_loss`."""
    samples = draw_samples(5)
    learner = Learner(tiny_model(), EXACT, LossConfig())
    batch = MicroBatch.of([s.prompt_ids for s in samples], [s.completion_ids for s in samples])
    weights = turn_weights(batch.lengths, learner.loss)
    logprobs, entropy = CompletionForward(tiny_model().double())(batch)
    loss, _ = policy_loss(
        logprobs,
        advantages=torch.tensor([a for s in samples for a in s.token_advantages()], dtype=torch.float64),
        weights=torch.from_numpy(weights)[batch.segments],
        segments=batch.segments,
        config=learner.loss,
        sampler_logprobs=torch.tensor([x for s in samples for x in s.sampler_logprobs or ()], dtype=torch.float64),
        entropy=entropy,
    )
    assert learner.update(samples).loss == pytest.approx(float(loss.detach()), abs=1e-12)
