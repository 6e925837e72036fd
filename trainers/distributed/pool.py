"""Workers that can stand in for one another: calls go to the least loaded one, and again elsewhere if it dies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from ray.exceptions import RayActorError, RayTaskError

__all__ = ["Pool", "WorkersLostError"]

logger = logging.getLogger(__name__)

SLACK = 4
"""Calls that a worker may have above the least loaded one before those that belong to it go elsewhere."""


class WorkersLostError(RuntimeError):
    """Every worker that was given a call has died."""


class Pool:
    """Sends calls to actors that Ray restarts.

    A call may begin on several workers, one after the other's death, so its outcome must depend on its arguments alone.
    Its caller gets one result, that of the worker that lived.

    Args:
        actors: The workers. Each has a method ``ready`` that returns when it can be called.
        what: What they are, for messages.
        attempts: How many workers may die of one call.
    """

    def __init__(self, actors: Sequence[Any], what: str, attempts: int) -> None:
        self.actors = list(actors)
        self._what = what
        self._attempts = attempts
        self._load = [0] * len(self.actors)
        self._down: dict[int, asyncio.Task[None]] = {}

    async def call(self, method: str, *args: Any, home: int | None = None, only: int | None = None) -> Any:
        """Call a method of one worker.

        Args:
            method: Its name.
            *args: Its arguments.
            home: Calls of one number go to one worker, as long as that is not busier than others.
            only: The worker that must do it, when it is there.

        Raises:
            WorkersLostError: See ``attempts``; or no worker could be restarted.
            Exception: What the method has raised.
        """
        for _ in range(self._attempts):
            index = await self._choose(home, only)
            self._load[index] += 1
            try:
                return await getattr(self.actors[index], method).remote(*args)
            except RayTaskError as error:
                raise _cause(error) from error
            except RayActorError as error:
                self._lost(index, error)
            finally:
                self._load[index] -= 1
        raise WorkersLostError(
            f"{self._attempts} {self._what}s died one after the other, each while it had the same call of `{method}`"
        )

    async def _choose(self, home: int | None, only: int | None) -> int:
        if only is not None:
            if only in self._down:
                await self._down[only]
            return only
        while not (up := [i for i in range(len(self.actors)) if i not in self._down]):
            done, _ = await asyncio.wait(self._down.values(), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        least = min(self._load[i] for i in up)
        if home is not None and self._load[up[home % len(up)]] <= least + SLACK:
            return up[home % len(up)]
        return next(i for i in up if self._load[i] == least)

    def _lost(self, index: int, error: RayActorError) -> None:
        if index not in self._down:
            logger.warning("%s %d died: %s", self._what, index, str(error).strip().splitlines()[0])
            task = asyncio.create_task(self._wait_for(index))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever needs it will ask
            self._down[index] = task

    def replace(self, actors: Sequence[Any]) -> None:
        """Send calls to other workers from now on.

        Raises:
            RuntimeError: A call is under way.
        """
        if any(self._load):
            raise RuntimeError(f"{sum(self._load)} calls of {self._what}s are under way, which are to be replaced")
        self.close()
        self._down.clear()
        self.actors = list(actors)
        self._load = [0] * len(self.actors)

    def close(self) -> None:
        """Wait for nobody any more."""
        for task in self._down.values():
            task.cancel()

    async def _wait_for(self, index: int) -> None:
        """Wait until Ray has restarted a worker; one that cannot be restarted stays on the list of those that died."""
        try:
            await self.actors[index].ready.options(max_task_retries=-1).remote()
        except RayTaskError as error:
            raise _cause(error) from error
        except RayActorError as error:
            raise WorkersLostError(f"{self._what} {index} could not be restarted: {error}") from error
        self._down.pop(index, None)


def _cause(error: RayTaskError) -> BaseException:
    """The exception that a worker has raised, without Ray's account of where."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error
