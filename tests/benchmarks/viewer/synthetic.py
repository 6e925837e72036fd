"""Runs for the viewer's tests, written through the classes that real runs are written with."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import ResultsFolder
from trainers.rollout.records import Episode, Turn, episode_id

AGENTS = ("solver_0", "verifier_0")
WORDS = ["amber", "basalt", "cedar", "delta", "ember", "fjord", "garnet", "harbour", "indigo", "juniper"]


def config(n: int, samples: int = 1, *, zero_sum: bool = False, env: str = "math-2agent-v0") -> dict[str, Any]:
    """Return a configuration as the runner writes it, as far as reports and the viewer read it."""
    return {
        "identity": {
            "env": env,
            "tasks": {"name": "arithmetic", "split": "test", "size": n, "fingerprint": "f"},
            "n": n, "samples": samples, "seed": 0,
        },
        "context": {"label": "synthetic", "zero_sum": zero_sum, "command": ["llm-bench", "run"], "arguments": {}},
    }  # fmt: skip


def turn(episode: str, agent: str, index: int, observation: str, action: str, **fields: Any) -> Turn:
    """Return a turn with token counts that follow from the lengths of its texts."""
    fields.setdefault("reward_parts", {"team": 0.0})
    fields.setdefault("policy", "model")
    return Turn(
        episode=episode,
        task=episode.partition("#")[0],
        agent=agent,
        index=index,
        agent_turn=index // 2,
        observation=observation,
        action=action,
        prompt_tokens=len(observation) // 4,
        completion_tokens=len(action) // 4,
        **fields,
    )


def math_episode(
    number: int, rng: random.Random, *, sample: int = 0, turns: int = 4, solved: bool | None = None
) -> Episode:
    """Return a made-up episode of a solver and a verifier whose prompts grow as real ones do."""
    a, b = rng.randrange(100, 1000), rng.randrange(100, 1000)
    key = episode_id(f"arithmetic/test/{number}", sample)
    success = rng.random() < 0.6 if solved is None else solved
    hint = " ".join(rng.choices(WORDS, k=60))
    context = f"Problem:\nWhat is {a} + {b}? A word on {WORDS[number % len(WORDS)]}: {hint}.\n"
    answer = f"\\boxed{{{a + b + (not success)}}}"
    played = []
    for index in range(turns):
        agent = AGENTS[index % 2]
        instructions = f"\nYou are {agent}. Say what you think, step by step, and then answer in the form asked for."
        action = "<verify>approve</verify>" if index % 2 else f"{' '.join(rng.choices(WORDS, k=80))}\n{answer}"
        invalid = "No <verify> tag was found." if index % 2 and rng.random() < 0.1 else None
        parts = {"team": float(success)} if index >= turns - 2 else {"team": 0.0}
        if invalid:
            parts["invalid"] = -0.1
        played.append(
            turn(
                key,
                agent,
                index,
                context + instructions,
                action,
                invalid=invalid,
                reward_parts=parts,
                latency_s=rng.uniform(0.1, 0.9),
                info={"verdict": "correct" if success else "incorrect"},
            )
        )
        context += f"\n[{agent}]\n{action}\n"
    return finish(number, key, played, success=success, sample=sample)


def finish(
    number: int, key: str, turns: list[Turn], *, agents: Sequence[str] = AGENTS, success: bool = False, sample: int = 0,
    env: str = "math-2agent-v0", **fields: Any,
) -> Episode:  # fmt: skip
    """Return the episode of these turns, with the returns that they add up to."""
    parts: dict[str, dict[str, float]] = {agent: {} for agent in agents}
    for one in turns:
        if one.chosen:
            for name, value in one.reward_parts.items():
                parts[one.agent][name] = parts[one.agent].get(name, 0.0) + value
    return Episode(
        id=key, env=env, task=key.partition("#")[0], task_index=number, task_hash=f"hash-{number}", sample=sample,
        seed=number, turns=turns, returns={agent: sum(found.values()) for agent, found in parts.items()},
        reward_parts=parts, success=success, terminated=True, wall_s=sum(one.latency_s for one in turns), **fields,
    )  # fmt: skip


def tree_episode(number: int = 0, *, candidates: int = 4, turns: int = 3) -> Episode:
    """Return a tree as AT-GRPO samples it; candidate (index + 1) modulo K is chosen at every turn."""
    key = episode_id(f"arithmetic/train/{number}", 0)
    context = "Problem:\nWhat is 2 + 2?\n" + "Think about it with care. " * 5 + "\n"
    played = []
    for index in range(turns):
        agent = AGENTS[index % 2]
        chosen = (index + 1) % candidates
        for k in range(candidates):
            parts = {"team": 0.25 * k if k != chosen else 1.0}
            action = f"candidate {k} of turn {index}"
            played.append(turn(key, agent, index, context, action, candidate=k, chosen=k == chosen, reward_parts=parts))
        context += f"\n[{agent}]\ncandidate {chosen} of turn {index}\n"
    return finish(number, key, played, success=True, tree=True)


def write_run(path: Path, episodes: Iterable[Episode], **settings: Any) -> Path:
    """Write a results folder."""
    episodes = list(episodes)
    settings.setdefault("n", len({episode.task_index for episode in episodes}))
    settings.setdefault("samples", 1 + max((episode.sample for episode in episodes), default=0))
    with ResultsFolder(path, config(**settings)) as folder:
        for episode in episodes:
            folder.add(episode)
    return path


def write_math_run(path: Path, n: int, *, seed: int = 0, samples: int = 1, turns: int = 4) -> Path:
    """Write a results folder of made-up episodes of n tasks."""
    rng = random.Random(seed)
    made = (math_episode(i, rng, sample=k, turns=turns) for i in range(n) for k in range(samples))
    return write_run(path, made, n=n, samples=samples)


def write_training_run(path: Path, updates: int = 40) -> Path:
    """Write what the viewer reads of the folder of a training run."""
    path.mkdir(parents=True)
    rng = random.Random(7)
    rows = []
    for update in range(updates):
        row: dict[str, Any] = {"update": update, "train/success": min(1.0, update / updates + 0.1 * rng.random())}
        row["train/team_return"] = row["train/success"]
        if update % 10 == 0:
            row["eval/success"] = update / updates
        for agent in AGENTS:
            row[f"agent/{agent}/return"] = row["train/success"] + 0.1 * rng.random()
            row[f"agent/{agent}/grad_norm"] = 10 ** rng.uniform(-2, 1)
            row[f"agent/{agent}/inflation"] = None if update == 3 else 1 + rng.random()
            row[f"agent/{agent}/invalid"] = 0.3 * rng.random()
        rows.append(row)
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (path / "config.json").write_text(json.dumps({"algorithm": {"preset": "dr_mas"}}), encoding="utf-8")
    return path
