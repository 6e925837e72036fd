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


def test_the_strategy_is_that_of_the_policy():
    """Made-up learners that play by the words of their prompt: what they play is found, cards may be named wrongly."""
    env = llm_envs.make("kuhn-poker").unwrapped
    prompts = tiny_kuhn_player.decisions(env.fork())
    assert set(prompts) == {(card, line) for card in range(3) for line in kuhn_poker.LINES}
    for (card, line), prompt in prompts.items():
        assert f"Your card is {kuhn_poker.CARDS[card]}." in prompt
        assert all(f"[{move}]" in prompt for move in kuhn_poker.legal_moves(line))
    where = {prompt: key for key, prompt in prompts.items()}
    words = ["J.", "Q.", "K.", "<end>", *(f"[{move}]" for move in kuhn_poker.LETTERS)]
    tokenizer = SimpleNamespace(
        apply_chat_template=lambda messages, **options: messages[0]["content"],
        convert_tokens_to_ids=words.index,
        eos_token="<end>",
    )

    def learner(strategy):
        def logprobs(asked, answers):
            found = []
            for prompt, (named, move, end) in zip(asked, answers, strict=True):
                assert words[end] == "<end>"
                chance = float(strategy[where[prompt]])
                if not kuhn_poker.is_aggressive(words[move][1:-1]):
                    chance = 1 - chance
                # It names each card with its own chance, and one answer in ten is something else.
                chances = [(0.5, 0.3, 0.2)[named], chance + 1e-300, 0.9]
                found.append(torch.log(torch.tensor(chances, dtype=torch.float64)))
            return found

        return SimpleNamespace(logprobs=logprobs)

    for strategy in (kuhn_poker.equilibrium(Fraction(1, 6)), dict.fromkeys(kuhn_poker.equilibrium(), 0.25)):
        found, other = tiny_kuhn_player.read_strategy(learner(strategy), tokenizer, prompts)
        assert found == pytest.approx({point: float(chance) for point, chance in strategy.items()}, abs=1e-9)
        assert other == pytest.approx(0.1)


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
