"""Demonstrations: the turns of recorded episodes, tokenised once as the samplers write and read them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from llm_envs.tasks import stable_hash
from trainers.batching import Sample
from trainers.policies.chat import Prompter
from trainers.rollout.records import Episode, Turn
from trainers.tokenizing import UnknownTextError, encode_known

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["Demonstrations", "SFTError", "end_token", "read_demonstrations", "tokenise"]

EPISODES_FILE = "episodes.jsonl"


class SFTError(ValueError):
    """A warm start cannot be what its settings say, or its episodes cannot be trained on."""


@dataclass(slots=True)
class Demonstrations:
    """Turns to imitate.

    Attributes:
        turns: The turns, with the hash of the task of each.
        episodes: Episodes that they are from.
        left_out: How many episodes and turns were left out, by reason.
    """

    turns: list[tuple[str, Turn]] = field(default_factory=list)
    episodes: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def read_demonstrations(
    runs: Iterable[str | Path], *, agents: Collection[str] = (), successful_only: bool = True
) -> Demonstrations:
    """Read the turns to imitate from results folders of ``llm-bench run``, or from files of episodes.

    Left out are failed episodes, episodes without success (if so wished), candidates of a tree that led nowhere, and
    answers that the environment refused, that were cut off, or that are empty.

    Args:
        runs: Folders with an ``episodes.jsonl``, or such files.
        agents: Agents (``solver_0``) or roles (``solver``) to imitate; empty is all.
        successful_only: Leave out episodes without success.

    Raises:
        SFTError: A file does not exist or is not one of episodes, an agent does not occur, or no turn is left.
    """
    found = Demonstrations()
    seen: set[str] = set()
    for run in runs:
        for episode in _read_episodes(Path(run)):
            seen.update(episode.returns)
            if episode.error is not None:
                found.left_out["failed episodes"] += 1
                continue
            if successful_only and not episode.success:
                found.left_out["episodes without success"] += 1
                continue
            found.episodes += 1
            for turn in episode.turns:
                reason = _reason_against(turn)
                if agents and not {turn.agent, turn.agent.rpartition("_")[0]} & set(agents):
                    continue
                if reason is None:
                    found.turns.append((episode.task_hash, turn))
                else:
                    found.left_out[reason] += 1
    known = seen | {agent.rpartition("_")[0] for agent in seen}
    for agent in agents:
        if seen and agent not in known:
            raise SFTError(f"no agent or role {agent!r} in the episodes; they have {', '.join(sorted(known))}")
    if not found.turns:
        reasons = ", ".join(f"{count} {reason}" for reason, count in found.left_out.items()) or "there are none"
        hint = " --all-episodes takes those without success too." if successful_only else ""
        raise SFTError(f"no turn to learn from is left of the episodes ({reasons}).{hint}")
    return found


def tokenise(
    demonstrations: Sequence[tuple[str, Turn]],
    prompter: Prompter,
    end_id: int,
    max_length: int,
) -> tuple[list[Sample], list[str], int]:
    """Turn demonstrations into samples of advantage 1, with the end token as the last one of each completion.

    Args:
        demonstrations: Hash of the task, and turn.
        prompter: Writes prompts as the samplers do.
        end_id: The token that ends a completion.
        max_length: Longest sequence of the model in tokens.

    Returns:
        The samples, the hash of the task of each, and how many turns were too long and were left out.

    Raises:
        SFTError: A text holds something that the tokenizer has no token for, or a special token.
    """
    tokenizer = prompter.tokenizer
    special = set(tokenizer.all_special_ids)
    samples: list[Sample] = []
    tasks: list[str] = []
    too_long = 0
    for task, turn in demonstrations:
        where = f"turn {turn.index} ({turn.agent}) of episode {turn.episode!r}"
        try:
            prompt = encode_known(tokenizer, prompter.text(turn.observation), prompter.encode(turn.observation))
            completion = encode_known(tokenizer, turn.action)
        except UnknownTextError as problem:
            raise SFTError(f"{where}: {problem}") from problem
        if special & set(completion):
            raise SFTError(f"{where}: the answer holds a special token of the tokenizer: {turn.action[:80]!r}")
        if len(prompt) + len(completion) + 1 > max_length:
            too_long += 1
            continue
        samples.append(Sample(prompt, (*completion, end_id), None, 1.0, turn.agent))
        tasks.append(task)
    if not samples:
        raise SFTError(f"all {too_long} turns are longer than the model's {max_length} tokens")
    return samples, tasks, too_long


def split_by_task(tasks: Sequence[str], share: float, seed: int) -> list[bool]:
    """Say of each sample whether it is held out: all samples of a task are on the same side.

    At least one task is held out, and one is not, where there are two and ``share`` is above 0.
    """
    order = sorted(set(tasks), key=lambda task: (stable_hash("held out", seed, task), task))
    count = 0 if share == 0 or len(order) < 2 else min(len(order) - 1, max(1, math.floor(share * len(order) + 0.5)))
    held_out = set(order[:count])
    return [task in held_out for task in tasks]


def end_token(tokenizer: PreTrainedTokenizerBase, end_ids: Sequence[int]) -> int:
    """Return the token of ``end_ids`` that the chat template writes after an answer; a base model's own end token.

    Raises:
        SFTError: There is none.
    """
    if tokenizer.chat_template is not None:
        marker = "0"
        messages = [{"role": "user", "content": marker}, {"role": "assistant", "content": marker}]
        text = str(tokenizer.apply_chat_template(messages, tokenize=False))
        rest = text[text.rindex(marker) + len(marker) :]
        names = {int(token): str(tokenizer.convert_ids_to_tokens(int(token))) for token in end_ids}
        after = [token for token, name in names.items() if rest.lstrip().startswith(name)]
        if after:
            return after[0]
    if tokenizer.eos_token_id is not None:
        return int(tokenizer.eos_token_id)
    raise SFTError(f"the tokenizer of {tokenizer.name_or_path!r} has no end token, so no answer could ever end")


def _read_episodes(path: Path) -> Iterator[Episode]:
    """The episodes of a results folder or file. A last line that a crash cut off is left out."""
    file = path / EPISODES_FILE if path.is_dir() else path
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith("\n"):
                    return
                try:
                    yield Episode.from_json(line)
                except (ValueError, json.JSONDecodeError) as problem:
                    raise SFTError(f"{file}, line {number} is no episode: {problem}") from problem
    except (OSError, UnicodeDecodeError) as problem:
        raise SFTError(
            f"{path} holds no episodes ({problem}): give a folder of `llm-bench run`, or its {EPISODES_FILE}"
        ) from problem


def _reason_against(turn: Turn) -> str | None:
    """Why a turn is nothing to imitate, or None."""
    if turn.masked:
        return "masked turns"
    if not turn.chosen:
        return "candidates that were not chosen"
    if turn.invalid is not None:
        return "refused answers"
    if turn.finish_reason == "length":
        return "answers that were cut off"
    return None if turn.action else "empty answers"
