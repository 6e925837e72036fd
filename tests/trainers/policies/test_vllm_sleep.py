"""Sleep and waking of real vLLM engines, in this process and in another: memory goes and comes, answers stay."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM

from trainers.policies import Completion, PolicyError, Request, Sampling, make_policy
from trainers.policies.vllm import VLLMPolicy
from trainers.policies.vllm_sleep import SleepState
from trainers.weight_sync import VLLMSync, WeightSyncError

CACHE = 512 * 2**20  # bytes
HEAD = 64 * 2**20  # bytes of the embeddings, the largest tensor of the model


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose embeddings can be seen in the memory of a process; its head is tied to them."""
    from trainers.models import build_tiny_model

    folder = build_tiny_model(tmp_path_factory.mktemp("wide") / "m", init_std=0.08, seed=1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.resize_token_embeddings(HEAD // 4 // model.config.hidden_size, mean_resizing=False)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["local", "async"])
def policy(request: pytest.FixtureRequest, wide: Path) -> Iterator[VLLMPolicy]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)  # which overrides the option
        made = make_policy(
            f"vllm:{wide}",
            engine=request.param,
            share=False,
            kv_cache_memory_bytes=CACHE,
            max_num_seqs=8,
            enable_sleep_mode=True,  # without effect on a CPU
        )
    assert isinstance(made, VLLMPolicy)
    yield made
    asyncio.run(made.close())


def resident(policy: VLLMPolicy) -> int:
    """Bytes that the engine's process holds: in main memory, or swapped out. Pages of files are not its own."""
    gc.collect()  # models of other tests
    mine = psutil.Process(os.getpid())
    if not policy.engine.in_process:
        (mine,) = (child for child in mine.children(recursive=True) if "EngineCore" in child.name())
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{mine.pid}/status").read_text().splitlines())
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "VmSwap"))


async def answers(policy: VLLMPolicy) -> list[Completion]:
    asked = [
        Request("word " * 40 + str(index), "solver_0", Sampling(max_tokens=20), seed=index, key=(index,))
        for index in range(6)
    ]
    return [(await policy.generate(request))[0] for request in asked]


def assert_same(found: list[Completion], expected: list[Completion]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


@pytest.mark.vllm
@pytest.mark.slow
class TestOnARealEngine:
    """The tests share one engine, which is awake and has its weights between them."""

    async def test_level_1_gives_the_cache_back_and_takes_it_again(self, policy: VLLMPolicy) -> None:
        before = await answers(policy)
        awake = resident(policy)
        for _ in range(2):  # a second time, too
            await policy.sleep()
            asleep = resident(policy)
            assert awake - asleep == pytest.approx(CACHE, rel=0.1)
            await policy.wake()
            assert resident(policy) - asleep == pytest.approx(CACHE, rel=0.1)
            assert_same(await answers(policy), before)

    async def test_a_request_to_a_sleeping_engine_is_refused(self, policy: VLLMPolicy) -> None:
        await policy.sleep()
        await policy.sleep()  # it sleeps already
        with pytest.raises(PolicyError, match=r"engine of .* is asleep: wake it before it is asked"):
            await answers(policy)
        await policy.wake(["weights"])
        with pytest.raises(PolicyError, match="is asleep"):  # the cache is
            await answers(policy)
        await policy.wake(["kv_cache"])
        await policy.wake()
        assert len(await answers(policy)) == 6

    async def test_requests_that_run_end_before_it_falls_asleep(self, policy: VLLMPolicy) -> None:
        running = asyncio.ensure_future(answers(policy))
        await asyncio.sleep(0.05)
        await policy.sleep()
        with pytest.raises(PolicyError, match="is asleep"):
            await running  # one answer after the other: those that came later
        await policy.wake()

    async def test_level_2_gives_the_weights_back_and_a_sync_brings_new_ones(
        self, policy: VLLMPolicy, wide: Path
    ) -> None:
        before = await answers(policy)
        model = AutoModelForCausalLM.from_pretrained(wide, dtype=torch.float32)
        sync = VLLMSync(policy)
        await sync.push(model, 1)
        awake = resident(policy)
        await policy.sleep(2)
        assert awake - resident(policy) > CACHE + 1.5 * HEAD  # embeddings, and the packed copy of the head
        with pytest.raises((PolicyError, WeightSyncError), match="is asleep: wake its weights"):
            await sync.push(model, 2)
        await policy.wake(["weights"])
        await policy.wake(["kv_cache"])
        with pytest.raises(PolicyError, match="has no weights since it slept at level 2"):
            await answers(policy)
        await sync.push(model, 2)
        assert_same(await answers(policy), before)
        assert (await sync.verify(model)).max_abs_diff < 2e-5
        with torch.no_grad():
            model.lm_head.weight.mul_(1.5)
        await policy.sleep(2)
        await policy.wake(["weights"])
        await sync.push(model, 3)
        await policy.wake()
        assert (await sync.verify(model)).max_abs_diff < 2e-5
        assert [one.logprobs for one in await answers(policy)] != [one.logprobs for one in before]

    async def test_there_are_two_levels(self, policy: VLLMPolicy) -> None:
        with pytest.raises(PolicyError, match="sleep level 3: it is 1 "):
            await policy.sleep(3)


def test_weights_wake_before_the_cache() -> None:
    state = SleepState("m")
    state.fall_asleep(1, loads=0)
    assert state.waking(["kv_cache", "weights"]) == ["weights", "kv_cache"]
    state.woken(["weights"])
    state.check_weights()
    assert state.waking(["weights", "kv_cache"]) == ["kv_cache"]
    state.woken(["kv_cache"])
    state.check_request(0)
    assert not state.asleep


async def test_policies_without_an_engine_have_nothing_to_give_back(tiny_model: Path) -> None:
    request = Request("Hi", "solver_0", Sampling(max_tokens=4), seed=1)
    async with make_policy(f"hf:{tiny_model}") as policy:
        expected = await policy.generate(request)
        await policy.sleep()
        assert await policy.generate(request) == expected
        await policy.wake()
