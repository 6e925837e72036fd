"""A tiny model that has learned to read and to answer in Kuhn poker, not to play it; and what it plays, exactly.

  python -m trainers.scripts.tiny_kuhn_player --out models/kuhn

A model with random weights cannot read. The warm start shows it answers that name the card and then make a move *at
random*: it learns the form, and to look at its card, and nothing of how to play.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import llm_envs
from llm_envs.games import kuhn_poker
from llm_envs.games.base import bracketed
from llm_envs.parsing import InvalidAction
from trainers.env_texts import env_texts
from trainers.models import build_tiny_model
from trainers.policies import Completion, Policy, Request
from trainers.policies.base import candidate_seed
from trainers.policies.chat import completion_text
from trainers.quiet import quieten_libraries
from trainers.rollout.episodes import collect, make_jobs
from trainers.sft import SFTConfig, sft
from trainers.team import Team

__all__ = ["MAX_TOKENS", "Beginner", "Point", "answer_chances", "decisions", "read_strategy", "warm_start"]

MAX_TOKENS = 3
"""Tokens of an answer: the card, the move, the end."""

Point = tuple[int, str]
"""A decision: own card, moves so far."""


class Beginner(Policy):
    """Names its card, as its prompt tells it, and makes a legal move at random: ``K. [fold]``."""

    def __init__(self) -> None:
        super().__init__("beginner")

    async def generate(self, request: Request) -> list[Completion]:
        """Return `request.n` answers."""
        (card,) = re.findall(r"Your card is (\w\.)", request.observation)
        moves = re.findall(r"\[\w+\]", request.observation.rpartition("Legal moves:")[2])
        draws = [random.Random(candidate_seed(request.seed, index)) for index in range(request.n)]
        return [Completion(f"{card} {draw.choice(moves)}", "stop") for draw in draws]


async def warm_start(
    folder: Path, seed: int, *, hands: int = 1000, epochs: int = 5, hidden: int = 64, layers: int = 2
) -> Path:
    """A tiny model with the words of the game, fine-tuned on a beginner's answers; returns its folder.

    Weights start with a standard deviation of 0.1: at the usual 0.02 the card, one word in a hundred, is not noticed.
    """
    words = dict.fromkeys(word for text in env_texts("kuhn-poker", tasks=100) for word in text.split())
    base = build_tiny_model(
        folder / "random",
        vocab=list(words),
        hidden_size=hidden,
        layers=layers,
        intermediate_size=170,
        max_length=256,
        init_std=0.1,
        seed=seed,
    )
    env: Any = llm_envs.make("kuhn-poker", task_options={"size": hands}).unwrapped
    episodes = await collect(env.fork, Team.single(Beginner()), make_jobs(range(hands), 1, seed))
    shown = folder / "beginner.jsonl"
    shown.write_text("".join(episode.to_json() + "\n" for episode in episodes))
    config = SFTConfig(
        [shown],
        base,
        folder / "warm",
        all_episodes=True,
        epochs=epochs,
        learning_rate=3e-3,
        batch=64,
        seed=seed,
        micro_batch_tokens=16384,
    )
    return sft(config).folder


def decisions(env: Any) -> dict[Point, str]:
    """The prompt of each of the twelve decisions, by (own card, moves so far)."""
    words = {letter: f"[{move}]" for move, letter in kuhn_poker.LETTERS.items()}
    prompts: dict[Point, str] = {}
    for index, task in enumerate(env.tasks):
        for line in kuhn_poker.LINES:
            seat = len(line) % 2
            if (task.data["cards"][seat], line) not in prompts:
                env.reset(seed=0, options={"task_index": index})
                for letter in line:
                    env.step(words[letter])
                prompts[task.data["cards"][seat], line] = str(env.observe(env.possible_agents[seat]))
        if len(prompts) == 12:
            break
    return prompts


def read_strategy(model: Any, tokenizer: Any, prompts: Mapping[Point, str]) -> tuple[dict[Point, float], float]:
    """The policy's chance to bet or call at each decision, exactly, and the largest chance of an unusable text.

    The chance of a move is that of all texts which the game reads as this move (:func:`answer_chances`). The chances of
    the two legal moves are scaled to add up to 1; what is missing is unusable, or too rare to be followed.
    """
    strategy, unusable = {}, 0.0
    for (card, line), chances in zip(prompts, answer_chances(model, tokenizer, list(prompts.values())), strict=True):
        cautious, aggressive = sorted(kuhn_poker.legal_moves(line), key=kuhn_poker.is_aggressive)
        found = {f"[{cautious}]": 0.0, f"[{aggressive}]": 0.0}
        for text, chance in chances.items():
            with contextlib.suppress(InvalidAction):
                move = bracketed(text)
                if move in found:
                    found[move] += chance
        usable = sum(found.values())
        strategy[card, line] = found[f"[{aggressive}]"] / usable if usable else 0.5
        unusable = max(unusable, 1 - usable)
    return strategy, unusable


def answer_chances(
    model: Any, tokenizer: Any, prompts: Sequence[str], *, max_tokens: int = MAX_TOKENS, floor: float = 1e-3
) -> list[dict[str, float]]:
    """The texts that a model answers each prompt with at temperature 1, and their exact chances.

    Beginnings less likely than ``floor`` are not followed, so the chances of a prompt may add up to less than 1.
    """
    import torch

    asked = []
    for prompt in prompts:
        message = [{"role": "user", "content": prompt}]
        asked.append(tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False))
    found: list[dict[str, float]] = [{} for _ in prompts]
    begun: dict[tuple[int, tuple[int, ...]], float] = {(number, ()): 1.0 for number in range(len(prompts))}
    for step in range(max_tokens):
        rows = [[*asked[number], *said] for number, said in begun]
        width = max(map(len, rows))
        ids = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        last = torch.tensor([len(row) - 1 for row in rows])
        table = logits[torch.arange(len(rows)), last].double().softmax(dim=-1)
        longer: dict[tuple[int, tuple[int, ...]], float] = {}
        for ((number, said), before), row in zip(begun.items(), table, strict=True):
            for token in torch.nonzero(row * before >= floor).flatten().tolist():
                chance = before * float(row[token])
                if token == tokenizer.eos_token_id or step + 1 == max_tokens:
                    text = completion_text(tokenizer, (*said, token), ())
                    found[number][text] = found[number].get(text, 0.0) + chance
                else:
                    longer[number, (*said, token)] = chance
        begun = longer
        if not begun:
            break
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the model; must not exist")
    parser.add_argument("--hands", type=int, default=1000, help="hands that it is shown")
    parser.add_argument("--epochs", type=int, default=5, help="passes over them")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the moves")
    given = parser.parse_args(argv)
    if given.out.exists():
        parser.error(f"--out: {given.out} exists; choose another folder")
    quieten_libraries()
    with tempfile.TemporaryDirectory() as folder:
        warm = asyncio.run(warm_start(Path(folder), given.seed, hands=given.hands, epochs=given.epochs))
        shutil.copytree(warm, given.out)


if __name__ == "__main__":
    main()
