"""Dr. MAS (arXiv 2602.08847): every agent is normalised by its own mean and deviation; one policy a role.

  python -m trainers.scripts.dr_mas                      a tiny solver and a tiny verifier learn to work together
  python -m trainers.scripts.dr_mas --env-kwargs '{"tasks": "gsm8k"}' --model Qwen/Qwen3-1.7B --max-tokens 1024 \
      --tasks 32 --lr 1e-6

A turn of agent k is worth the outcome of its episode and what the turn itself was paid. Its advantage is
A = (r - mu_k)/(sigma_k + eps) with the statistics of this agent's turns in this task. With those of all agents together
(--normalize global) the squared gradient of agent k is inflated by (sigma_k^2 + (mu_k - mu)^2)/sigma^2 (Lemma 4.2),
which the lines below show.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import llm_envs
from llm_envs.tasks import Task
from trainers.algorithms.advantages import compute_advantages
from trainers.algorithms.diagnostics import batch_metrics
from trainers.algorithms.presets import get_algorithm
from trainers.batching import samples_by_policy
from trainers.learner import Learner, LearnerConfig
from trainers.models import build_tiny_model, resolve_model
from trainers.policies import Sampling, make_policy
from trainers.rollout.episodes import collect, make_jobs
from trainers.team import Team
from trainers.weight_sync import make_sync

# The toy: five questions, and models whose words are their numbers, the answers and the verdicts.
TOY = {"tasks": [Task(f"number/{n}", f"Which number is this? {n}", str(n)) for n in range(5)]}
WORDS = [rf"\boxed{{{n}}}" for n in range(5)] + [str(n) for n in range(5)]
WORDS += ["<verify>approve</verify>", "<verify>reject</verify>"]
PRESETS = {"agent": "dr_mas", "global": "dr_mas_task_mean_task_std"}


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--env", default="math-2agent", help="environment; each of its agents has a policy of its own")
    add("--env-kwargs", type=json.loads, default=TOY, metavar="JSON", help="its arguments (default: five numbers)")
    add("--model", help="first weights of every policy (default: new ones of 20 thousand parameters)")
    add("--normalize", choices=PRESETS, default="agent", help="statistics of the agent (Dr. MAS) or of all (GRPO)")
    add("--updates", type=int, default=80, help="weight updates")
    add("--tasks", type=int, default=5, help="tasks an update")
    add("--group-size", type=int, default=16, help="episodes of each task")
    add("--max-tokens", type=int, default=1, help="longest answer in tokens")
    add("--temperature", type=float, default=1.0, help="of sampling, above 0")
    add("--lr", type=float, default=5e-3, help="AdamW's learning rate at the start; it falls to 0 linearly")
    add("--entropy", type=float, default=0.03, help="weight of the entropy bonus (published: 0)")
    add("--seed", type=int, default=0, help="of the weights, the tasks and every draw")
    return parser.parse_args(argv)


async def train(args: argparse.Namespace) -> list[float]:
    """Train; returns the success of every update."""
    env = llm_envs.make(args.env, **args.env_kwargs).unwrapped
    rng = np.random.default_rng(args.seed)
    algorithm = get_algorithm(PRESETS[args.normalize])
    loss = dataclasses.replace(algorithm.loss, entropy_coef=args.entropy)
    optimizer = LearnerConfig(
        lr=args.lr, schedule="linear", total_steps=args.updates, temperature=args.temperature, seed=args.seed
    )

    # For every agent a policy that samples, a learner that trains, and the way between them.
    policies, learners, syncs = {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for number, agent in enumerate(env.possible_agents):
            path = args.model or build_tiny_model(
                Path(folder) / agent, vocab=WORDS, hidden_size=32, layers=2, init_std=0.1, seed=args.seed + number
            )
            path = str(resolve_model(path))
            policies[agent] = make_policy(f"hf:{path}")
            model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
            learners[agent] = Learner(model, optimizer, loss)
            syncs[agent] = make_sync(policies[agent])
    sampling = Sampling(temperature=args.temperature, max_tokens=args.max_tokens)
    team = Team(policies, {agent: agent for agent in policies}, dict.fromkeys(policies, sampling))

    history = []
    for update in range(1, args.updates + 1):
        # 1. Play the episodes: the agents act in turn, each through its own policy.
        tasks = sorted(rng.choice(len(env.tasks), args.tasks, replace=False).tolist())
        jobs = make_jobs(tasks, args.group_size, seed=int(rng.integers(2**63)))
        episodes = await collect(env.fork, team, jobs)

        # 2. Normalise the scores of each agent by its own statistics, task by task.
        advantages = compute_advantages(episodes, algorithm)

        # 3. Update each policy on its own turns, unless they are all worth the same, and give its sampler the weights.
        turns = [turn for episode in episodes for turn in episode.turns]
        samples = samples_by_policy(turns, advantages, learners)
        norms = {}
        for agent, learner in learners.items():
            if any(sample.advantage for sample in samples[agent]):
                norms[agent] = learner.update(samples[agent]).grad_norm
                await syncs[agent].push(learner.model, version=update)

        found = batch_metrics(episodes, algorithm, advantages)
        history.append(found["success"])
        print(f"update {update:3d}  success {history[-1]:.3f}", end="")
        for agent in policies:
            inflation = found.get(f"agent/{agent}/inflation", float("nan"))
            print(f"  {agent}: gradient {norms.get(agent, 0.0):6.3f} inflation {inflation:.2f}", end="")
        print()
    for policy in policies.values():
        await policy.close()
    return history


if __name__ == "__main__":
    asyncio.run(train(parse()))
