"""Weights from a learner to a sampler, the proof that they arrived, and what it says when they did not."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from trainers.models import build_tiny_model
from trainers.policies import Completion, Policy, PolicyError, Request, Sampling, make_policy
from trainers.policies.hf import HFPolicy
from trainers.policies.vllm import VLLMPolicy
from trainers.weight_sync import (
    Adapter,
    HFSync,
    SyncReport,
    VLLMLoRASync,
    VLLMSync,
    WeightSync,
    WeightSyncError,
    forward_logprobs,
    make_sync,
    named_tensors,
    verify,
)


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with tied embeddings."""
    return build_tiny_model(tmp_path_factory.mktemp("tied"), init_std=0.08, seed=1)


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with an output head of its own."""
    return build_tiny_model(tmp_path_factory.mktemp("untied"), init_std=0.08, seed=1, tie_embeddings=False)


def learner(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def shift(model: nn.Module, part: str = "", seed: int = 0) -> None:
    """Move the parameters whose name has `part`, as a training step would."""
    generator = torch.Generator().manual_seed(seed)
    moved = 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if part in name and parameter.requires_grad:
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
                moved += 1
    assert moved


def adapted(folder: Path, seed: int, adapter: str = "default") -> Any:
    """A peft model whose adapter does something."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(learner(folder), config, adapter_name=adapter).eval()
    shift(model, "lora_", seed)
    return model


# The comparison itself


class Fixed(Policy):
    """Answers with given log-probs."""

    def __init__(self, logprobs: tuple[float, ...] | None) -> None:
        super().__init__("fixed")
        self.logprobs = logprobs

    async def generate(self, request: Request) -> list[Completion]:
        ids = None if self.logprobs is None else (7,) * len(self.logprobs)
        return [Completion("", "stop", prompt_ids=(1,), token_ids=ids, logprobs=self.logprobs)]


async def test_report_counts_and_measures() -> None:
    report = await verify(Fixed((-1.0, -2.0)), lambda prompt, ids: (-1.0, -2.00005), ["a", "b", "c"])
    assert report.n_tokens == 6
    assert report.max_abs_diff == pytest.approx(5e-5)
    assert report.mean_abs_diff == pytest.approx(2.5e-5)
    assert report.ok
    assert str(report).startswith("weights verified: fixed version 0, 6 tokens, max |Δ log-prob| 5.00e-05")


@pytest.mark.parametrize("value", [-2.001, math.nan, -math.inf])
async def test_a_difference_or_a_nan_fails(value: float) -> None:
    with pytest.raises(WeightSyncError, match=r"'fixed'.*2 tokens.*pass the learner's weights") as caught:
        await verify(Fixed((-1.0, -2.0)), lambda prompt, ids: (-1.0, value), ["a"])
    assert caught.value.report is not None
    assert not caught.value.report.ok


async def test_what_cannot_be_compared_is_an_error() -> None:
    with pytest.raises(WeightSyncError, match="cannot be verified"):
        await verify(Fixed(None), lambda prompt, ids: (), ["a"])
    with pytest.raises(ValueError, match="at least one prompt"):
        await verify(Fixed((-1.0,)), lambda prompt, ids: (-1.0,), [])
    with pytest.raises(WeightSyncError, match="cannot be trained"):
        make_sync(Fixed(None))


def test_a_report_is_not_ok_just_above_the_tolerance() -> None:
    report = SyncReport("p", 0, 1.0001e-4, 0.0, 1, 1e-4)
    assert not report.ok
    assert "DIFFER" in str(report)
    assert dataclasses.replace(report, max_abs_diff=1e-4).ok


def test_named_tensors_are_those_of_the_checkpoint(tied: Path) -> None:
    plain = dict(named_tensors(learner(tied)))
    assert "lm_head.weight" not in plain
    assert {name: tensor.shape for name, tensor in named_tensors(adapted(tied, 1))} == {
        name: tensor.shape for name, tensor in plain.items()
    }

    class Owner:
        model = learner(tied)

    assert [name for name, _ in named_tensors(Owner())] == list(plain)
    assert not any(tensor.requires_grad for tensor in plain.values())


def test_forward_logprobs_at_a_temperature_leaves_the_mode(tied: Path) -> None:
    model = learner(tied).train()
    values = forward_logprobs(model, temperature=0.5)([3, 10, 4], [20, 21])
    assert model.training
    with torch.no_grad():
        table = (model.eval()(torch.tensor([[3, 10, 4, 20, 21]])).logits[0] / 0.5).log_softmax(-1)
    assert values == pytest.approx([float(table[2, 20]), float(table[3, 21])], abs=1e-6)


# transformers


@pytest.fixture
async def hf(tied: Path) -> AsyncIterator[HFPolicy]:
    async with HFPolicy(tied) as policy:
        yield policy


async def test_hf_full_weights(hf: HFPolicy, tied: Path) -> None:
    model = learner(tied)
    sync = make_sync(hf)
    assert isinstance(sync, HFSync)
    assert (await sync.verify(model)).max_abs_diff < 1e-5
    shift(model)
    with pytest.raises(WeightSyncError, match=r"hf:.*version 0"):
        await sync.verify(model)
    await sync.push(model, 1)
    report = await sync.verify(model, sampling=Sampling(temperature=0.7))
    assert report.weight_version == hf.weight_version == 1
    assert report.n_tokens > 30


@pytest.mark.parametrize(
    ("part", "groups"),
    [
        ("embed_tokens", ("embeddings", "output head")),
        ("self_attn.k_proj", ("attention layers",)),
        ("mlp.down_proj", ("mlp layers",)),
        ("input_layernorm", ("norms",)),
    ],
)
async def test_hf_failure_names_the_layer_group(hf: HFPolicy, tied: Path, part: str, groups: tuple[str, ...]) -> None:
    model = learner(tied)
    shift(model, part)
    with pytest.raises(WeightSyncError, match=groups[0]) as caught:
        await HFSync(hf).verify(model)
    assert caught.value.groups == groups


async def test_hf_lora(hf: HFPolicy, tied: Path) -> None:
    first, second = adapted(tied, 1), adapted(tied, 2)
    sync = make_sync(hf, lora=True)
    await sync.push(first, 1)
    await sync.verify(first)
    with pytest.raises(WeightSyncError, match="LoRA adapter") as caught:
        await sync.verify(second)
    assert caught.value.groups == ("LoRA adapter",)
    await sync.push(second, 2)
    assert (await sync.verify(second)).weight_version == 2
    await sync.close()


@pytest.mark.parametrize("lora", [False, True])
async def test_weights_that_were_set_aside_are_those_of_then(hf: HFPolicy, tied: Path, lora: bool) -> None:
    """The learner has moved on when the sampler gets them."""
    model = adapted(tied, 1) if lora else learner(tied)
    sync, then = make_sync(hf, lora=lora), copy.deepcopy(model)
    kept = await sync.set_aside(model)
    shift(model)
    await sync.push(kept, 3)
    assert (await sync.verify(then)).weight_version == 3
    with pytest.raises(WeightSyncError):
        await sync.verify(model)


async def test_an_adapter_is_written_as_peft_reads_it(hf: HFPolicy, tied: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    model = adapted(tied, 1, "solver")
    adapter = await make_sync(hf, lora=True).set_aside(model)
    assert isinstance(adapter, Adapter)
    adapter.save(tmp_path / "a")
    read = PeftModel.from_pretrained(learner(tied), tmp_path / "a").eval()
    assert forward_logprobs(read)([3, 4], [5, 6]) == forward_logprobs(model)([3, 4], [5, 6])


# vLLM in this process


@pytest.fixture(scope="module")
def served(tied: Path) -> Iterator[VLLMPolicy]:
    policy = make_policy(f"vllm:{tied}", share=False)
    assert isinstance(policy, VLLMPolicy)
    yield policy
    asyncio.run(policy.close())


@pytest.mark.vllm
@pytest.mark.slow
class TestVLLM:
    """Full weights into an engine of this process."""

    async def test_push_then_verify(self, served: VLLMPolicy, tied: Path) -> None:
        model = learner(tied)
        sync = make_sync(served)
        assert isinstance(sync, VLLMSync)
        await sync.push(model, 1)
        for version in (2, 3):
            shift(model, seed=version)
            await sync.push(model, version)
            report = await sync.verify(model)
            assert report.max_abs_diff < 2e-5
            assert report.weight_version == served.weight_version == version
        await sync.verify(model, sampling=Sampling(temperature=0.7))

    async def test_a_cached_prefix_is_used_by_the_weights_that_computed_it_alone(
        self, served: VLLMPolicy, tied: Path
    ) -> None:
        """A prompt longer than a cache block, before and after a push: of another version, and of the same once more.

        The cache is not flushed, and the proof shows that nothing of it is used.
        """
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        model, sync = learner(tied), VLLMSync(served)
        prompt = "a long prompt " * 30
        ids = served.engine.tokenizer(prompt).input_ids
        params = SamplingParams(max_tokens=1, output_kind=RequestOutputKind.FINAL_ONLY)

        async def cached() -> int:
            output, _ = await served.engine.generate(ids, params)
            return int(output.num_cached_tokens)

        for version in (1, 2, 2):
            await sync.push(model, version)
            first, second = await cached(), await cached()
            assert first == 0 < second
            await sync.verify(model, prompts=[prompt])
            shift(model, seed=version)

    async def test_stale_output_head_is_found_and_named(
        self, served: VLLMPolicy, tied: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without the repair after a reload, vLLM on a CPU keeps the old output head of a tied model."""
        from trainers.policies.vllm_worker import WorkerExtension

        model, sync = learner(tied), VLLMSync(served)
        await sync.push(model, 1)
        shift(model)
        monkeypatch.setattr(WorkerExtension, "repack_output_head", lambda self: False)
        await sync.push(model, 2)
        with pytest.raises(WeightSyncError, match=r"vllm:.*log-probs differ by up to .*output head") as caught:
            await sync.verify(model)
        assert caught.value.groups == ("output head",)
        assert caught.value.report is not None
        assert caught.value.report.max_abs_diff > 1e-2
        monkeypatch.undo()
        await sync.push(model, 3)
        await sync.verify(model)

    @pytest.mark.parametrize(
        ("part", "groups"),
        [
            ("embed_tokens", {"embeddings", "output head"}),
            ("self_attn.v_proj", {"attention layers"}),
            ("self_attn.o_proj", {"attention layers"}),
            ("mlp.up_proj", {"mlp layers"}),
            ("mlp.down_proj", {"mlp layers"}),
            ("model.norm", {"norms"}),
        ],
    )
    async def test_failure_names_the_layer_group(
        self, served: VLLMPolicy, tied: Path, part: str, groups: set[str]
    ) -> None:
        model, sync = learner(tied), VLLMSync(served)
        await sync.push(model, 1)
        await sync.verify(model)
        shift(model, part)
        with pytest.raises(WeightSyncError) as caught:
            await sync.verify(model)
        assert set(caught.value.groups) == groups

    async def test_wrong_log_probs_with_right_weights_say_so(self, served: VLLMPolicy, tied: Path) -> None:
        model, sync = learner(tied), VLLMSync(served)
        await sync.push(model, 1)
        with pytest.raises(WeightSyncError, match="served weights agree") as caught:
            await verify(served, forward_logprobs(model, temperature=1.1), source=model)
        assert caught.value.groups == ()

    async def test_running_requests_keep_their_version(self, served: VLLMPolicy, tied: Path) -> None:
        model, sync = learner(tied), VLLMSync(served)
        await sync.push(model, 1)
        sampling = Sampling(max_tokens=60)
        running = asyncio.ensure_future(served.generate(Request("go", "a_0", sampling, seed=0, n=4)))
        await asyncio.sleep(0.05)
        shift(model)
        push = asyncio.ensure_future(sync.push(model, 2))
        await asyncio.sleep(0)
        later = asyncio.ensure_future(served.generate(Request("go", "a_0", sampling, seed=0, n=4)))
        await push
        assert {completion.weight_version for completion in await running} == {1}
        assert {completion.weight_version for completion in await later} == {2}
        logprobs = forward_logprobs(model)
        for completion in await later:
            expected = logprobs(completion.prompt_ids or (), completion.token_ids or ())
            assert completion.logprobs == pytest.approx(expected, abs=2e-5)

    async def test_shared_engine_is_refused(self, served: VLLMPolicy, tied: Path) -> None:
        other = VLLMPolicy(served.engine)
        with pytest.raises(WeightSyncError, match="share=False"):
            await VLLMSync(served).push(learner(tied), 1)
        await other.close()

    async def test_adapters_are_refused(self, served: VLLMPolicy, tied: Path) -> None:
        with pytest.raises(WeightSyncError, match="VLLMLoRASync"):
            await VLLMSync(served).push(adapted(tied, 1), 1)

    async def test_untied_head(self, untied: Path) -> None:
        model = learner(untied)
        async with make_policy(f"vllm:{untied}", share=False) as policy:
            sync = make_sync(policy)
            await sync.verify(model)
            shift(model)
            await sync.push(model, 1)
            assert (await sync.verify(model)).max_abs_diff < 2e-5
            shift(model, "lm_head")
            with pytest.raises(WeightSyncError, match="output head") as caught:
                await sync.verify(model)
            assert caught.value.groups == ("output head",)

    async def test_two_adapters_on_one_engine(self, tied: Path, tmp_path: Path) -> None:
        options = {"enable_lora": True, "max_loras": 3, "max_lora_rank": 8}
        solver, verifier = (make_policy(f"vllm:{tied}", **options) for _ in range(2))
        assert isinstance(solver, VLLMPolicy)
        assert isinstance(verifier, VLLMPolicy)
        assert solver.engine is verifier.engine
        models = [adapted(tied, 1), adapted(tied, 2, "verifier")]
        syncs = [make_sync(solver, lora=True, name="solver"), VLLMLoRASync(verifier, folder=tmp_path)]
        await asyncio.gather(*(sync.push(model, 1) for sync, model in zip(syncs, models, strict=True)))
        for version in (2, 3):
            for sync, model in zip(syncs, models, strict=True):
                shift(model, "lora_", seed=10 * version)
                await sync.push(model, version)
            for sync, model in zip(syncs, models, strict=True):
                assert (await sync.verify(model)).weight_version == version
        with pytest.raises(WeightSyncError) as caught:
            await syncs[0].verify(models[1])
        assert caught.value.groups == ("LoRA adapter",)
        assert solver.lora.lora_name.startswith("solver-v3-")
        assert verifier.lora.lora_name.startswith("verifier-v3-")
        assert len(list(tmp_path.iterdir())) == 1  # older adapters are gone
        loaded = await solver.engine.call(lambda llm: llm.list_loras())  # type: ignore[attr-defined]
        assert loaded == {solver.lora.lora_int_id, verifier.lora.lora_int_id}
        with pytest.raises(WeightSyncError, match="pushes a peft model"):
            await syncs[0].push(learner(tied), 4)
        for sync in syncs:
            await sync.close()
        assert tmp_path.is_dir()
        await asyncio.gather(solver.close(), verifier.close())


# vLLM in a process of its own


async def check_ways(policy: VLLMPolicy, sync: WeightSync, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's transfer and a folder, one after the other; a tensor that is lost on the way is found and named."""
    from trainers.policies import vllm_shared

    assert isinstance(sync, VLLMSync)
    assert sync.transfer is not None
    assert sync.transfer.backend == "shared"
    policy.transfer = "folder"
    folder = VLLMSync(policy)
    for version, way in enumerate((sync, folder, sync), start=2):
        shift(model, seed=version)
        await way.push(model, version)
        assert (await way.verify(model)).max_abs_diff < 2e-5
        assert policy.weight_version == version
    write = vllm_shared._write

    def lose(info: Any, source: Any) -> None:
        write(info, source)
        whole = torch.from_file(info.path, shared=True, size=info.size, dtype=torch.uint8)
        start = info.offsets[info.names.index("model.layers.1.mlp.down_proj.weight")]
        whole[start : start + 4096] = 0

    monkeypatch.setattr(vllm_shared, "_write", lose)
    shift(model)
    await sync.push(model, 7)
    with pytest.raises(WeightSyncError) as caught:
        await sync.verify(model)
    assert caught.value.groups == ("mlp layers",)
    monkeypatch.undo()
    await sync.push(model, 8)
    await sync.verify(model)


@pytest.mark.vllm
@pytest.mark.slow
async def test_async_engine(tied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything once, because the start of the process takes long: answers, weights, proof, failure, abort, end."""
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import SamplingParams

    policy = make_policy(f"vllm:{tied}", engine="async", share=False, transfer="shared")
    assert isinstance(policy, VLLMPolicy)
    model, sync = learner(tied), make_sync(policy)
    asked = [Request(f"word {index}", "a_0", Sampling(max_tokens=16), seed=index) for index in range(8)]
    together = await asyncio.gather(*map(policy.generate, asked))
    assert [(await policy.generate(request))[0].token_ids for request in asked] == [
        answer[0].token_ids for answer in together
    ]
    await sync.verify(model)
    shift(model)
    with pytest.raises(WeightSyncError) as caught:
        await sync.verify(model)
    assert "output head" in caught.value.groups
    await sync.push(model, 1)
    assert (await sync.verify(model)).max_abs_diff < 2e-5
    assert policy.weight_version == 1
    await check_ways(policy, sync, model, monkeypatch)
    task = asyncio.ensure_future(policy.generate(Request("go", "a_0", Sampling(max_tokens=900), seed=0)))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(policy.generate(asked[0]), timeout=30)
    with pytest.raises(PolicyError, match="LoRA is not enabled"):
        await policy.engine.generate((3, 4), SamplingParams(max_tokens=1), LoRARequest("a", 1, "nowhere"))
    name, tensor = named_tensors(model)[0]
    with pytest.raises(WeightSyncError, match="version 9 by 'shared'"):
        await sync.push([(name, tensor[:, :3])], 9)
    with pytest.raises(PolicyError, match="its weights are unknown"):
        await policy.generate(asked[0])
    await policy.engine.settle()
    await VLLMSync(policy).push(model, 10)  # `check_ways` has left the folder as the way, which is not vLLM's transfer
    await sync.verify(model)
    await policy.close()
    with pytest.raises(PolicyError, match="is closed"):
        await policy.generate(asked[0])
