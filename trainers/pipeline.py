"""Which weights play which batch, and what runs beside what.

With ``max_staleness`` 0 (:class:`OnPolicy`) an update collects its batch, trains on it, and hands the new weights on;
where engines share the devices of the learners, they sleep meanwhile (:class:`Colocated`).
With S > 0 (:class:`Overlapped`) a second task collects ahead while the learner updates. Let version v be the weights
after v updates, and batch u what update u (from 0) trains on. Then

* batch u is played by version max(0, u − S) exactly (``finish``), or by that version and newer ones (``continue``);
* update u waits for batch u, and batch u for its version and for batch u − 1.

So a turn is at most S versions old when it is trained on. With ``finish`` the schedule is one of versions and not of
the clock: whichever side is faster, the same weights play the same batches.

**Threads.** Models are computed in two threads beside the event loop: the learner's (here) and the sampler's (the
policy's own, or a process of its own). They share no tensor: a sampler has a copy of the weights, which is replaced
between two of its batches by whoever runs these. Torch's kernels, forward and backward, release the interpreter lock.
Samplers draw from generators of their own, so the learner may seed the global one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from trainers.batch import Batch
from trainers.collecting import Collector
from trainers.config import TrainConfig
from trainers.cursor import TaskCursor
from trainers.members import Member
from trainers.run_metrics import Clock
from trainers.team import Team

__all__ = ["Colocated", "OnPolicy", "Overlapped", "make_pipeline"]

_T = TypeVar("_T")
_NEVER = sys.maxsize


class OnPolicy:
    """Collects a batch when it is asked for, with the newest weights. Nothing runs beside an update.

    Args:
        collector: Plays the batches.
        cursor: Where their tasks come from.
        config: The configuration.
    """

    team: Team
    members: Mapping[str, Member]

    def __init__(self, collector: Collector, cursor: TaskCursor, config: TrainConfig) -> None:
        self._collector = collector
        self._cursor = cursor
        self._config = config

    def open(self, team: Team, members: Mapping[str, Member], update: int) -> None:
        """Begin before the update with this number, when the samplers hold the weights of as many updates."""
        self.team, self.members = team, members

    async def batch(self, update: int, clock: Clock) -> Batch:
        """Return the batch of an update.

        Raises:
            RunError: Not one episode of it could be played.
        """
        episodes, metrics = await self._collector.collect(
            self.team, self._cursor, update, self._config.learning(update)
        )
        clock.lap("rollout")
        return Batch(update, episodes, metrics)

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do a part of an update."""
        return work()

    def versions(self, update: int) -> dict[str, int]:
        """The version of each policy's weights that the update with this number begins with."""
        return {name: member.policy.weight_version for name, member in self.members.items()}

    async def push(self, version: int, learning: Collection[str], clock: Clock, *, hold: bool) -> None:
        """Hand the weights of the policies that have learned to their samplers.

        Args:
            version: Updates done.
            learning: Who has learned in the last one.
            clock: Takes the times.
            hold: Return when no episode is in flight and the samplers hold the learners' weights; none starts before
                the next batch is asked for. So weights can be compared, held-out tasks played and the state be saved.
        """
        for name in learning:
            await self.members[name].push(version)
        clock.lap("sync")

    def state(self) -> list[dict[str, Any]]:
        """The batches that were played and not trained on yet, as plain JSON objects. Call it while held."""
        return []

    def load_state(self, batches: Sequence[Mapping[str, Any]]) -> None:
        """Go on with batches that :meth:`state` returned; before :meth:`open`."""

    async def close(self) -> None:
        """Stop what is in flight. The cursor then stands before the tasks of a batch that was broken off."""


class Colocated(OnPolicy):
    """Puts the engines to sleep while the learners work.

    They wake for the new weights, and take room for their caches when they have these. Weights that were discarded and
    not trained are given again, under their own number.
    """

    async def batch(self, update: int, clock: Clock) -> Batch:
        """Return the batch of an update when the engines that played it are asleep; see :meth:`OnPolicy.batch`."""
        batch = await super().batch(update, clock)
        for member in self.members.values():
            await member.policy.sleep(self._config.serving.sleep_level)
        clock.lap("sleep")
        return batch

    async def push(self, version: int, learning: Collection[str], clock: Clock, *, hold: bool) -> None:
        """Wake the engines with the weights of the policies that have learned; see :meth:`OnPolicy.push`."""
        _empty_cache()
        await self._wake("weights", clock)
        if self._config.serving.sleep_level == 2:
            for name, member in self.members.items():
                if name not in learning:
                    await member.push(member.policy.weight_version)
        await super().push(version, learning, clock, hold=hold)
        await self._wake("kv_cache", clock)

    async def _wake(self, part: str, clock: Clock) -> None:
        for member in self.members.values():
            await member.policy.wake([part])
        clock.lap("wake")


class Overlapped(OnPolicy):
    """Collects up to S batches ahead, beside the updates; see the module.

    After a resume from update r, batch u is played by version max(r, u − S). A checkpoint holds batches r to r + S − 1,
    so these are the weights that would have played it anyway. Only where a finished run is prolonged there are none,
    and the first S batches are played by the newest weights, as at the start.
    """

    def __init__(self, collector: Collector, cursor: TaskCursor, config: TrainConfig) -> None:
        super().__init__(collector, cursor, config)
        self._staleness = config.max_staleness
        self._continue = config.on_new_weights == "continue"
        self._queue: deque[Batch] = deque()
        self._aside: deque[tuple[int, dict[str, Any]]] = deque()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._first = 0
        self._released = -1  # newest version that the collecting task may use
        self._needed = 0  # the one it uses, or waits for
        self._busy_s = 0.0
        self._busy_since: float | None = None
        self._trained_s = self._overlapped_s = 0.0
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="learner", initializer=_as_elsewhere)

    def open(self, team: Team, members: Mapping[str, Member], update: int) -> None:
        """Begin; see :meth:`OnPolicy.open`."""
        super().open(team, members, update)
        self._first = update
        following = update + len(self._queue)
        self._needed = self._version_for(following)
        self._task = asyncio.create_task(self._collect(following))

    async def batch(self, update: int, clock: Clock) -> Batch:
        """Let the collecting task use version ``update``, and return the batch of that update when it is there."""
        self._released = update
        self._changed.set()
        await self._until(lambda: bool(self._queue) or self._needed == _NEVER)
        clock.lap("learner_waited")
        if not self._queue:
            if self._task is not None:
                await self._task
            raise RuntimeError(f"No batch is left for update {update}; the run has {self._config.updates}")
        batch = self._queue.popleft()
        clock.note("rollout_s", batch.seconds)
        clock.note("rollout_waited_s", batch.waited_s)
        return batch

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do a part of an update in the learner's thread."""
        started, busy = time.perf_counter(), self._busy()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self._trained_s += time.perf_counter() - started
            self._overlapped_s += self._busy() - busy

    def versions(self, update: int) -> dict[str, int]:
        """The version of each policy's weights that the update begins with: its number, but for frozen policies."""
        return {
            name: update if member.learner is not None else member.policy.weight_version
            for name, member in self.members.items()
        }

    async def push(self, version: int, learning: Collection[str], clock: Clock, *, hold: bool) -> None:
        """Hand weights on; see :meth:`OnPolicy.push`.

        Without ``hold`` they are given to the samplers at once (``continue``), or set aside until the batches that
        older ones have to play are there (``finish``).
        """
        share = self._overlapped_s / self._trained_s if self._trained_s else 0.0
        clock.note("overlap_share", min(1.0, share))  # both are read from the clock, one after the other
        self._trained_s = self._overlapped_s = 0.0
        if self._continue:
            await self._give(version, learning)
            clock.lap("sync")
            if hold:
                await self._settle(clock)
        elif hold or self._staleness == 1:
            await self._settle(clock)
            missed = {name for _, aside in self._aside for name in aside}  # where no batch was left for these
            self._aside.clear()
            await self._give(version, [name for name in self.members if name in missed or name in learning])
            clock.lap("sync")
        else:
            self._aside.append((version, {name: await self.members[name].set_aside() for name in learning}))
            clock.lap("sync")

    def state(self) -> list[dict[str, Any]]:
        """The batches that wait for their update; see :meth:`OnPolicy.state`."""
        return [batch.to_dict() for batch in self._queue]

    def load_state(self, batches: Sequence[Mapping[str, Any]]) -> None:
        """Take such batches back; see :meth:`OnPolicy.load_state`."""
        self._queue.extend(map(Batch.from_dict, batches))

    async def close(self) -> None:
        """Stop collecting, and wait for the learner's thread; see :meth:`OnPolicy.close`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    def _version_for(self, number: int) -> int:
        """The version that a batch needs."""
        return max(self._first, number - self._staleness)

    async def _collect(self, following: int) -> None:
        """Collect one batch after the other, each when the weights that are to play it are there."""
        try:
            for number in range(following, self._config.updates):
                self._needed = self._version_for(number)
                self._changed.set()
                started = time.perf_counter()
                await self._until(lambda: self._needed <= self._released)
                await self._take_up(self._needed)
                self._busy_since = begun = time.perf_counter()
                before = self._cursor.state_dict()
                try:
                    episodes, metrics = await self._collector.collect(
                        self.team, self._cursor, number, self._config.learning(number)
                    )
                except BaseException:
                    self._cursor.load_state_dict(before)
                    raise
                finally:
                    self._busy_s, self._busy_since = self._busy(), None
                seconds = time.perf_counter() - begun
                self._queue.append(Batch(number, episodes, metrics, seconds, begun - started))
        finally:
            self._needed = _NEVER
            self._changed.set()

    async def _take_up(self, version: int) -> None:
        """Give the samplers the weights that were set aside for them, up to a version."""
        while self._aside and self._aside[0][0] <= version:
            number, sources = self._aside.popleft()
            for name, source in sources.items():
                await self.members[name].push(number, source)
            self._number(number, sources)

    async def _give(self, version: int, names: Collection[str]) -> None:
        """Give the samplers the learners' weights."""
        for name in names:
            await self.members[name].push(version)
        self._number(version, names)

    def _number(self, version: int, pushed: Collection[str]) -> None:
        """Give the weights of a policy that could have learned and held still the number of the others."""
        for name, member in self.members.items():
            if member.learner is not None and name not in pushed:
                member.policy.weight_version = version

    async def _settle(self, clock: Clock) -> None:
        """Wait until the collecting task waits for weights that are not released yet, or has ended."""
        await self._until(lambda: self._needed > self._released)
        clock.lap("learner_waited")

    async def _until(self, met: Callable[[], bool]) -> None:
        while not met():
            self._changed.clear()
            await self._changed.wait()

    def _busy(self) -> float:
        """Seconds in which a batch was being collected, so far."""
        running = 0.0 if self._busy_since is None else time.perf_counter() - self._busy_since
        return self._busy_s + running


def _as_elsewhere() -> None:
    """Let torch compute with as many threads in this one as in the others, from its first product on."""
    import torch

    torch.get_num_threads()  # which sets what torch.set_num_threads was told


def _empty_cache() -> None:
    """Give back what torch keeps of a GPU's memory for the next update: engines need it before."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def make_pipeline(collector: Collector, cursor: TaskCursor, config: TrainConfig) -> OnPolicy:
    """The pipeline that a configuration asks for."""
    plain = Colocated if config.serving.mode == "colocated" else OnPolicy
    return (Overlapped if config.max_staleness else plain)(collector, cursor, config)
