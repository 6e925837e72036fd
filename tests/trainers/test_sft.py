"""Warm start: which turns are learned, what a sample is made of, the loss against a plain model, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from trainers.cli import main
from trainers.env_texts import env_texts
from trainers.models import build_tiny_model
from trainers.policies import Request, Sampling, make_policy
from trainers.policies.chat import Prompter
from trainers.rollout.records import Episode, Turn
from trainers.sft import SFTConfig, SFTError, sft
from trainers.sft_data import end_token, read_demonstrations, split_by_task, tokenise
from trainers.tokenizing import byte_tokenizer
from trainers.tracking import read_metrics

WORDS = "Say the word of number 0 1 2 3 4 5 6 7 8 9 . left right go"


def turn(episode: str, agent: str, action: str, index: int = 0, **fields: Any) -> Turn:
    return Turn(episode, "t", agent, "p", index, index, f"Say the word of number {index}", action, **fields)


def episode(number: int, turns: list[Turn], **fields: Any) -> Episode:
    values: dict[str, Any] = {"success": True, "returns": {"solver_0": 1.0, "helper_0": 1.0}} | fields
    return Episode(f"t/{number}#0", "e", f"t/{number}", number, f"hash{number}", 0, 0, turns=turns, **values)


def write(path: Path, episodes: list[Episode]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "episodes.jsonl").write_text("".join(one.to_json() + "\n" for one in episodes))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("sft") / "tiny", texts=[WORDS], hidden_size=32, layers=1)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Forty tasks: the solver says left for an even number and right for an odd one, the helper goes."""
    episodes = [
        episode(
            i,
            [
                turn(f"t/{i}#0", "solver_0", "left" if i % 2 == 0 else "right", i % 10),
                turn(f"t/{i}#0", "helper_0", "go", i % 10),
            ],
        )
        for i in range(40)
    ]
    return write(tmp_path / "run", episodes)


def test_which_turns_are_learned(tmp_path: Path) -> None:
    kinds = [
        turn("a", "solver_0", "left"),
        turn("a", "solver_0", "cut", finish_reason="length"),
        turn("a", "solver_0", "bad", invalid="no list"),
        turn("a", "solver_0", "other", chosen=False, candidate=1),
        turn("a", "solver_0", ""),
        turn("a", "helper_0", "go"),
    ]
    episodes = [
        episode(0, kinds),
        episode(1, [turn("b", "solver_0", "lost")], success=False),
        episode(2, [turn("c", "solver_0", "broken", masked=True)], success=False, error="server down"),
    ]
    run = write(tmp_path / "r", episodes)
    found = read_demonstrations([run])
    assert [t.action for _, t in found.turns] == ["left", "go"]
    assert found.episodes == 1
    assert sum(found.left_out.values()) == 6
    every = read_demonstrations([run / "episodes.jsonl"], successful_only=False)
    assert [t.action for _, t in every.turns] == ["left", "go", "lost"]
    for name in ("helper", "helper_0"):
        assert [t.action for _, t in read_demonstrations([run], agents=[name]).turns] == ["go"]
    with pytest.raises(SFTError, match=r"no agent or role 'planner'.*helper, helper_0, solver, solver_0"):
        read_demonstrations([run], agents=["planner"])


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SFTError, match="holds no episodes"):
        read_demonstrations([tmp_path / "absent"])
    lost = write(tmp_path / "lost", [episode(0, [turn("a", "solver_0", "x")], success=False)])
    with pytest.raises(SFTError, match=r"1 episodes without success.*--all-episodes"):
        read_demonstrations([lost])
    file = lost / "episodes.jsonl"
    whole = file.read_text()
    file.write_text(whole + "{}\n")
    with pytest.raises(SFTError, match="line 2 is no episode"):
        read_demonstrations([lost], successful_only=False)
    file.write_text(whole + whole[:50])  # a torn last line
    assert len(read_demonstrations([lost], successful_only=False).turns) == 1


async def test_a_sample_is_what_a_sampler_would_have_recorded(model: Path, run: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    end = end_token(tokenizer, [tokenizer.eos_token_id])
    found = read_demonstrations([run])
    samples, _, _ = tokenise(found.turns, Prompter(tokenizer), end, 100)
    async with make_policy(f"hf:{model}") as policy:
        (answer,) = await policy.generate(
            Request(found.turns[1][1].observation, "helper_0", Sampling(max_tokens=2), seed=0)
        )
    assert samples[1].prompt_ids == answer.prompt_ids
    assert tokenizer.convert_ids_to_tokens(list(samples[1].completion_ids)) == ["go", "<|im_end|>"]
    assert tokenizer.convert_ids_to_tokens(list(samples[1].prompt_ids))[-2:] == ["<|im_end|>", "<|assistant|>"]


def test_texts_that_the_tokenizer_cannot_write_are_errors(model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)

    def read(action: str, observation: str = "go") -> None:
        one = turn("e", "solver_0", action)
        one.observation = observation
        tokenise([("t", one)], Prompter(tokenizer), 1, 100)

    with pytest.raises(SFTError, match=r"turn 0 \(solver_0\) of episode 'e'.*no token for 'jump'"):
        read("go jump")
    with pytest.raises(SFTError, match="no token for 'Who'"):
        read("go", "Who goes")
    with pytest.raises(SFTError, match="special token"):
        read("go <|im_end|>")
    with pytest.raises(SFTError, match="longer than the model's 100 tokens"):
        read("go " * 200)


def test_the_end_token_is_the_one_that_the_template_writes() -> None:
    tokenizer = byte_tokenizer()
    assert tokenizer.eos_token_id == 1
    assert end_token(tokenizer, [0, 1]) == 1
    tokenizer.chat_template = "{% for m in messages %}[{{ m['content'] }}]<|pad|>\n{% endfor %}"
    assert end_token(tokenizer, [0, 1]) == 1  # what follows the answer is "]", none of the two
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}<|pad|>\n{% endfor %}"
    assert end_token(tokenizer, [0, 1]) == 0


def test_held_out_tasks_are_whole_tasks() -> None:
    tasks = [f"t{i // 3}" for i in range(60)]
    held = split_by_task(tasks, 0.1, 0)
    assert sum(held) == 6
    assert {t for t, out in zip(tasks, held, strict=True) if out}.isdisjoint(
        t for t, out in zip(tasks, held, strict=True) if not out
    )
    assert split_by_task(tasks, 0.1, 1) != held
    assert not any(split_by_task(tasks, 0.0, 0))
    assert split_by_task(["a", "a"], 0.5, 0) == [False, False]  # one task cannot be on both sides


def test_the_loss_is_the_mean_over_answer_tokens_only(model: Path, run: Path, tmp_path: Path) -> None:
    """The first logged held-out loss against a plain forward pass of the untrained model."""
    out = tmp_path / "warm"
    sft(SFTConfig([run], model, out, epochs=1, held_out=0.2, learning_rate=1e-3))
    tokenizer = AutoTokenizer.from_pretrained(model)
    plain = AutoModelForCausalLM.from_pretrained(model).eval()
    found = read_demonstrations([run])
    held = split_by_task([task for task, _ in found.turns], 0.2, 0)
    losses = []
    for (_, one), is_out in zip(found.turns, held, strict=True):
        if not is_out:
            continue
        messages = [{"role": "user", "content": one.observation}]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        start = len(tokenizer(prompt)["input_ids"])
        ids = torch.tensor([tokenizer(prompt + one.action + "<|im_end|>")["input_ids"]])
        with torch.no_grad():
            table = plain(ids).logits[0].log_softmax(-1)
        losses += [-float(table[i - 1, ids[0, i]]) for i in range(start, ids.shape[1])]
    assert read_metrics(out)[0]["sft/held_out_loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-5)


async def test_the_model_learns_repeats_and_is_played(model: Path, run: Path, tmp_path: Path) -> None:
    results = [
        sft(SFTConfig([run], model, tmp_path / name, agents=["solver"], epochs=25, batch=8, learning_rate=1e-2))
        for name in ("a", "b")
    ]
    assert results[0].loss == results[1].loss < 0.05
    assert results[0].held_out_loss is not None
    assert results[0].held_out_loss < 0.1
    assert results[0].turns + results[0].held_out_turns == 40
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]
    async with make_policy(f"hf:{tmp_path / 'a'}") as policy:
        for number, word in ((2, "left"), (3, "right")):
            request = Request(f"Say the word of number {number}", "solver_0", Sampling(temperature=0.0), seed=0)
            (answer,) = await policy.generate(request)
            assert (answer.text, answer.finish_reason) == (word, "stop")
    assert (tmp_path / "a" / "plot.png").stat().st_size > 1000
    assert json.loads((tmp_path / "a" / "sft.json").read_text())["settings"]["agents"] == ["solver"]


def test_settings_out_of_range_and_a_taken_folder(run: Path, model: Path, tmp_path: Path) -> None:
    for name, value in (("epochs", 0), ("batch", 0), ("learning_rate", 0), ("held_out", 1), ("episodes", [])):
        with pytest.raises(SFTError, match=name):
            SFTConfig(**{"episodes": [run], "model": model, "out": tmp_path, name: value})
    with pytest.raises(SFTError, match="is not empty"):
        sft(SFTConfig([run], model, run))


def test_env_texts_hold_prompts_answers_and_complaints() -> None:
    texts = list(env_texts("plan-path-1agent", tasks=12, notation="cells", task_options={"grid_size": 4}))
    assert texts == list(env_texts("plan-path-1agent", tasks=12, notation="cells", task_options={"grid_size": 4}))
    assert any(text.startswith("Find a way") for text in texts)
    assert any(text.startswith("[r") for text in texts)
    assert any("could not be used" in text for text in texts)


def test_the_commands(tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny, warm = tmp_path / "tiny", tmp_path / "warm"
    arguments = [
        "--env",
        "plan-path-1agent",
        "--env-arg",
        "notation=cells",
        "--env-arg",
        'task_options={"grid_size":4}',
    ]
    assert main(["init", *arguments, "--tasks", "40", "--hidden", "32", "--layers", "1", "--out", str(tiny)]) == 0
    assert "parameters, a vocabulary of" in capsys.readouterr().out
    assert main(["init", *arguments, "--out", str(tiny)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["sft", "--episodes", str(run), "--model", str(tiny), "--out", str(warm)]) == 2
    assert "no token for" in capsys.readouterr().err
    assert not warm.exists()
    build_tiny_model(tmp_path / "words", texts=[WORDS], hidden_size=32, layers=1)
    given = ["sft", "--episodes", str(run), "--model", str(tmp_path / "words"), "--roles", "helper", "--epochs", "1"]
    assert main([*given, "--out", str(warm), "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "Trained on 38 turns, 2 held out" in shown
    assert f"Model: {warm}" in shown
