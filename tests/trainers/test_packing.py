"""Shared prefixes: laid out once, and every number as in separate sequences."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainers.algorithms.loss_config import LossConfig
from trainers.batching import MicroBatch, Sample
from trainers.learner import Learner, LearnerConfig
from trainers.logprobs import CompletionForward
from trainers.packing import Tree, common_prefix, fill_rows, lay_out, plan_trees, sort_rows, split_trees

VOCABULARY = 40
OFF = LossConfig(importance="off")


def tiny_model(name: str = "Llama", **fields: Any) -> Any:
    """A random decoder of the named architecture whose attention is far from uniform."""
    import transformers

    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64,
        "initializer_range": 0.3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    config = getattr(transformers, f"{name}Config")(**sizes | fields)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return getattr(transformers, f"{name}ForCausalLM")(config).eval()


@st.composite
def tries(draw: st.DrawFn) -> list[tuple[list[int], list[int]]]:
    """Turns as they come in groups and episodes: new prompts, continued ones, copies, beginnings of others."""
    token = st.integers(0, 3)  # few, so that unrelated turns share prefixes too
    tokens = st.lists(token, min_size=1, max_size=5)
    turns = [(draw(tokens), draw(tokens))]
    for _ in range(draw(st.integers(0, 6))):
        prompt, completion = turns[draw(st.integers(0, len(turns) - 1))]
        whole = [*prompt, *completion]
        kind = draw(st.sampled_from(["new", "sibling", "next turn", "copy", "beginning", "cut elsewhere"]))
        if kind == "new":
            turns.append((draw(tokens), draw(tokens)))
        elif kind == "sibling":
            turns.append((prompt, draw(tokens)))
        elif kind == "next turn":
            turns.append(([*whole, *draw(st.lists(token, max_size=3))], draw(tokens)))
        elif kind == "copy":
            turns.append((prompt, completion))
        else:
            stop = len(whole) if kind == "cut elsewhere" else draw(st.integers(2, len(whole)))
            cut = draw(st.integers(1, stop - 1))
            turns.append((whole[:cut], whole[cut:stop]))
    return turns


budgets = st.sampled_from([1, 9, 25, 1000])
costs = st.sampled_from([0.0, 0.02, 1.0])


def arrays(turns: list[tuple[list[int], list[int]]]) -> list[np.ndarray]:
    return [np.array([*prompt, *completion[:-1]]) for prompt, completion in turns]


# --- the plan and the layout ----------------------------------------------------------------------------------------


@given(tries(), budgets, costs)
def test_law_every_sequence_is_a_path_that_sees_itself_alone(turns: Any, budget: int, cost: float) -> None:
    sequences = arrays(turns)
    plan = plan_trees(sequences, budget, cost)
    assert sorted(i for rows in plan for row in rows for tree in row for i in tree.members) == list(range(len(turns)))
    for rows in plan:
        layout = lay_out(sequences, rows)
        height, width = layout.input_ids.shape
        order = [i for row in rows for tree in row for i in tree.members]
        assert height * width <= budget or len(order) == 1 or width == max(len(sequences[i]) for i in order)
        ends = layout.ends if layout.ends is not None else np.full((height, width), width)
        for i, row, path in zip(order, layout.rows, layout.paths, strict=True):
            assert layout.input_ids[row, path].tolist() == sequences[i].tolist()
            assert layout.positions[row, path].tolist() == list(range(len(path)))
            for depth, token in enumerate(path):
                visible = [j for j in range(width) if j <= token < ends[row, j]]
                assert visible == path[: depth + 1].tolist()


@given(tries())
def test_law_without_a_cost_of_attention_no_shared_prefix_is_computed_twice(turns: Any) -> None:
    sequences = arrays(turns)
    (rows,) = plan_trees(sequences, 10_000, 0.0, 1e6)
    prefixes = {tuple(sequence[: n + 1].tolist()) for sequence in sequences for n in range(len(sequence))}
    assert sum(len(set(np.concatenate(paths).tolist())) for paths in by_row(lay_out(sequences, rows))) == len(prefixes)


def by_row(layout: Any) -> list[list[np.ndarray]]:
    rows: dict[int, list[np.ndarray]] = {}
    for row, path in zip(layout.rows, layout.paths, strict=True):
        rows.setdefault(row, []).append(path)
    return list(rows.values())


@given(tries(), st.sampled_from([6, 25, 1000]), costs)
def test_law_trees_are_cut_where_it_is_cheapest(turns: Any, budget: int, cost: float) -> None:
    """Against all ways to cut."""
    sequences = sorted(arrays(turns), key=lambda sequence: sequence.tolist())
    lengths = np.array([len(sequence) for sequence in sequences])
    shared = np.array([0, *(common_prefix(a, b) for a, b in itertools.pairwise(sequences))])

    def price(spans: list[tuple[int, int]]) -> float:
        sizes = [(lengths[a:b].sum() - shared[a + 1 : b].sum(), b - a) for a, b in spans]
        return sum(size * (1 + cost * size) if size <= budget or n == 1 else np.inf for size, n in sizes)

    n = len(sequences)
    ways = (
        list(itertools.pairwise([0, *inner, n])) for k in range(n) for inner in itertools.combinations(range(1, n), k)
    )
    assert price(split_trees(lengths, shared, budget, cost)) == pytest.approx(min(map(price, ways)))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 120), st.sampled_from([0, 1, 2, 4]))
def test_law_rows_hold_every_tree_once_within_the_budget(sizes: list[int], budget: int, stretch: int) -> None:
    batches = fill_rows(sizes, budget, stretch) if stretch else sort_rows(sizes, budget, 0.01, 5.0)
    assert sorted(tree for rows in batches for row in rows for tree in row) == list(range(len(sizes)))
    for rows in batches:
        width = max(sum(sizes[tree] for tree in row) for row in rows)
        largest = max(sizes[tree] for row in rows for tree in row)
        assert largest <= width <= max(1, stretch) * largest
        assert len(rows) * width <= max(budget, largest)
        assert stretch or all(len(row) == 1 for row in rows)


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=7),
    st.sampled_from([1, 25, 60, 1000]),
    costs,
    st.sampled_from([0.0, 3.0, 100.0]),
)
def test_law_sorted_rows_are_cut_where_it_is_cheapest(
    sizes: list[int], budget: int, cost: float, overhead: float
) -> None:
    """Against all ways to cut."""

    def price(batches: list[list[int]]) -> float:
        fits = all(len(batch) * batch[0] <= budget or len(batch) == 1 for batch in batches)
        return sum(len(b) * b[0] * (1 + cost * b[0]) + overhead for b in batches) if fits else np.inf

    ordered = sorted(sizes, reverse=True)
    n = len(sizes)
    ways = (
        [ordered[a:b] for a, b in itertools.pairwise([0, *inner, n])]
        for k in range(n)
        for inner in itertools.combinations(range(1, n), k)
    )
    found = [[sizes[tree] for (tree,) in rows] for rows in sort_rows(sizes, budget, cost, overhead)]
    assert price(found) == pytest.approx(min(map(price, ways)))


def test_turns_of_different_lengths_are_hardly_padded() -> None:
    rng = np.random.default_rng(0)
    sequences = [rng.integers(0, 99, n) for n in rng.integers(88, 169, 16)]
    for overhead in (64.0, 1024.0):
        plan = plan_trees(sequences, 4096, 0.0003, overhead)
        padded = sum(lay_out(sequences, rows).input_ids.size for rows in plan)
        assert padded < 1.2 * sum(map(len, sequences)) < 16 * max(map(len, sequences))


def test_a_group_is_one_row_and_a_growing_history_needs_no_mask() -> None:
    prompt = np.arange(20)
    group = [np.append(prompt, [30 + k, 31, 32]) for k in range(4)]
    assert plan_trees(group, 1000, 0.001) == [[[Tree((0, 1, 2, 3), (0, 20, 20, 20))]]]
    layout = lay_out(group, [[Tree((0, 1, 2, 3), (0, 20, 20, 20))]])
    assert layout.input_ids.size == 20 + 4 * 3
    assert layout.ends is not None
    turns = [np.arange(n) for n in (5, 9, 14)]
    assert lay_out(turns, [[Tree((0, 1, 2), (0, 5, 9))]]).ends is None


def test_trees_that_share_little_are_cut_where_attention_costs_more() -> None:
    """Groups whose prompts begin with the same three tokens: one row each, not one row of all."""
    rng = np.random.default_rng(0)
    prompts = [np.append([1, 2, 3], rng.integers(10, 90, 40)) for _ in range(3)]
    sequences = [np.append(prompt, rng.integers(10, 90, 5)) for prompt in prompts for _ in range(4)]
    (rows,) = plan_trees(sequences, 1000, 0.005, 1e6)
    assert sorted(sorted(tree.members) for row in rows for tree in row) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert all(len(row) == 1 for row in rows)
    ((row,),) = plan_trees(sequences, 1000, 0.0)
    assert len(row) == 1


# --- the numbers ----------------------------------------------------------------------------------------------------


def separate(model: Any, turns: Any, weights: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Log-probs turn by turn without padding, and the gradient of their weighted sum plus entropies."""
    model.zero_grad()
    values = []
    total = torch.zeros((), dtype=model.dtype)
    for (prompt, completion), weight in zip(turns, weights, strict=True):
        logits = model(input_ids=torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
        logs = torch.log_softmax(logits, -1)
        chosen = logs.gather(-1, torch.tensor(completion).unsqueeze(-1)).squeeze(-1)
        total = total + (weight * chosen).sum() - 0.1 * (logs.exp() * logs).sum()
        values.append(chosen.detach())
    total.backward()
    return values, [p.grad.clone() for p in model.parameters()]


def shared(model: Any, turns: Any, weights: list[torch.Tensor], budget: int, cost: float) -> Any:
    """The same through shared prefixes."""
    model.zero_grad()
    forward = CompletionForward(model, share=True, chunk=5)
    assert forward.shares
    completions = [c for _, c in turns]
    values: list[torch.Tensor] = [torch.empty(0)] * len(turns)
    for rows in plan_trees(arrays(turns), budget, cost):
        batch = MicroBatch.sharing(arrays(turns), completions, rows)
        order = [i for row in rows for tree in row for i in tree.members]
        logprobs, entropies = forward(batch, entropy_grad=True)
        (torch.cat([weights[i] for i in order]) * logprobs + 0.1 * entropies).sum().backward()
        for i, piece in zip(order, logprobs.detach().split(batch.lengths), strict=True):
            values[i] = piece
    return values, [p.grad.clone() for p in model.parameters()]


@pytest.fixture(scope="module", params=["sdpa", "eager"])
def llama(request: pytest.FixtureRequest) -> Any:
    return tiny_model(attn_implementation=request.param, initializer_range=0.2)


@given(tries(), budgets, costs, st.integers(0, 2**31))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_law_log_probs_and_gradients_are_those_of_separate_sequences(
    llama: Any, turns: Any, budget: int, cost: float, seed: int
) -> None:
    """In float32, to 1e-5."""
    rng = np.random.default_rng(seed)
    weights = [torch.from_numpy(rng.normal(size=len(c)) / len(turns)).float() for _, c in turns]
    values, gradients = separate(llama, turns, weights)
    got_values, got_gradients = shared(llama, turns, weights, budget, cost)
    for one, other in zip(values, got_values, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=1e-5)
    scale = max(1.0, *(float(g.abs().max()) for g in gradients))
    for one, other in zip(gradients, got_gradients, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=1e-5 * scale)


def draw_samples(groups: int = 4, size: int = 4, seed: int = 0) -> list[Sample]:
    """Groups of answers to one prompt by two agents, whose prompts begin alike."""
    rng = np.random.default_rng(seed)
    samples = []
    for group in range(groups):
        prompt = [5, 6, 7, *rng.integers(3, VOCABULARY, rng.integers(4, 12)).tolist()]
        for _ in range(size):
            completion = rng.integers(3, VOCABULARY, rng.integers(1, 6)).tolist()
            logprobs = (-3 + 0.3 * rng.normal(size=len(completion))).tolist()
            agent = ("solver_0", "verifier_0")[group % 2]
            samples.append(Sample(prompt, completion, logprobs, float(rng.normal()), agent))
    return samples


@pytest.mark.parametrize(
    ("loss", "lora"),
    [
        (LossConfig(), None),
        (LossConfig(ratio="sequence", entropy_coef=0.02, balance_agents=True), None),
        (LossConfig(kl_coef=0.1, aggregation="seq-mean-token-mean"), None),
        (LossConfig(kl_coef=0.1), {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"]}),
    ],
    ids=["ppo", "gspo-entropy-balanced", "kl", "lora-kl"],
)
def test_an_update_is_that_of_padded_turns(loss: LossConfig, lora: Any) -> None:
    """Several steps, whose ratios and reference divergence are not those of the first."""
    config = LearnerConfig(lr=1e-2, micro_batch_tokens=100)
    results = []
    for packing in ("shared", "padded"):
        learner = Learner(tiny_model(initializer_range=0.1), replace(config, packing=packing), loss, lora=lora)
        metrics = [learner.update(draw_samples(), epochs=2, minibatches=2).to_dict() for _ in range(2)]
        results.append((metrics, dict(learner.trainable_named_tensors())))
    (metrics, weights), (padded_metrics, padded_weights) = results
    for one, other in zip(metrics, padded_metrics, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-4)
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, padded_weights[name], rtol=0, atol=1e-4, msg=name)


def test_fewer_tokens_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    call = CompletionForward.__call__

    def spy(self: CompletionForward, batch: MicroBatch, **options: Any) -> Any:
        seen.append(batch.input_ids.numel())
        return call(self, batch, **options)

    samples = draw_samples()
    counts = {}
    for packing in ("shared", "padded"):
        learner = Learner(tiny_model(), LearnerConfig(packing=packing), OFF)
        monkeypatch.setattr(CompletionForward, "__call__", spy)
        learner.update(samples)
        counts[packing] = sum(seen)
        seen.clear()
        monkeypatch.undo()
    distinct = {(s.agent, *s.prompt_ids, *s.completion_ids[:n]) for s in samples for n in range(len(s.completion_ids))}
    assert counts["shared"] < 0.6 * counts["padded"]
    assert counts["shared"] >= len(distinct)


# --- which models can -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Llama", "Qwen2", "Qwen3", "Olmo2", "Phi3", "GPTNeoX"])
def test_decoders_that_share(name: str, caplog: pytest.LogCaptureFixture) -> None:
    fields: dict[str, Any] = {"sliding_window": None} if name == "Phi3" else {}
    model = tiny_model(name, **fields)
    assert CompletionForward(model, share=True).shares
    assert not caplog.text
    assert not CompletionForward(model).shares


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("Mistral", {"sliding_window": 4}, "do not attend to all earlier tokens"),
        ("Gemma2", {}, "do not attend to all earlier tokens"),
        ("Bloom", {"n_head": 2, "n_layer": 2}, "takes no position_ids"),
        ("Mamba", {"state_size": 4}, "do not attend to all earlier tokens"),
    ],
)
def test_models_that_cannot_share_are_found_out_and_padded(
    name: str, fields: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model(name, **fields)
    learner = Learner(model, LearnerConfig(), OFF)
    assert reason in caplog.text
    assert "packing='padded'" in caplog.text
    samples = draw_samples(2, 2)
    got = learner.logprobs([s.prompt_ids for s in samples], [s.completion_ids for s in samples])
    turns = [(s.prompt_ids, s.completion_ids) for s in samples]
    expected, _ = separate(learner.model, turns, [torch.ones(len(c)) for _, c in turns])
    for one, other in zip(expected, got, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=1e-5)
    caplog.clear()
    Learner(model, LearnerConfig(packing="padded"), OFF)
    assert "prefixes" not in caplog.text


@pytest.mark.parametrize("fault", ["mask", "positions", "refusal"])
def test_a_decoder_that_ignores_what_it_is_given_is_found_out(
    fault: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(initializer_range=0.1)
    decoder = model.model
    forward = type(decoder).forward

    def faulty(self: Any, input_ids: Any, attention_mask: Any = None, position_ids: Any = None, **rest: Any) -> Any:
        if attention_mask is not None and attention_mask.ndim == 4:
            if fault == "refusal":
                raise ValueError("Attention mask should be of size 2")
            if fault == "mask":
                attention_mask = None
            else:
                position_ids = None
        return forward(self, input_ids, attention_mask, position_ids, **rest)

    monkeypatch.setattr(type(decoder), "forward", faulty)
    assert not CompletionForward(model, share=True).shares
    assert ("refuses" if fault == "refusal" else "gives other log-probs") in caplog.text


def test_minibatches_keep_the_turns_of_a_prompt_together(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = draw_samples(6, 4)
    seen: list[list[int]] = []
    step = Learner._step

    def spy(self: Learner, batch: Any, chosen: Any, *rest: Any) -> Any:
        seen.append(list(chosen))
        return step(self, batch, chosen, *rest)

    monkeypatch.setattr(Learner, "_step", spy)
    Learner(tiny_model(), LearnerConfig(), OFF).update(samples, epochs=2, minibatches=3)
    assert sorted(seen[0] + seen[1] + seen[2]) == sorted(seen[3] + seen[4] + seen[5]) == list(range(24))
    assert all(len(part) == 8 and len({i // 4 for i in part}) == 2 for part in seen)
    assert seen[:3] != seen[3:]
    seen.clear()
    Learner(tiny_model(), LearnerConfig(minibatch_by="turn"), OFF).update(samples, minibatches=3)
    assert any(len({i // 4 for i in part}) > 2 for part in seen)


@pytest.mark.parametrize(
    ("reference", "epochs", "expected"), [("learner", 1, [16]), ("learner", 2, [24]), ("sampler", 2, [])]
)
def test_log_probs_of_before_the_update_are_computed_where_they_are_needed(
    reference: Any, epochs: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    logprobs = Learner._logprobs

    def spy(self: Learner, samples: Any, forward: Any) -> Any:
        counts.append(len(samples))
        return logprobs(self, samples, forward)

    monkeypatch.setattr(Learner, "_logprobs", spy)
    loss = LossConfig(importance="off", reference=reference)
    Learner(tiny_model(), LearnerConfig(), loss).update(draw_samples(6, 4), epochs=epochs, minibatches=3)
    assert counts == expected


def test_packing_is_checked() -> None:
    with pytest.raises(ValueError, match="Did you mean 'shared'"):
        LearnerConfig(packing="share")  # type: ignore[arg-type]
