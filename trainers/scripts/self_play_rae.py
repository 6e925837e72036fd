"""Self-play with role-conditioned advantages (SPIRAL, arXiv 2506.24119): one policy plays both seats of Kuhn poker.

  python -m trainers.scripts.self_play_rae               a tiny model learns the rules

Each seat has a baseline of its own, since in a zero-sum game one seat may be worth more than the other:
b_role <- decay * b_role + (1 - decay) * R and A = R - b_role, with b_role as it was before the batch. There is no
group, so every game of a batch may be another deal.

Success means little in self-play: somebody always wins. What is printed is the exploitability, exactly: how much a best
response would win from the policy a hand, in chips (0 in equilibrium, 0.458 for moves at random).
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import math
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import llm_envs
from llm_envs.games import kuhn_poker
from trainers.algorithms.advantages import compute_advantages
from trainers.algorithms.algorithm import Baseline
from trainers.algorithms.baselines import MovingAverages
from trainers.algorithms.presets import get_algorithm
from trainers.batching import samples_by_policy
from trainers.learner import Learner, LearnerConfig
from trainers.models import build_tiny_model
from trainers.policies import Sampling
from trainers.policies.hf import HFPolicy
from trainers.rollout.episodes import collect, make_jobs
from trainers.team import Team
from trainers.weight_sync import make_sync

# Words of the model: the moves, the cards and who made which move. All other words look alike to it.
WORDS = ["[check]", "[bet]", "[call]", "[fold]", "J.", "Q.", "K.", "player_0:", "player_1:"]


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--updates", type=int, default=60, help="weight updates")
    add("--games", type=int, default=64, help="games an update, each of another deal")
    add("--decay", type=float, default=0.95, help="of the baselines")
    add("--temperature", type=float, default=1.0, help="of sampling, above 0")
    add("--lr", type=float, default=3e-3, help="AdamW's learning rate at the start; it falls to 0 linearly")
    add("--entropy", type=float, default=0.05, help="weight of the entropy bonus (published: 0)")
    add("--seed", type=int, default=0, help="of the weights, the deals and every draw")
    return parser.parse_args(argv)


async def train(args: argparse.Namespace) -> list[tuple[float, float]]:
    """Train; returns the share of unusable answers and the exploitability of every update."""
    env = llm_envs.make("kuhn-poker").unwrapped
    rng = np.random.default_rng(args.seed)
    by_seat = Baseline(by=("env", "agent"), decay=args.decay)
    algorithm = dataclasses.replace(get_algorithm("rae"), baseline=by_seat)
    baseline = MovingAverages(by_seat)
    loss = dataclasses.replace(algorithm.loss, entropy_coef=args.entropy, norm_length=1)

    # The same weights twice: a policy that samples, and a learner that trains.
    with tempfile.TemporaryDirectory() as folder:
        path = str(build_tiny_model(folder, vocab=WORDS, hidden_size=64, layers=2, init_std=0.1, seed=args.seed))
        policy = HFPolicy(path)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    optimizer = LearnerConfig(
        lr=args.lr, schedule="linear", total_steps=args.updates, temperature=args.temperature, seed=args.seed
    )
    learner = Learner(model, optimizer, loss)
    sync = make_sync(policy)
    team = Team.single(policy, Sampling(temperature=args.temperature, max_tokens=1))  # both seats

    history, prompts = [], decisions(env.fork())
    for update in range(1, args.updates + 1):
        # 1. Play the policy against itself.
        deals = sorted(rng.choice(len(env.tasks), args.games, replace=False).tolist())
        episodes = await collect(env.fork, team, make_jobs(deals, 1, seed=int(rng.integers(2**63))))

        # 2. Subtract the baseline of the seat, then move the baselines on.
        advantages = compute_advantages(episodes, algorithm, baseline=baseline)

        # 3. Train on the turns of both seats, and give the sampler the new weights.
        turns = [turn for episode in episodes for turn in episode.turns]
        samples = samples_by_policy(turns, advantages, {policy.name: learner})[policy.name]
        done = learner.update(samples)
        await sync.push(learner.model, version=update)

        exploitability = measure(learner, policy.tokenizer, prompts)
        history.append((float(np.mean([turn.invalid is not None for turn in turns])), exploitability))
        seats = "  ".join(f"b {value:6.3f}" for _, value in sorted(baseline.state_dict()["values"].items()))
        print(
            f"update {update:3d}  invalid {history[-1][0]:.3f}  exploitability {exploitability:.3f}  "
            f"entropy {done.mean['entropy']:.3f}  {seats}"
        )
    await policy.close()
    return history


def decisions(env: Any) -> dict[tuple[int, str], str]:
    """The prompt of each of the twelve decisions, by (own card, moves so far)."""
    words = {letter: f"[{move}]" for move, letter in kuhn_poker.LETTERS.items()}
    prompts: dict[tuple[int, str], str] = {}
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


def measure(learner: Learner, tokenizer: Any, prompts: dict[tuple[int, str], str]) -> float:
    """The exploitability of the policy in chips a hand, exactly; unusable answers are left out of its choices."""
    strategy = {}
    for (card, line), prompt in prompts.items():
        message = [{"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
        moves = sorted(kuhn_poker.legal_moves(line), key=kuhn_poker.is_aggressive)
        tokens = [[tokenizer.convert_tokens_to_ids(f"[{move}]")] for move in moves]
        cautious, aggressive = (math.exp(float(found[0])) for found in learner.logprobs([ids, ids], tokens))
        strategy[card, line] = aggressive / (cautious + aggressive)
    return float(kuhn_poker.exploitability(strategy, strategy))


if __name__ == "__main__":
    asyncio.run(train(parse()))
