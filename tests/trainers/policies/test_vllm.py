"""The vLLM policy on real engines with a tiny model."""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from trainers.policies import Completion, PolicyError, PolicySpecError, Request, Sampling, candidate_seed, make_policy
from trainers.policies.decode import processed_logprobs
from trainers.policies.vllm import VLLMPolicy, acquire_engine
from trainers.policies.vllm_engine import VLLMEngine

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def policy(tiny_model: Path) -> Iterator[VLLMPolicy]:
    policy = make_policy(f"vllm:{tiny_model}", max_num_seqs=64)
    assert isinstance(policy, VLLMPolicy)
    yield policy
    asyncio.run(policy.close())


def requests(count: int, sampling: Sampling | None = None, *, n: int = 1) -> list[Request]:
    settings = sampling or Sampling(max_tokens=20)
    return [
        Request("word " * (index % 5) + str(index), "solver_0", settings, seed=100 + index, n=n)
        for index in range(count)
    ]


async def answer(policy: VLLMPolicy, asked: Sequence[Request]) -> list[Completion]:
    answers = await asyncio.gather(*map(policy.generate, asked))
    return [completion for answer in answers for completion in answer]


def check_against(folder: Path, completions: Sequence[Completion], sampling: Sampling, tolerance: float) -> None:
    """Compare log-probs with one plain forward pass of transformers for each completion."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for completion in completions:
        ids = torch.tensor([[*(completion.prompt_ids or ()), *(completion.token_ids or ())]])
        with torch.no_grad():
            logits = model(ids).logits[0, (completion.prompt_tokens or 0) - 1 : -1]
        table = processed_logprobs(logits, sampling)
        expected = [float(row[token]) for row, token in zip(table, completion.token_ids or (), strict=True)]
        assert completion.logprobs == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=24),
        Sampling(max_tokens=24, temperature=0.7),
        Sampling(max_tokens=24, temperature=1.3, top_p=0.8, top_k=50),
        Sampling(max_tokens=24, temperature=0.0),
    ],
)
async def test_logprobs_are_those_of_transformers(policy: VLLMPolicy, tiny_model: Path, sampling: Sampling) -> None:
    completions = await answer(policy, requests(8, sampling))
    assert sum(completion.completion_tokens or 0 for completion in completions) > 50
    check_against(tiny_model, completions, sampling, 1e-5)


async def test_more_prompt_tokens_at_once_than_one_step_takes(policy: VLLMPolicy) -> None:
    """vLLM would cut a prompt in two, and cannot take back the sample in between from a seeded generator on a CPU."""
    asked = [
        Request(f"{index} " + "word " * 120, "solver_0", Sampling(max_tokens=4), seed=index, key=(index,))
        for index in range(40)
    ]
    together = await answer(policy, asked)
    for index in (0, 17, 39):
        (alone,) = await answer(policy, [asked[index]])
        assert alone.token_ids == together[index].token_ids


async def test_mixed_settings_in_one_batch_keep_their_own_logprobs(policy: VLLMPolicy, tiny_model: Path) -> None:
    settings = [Sampling(max_tokens=12, temperature=t) for t in (0.0, 0.5, 1.0, 2.0)]
    asked = [request for sampling in settings for request in requests(3, sampling)]
    completions = await answer(policy, asked)
    for index, sampling in enumerate(settings):
        check_against(tiny_model, completions[3 * index : 3 * index + 3], sampling, 1e-5)


async def test_greedy_and_prompts_are_those_of_the_transformers_policy(policy: VLLMPolicy, tiny_model: Path) -> None:
    asked = requests(6, Sampling(max_tokens=24, temperature=0.0, stop=("zz",)))
    async with make_policy(f"hf:{tiny_model}") as other:
        expected = [(await other.generate(request))[0] for request in asked]
    for got, want in zip(await answer(policy, asked), expected, strict=True):
        assert (got.prompt_ids, got.token_ids, got.text) == (want.prompt_ids, want.token_ids, want.text)
        assert got.finish_reason == want.finish_reason


async def test_a_seed_gives_the_same_tokens_alone_and_among_others(policy: VLLMPolicy) -> None:
    asked = requests(16)
    together = await answer(policy, asked)
    for request, expected in zip(asked, together, strict=True):
        (alone,) = await policy.generate(request)
        assert alone.token_ids == expected.token_ids
        assert alone.logprobs == pytest.approx(expected.logprobs, abs=1e-5)


async def test_candidates_differ_repeat_and_start_with_the_single_answer(policy: VLLMPolicy) -> None:
    (request,) = requests(1, n=4)
    four = await policy.generate(request)
    assert len({completion.token_ids for completion in four}) == 4
    assert [c.token_ids for c in await policy.generate(request)] == [c.token_ids for c in four]
    assert (await answer(policy, requests(1)))[0].token_ids == four[0].token_ids


async def test_end_token_is_sampled_kept_and_not_shown(policy: VLLMPolicy) -> None:
    completions = await answer(policy, requests(48, Sampling(max_tokens=150)))
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}
    for completion in completions:
        ids = completion.token_ids or ()
        assert (ids[-1] == 1) == (completion.finish_reason == "stop")
        assert 1 not in ids[:-1]
        assert len(ids) == len(completion.logprobs or ()) == completion.completion_tokens
        assert "<|im_end|>" not in completion.text
        assert len(ids) == 150 or completion.finish_reason == "stop"


async def test_stop_string_is_not_part_of_the_text(policy: VLLMPolicy) -> None:
    (free,) = await answer(policy, requests(1, Sampling(max_tokens=30, temperature=0.0)))
    stop = free.text[6:8]
    (cut,) = await answer(policy, requests(1, Sampling(max_tokens=30, temperature=0.0, stop=(stop,))))
    assert (cut.text, cut.finish_reason) == (free.text[: free.text.index(stop)], "stop")
    assert len(cut.token_ids or ()) < 30


async def test_too_long_a_prompt_names_both_numbers(policy: VLLMPolicy) -> None:
    with pytest.raises(
        PolicyError, match=r"1003 tokens and max_tokens = 512 .* holds 1024: lower max_tokens to at most 21"
    ):
        await policy.generate(Request("x" * 1000, "a_0", Sampling(max_tokens=512), seed=0))


async def test_a_request_that_the_engine_refuses_fails_alone(policy: VLLMPolicy) -> None:
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import SamplingParams

    adapter = LoRARequest("a", 1, "nowhere")
    good = asyncio.ensure_future(policy.generate(requests(1)[0]))
    with pytest.raises(PolicyError, match=r"refused a request.*LoRA is not enabled"):
        await policy.engine.generate((3, 4), SamplingParams(max_tokens=1), adapter)
    assert (await good)[0].completion_tokens


async def unfinished(engine: VLLMEngine) -> int:
    """Number of requests that vLLM still holds, asked between two steps without waiting for the engine to be idle."""
    while engine._running:
        await asyncio.sleep(0.01)
    count: int = await engine.call(lambda llm: llm.get_num_unfinished_requests())
    return count


async def test_cancelling_aborts_the_request_and_no_other(policy: VLLMPolicy) -> None:
    engine = policy.engine
    assert isinstance(engine, VLLMEngine)
    long = Request("go on", "a_0", Sampling(max_tokens=900, stop=("never ends",)), seed=1, n=2)
    tasks = [asyncio.ensure_future(policy.generate(long)) for _ in range(2)]
    short = asyncio.ensure_future(policy.generate(requests(1)[0]))
    while len(engine._running) < 5:
        await asyncio.sleep(0.005)
    for task in tasks:
        task.cancel()
    assert (await short)[0].completion_tokens
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() for task in tasks)
    assert await asyncio.wait_for(unfinished(engine), timeout=5) == 0


async def test_a_control_call_waits_for_running_requests(policy: VLLMPolicy) -> None:
    engine = policy.engine
    assert isinstance(engine, VLLMEngine)
    before = asyncio.ensure_future(answer(policy, requests(4, Sampling(max_tokens=100, stop=("never ends",)))))
    while len(engine._running) < 4:
        await asyncio.sleep(0.005)
    call = asyncio.ensure_future(engine.call(lambda llm: llm.get_num_unfinished_requests()))
    await asyncio.sleep(0)
    after = asyncio.ensure_future(answer(policy, requests(1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not before.done()
    assert not call.done()
    await asyncio.gather(before, call, after)
    assert call.result() == 0  # neither those before it nor the one after it were in the engine


def test_one_engine_serves_several_event_loops(policy: VLLMPolicy) -> None:
    (request,) = requests(1)
    texts = {asyncio.run(policy.generate(request))[0].text for _ in range(2)}
    assert len(texts) == 1


def test_bad_engine_settings_are_refused(tiny_model: Path) -> None:
    with pytest.raises(PolicySpecError, match=r"'remote'.*local, async"):
        make_policy(f"vllm:{tiny_model}", engine="remote")
    with pytest.raises(PolicyError, match="no engine option 'max_num_seq'"):
        make_policy(f"vllm:{tiny_model}", max_num_seq=3)
    with pytest.raises(PolicyError, match="'logprobs_mode' is set by the policy"):
        make_policy(f"vllm:{tiny_model}", logprobs_mode="raw_logprobs")


async def test_engines_are_shared_counted_and_survive_each_other(
    policy: VLLMPolicy, tiny_model: Path, tiny_untied: Path
) -> None:
    (request,) = requests(1)
    expected = (await policy.generate(request))[0]
    same = make_policy(f"vllm:{tiny_model}", max_num_seqs=64)
    assert isinstance(same, VLLMPolicy)
    assert same.engine is policy.engine
    assert policy.engine.users == 2
    await same.close()
    await same.close()
    assert policy.engine.users == 1
    async with make_policy(f"vllm:{tiny_untied}") as other:
        both = await asyncio.gather(*(p.generate(request) for p in (policy, other) for _ in range(6)))
        check_against(tiny_untied, [both[-1][0]], Sampling(), 1e-5)
        assert both[0][0] == expected
    with pytest.raises(PolicyError, match="is closed"):
        await other.generate(request)
    assert (await policy.generate(request))[0] == expected


async def test_starting_an_engine_leaves_the_process_as_it_was(policy: VLLMPolicy, tiny_model: Path) -> None:
    import numpy as np

    pytest.importorskip("llvmlite")

    def state() -> tuple[Any, ...]:
        legacy = np.random.get_state()  # noqa: NPY002
        variables = os.environ.get("LD_PRELOAD"), os.environ.get("TORCH_COMPILE_DISABLE")
        return random.getstate(), str(legacy), torch.get_rng_state().tolist(), torch.set_num_threads, variables

    ffi = importlib.import_module("llvmlite.binding.ffi")  # a part of numba that vLLM's start stumbles over
    before = state()
    engine = acquire_engine(str(tiny_model), share=False)
    assert engine is not policy.engine
    assert state() == before
    assert sys.modules["llvmlite.binding.ffi"] is ffi
    await engine.close()


async def test_a_failed_step_fails_what_waits_and_what_comes(tiny_model: Path) -> None:
    engine = acquire_engine(str(tiny_model), max_num_seqs=7)
    assert isinstance(engine, VLLMEngine)
    broken = VLLMPolicy(engine)
    (request,) = requests(1)
    expected = await broken.generate(request)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the device is gone")

    def sabotage(llm: Any) -> None:
        llm.engine_core.engine_core.model_executor.execute_model = fail

    assert len(expected) == 1
    await engine.call(sabotage)
    results = await asyncio.gather(*(broken.generate(request) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(result, PolicyError) and "the device is gone" in str(result) for result in results)
    with pytest.raises(PolicyError, match="the device is gone"):
        await asyncio.wait_for(broken.generate(request), timeout=5)
    async with make_policy(f"vllm:{tiny_model}", max_num_seqs=7) as fresh:  # not the dead engine
        assert [c.token_ids for c in await fresh.generate(request)] == [c.token_ids for c in expected]
    await broken.close()


async def test_candidate_seeds_are_what_vllm_gets(policy: VLLMPolicy) -> None:
    """The second candidate alone, by its derived seed through the engine."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    (request,) = requests(1, n=2)
    second = (await policy.generate(request))[1]
    params = SamplingParams(
        temperature=1.0, max_tokens=20, seed=candidate_seed(request.seed, 1), output_kind=RequestOutputKind.FINAL_ONLY
    )
    output, version = await policy.engine.generate(second.prompt_ids or (), params)
    assert tuple(output.outputs[0].token_ids) == second.token_ids
    assert version == second.weight_version == 0
