"""The warm start of a study: a model without knowledge, and imitation of what a scripted player demonstrates."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import llm_envs
from benchmarks.studies.study_cli import Log
from trainers.env_texts import env_texts
from trainers.models import build_tiny_model
from trainers.policies.base import Policy
from trainers.rollout.episodes import collect, make_jobs
from trainers.sft import SFTConfig, sft
from trainers.team import Team

__all__ = ["imitate", "random_model"]


def random_model(
    folder: Path,
    envs: Mapping[str, Mapping[str, Any]],
    *,
    tasks: int,
    hidden: int,
    layers: int,
    max_length: int = 512,
    init_std: float = 0.02,
    words: Iterable[str] = (),
) -> Path:
    """Make a model that knows nothing, with the words of some environments; nothing if it is there.

    Args:
        folder: Where.
        envs: Ids and arguments of the environments.
        tasks: The words are those of so many tasks of each.
        hidden: Width.
        layers: Number of layers.
        max_length: Tokens of a prompt and its answer, at most.
        init_std: Of the first weights.
        words: Further words, that those tasks need not hold.
    """
    if not (folder / "config.json").is_file():
        texts = [text for env, kwargs in envs.items() for text in env_texts(env, tasks=tasks, **kwargs)]
        texts.extend(words)
        build_tiny_model(
            folder, texts=texts, hidden_size=hidden, layers=layers, max_length=max_length, init_std=init_std
        )
    return folder


def imitate(
    envs: Mapping[str, Mapping[str, Any]],
    player: Policy,
    *,
    tasks: int,
    learning_rate: float,
    batch: int = 64,
    before: Path,
    folder: Path,
    log: Log,
) -> Path:
    """Train a model on one pass over a player's episodes, won and lost; nothing if that is done.

    Args:
        envs: Ids and arguments of the environments that are played.
        player: Plays the last ``tasks`` tasks of the training split of each, all roles.
        tasks: Number of tasks.
        learning_rate: Peak.
        batch: Turns a step.
        before: The model that it begins with.
        folder: Where the new one goes. The episodes go to ``demonstrations`` beside its parent folder.
        log: Is told what happens.

    Returns:
        ``folder``.
    """
    if (folder / "sft.json").is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)  # what an interrupted warm start has left
    clock = time.perf_counter()
    files = []
    for env_id, kwargs in envs.items():
        files.append(folder.parent.parent / "demonstrations" / f"{folder.name}-{env_id}.jsonl")
        _demonstrate(env_id, kwargs, player, tasks, files[-1])
    found = sft(
        SFTConfig(
            files,
            before,
            folder,
            all_episodes=True,
            epochs=1,
            learning_rate=learning_rate,
            batch=batch,
            micro_batch_tokens=16384,
            threads=1,
        )
    )
    log(
        f"warm start {folder.name}: {found.turns} turns, held-out loss {found.held_out_loss:.3f} nats a "
        f"token, {time.perf_counter() - clock:.0f} s"
    )
    return folder


def _demonstrate(env_id: str, kwargs: Mapping[str, Any], player: Policy, count: int, file: Path) -> None:
    """Let a player play the last ``count`` tasks of the training split, and write its episodes down."""
    if file.is_file():
        return
    env: Any = llm_envs.make(env_id, split="train", order_enforcing=False, **kwargs).unwrapped
    tasks = range(len(env.tasks) - count, len(env.tasks))
    episodes = asyncio.run(collect(env.fork, Team.single(player), make_jobs(tasks, 1, 0), concurrency=16))
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".partial")
    with unfinished.open("w", encoding="utf-8") as sink:
        sink.writelines(episode.to_json(tokens=False, timings=False) + "\n" for episode in episodes)
    unfinished.replace(file)
