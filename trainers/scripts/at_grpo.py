"""AT-GRPO (Stronger-MAS, arXiv 2510.11062): trees of K candidates a turn, compared with those of the same prompt.

  python -m trainers.scripts.at_grpo                     a tiny model learns which way to go in a corridor of four cells
  python -m trainers.scripts.at_grpo --env plan-path-2agent --env-kwargs '{}' --model Qwen/Qwen3-1.7B \
      --max-tokens 1024 --candidates 4 --lr 5e-6

At every turn the policy gives K answers to one prompt. Each is played on a fork of the environment and is worth what
this one step pays its agent: r = alpha * team + local. A = (r - mean(r))/(std(r) + eps) over the K of them, all K are
trained on, and the tree goes on with the best one; whoever acts next sees the state that it led to.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import tempfile
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import llm_envs
from trainers.algorithms.advantages import compute_advantages
from trainers.algorithms.presets import get_algorithm
from trainers.batching import samples_by_policy
from trainers.learner import Learner, LearnerConfig
from trainers.models import build_tiny_model, resolve_model
from trainers.policies import Sampling, make_policy
from trainers.rollout.episodes import collect, make_jobs
from trainers.rollout.tree import TreeSampling, run_tree
from trainers.team import Team
from trainers.weight_sync import make_sync

# The toy: a corridor of four cells, and a model whose words are moves and places.
TOY = {"task_options": {"grid_size": [1, 4], "wall_ratio": 0.0}, "max_rounds": 3}
WORDS = ["[U]", "[D]", "[L]", "[R]", "You", "at", "goal"]
WORDS += [f"r0c{column}{end}" for column in range(4) for end in ",."]


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--env", default="plan-path-1agent", help="environment; all its agents share one policy")
    add("--env-kwargs", type=json.loads, default=TOY, metavar="JSON", help="its arguments (default: four cells)")
    add("--model", help="model folder, hub id or smollm2-135m (default: a new one of 20 thousand parameters)")
    add("--updates", type=int, default=40, help="weight updates")
    add("--tasks", type=int, default=12, help="trees an update, each of another task")
    add("--candidates", type=int, default=8, help="K, answers to each prompt")
    add("--team-weight", type=float, default=1.0, help="alpha, the weight of the shared outcome in r")
    add("--choose", choices=("argmax", "softmax", "random", "first"), default="argmax", help="what a tree goes on with")
    add("--max-tokens", type=int, default=1, help="longest answer in tokens")
    add("--temperature", type=float, default=1.0, help="of sampling, above 0")
    add("--lr", type=float, default=5e-3, help="AdamW's learning rate at the start; it falls to 0 linearly")
    add("--minibatches", type=int, default=2, help="optimiser steps an update")
    add("--entropy", type=float, default=0.01, help="weight of the entropy bonus (published: 0)")
    add("--eval-tasks", type=int, default=50, help="tasks that are played without a tree before and after training")
    add("--seed", type=int, default=0, help="of the weights, the tasks and every draw")
    return parser.parse_args(argv)


async def train(args: argparse.Namespace) -> tuple[float, float]:
    """Train; returns the success without a tree before and after."""
    env = llm_envs.make(args.env, **args.env_kwargs).unwrapped
    rng = np.random.default_rng(args.seed)
    algorithm = dataclasses.replace(
        get_algorithm("at_grpo"),
        team_weight=args.team_weight,
        # Unusable text must not be worth more than a legal move that is paid less than 0.
        fold_penalties=True,
    )
    loss = dataclasses.replace(algorithm.loss, entropy_coef=args.entropy)
    tree = TreeSampling(args.candidates, choose=args.choose, team_weight=args.team_weight)

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
        total_steps=args.updates * args.minibatches,
        temperature=args.temperature,
        seed=args.seed,
    )
    learner = Learner(model, optimizer, loss)
    sync = make_sync(policy)
    team = Team.single(policy, Sampling(temperature=args.temperature, max_tokens=args.max_tokens))

    async def evaluate() -> float:
        episodes = await collect(env.fork, team, make_jobs(range(args.eval_tasks), 1, seed=args.seed))
        return float(np.mean([episode.success for episode in episodes]))

    before = await evaluate()
    print(f"without a tree: success {before:.3f}")
    for update in range(1, args.updates + 1):
        # 1. Grow a tree for each task: K candidates a turn, each scored by one step on a fork.
        tasks = sorted(rng.choice(len(env.tasks), args.tasks, replace=False).tolist())
        jobs = make_jobs(tasks, 1, seed=int(rng.integers(2**63)))
        trees = await collect(env.fork, team, jobs, run=partial(run_tree, sampling=tree))

        # 2. Compare the K candidates of each turn of each agent.
        advantages = compute_advantages(trees, algorithm)

        # 3. Train on all candidates, and give the sampler the new weights.
        turns = [turn for episode in trees for turn in episode.turns]
        samples = samples_by_policy(turns, advantages, {policy.name: learner})[policy.name]
        done = learner.update(samples, minibatches=min(args.minibatches, len(samples)))
        await sync.push(learner.model, version=update)

        # The path is chosen by reward among K: that it succeeds says little about the policy. See evaluate().
        print(
            f"update {update:3d}  candidate reward {np.mean([turn.reward for turn in turns]):6.3f}  "
            f"path success {np.mean([episode.success for episode in trees]):.3f}  gradient {done.grad_norm:6.3f}  "
            f"entropy {done.mean['entropy']:.3f}  invalid {np.mean([t.invalid is not None for t in turns]):.3f}"
        )
    after = await evaluate()
    print(f"without a tree: success {after:.3f}")
    await policy.close()
    return before, after


if __name__ == "__main__":
    asyncio.run(train(parse()))
