"""The transformers policy on a tiny model: log-probs, seeds, batches, stop rules, weights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from trainers.models import build_tiny_model
from trainers.policies import Completion, PolicyError, Request, Sampling, make_policy
from trainers.policies.batching import Batcher, Job
from trainers.policies.chat import Prompter
from trainers.policies.decode import processed_logprobs
from trainers.policies.hf import HFPolicy


@pytest.fixture
async def policy(tiny_model: Path) -> AsyncIterator[HFPolicy]:
    async with HFPolicy(tiny_model) as policy:
        yield policy


def requests(count: int, sampling: Sampling | None = None, *, n: int = 1) -> list[Request]:
    settings = sampling or Sampling(max_tokens=20)
    return [
        Request("word " * (index % 5) + str(index), "solver_0", settings, seed=100 + index, n=n, key=(index, 0, 0, "a"))
        for index in range(count)
    ]


async def answer(policy: HFPolicy, asked: Sequence[Request]) -> list[Completion]:
    answers = await asyncio.gather(*map(policy.generate, asked))
    return [completion for answer in answers for completion in answer]


def reference(folder: Path, completion: Completion, sampling: Sampling) -> list[float]:
    """The log-probs of a completion by one plain forward pass of transformers."""
    assert completion.prompt_ids is not None
    assert completion.token_ids is not None
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([[*completion.prompt_ids, *completion.token_ids]])
    with torch.no_grad():
        logits = model(ids).logits[0, len(completion.prompt_ids) - 1 : -1]
    table = processed_logprobs(logits, sampling)
    return [float(row[token]) for row, token in zip(table, completion.token_ids, strict=True)]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=24),
        Sampling(max_tokens=24, temperature=0.7),
        Sampling(max_tokens=24, temperature=1.3, top_p=0.8, top_k=50),
        Sampling(max_tokens=24, temperature=0.0),
    ],
)
async def test_logprobs_are_those_of_a_plain_forward_pass(
    policy: HFPolicy, tiny_model: Path, sampling: Sampling
) -> None:
    completions = await answer(policy, requests(6, sampling))
    assert len({completion.prompt_tokens for completion in completions}) > 1  # so some rows were padded
    for completion in completions:
        assert completion.logprobs == pytest.approx(reference(tiny_model, completion, sampling), abs=1e-5)


async def test_greedy_is_generate_greedy(policy: HFPolicy, tiny_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    model = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    for completion in await answer(policy, requests(4, Sampling(max_tokens=30, temperature=0.0))):
        ids = torch.tensor([completion.prompt_ids])
        expected = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=30)
        new = expected[0, ids.shape[1] :].tolist()
        assert list(completion.token_ids or ()) == new
        assert completion.text == tokenizer.decode(new, skip_special_tokens=True)


async def test_a_seed_gives_the_same_tokens_alone_and_among_others(policy: HFPolicy) -> None:
    asked = requests(16)
    together = await answer(policy, asked)
    for request, expected in zip(asked, together, strict=True):
        (alone,) = await policy.generate(request)
        assert alone.token_ids == expected.token_ids
        assert alone.logprobs == pytest.approx(expected.logprobs, abs=1e-5)


async def test_candidates_differ_repeat_and_start_with_the_single_answer(policy: HFPolicy) -> None:
    (request,) = requests(1, n=4)
    four = await policy.generate(request)
    assert len({completion.token_ids for completion in four}) == 4
    assert [c.token_ids for c in await policy.generate(request)] == [c.token_ids for c in four]
    (single,) = await answer(policy, requests(1))
    assert single.token_ids == four[0].token_ids


async def test_samples_follow_the_reported_probabilities(policy: HFPolicy, tiny_model: Path) -> None:
    """First tokens of 2,000 samples against the model's distribution: a chi-square test over the common tokens."""
    sampling = Sampling(max_tokens=1, temperature=0.5)
    (request,) = requests(1, sampling, n=2000)
    completions = await policy.generate(request)
    model = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    with torch.no_grad():
        table = processed_logprobs(model(torch.tensor([completions[0].prompt_ids])).logits[0, -1], sampling).exp()
    counts = torch.zeros_like(table)
    for completion in completions:
        counts[completion.token_ids[0]] += 1  # type: ignore[index]
    common = table * 2000 >= 5
    statistic = float(((counts - table * 2000) ** 2 / (table * 2000))[common].sum())
    degrees = int(common.sum()) - 1
    assert degrees >= 5
    # A chi-square variable has mean k and variance 2k: five standard deviations are left.
    assert statistic < degrees + 5 * (2 * degrees) ** 0.5


async def test_stop_string_ends_the_completion_and_is_not_part_of_the_text(policy: HFPolicy) -> None:
    (free,) = await answer(policy, requests(1, Sampling(max_tokens=30, temperature=0.0)))
    assert free.finish_reason == "length"
    stop = free.text[6:8]
    (cut,) = await answer(policy, requests(1, Sampling(max_tokens=30, temperature=0.0, stop=("never", stop))))
    assert cut.finish_reason == "stop"
    assert cut.text == free.text[: free.text.index(stop)]
    assert cut.token_ids == (free.token_ids or ())[: len(cut.token_ids or ())]
    assert len(cut.token_ids or ()) == len(cut.logprobs or ()) == cut.completion_tokens < 30


async def test_end_token_is_sampled_kept_and_not_shown(policy: HFPolicy) -> None:
    completions = await answer(policy, requests(64, Sampling(max_tokens=200)))
    ended = [completion for completion in completions if completion.finish_reason == "stop"]
    assert ended
    for completion in completions:
        ids = completion.token_ids or ()
        assert (ids[-1] == 1) == (completion.finish_reason == "stop")
        assert 1 not in ids[:-1]
        assert len(ids) == len(completion.logprobs or ()) == completion.completion_tokens
        assert "<|im_end|>" not in completion.text
        assert (len(ids) == 200) or completion.finish_reason == "stop"


async def test_settings_do_not_mix_in_a_batch(policy: HFPolicy) -> None:
    cold, hot = Sampling(max_tokens=8, temperature=0.0), Sampling(max_tokens=5)
    mixed = [
        Request("same", "a_0", cold if index % 2 else hot, seed=index, key=(index, 0, 0, "a")) for index in range(8)
    ]
    completions = await answer(policy, mixed)
    assert len({completion.token_ids for completion in completions[1::2]}) == 1
    for request, completion in zip(mixed, completions, strict=True):
        (alone,) = await policy.generate(request)
        assert completion.token_ids == alone.token_ids
        assert completion.completion_tokens <= request.sampling.max_tokens


async def test_too_long_a_prompt_names_both_numbers(policy: HFPolicy) -> None:
    request = Request("x" * 1000, "a_0", Sampling(max_tokens=512), seed=0)
    with pytest.raises(
        PolicyError, match=r"1003 tokens and max_tokens = 512 .* holds 1024: lower max_tokens to at most 21"
    ):
        await policy.generate(request)


async def test_system_prompt_comes_first(tiny_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    async with make_policy(f"hf:{tiny_model}", system_prompt="Be kind.") as policy:
        (completion,) = await policy.generate(Request("Hi", "a_0", Sampling(max_tokens=1), seed=0))
    assert tokenizer.decode(completion.prompt_ids) == "<|system|>Be kind.<|im_end|><|user|>Hi<|im_end|><|assistant|>"


def test_a_prompt_is_tokenised_once(tiny_model: Path) -> None:
    prompter = Prompter(AutoTokenizer.from_pretrained(tiny_model))
    asked: list[str] = []
    text = prompter.text
    prompter.text = lambda observation: asked.append(observation) or text(observation)  # type: ignore[method-assign,func-returns-value]
    first = [prompter.encode(f"prompt {number % 3}") for number in range(9)]
    assert asked == ["prompt 0", "prompt 1", "prompt 2"]
    fresh = Prompter(prompter.tokenizer)
    assert first == [fresh.encode(f"prompt {number % 3}") for number in range(9)]
    assert len(set(first)) == 3


async def test_a_base_model_gets_the_raw_text(tmp_path: Path) -> None:
    folder = build_tiny_model(tmp_path / "base")
    (folder / "chat_template.jinja").unlink()
    async with HFPolicy(folder) as policy:
        (completion,) = await policy.generate(Request("Hi", "a_0", Sampling(max_tokens=1), seed=0))
    assert policy.tokenizer.decode(completion.prompt_ids) == "Hi"
    with pytest.raises(PolicyError, match="no chat template"):
        HFPolicy(folder, system_prompt="x")


async def play(policy: HFPolicy, episodes: int, turns: int, delays: Sequence[float], log: list[Any]) -> None:
    """Episodes of different speed that each ask several times; what is asked next depends on what was answered."""

    async def episode(index: int) -> None:
        policy.join()
        try:
            text = f"start {index}"
            for number in range(turns - index % 2):
                await asyncio.sleep(delays[(index + number) % len(delays)])
                request = Request(
                    text, "a_0", Sampling(max_tokens=6), seed=index * 10 + number, key=(index, 0, number, "a")
                )
                (completion,) = await policy.generate(request)
                log.append((request.key, completion.token_ids, completion.logprobs))
                text += completion.text
        finally:
            policy.leave()

    await asyncio.gather(*map(episode, range(episodes)))


async def test_timing_does_not_change_a_bit(tiny_model: Path) -> None:
    async with HFPolicy(tiny_model, max_batch=4) as policy:
        runs = []
        for delays in ([0.0], [0.0, 0.02, 0.005], [0.01, 0.0]):
            log: list[Any] = []
            await asyncio.wait_for(play(policy, 7, 3, delays, log), timeout=60)
            runs.append(sorted(log))
    assert runs[0] == runs[1] == runs[2]  # bitwise, log-probs included
    assert len(runs[0]) == 7 * 3 - 3


async def test_two_models_share_the_barrier(tiny_model: Path, tiny_untied: Path) -> None:
    """Episodes that alternate between two models: neither waits for episodes that wait for the other one."""
    async with HFPolicy(tiny_model) as first, HFPolicy(tiny_untied) as second:

        async def episode(index: int) -> None:
            for policy in (first, second):
                policy.join()
            for number in range(4):
                policy = (first, second)[(index + number) % 2]
                await policy.generate(
                    Request("hi", "a_0", Sampling(max_tokens=2), seed=index, key=(index, 0, number, "a"))
                )
            for policy in (first, second):
                policy.leave()

        await asyncio.wait_for(asyncio.gather(*map(episode, range(5))), timeout=60)


class Recorder:
    """A batch function that notes its batches."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[Any, ...]]] = []

    def __call__(self, jobs: Sequence[Job]) -> list[list[Completion]]:
        self.batches.append([job.request.key for job in jobs])
        if any(job.request.observation == "fail" for job in jobs):
            raise RuntimeError("out of memory")
        return [[Completion(str(job.request.key), "stop")] for job in jobs]


def job(*key: Any, text: str = "", n: int = 1) -> Job:
    return Job(Request(text, "a_0", Sampling(), seed=0, n=n, key=key), (1,))


async def test_batch_waits_for_every_episode_and_sorts_by_key() -> None:
    record = Recorder()
    batcher = Batcher(record, max_batch=2)
    for _ in range(3):
        batcher.join()
    late = [asyncio.ensure_future(batcher.submit(job(key, 0, 0))) for key in (2, 1)]
    await asyncio.sleep(0.05)
    assert record.batches == []
    last = asyncio.ensure_future(batcher.submit(job(0, 0, 0)))
    assert [(await task)[0].text for task in (*late, last)] == ["(2, 0, 0)", "(1, 0, 0)", "(0, 0, 0)"]
    assert record.batches == [[(0, 0, 0), (1, 0, 0)], [(2, 0, 0)]]
    for _ in range(3):
        batcher.leave()


async def test_two_roles_of_one_episode_count_once() -> None:
    record = Recorder()
    batcher = Batcher(record, max_batch=8)
    batcher.join()
    batcher.join()
    both = [asyncio.ensure_future(batcher.submit(job(0, 0, 0, role))) for role in ("a", "b")]
    await asyncio.sleep(0.05)
    assert record.batches == []
    batcher.leave()  # the other episode ends
    await asyncio.gather(*both)
    assert record.batches == [[(0, 0, 0, "a"), (0, 0, 0, "b")]]
    batcher.leave()


async def test_candidates_count_towards_the_batch() -> None:
    record = Recorder()
    batcher = Batcher(record, max_batch=4)
    await asyncio.gather(*(batcher.submit(job(index, 0, n=n)) for index, n in enumerate((3, 1, 1, 9, 1))))
    assert record.batches == [[(0, 0), (1, 0)], [(2, 0)], [(3, 0)], [(4, 0)]]


async def test_a_failed_batch_fails_its_requests_only() -> None:
    batcher = Batcher(Recorder(), max_batch=2)
    results = await asyncio.gather(
        *(batcher.submit(job(index, 0, text="fail" if index == 0 else "")) for index in range(4)),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [PolicyError, PolicyError, list, list]
    assert "out of memory" in str(results[0])


async def test_keys_that_cannot_be_sorted_are_an_error() -> None:
    batcher = Batcher(Recorder(), max_batch=2)
    results = await asyncio.gather(batcher.submit(job(0)), batcher.submit(job("a")), return_exceptions=True)
    assert all(isinstance(result, PolicyError) and "comparable" in str(result) for result in results)


async def test_a_cancelled_request_does_not_hold_up_the_others() -> None:
    record = Recorder()
    batcher = Batcher(record, max_batch=8)
    for _ in range(3):
        batcher.join()
    first, second = (asyncio.ensure_future(batcher.submit(job(key, 0))) for key in (0, 1))
    await asyncio.sleep(0.01)
    first.cancel()
    batcher.leave()  # the cancelled episode
    batcher.leave()  # one that never asks
    assert (await asyncio.wait_for(second, timeout=5))[0].text == "(1, 0)"
    assert record.batches == [[(1, 0)]]
    batcher.leave()
    with pytest.raises(RuntimeError, match="leave"):
        batcher.leave()


async def test_load_weights_changes_the_answers_and_the_version(policy: HFPolicy, tmp_path: Path) -> None:
    other = AutoModelForCausalLM.from_pretrained(build_tiny_model(tmp_path / "other", init_std=0.08, seed=9))
    (before,) = await answer(policy, requests(1))
    await policy.load_weights(other.named_parameters(), version=5)
    (after,) = await answer(policy, requests(1))
    assert (before.weight_version, after.weight_version) == (0, 5)
    assert before.token_ids != after.token_ids
    assert after.logprobs == pytest.approx(reference(tmp_path / "other", after, Sampling()), abs=1e-5)


async def test_load_weights_refuses_what_does_not_fit(policy: HFPolicy) -> None:
    tensors = {name: tensor.detach() + 1 for name, tensor in policy.model.named_parameters()}
    before = {name: tensor.clone() for name, tensor in policy.model.named_parameters()}
    norm = tensors.pop("model.norm.weight")
    with pytest.raises(PolicyError, match=r"missing \['model\.norm\.weight'\]"):
        await policy.load_weights(tensors.items(), version=1)
    with pytest.raises(PolicyError, match=r"unknown \['extra'\]"):
        await policy.load_weights({**tensors, "model.norm.weight": norm, "extra": norm}.items(), version=1)
    with pytest.raises(PolicyError, match=r"another shape \['model\.norm\.weight'\]"):
        await policy.load_weights({**tensors, "model.norm.weight": norm[:-1]}.items(), version=1)
    assert policy.weight_version == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.model.named_parameters())


@pytest.mark.slow
async def test_bundled_model_speaks_english() -> None:
    async with make_policy("hf:smollm2-135m") as policy:
        request = Request("What is 2+3?", "solver_0", Sampling(temperature=0.0, max_tokens=24), seed=0)
        (completion,) = await policy.generate(request)
        sentence = Request("What is the capital of France?", "a_0", Sampling(temperature=0.0, max_tokens=24), seed=0)
        (capital,) = await policy.generate(sentence)
    assert "5" in completion.text
    assert completion.finish_reason == "stop"
    assert "Paris" in capital.text


async def test_a_tiny_model_is_sampled_in_large_batches(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainers.policies import hf

    async with HFPolicy(tiny_model) as tiny, HFPolicy(tiny_model, max_batch=3) as bounded:
        monkeypatch.setattr(hf, "_TINY", 1000)
        async with HFPolicy(tiny_model) as larger:
            assert [policy._batcher.max_batch for policy in (tiny, bounded, larger)] == [256, 3, 64]


async def test_a_batch_is_computed_with_the_threads_it_was_given(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainers.policies import decode

    used: list[int] = []
    plain = decode.decode

    def spy(*args: Any, **kwargs: Any) -> Any:
        used.append(torch.get_num_threads())
        return plain(*args, **kwargs)

    monkeypatch.setattr(decode, "decode", spy)
    for threads in (1, None):
        async with HFPolicy(tiny_model, threads=threads) as policy:
            before = await policy._batcher.run(torch.get_num_threads)
            await answer(policy, requests(2))
            assert used.pop() == (threads or before)
            assert await policy._batcher.run(torch.get_num_threads) == before
