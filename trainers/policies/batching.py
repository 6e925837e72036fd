"""Deterministic batches: requests are held until every live episode waits, then served in the order of their keys.

Which requests share a batch then depends on what the episodes do and never on timing, so a run of a batching policy
repeats bit for bit.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from trainers.policies.base import Completion, PolicyError, Request

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Job:
    """A request and the token ids of its prompt."""

    request: Request
    prompt_ids: tuple[int, ...]


Serve = Callable[[Sequence[Job]], list[list[Completion]]]
"""Answers one batch: the completions of each job, in order. It runs in a worker thread."""


@dataclass(eq=False, slots=True)
class _Waiting:
    job: Job
    future: asyncio.Future[list[Completion]]

    @property
    def request(self) -> Request:
        return self.job.request


class Barrier:
    """Serves the batching policies of one event loop.

    All policies share it, because an episode that waits for one model cannot ask another. An episode is the first two
    entries of `Request.key` (task index and sample); a request without a key counts as an episode of its own.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve the policies of an event loop."""
        self._loop = weakref.ref(loop)  # the registry below holds the loop weakly, so its value must not hold it
        self._live: dict[Batcher, int] = {}
        self._running = False
        self._scheduled = False
        self._task: asyncio.Task[None] | None = None
        self._waiting: dict[Batcher, list[_Waiting]] = {}
        # One thread for all models: a CPU gains nothing from two, and the order of work stays fixed.
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="policy")

    def change(self, batcher: Batcher, by: int) -> None:
        """Count an episode that starts (+1) or ends (-1)."""
        count = self._live.get(batcher, 0) + by
        if count < 0:
            raise RuntimeError("Policy.leave() was called more often than Policy.join()")
        self._live.pop(batcher, None)
        if count:
            self._live[batcher] = count
        self.schedule()

    async def submit(self, batcher: Batcher, job: Job) -> list[Completion]:
        """Hold a job until its batch has run."""
        waiting = _Waiting(job, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(batcher, []).append(waiting)
        self.schedule()
        try:
            return await waiting.future
        finally:
            held = self._waiting.get(batcher, [])
            if waiting in held:  # cancelled before its batch started
                held.remove(waiting)
                self.schedule()

    def schedule(self) -> None:
        """Look, once the tasks that are ready now have run, whether everybody waits."""
        loop = self._loop()
        if not self._scheduled and loop is not None and not loop.is_closed():
            self._scheduled = True
            loop.call_soon(self._check)

    def _check(self) -> None:
        self._scheduled = False
        loop = self._loop()
        requests = [item.request for held in self._waiting.values() for item in held]
        if self._running or not requests or loop is None:
            return
        episodes = {request.key[:2] or (id(request),) for request in requests}
        if len(episodes) >= max(self._live.values(), default=0):
            self._running = True
            self._task = loop.create_task(self._flush())

    async def _flush(self) -> None:
        taken, self._waiting = self._waiting, {}
        try:
            for batcher, held in sorted(taken.items(), key=lambda item: item[0].order):
                try:
                    batches = batcher.batches(held)
                except TypeError as error:
                    failure = PolicyError(f"keys of requests in flight must be comparable with each other: {error}")
                    _settle(held, failure)
                    continue
                for batch in batches:
                    await self._serve(batcher.serve, batch)
        except BaseException as error:
            for held in taken.values():  # nobody may wait for ever
                _settle(held, error)
            raise
        finally:
            self._running = False
            self.schedule()

    async def _serve(self, serve: Serve, batch: list[_Waiting]) -> None:
        live = [item for item in batch if not item.future.done()]
        if not live:
            return
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self.executor, serve, [item.job for item in live])
        # The failure of a batch, whatever it is, belongs to the requests in it: each of them gets it.
        (result,) = await asyncio.gather(future, return_exceptions=True)
        if isinstance(result, BaseException):
            _settle(live, result)
            return
        for item, completions in zip(live, result, strict=True):
            if not item.future.done():
                item.future.set_result(completions)


def _settle(held: Sequence[_Waiting], cause: BaseException) -> None:
    """Fail requests, each with an error of its own."""
    for item in held:
        if not item.future.done():
            error = PolicyError(f"the batch of this request failed: {type(cause).__name__}: {cause}")
            error.__cause__ = cause
            item.future.set_exception(error)


_BARRIERS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Barrier] = weakref.WeakKeyDictionary()


def barrier() -> Barrier:
    """Return the barrier of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _BARRIERS.get(loop)
    if found is None:
        found = _BARRIERS[loop] = Barrier(loop)
    return found


class Batcher:
    """One policy's side of the barrier."""

    _count = 0

    def __init__(self, serve: Serve, max_batch: int) -> None:
        """Batch the requests of a policy.

        Args:
            serve: Answers a batch of requests that have the same sampling settings.
            max_batch: Most completions in one batch. A single request with more candidates is a batch of its own.

        Raises:
            ValueError: If `max_batch` is less than 1.
        """
        if max_batch < 1:
            raise ValueError(f"max_batch must be >= 1, got {max_batch!r}")
        self.serve = serve
        self.max_batch = max_batch
        self.order = Batcher._count
        Batcher._count += 1

    def join(self) -> None:
        """Count an episode that starts."""
        barrier().change(self, +1)

    def leave(self) -> None:
        """Count an episode that has ended."""
        barrier().change(self, -1)

    async def submit(self, job: Job) -> list[Completion]:
        """Answer a job in its batch.

        Raises:
            PolicyError: If the batch failed.
        """
        return await barrier().submit(self, job)

    async def run(self, function: Callable[[], _T]) -> _T:
        """Run a function in the thread that also runs the batches, between two of them."""
        return await asyncio.get_running_loop().run_in_executor(barrier().executor, function)

    def batches(self, held: Sequence[_Waiting]) -> list[list[_Waiting]]:
        """Cut waiting requests into batches: same sampling settings, in the order of their keys."""
        groups: dict[object, list[_Waiting]] = {}
        for item in sorted(held, key=lambda item: (item.request.key, item.request.seed, item.request.observation)):
            groups.setdefault(item.request.sampling, []).append(item)
        result: list[list[_Waiting]] = []
        for group in groups.values():
            rows = self.max_batch + 1
            for item in group:
                if rows + item.request.n > self.max_batch:
                    result.append([])
                    rows = 0
                result[-1].append(item)
                rows += item.request.n
        return result
