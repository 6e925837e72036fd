"""The reference scripts run, learn what is easy, and stay short."""

from __future__ import annotations

import importlib
import re
from fractions import Fraction

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import llm_envs
from llm_envs.games import kuhn_poker
from trainers.algorithms.loss_config import LossConfig
from trainers.learner import Learner
from trainers.learner_config import LearnerConfig
from trainers.models import build_tiny_model
from trainers.policies import Request, Sampling
from trainers.scripts import at_grpo, dr_mas, grpo, self_play_rae, tiny_kuhn_player

SCRIPTS = {"grpo": grpo, "dr_mas": dr_mas, "at_grpo": at_grpo, "self_play_rae": self_play_rae}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def train(script, *flags):
    return script.train(script.parse([str(flag) for flag in flags]))


async def test_grpo_learns(capsys):
    history = await train(grpo, "--updates", 30)
    assert sum(history[:2]) / 2 < 0.3
    assert sum(history[-3:]) / 3 > 0.5
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("update")]
    assert len(lines) == len(history) == 30
    assert re.fullmatch(r"update   1  success \d\.\d{3}  gradient +\d+\.\d{3}  entropy \d\.\d{3}  invalid .*", lines[0])


async def test_a_seed_decides_everything():
    first = await train(grpo, "--updates", 2, "--seed", 3)
    assert await train(grpo, "--updates", 2, "--seed", 3) == first
    assert await train(grpo, "--updates", 2, "--seed", 4) != first


async def test_grpo_takes_its_flags():
    flags = ("--epochs", 2, "--minibatches", 2, "--kl", 0.1, "--clip", 0.1, "--group-size", 4)
    history = await train(grpo, "--updates", 1, *flags)
    assert len(history) == 1


@pytest.mark.parametrize("normalize", ["agent", "global"])
async def test_dr_mas_runs(capsys, normalize):
    history = await train(dr_mas, "--updates", 2, "--normalize", normalize, "--group-size", 8)
    assert len(history) == 2
    out = capsys.readouterr().out
    assert re.search(r"update   1  success \d\.\d{3}  solver_0: gradient .* inflation .*  verifier_0: gradient", out)


async def test_at_grpo_runs(capsys):
    before, after = await train(at_grpo, "--updates", 2, "--tasks", 4, "--candidates", 3, "--eval-tasks", 4)
    assert 0 <= before <= 1
    assert 0 <= after <= 1
    out = capsys.readouterr().out
    assert out.count("without a tree: success") == 2
    assert "path success" in out
    assert not re.search(r"update.*[^h] success", out), "the success of a path is called so"


async def test_self_play_runs(capsys):
    history = await train(self_play_rae, "--updates", 2, "--games", 16, "--hands", 24, "--epochs", 1)
    assert len(history) == 2
    for invalid, exploitability in history:
        assert 0 <= invalid <= 1
        assert 0 < exploitability <= 1
    out = capsys.readouterr().out
    assert out.startswith("warm start  exploitability")
    assert "update   2  invalid" in out


async def test_a_beginner_names_its_card_and_moves_at_random():
    env = llm_envs.make("kuhn-poker").unwrapped
    beginner = tiny_kuhn_player.Beginner()
    for (card, line), prompt in tiny_kuhn_player.decisions(env.fork()).items():
        request = Request(prompt, "player_0", Sampling(), seed=3, n=200)
        said = [completion.text for completion in await beginner.generate(request)]
        legal = {f"{kuhn_poker.CARDS[card]}. [{move}]" for move in kuhn_poker.legal_moves(line)}
        assert set(said) == legal
        assert all(70 <= said.count(text) <= 130 for text in legal)


def test_the_strategy_is_that_of_the_answers(monkeypatch):
    """Each text counts as the move that the game reads in it, and unusable ones for none."""
    env = llm_envs.make("kuhn-poker").unwrapped
    prompts = tiny_kuhn_player.decisions(env.fork())
    assert set(prompts) == {(card, line) for card in range(3) for line in kuhn_poker.LINES}
    for (card, line), prompt in prompts.items():
        assert f"Your card is {kuhn_poker.CARDS[card]}." in prompt
        assert all(f"[{move}]" in prompt for move in kuhn_poker.legal_moves(line))
    equilibrium = kuhn_poker.equilibrium(Fraction(1, 6))

    def chances(model, tokenizer, asked):
        for point, prompt in prompts.items():
            assert prompt in asked
            cautious, aggressive = sorted(kuhn_poker.legal_moves(point[1]), key=kuhn_poker.is_aggressive)
            bold = float(equilibrium[point])
            yield {
                f"J. [{aggressive}]": 0.5 * bold, f"[{aggressive}] [{aggressive}]": 0.3 * bold,
                f"[{cautious}]": 0.8 * (1 - bold),
                f"[{cautious}] [{aggressive}]": 0.1, "K.": 0.05, "[raise]": 0.05,
            }  # fmt: skip

    monkeypatch.setattr(tiny_kuhn_player, "answer_chances", chances)
    found, unusable = tiny_kuhn_player.read_strategy(None, None, prompts)
    assert found == pytest.approx({point: float(chance) for point, chance in equilibrium.items()})
    assert unusable == pytest.approx(0.2)


def test_the_chances_of_answers_are_those_of_their_tokens(tmp_path):
    words = ["J.", "[bet]", "[check]"]
    folder = build_tiny_model(tmp_path, vocab=words, hidden_size=32, layers=1, init_std=0.4)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    prompts = ["J. [bet]", "you [check] are J. and"]
    found = tiny_kuhn_player.answer_chances(model, tokenizer, prompts, max_tokens=2, floor=0.0)
    learner = Learner(model, LearnerConfig(), LossConfig())
    end = tokenizer.eos_token_id
    ids = range(len(tokenizer))
    answers = [(end,), *((one, two) for one in ids if one != end for two in ids)]
    for prompt, chances in zip(prompts, found, strict=True):
        assert sum(chances.values()) == pytest.approx(1)
        message = [{"role": "user", "content": prompt}]
        asked = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
        logs = learner.logprobs([asked] * len(answers), answers)
        expected = {}
        for answer, log in zip(answers, logs, strict=True):
            text = tokenizer.decode(answer, skip_special_tokens=True)
            expected[text] = expected.get(text, 0.0) + float(log.double().sum().exp())
        assert chances == pytest.approx(expected, rel=1e-4)
    (rare,) = tiny_kuhn_player.answer_chances(model, tokenizer, prompts[:1], max_tokens=2, floor=0.02)
    assert rare
    assert sum(rare.values()) < 1
    assert all(chance <= found[0][text] + 1e-6 for text, chance in rare.items())


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_short_explains_its_flags_and_cites_its_paper(repository, capsys, name):
    source = (repository / "trainers" / "scripts" / f"{name}.py").read_text()
    assert len(source.splitlines()) <= 150
    assert "arXiv" in source.partition('"""\n\n')[0]
    assert "Trainer" not in source
    script = importlib.import_module(f"trainers.scripts.{name}")
    with pytest.raises(SystemExit) as caught:
        script.parse(["--help"])
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for flag in re.findall(r'add\("(--[a-z-]+)"', source):
        assert flag in text
    assert source.count('    add("--') == source.count("help="), "every flag is explained"
