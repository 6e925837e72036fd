"""GRPO (DeepSeekMath, arXiv 2402.03300): G episodes a task, each compared with the others of its task.

  python -m trainers.scripts.grpo                        a tiny model learns to name five numbers
  python -m trainers.scripts.grpo --env math-1agent --env-kwargs '{"tasks": "gsm8k"}' \\
      --model Qwen/Qwen3-1.7B --max-tokens 1024 --tasks 32 --lr 1e-6

The advantage of an episode is A_i = (r_i - mean(r))/(std(r) + eps) over the G episodes of its task, the same for all
its tokens; the loss is that of PPO, with the ratio to the policy at the start of the update.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import tempfile
from collections.abc import Sequence

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import llm_envs
from llm_envs.tasks import Task
from trainers.algorithms.advantages import compute_advantages
from trainers.algorithms.presets import get_algorithm
from trainers.batching import samples_by_policy
from trainers.learner import Learner, LearnerConfig
from trainers.models import build_tiny_model, resolve_model
from trainers.policies import Sampling, make_policy
from trainers.rollout.episodes import collect, make_jobs
from trainers.team import Team
from trainers.weight_sync import make_sync

# The toy: five questions, and a model whose words are their numbers and the answers.
TOY = {"tasks": [Task(f"number/{n}", f"Which number is this? {n}", str(n)) for n in range(5)]}
WORDS = [rf"\boxed{{{n}}}" for n in range(5)] + [str(n) for n in range(5)]


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--env", default="math-1agent", help="environment; all its agents share one policy")
    add("--env-kwargs", type=json.loads, default=TOY, metavar="JSON", help="its arguments (default: five numbers)")
    add("--model", help="model folder, hub id or smollm2-135m (default: a new one of 20 thousand parameters)")
    add("--updates", type=int, default=80, help="weight updates")
    add("--tasks", type=int, default=5, help="tasks an update")
    add("--group-size", type=int, default=16, help="G, episodes of each task")
    add("--max-tokens", type=int, default=1, help="longest answer in tokens")
    add("--temperature", type=float, default=1.0, help="of sampling, above 0")
    add("--lr", type=float, default=5e-3, help="AdamW's learning rate at the start; it falls to 0 linearly")
    add("--clip", type=float, default=0.2, help="epsilon of the clipped ratio")
    add("--epochs", type=int, default=1, help="passes over the episodes of an update")
    add("--minibatches", type=int, default=1, help="optimiser steps a pass")
    add("--entropy", type=float, default=0.03, help="weight of the entropy bonus (published: 0)")
    add("--kl", type=float, default=0.0, help="beta, weight of the KL to the first model (k3)")
    add("--seed", type=int, default=0, help="of the weights, the tasks and every draw")
    return parser.parse_args(argv)


async def train(args: argparse.Namespace) -> list[float]:
    """Train; returns the success of every update."""
    env = llm_envs.make(args.env, **args.env_kwargs).unwrapped
    rng = np.random.default_rng(args.seed)
    algorithm = get_algorithm("grpo")
    loss = dataclasses.replace(
        algorithm.loss, clip_low=args.clip, clip_high=args.clip, entropy_coef=args.entropy, kl_coef=args.kl
    )

    # The same weights twice: a policy that samples, and a learner that trains.
    with tempfile.TemporaryDirectory() as folder:
        if args.model is None:
            args.model = build_tiny_model(folder, vocab=WORDS, hidden_size=32, layers=2, init_std=0.1, seed=args.seed)
        path = str(resolve_model(args.model))
        policy = make_policy(f"hf:{path}")
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    optimizer = LearnerConfig(
        lr=args.lr,
        schedule="linear",
        total_steps=args.updates * args.epochs * args.minibatches,
        temperature=args.temperature,
        seed=args.seed,
    )
    learner = Learner(model, optimizer, loss)
    sync = make_sync(policy)
    team = Team.single(policy, Sampling(temperature=args.temperature, max_tokens=args.max_tokens))

    history = []
    for update in range(1, args.updates + 1):
        # 1. Play G episodes of each task.
        tasks = sorted(rng.choice(len(env.tasks), args.tasks, replace=False).tolist())
        jobs = make_jobs(tasks, args.group_size, seed=int(rng.integers(2**63)))
        episodes = await collect(env.fork, team, jobs)

        # 2. Compare each episode with the others of its task.
        advantages = compute_advantages(episodes, algorithm)

        # 3. One sample a turn: prompt ids, completion ids, the sampler's log-probs, an advantage.
        turns = [turn for episode in episodes for turn in episode.turns]
        samples = samples_by_policy(turns, advantages, {policy.name: learner})[policy.name]
        done = learner.update(samples, epochs=args.epochs, minibatches=args.minibatches)

        # 4. Give the sampler the new weights.
        await sync.push(learner.model, version=update)

        history.append(float(np.mean([episode.success for episode in episodes])))
        print(
            f"update {update:3d}  success {history[-1]:.3f}  gradient {done.grad_norm:6.3f}  "
            f"entropy {done.mean['entropy']:.3f}  invalid {np.mean([t.invalid is not None for t in turns]):.3f}"
        )
    await policy.close()
    return history


if __name__ == "__main__":
    asyncio.run(train(parse()))
