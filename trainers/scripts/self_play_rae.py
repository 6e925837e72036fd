"""Self-play with role-conditioned advantages (SPIRAL, arXiv 2506.24119): one policy plays both seats of Kuhn poker.

  python -m trainers.scripts.self_play_rae               a tiny model learns to play

Each seat has a baseline of its own, since in a zero-sum game one seat may be worth more than the other:
b_role <- decay * b_role + (1 - decay) * R and A = R - b_role, with b_role as it was before the batch. There is no
group, so every game of a batch may be another deal.

The policy begins as a player that can read and moves at random (trainers.scripts.tiny_kuhn_player), and a KL term pulls
it back there (Schulman's k2 in the loss, whose gradient is that of KL(policy, warm start)): an entropy bonus on legal
moves. AdamW goes without momentum. With one of the two alone self-play ends as a player who always bets, or wanders
(docs/studies/self_play_kuhn.md).

Success means little in self-play: somebody always wins. What is printed is the exploitability, exactly: how much a best
response would win from the policy a hand, in chips (0 in equilibrium, 0.458 for moves at random).
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
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
from trainers.policies import Sampling
from trainers.policies.hf import HFPolicy
from trainers.rollout.episodes import collect, make_jobs
from trainers.scripts.tiny_kuhn_player import MAX_TOKENS, decisions, read_strategy, warm_start
from trainers.team import Team
from trainers.weight_sync import make_sync


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--updates", type=int, default=60, help="weight updates")
    add("--games", type=int, default=512, help="games an update, each of another deal")
    add("--decay", type=float, default=0.95, help="of the baselines")
    add("--temperature", type=float, default=1.0, help="of sampling, above 0")
    add("--lr", type=float, default=1e-3, help="AdamW's learning rate at the start; it falls to 0 linearly")
    add("--momentum", type=float, default=0.0, help="AdamW's first moment decay (usual: 0.9)")
    add("--kl", type=float, default=0.1, help="weight of the divergence from the warm start (published: 0)")
    add("--hands", type=int, default=1000, help="games at random that the warm start is shown")
    add("--epochs", type=int, default=5, help="passes over them")
    add("--seed", type=int, default=0, help="of the weights, the deals and every draw")
    return parser.parse_args(argv)


async def train(args: argparse.Namespace) -> list[tuple[float, float]]:
    """Train; returns the share of unusable answers and the exploitability of every update."""
    env: Any = llm_envs.make("kuhn-poker", task_options={"size": 100_000}).unwrapped
    rng = np.random.default_rng(args.seed)
    by_seat = Baseline(by=("env", "agent"), decay=args.decay)
    algorithm = dataclasses.replace(get_algorithm("rae"), baseline=by_seat)
    baseline = MovingAverages(by_seat)
    loss = dataclasses.replace(algorithm.loss, kl_coef=args.kl, kl_estimator="k2", norm_length=1)

    # The same weights twice: a policy that samples, and a learner that trains (and keeps the warm start beside).
    with tempfile.TemporaryDirectory() as folder:
        path = await warm_start(Path(folder), args.seed, hands=args.hands, epochs=args.epochs)
        policy = HFPolicy(str(path))
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    optimizer = LearnerConfig(
        lr=args.lr,
        betas=(args.momentum, 0.99),
        schedule="linear",
        warmup_steps=min(5, args.updates - 1),
        total_steps=args.updates,
        temperature=args.temperature,
        seed=args.seed,
    )
    learner = Learner(model, optimizer, loss)
    sync = make_sync(policy)
    team = Team.single(policy, Sampling(temperature=args.temperature, max_tokens=MAX_TOKENS))  # both seats

    history, prompts = [], decisions(env.fork())
    strategy, _ = read_strategy(learner.model, policy.tokenizer, prompts)
    print(f"warm start  exploitability {kuhn_poker.exploitability(strategy, strategy):.3f}")
    for update in range(1, args.updates + 1):
        # 1. Play the policy against itself.
        deals = sorted(rng.choice(len(env.tasks), args.games, replace=False).tolist())
        jobs = make_jobs(deals, 1, seed=int(rng.integers(2**63)))
        episodes = await collect(env.fork, team, jobs, concurrency=args.games)

        # 2. Subtract the baseline of the seat, then move the baselines on.
        advantages = compute_advantages(episodes, algorithm, baseline=baseline)

        # 3. Train on the turns of both seats, and give the sampler the new weights.
        turns = [turn for episode in episodes for turn in episode.turns]
        samples = samples_by_policy(turns, advantages, {policy.name: learner})[policy.name]
        done = learner.update(samples)
        await sync.push(learner.model, version=update)

        strategy, _ = read_strategy(learner.model, policy.tokenizer, prompts)
        exploitability = float(kuhn_poker.exploitability(strategy, strategy))
        history.append((float(np.mean([turn.invalid is not None for turn in turns])), exploitability))
        seats = "  ".join(f"b {value:6.3f}" for _, value in sorted(baseline.state_dict()["values"].items()))
        print(
            f"update {update:3d}  invalid {history[-1][0]:.3f}  exploitability {exploitability:.3f}  "
            f"entropy {done.mean['entropy']:.3f}  KL {done.mean.get('ref_kl', 0.0):.3f}  {seats}"
        )
    await policy.close()
    return history


if __name__ == "__main__":
    asyncio.run(train(parse()))
