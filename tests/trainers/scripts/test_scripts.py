"""The reference scripts run, learn what is easy, and stay short."""

from __future__ import annotations

import importlib
import re
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch

import llm_envs
from llm_envs.games import kuhn_poker
from trainers.scripts import at_grpo, dr_mas, grpo, self_play_rae

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
    history = await train(self_play_rae, "--updates", 2, "--games", 16)
    assert len(history) == 2
    for invalid, exploitability in history:
        assert 0 <= invalid <= 1
        assert 0 < exploitability < 1
    assert "exploitability" in capsys.readouterr().out


def test_exploitability_is_that_of_the_policy():
    """A made-up learner that plays an equilibrium by the words of its prompt is not exploitable; a random one is."""
    env = llm_envs.make("kuhn-poker").unwrapped
    prompts = self_play_rae.decisions(env.fork())
    assert set(prompts) == {(card, line) for card in range(3) for line in kuhn_poker.LINES}
    for (card, line), prompt in prompts.items():
        assert f"Your card is {kuhn_poker.CARDS[card]}." in prompt
        assert all(f"[{move}]" in prompt for move in kuhn_poker.legal_moves(line))
    where = {prompt: key for key, prompt in prompts.items()}
    words = [f"[{move}]" for move in kuhn_poker.LETTERS]
    tokenizer = SimpleNamespace(
        apply_chat_template=lambda messages, **options: messages[0]["content"],
        convert_tokens_to_ids=words.index,
    )

    def learner(strategy):
        def logprobs(asked, tokens):
            found = []
            for prompt, (token,) in zip(asked, tokens, strict=True):
                aggressive = kuhn_poker.is_aggressive(words[token][1:-1])
                chance = strategy[where[prompt]]
                # Half of the answers are unusable: the rest is what counts.
                found.append(torch.log(torch.tensor([float(chance if aggressive else 1 - chance) / 2 + 1e-300])))
            return found

        return SimpleNamespace(logprobs=logprobs)

    equilibrium = kuhn_poker.equilibrium(Fraction(1, 6))
    assert self_play_rae.measure(learner(equilibrium), tokenizer, prompts) == pytest.approx(0, abs=1e-6)
    random = dict.fromkeys(equilibrium, 0.5)
    assert self_play_rae.measure(learner(random), tokenizer, prompts) == pytest.approx(11 / 24)


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
