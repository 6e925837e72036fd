"""Engines of a simulation: continuous batching as in vLLM, and batches behind a barrier as in the ``hf`` back end.

One event stands for all steps of a batch until a sequence ends or another arrives, so a simulation costs a few events a
turn, however long its answers are.
"""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from benchmarks.scale.costs import EngineCosts

__all__ = ["BarrierEngine", "Engine", "EngineBase", "Request"]


@dataclass(slots=True)
class Request:
    """A prompt and how long its answer will be.

    Attributes:
        fresh: Tokens of the prompt that must be read.
        cached: Tokens of the prompt that are in the cache already.
        completion: Tokens of the answer, at least 1.
        done: Succeeds when the answer is complete.
        arrived: When it was submitted.
        order: Its place in time, for reproducible ties.
    """

    fresh: int
    cached: int
    completion: int
    done: simpy.Event
    arrived: float
    order: int

    @property
    def context(self) -> int:
        """Tokens of the whole prompt."""
        return self.fresh + self.cached


@dataclass
class EngineBase(ABC):
    """What engines have in common: a queue, and what is counted.

    Attributes:
        env: The simulation.
        costs: Seconds of its steps.
        max_sequences: Most sequences of a batch.
        max_tokens: Tokens that its cache holds; a sequence is admitted when all it will take is free.
        busy: Seconds in which it computed.
        generated: Tokens written.
        finished: Requests answered.
        waited: Seconds from arrival to answer, of all of them.
        row_seconds: Sequences in a batch, integrated over time.
    """

    env: simpy.Environment
    costs: EngineCosts
    max_sequences: int
    max_tokens: float = float("inf")
    busy: float = 0.0
    generated: int = 0
    finished: int = 0
    waited: float = 0.0
    row_seconds: float = 0.0
    _waiting: deque[Request] = field(default_factory=deque)
    _orders: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        if self.max_sequences < 1:
            raise ValueError(f"max_sequences is {self.max_sequences}; it is at least 1")
        self._wake: simpy.Event | None = None
        self._interruptible = False
        self._process = self.env.process(self._run())

    def submit(self, fresh: int, cached: int, completion: int) -> simpy.Event:
        """Ask for an answer; the event succeeds when it is complete.

        Raises:
            ValueError: The answer has no token, or the cache can never hold the sequence.
        """
        if completion < 1:
            raise ValueError(f"an answer of {completion} tokens: it has at least 1")
        if fresh + cached + completion > self.max_tokens:
            raise ValueError(f"a sequence of {fresh + cached + completion} tokens in a cache of {self.max_tokens:.0f}")
        request = Request(fresh, cached, completion, self.env.event(), self.env.now, next(self._orders))
        self._waiting.append(request)
        self._arrived()
        return request.done

    def _arrived(self) -> None:
        if self._wake is not None:
            wake, self._wake = self._wake, None
            wake.succeed()
        elif self._interruptible:
            self._interruptible = False
            self._process.interrupt()

    def _sleep(self) -> simpy.Event:
        self._wake = self.env.event()
        return self._wake

    def _end(self, request: Request) -> None:
        self.finished += 1
        self.generated += request.completion
        self.waited += self.env.now - request.arrived
        request.done.succeed()

    @abstractmethod
    def _run(self) -> Generator[simpy.Event, Any, None]:
        """Serve the queue for ever."""


@dataclass
class Engine(EngineBase):
    """Continuous batching: who arrives joins at the next step, after a forward pass over its prompt."""

    def __post_init__(self) -> None:
        self._running: list[tuple[int, int, Request]] = []
        self._step = 0
        self._context = 0
        self._reserved = 0
        super().__post_init__()

    def _admit(self) -> list[Request]:
        admitted: list[Request] = []
        while self._waiting and len(self._running) + len(admitted) < self.max_sequences:
            head = self._waiting[0]
            if self._reserved + head.context + head.completion > self.max_tokens:
                break
            self._reserved += head.context + head.completion
            admitted.append(self._waiting.popleft())
        return admitted

    def _run(self) -> Generator[simpy.Event, Any, None]:
        while True:
            if not self._running and not self._waiting:
                yield self._sleep()
            admitted = self._admit()
            if admitted:
                squares = sum(r.context**2 - r.cached**2 for r in admitted)
                seconds = self.costs.prefill(len(admitted), sum(r.fresh for r in admitted), squares)
                self._count(seconds, len(self._running) + len(admitted))
                yield self.env.timeout(seconds)
                for request in admitted:  # reading a prompt also yields the first token
                    self._context += request.context + 1
                    heapq.heappush(self._running, (self._step + request.completion - 1, request.order, request))
            self._finish()
            if self._running and not self._waiting_can_start():
                yield from self._decode()
                self._finish()

    def _waiting_can_start(self) -> bool:
        if not self._waiting or len(self._running) >= self.max_sequences:
            return False
        return self._reserved + self._waiting[0].context + self._waiting[0].completion <= self.max_tokens

    def _decode(self) -> Generator[simpy.Event, Any, None]:
        """Steps until the next answer is complete, or until the step in which a request arrives is done."""
        rows, context = len(self._running), self._context
        count = self._running[0][0] - self._step
        seconds = self.costs.steps(count, rows, context)
        started = self.env.now
        self._interruptible = not self._waiting and rows < self.max_sequences
        try:
            yield self.env.timeout(seconds)
        except simpy.Interrupt:
            elapsed = self.env.now - started
            count = self.costs.steps_begun(elapsed, count, rows, context)
            seconds = self.costs.steps(count, rows, context)
            if seconds > elapsed:
                yield self.env.timeout(seconds - elapsed)
        self._interruptible = False
        self._count(seconds, rows)
        self._step += count
        self._context += count * rows

    def _count(self, seconds: float, rows: int) -> None:
        self.busy += seconds
        self.row_seconds += seconds * rows

    def _finish(self) -> None:
        while self._running and self._running[0][0] <= self._step:
            _, _, request = heapq.heappop(self._running)
            self._context -= request.context + request.completion
            self._reserved -= request.context + request.completion
            self._end(request)


@dataclass
class BarrierEngine(EngineBase):
    """Batches behind a barrier: nothing is served until every live episode waits for an answer.

    Then all requests are served, in batches of at most ``max_sequences``, each as long as its longest answer; rows that
    have ended are dropped once a quarter of the batch has (:mod:`trainers.policies.decode`).

    Attributes:
        live: Episodes that the barrier waits for: :meth:`join` and :meth:`leave` count them.
    """

    live: int = 0

    def join(self) -> None:
        """Count an episode that starts."""
        self.live += 1

    def leave(self) -> None:
        """Count an episode that has ended."""
        self.live -= 1
        self._arrived()

    def _run(self) -> Generator[simpy.Event, Any, None]:
        while True:
            if not self._waiting or len(self._waiting) < self.live:
                yield self._sleep()
                continue
            taken = list(self._waiting)
            self._waiting.clear()
            for start in range(0, len(taken), self.max_sequences):
                batch = taken[start : start + self.max_sequences]
                seconds = self._seconds(batch)
                self.busy += seconds
                self.row_seconds += seconds * len(batch)
                yield self.env.timeout(seconds)
                for request in batch:
                    self._end(request)

    def _seconds(self, batch: list[Request]) -> float:
        width = max(request.context for request in batch)  # prompts are padded to the longest
        squares = float(width * width * len(batch))
        seconds = self.costs.prefill(len(batch), width * len(batch), squares)
        lengths = sorted(request.completion for request in batch)
        rows, step, ended = len(batch), 1, 0
        for index, length in enumerate(lengths):
            if length > step:
                seconds += self.costs.steps(length - step, rows, rows * (width + step))
                step = length
            ended = index + 1
            left = len(batch) - ended
            if 4 * left <= 3 * rows:
                rows = left
        return seconds
