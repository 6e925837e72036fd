"""The episodes and trees that updates were made of, for people to read: ``episodes.jsonl`` in the folder of a run.

A line is an :class:`~trainers.rollout.records.Episode` with the update that it was trained on in and the advantage that
its turns were trained with, and without token ids or times, so equal runs write equal files. Reading it is optional:
nothing in a run depends on it.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainers.config import RecordConfig
from trainers.rollout.records import Episode
from trainers.run_folder import EPISODES_FILE, RunError

__all__ = ["Recorder"]

logger = logging.getLogger(__name__)


class Recorder:
    """Writes what some updates of a run were trained on.

    Args:
        run_dir: The run's folder.
        config: Of which updates, and how much.
        resume_after: Go on after this update: what later ones have recorded, in an attempt that was cut short, is
            dropped, and so is a torn last line.

    Raises:
        RunError: The file cannot be written, or a line of it is no record.
    """

    def __init__(self, run_dir: Path, config: RecordConfig, *, resume_after: int) -> None:
        self._path = run_dir / EPISODES_FILE
        self._config = config
        try:
            _drop_later(self._path, resume_after)
        except OSError as problem:
            raise RunError(f"{self._path} cannot be written: {problem}") from problem

    def is_due(self, update: int, *, last: bool) -> bool:
        """Whether the update with this number, from 1, is recorded: the first, the last, and every so many."""
        every = self._config.every
        return every > 0 and (update == 1 or last or update % every == 0)

    def write(
        self,
        update: int,
        episodes: Sequence[Episode],
        advantages: NDArray[np.float64],
        *,
        kept: NDArray[np.bool_] | None,
        learning: Collection[str],
    ) -> None:
        """Record the first episodes, or trees, of an update, as many as there is room for.

        Args:
            update: Its number, from 1.
            episodes: The whole batch, in order.
            advantages: Of all its turns, shape [N].
            kept: Which of the turns the update is made of, shape [N]; None is all.
            learning: The policies that learn from it. Turns of others, and such that are left out, have no advantage.

        Raises:
            RunError: The file cannot be written (a full disk, say).
        """
        lines: list[bytes] = []
        room = int(self._config.max_mib * 2**20)
        at = 0
        for episode in episodes[: self._config.episodes]:
            episode.update = update
            for i, turn in enumerate(episode.turns, at):
                trained = turn.policy in learning and not turn.masked and (kept is None or bool(kept[i]))
                turn.advantage = float(advantages[i]) if trained and math.isfinite(advantages[i]) else None
            at += len(episode.turns)
            try:
                line = episode.to_json(tokens=False, timings=False).encode("ascii") + b"\n"
            except (TypeError, ValueError) as problem:  # the infos of an environment may hold anything
                logger.warning("Episode %s of update %d is not recorded: %s", episode.id, update, problem)
                continue
            if len(line) <= room:
                lines.append(line)
                room -= len(line)
            else:
                logger.info("Episode %s of update %d is not recorded: no room in max_mib", episode.id, update)
        try:
            _append(self._path, b"".join(lines))
        except OSError as problem:
            raise RunError(
                f"The episodes of update {update} could not be written to {self._path}: {problem}. Make room and go on "
                "with --resume; `record.every=0` records none"
            ) from problem


def _append(path: Path, data: bytes) -> None:
    """Write all of ``data`` at the end of the file, or nothing of it."""
    with path.open("ab", buffering=0) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(before)
            raise


def _drop_later(path: Path, update: int) -> None:
    """Cut the file before the first line that is torn or belongs to a later update. Updates stand there in order."""
    if not path.exists():
        return
    keep = 0
    with path.open("rb+") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                theirs = int(json.loads(line)["update"])
            except (ValueError, KeyError, TypeError) as problem:
                raise RunError(f"{path}, line {number} is no record of an update: {problem!r}") from problem
            if theirs > update:
                break
            keep += len(line)
        file.truncate(keep)
