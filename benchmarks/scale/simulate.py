"""The flow of data of a run: runners play episodes on engines, learners learn from them, weights come back.

* ``synchronous``: collect a batch, learn from it, bring the weights to the engines, and again.
* ``overlapped``: the next batch is collected while the learners work on the last one, so it is one update old
  (staleness 1); weights change between two batches.

Whether learners and engines share devices is not decided here but by who is given which devices and costs.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import simpy

from benchmarks.scale.engine import BarrierEngine, EngineBase
from benchmarks.scale.lengths import Recorded, SimulatedTurn

__all__ = ["Flow", "StepReport", "simulate"]

Episode = tuple[SimulatedTurn, ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """What is simulated.

    Attributes:
        lengths: Episodes to draw from.
        episodes: Episodes of a batch.
        concurrency: Episodes in flight.
        make_engines: Makes the engines of each policy in a simulation; agent ``i`` is played by policy ``i`` modulo the
            number of policies.
        runner_cores: Cores on which environments run.
        update_s: Seconds of the learners for a batch, given its tokens and those of its completions.
        sync_s: Seconds until the engines have new weights.
        order: See the module.
        prefix_cache: Whether an engine still has the tokens of the agent's last turn when the next one comes. Episodes
            stay with their engine.
        steps: Batches, all counted.
        replay: Play the recorded episodes themselves, each once, instead of drawing; ``episodes`` is their number.
        seed: Decides which episodes are drawn.
    """

    lengths: Recorded
    episodes: int
    concurrency: int
    make_engines: Callable[[simpy.Environment], Sequence[Sequence[EngineBase]]]
    runner_cores: int
    update_s: Callable[[int, int], float]
    sync_s: float
    order: Literal["synchronous", "overlapped"] = "synchronous"
    prefix_cache: bool = True
    steps: int = 1
    replay: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("episodes", "concurrency", "runner_cores", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it is at least 1")
        if self.replay and self.episodes != len(self.lengths.episodes):
            raise ValueError(f"episodes is {self.episodes}, and {len(self.lengths.episodes)} are to be replayed")


@dataclass(slots=True)
class StepReport:
    """What a simulation found; times are means a step.

    Attributes:
        seconds: One update from start to start.
        rollout_s: Of it or beside it: collecting a batch.
        update_s: Learning.
        sync_s: Weights to the engines.
        tail_s: The end of a rollout in which less than a tenth of the episodes are left.
        tokens_per_s: Completion tokens a second.
        engine_busy: Share of the rollout in which an engine computes, in the mean.
        engine_rows: Sequences in a batch while it computes, in the mean.
        runner_busy: Share of the rollout in which a core runs an environment, in the mean.
        learner_busy: Share of a step in which the learners work.
        turns: Turns played a step.
        bottleneck: What holds it up most: ``learners``, ``weight sync``, and of the rollout ``engines``, ``runners``
            or ``stragglers``.
    """

    seconds: float
    rollout_s: float
    update_s: float
    sync_s: float
    tail_s: float
    tokens_per_s: float
    engine_busy: float
    engine_rows: float
    runner_busy: float
    learner_busy: float
    turns: float
    bottleneck: str = ""


@dataclass
class _Rollout:
    """Plays batches."""

    env: simpy.Environment
    flow: Flow
    engines: Sequence[Sequence[EngineBase]]
    rng: np.random.Generator
    seconds: float = 0.0
    tail: float = 0.0
    runner_seconds: float = 0.0
    turns: int = 0
    tokens: int = 0
    _cores: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Cores take work in the order of its arrival, so that when each is free again can be told at once.
        self._cores = [0.0] * self.flow.runner_cores

    def collect(self) -> Generator[simpy.Event, Any, tuple[int, int]]:
        """Play a batch; returns its tokens, prompts included, and those of its completions."""
        flow, env = self.flow, self.env
        started = env.now
        batch = list(flow.lengths.episodes) if flow.replay else flow.lengths.draw(flow.episodes, self.rng)
        queue = iter(enumerate(batch))
        self._left = len(batch)
        self._nearly: float | None = None
        workers = min(flow.concurrency, len(batch))
        for engine in itertools.chain.from_iterable(self.engines):
            if isinstance(engine, BarrierEngine):
                engine.live = workers
        done = env.event()
        self._workers = workers
        for _ in range(workers):
            env.process(self._work(queue, done))
        yield done
        self.seconds += env.now - started
        self.tail += env.now - (started if self._nearly is None else self._nearly)
        completions = sum(turn.completion for episode in batch for turn in episode)
        self.turns += sum(len(episode) for episode in batch)
        self.tokens += completions
        return sum(turn.prompt for episode in batch for turn in episode) + completions, completions

    def _work(self, queue: Iterator[tuple[int, Episode]], done: simpy.Event) -> Generator[simpy.Event, Any, None]:
        for number, episode in queue:
            yield from self._play(number, episode)
            self._left -= 1
            if self._nearly is None and self._left < self.flow.episodes / 10:
                self._nearly = self.env.now
        for engine in itertools.chain.from_iterable(self.engines):
            if isinstance(engine, BarrierEngine):
                engine.leave()
        self._workers -= 1
        if self._workers == 0:
            done.succeed()

    def _play(self, number: int, episode: Episode) -> Generator[simpy.Event, Any, None]:
        known: dict[int, int] = {}
        for turn in episode:
            group = self.engines[turn.agent % len(self.engines)]
            cached = min(known.get(turn.agent, 0), turn.prompt - 1) if self.flow.prefix_cache else 0
            yield group[number % len(group)].submit(turn.prompt - cached, cached, turn.completion)
            known[turn.agent] = turn.prompt + turn.completion
            if turn.env_s:
                yield self.env.timeout(self._core(turn.env_s))

    def _core(self, seconds: float) -> float:
        """Take the core that is free first; returns the seconds until the work on it is done."""
        now = self.env.now
        ended = max(now, self._cores[0]) + seconds
        heapq.heapreplace(self._cores, ended)
        self.runner_seconds += seconds
        return ended - now


def simulate(flow: Flow) -> StepReport:
    """Run a simulation. The same flow gives the same report."""
    env = simpy.Environment()
    engines = flow.make_engines(env)
    rollout = _Rollout(env, flow, engines, np.random.default_rng(flow.seed))
    learning: list[float] = []
    ends: list[float] = []

    def learn(tokens: tuple[int, int]) -> Generator[simpy.Event, Any, None]:
        learning.append(flow.update_s(*tokens))
        yield env.timeout(learning[-1])

    def run() -> Generator[simpy.Event, Any, None]:
        if flow.order == "synchronous":
            for _ in range(flow.steps):
                tokens = yield from rollout.collect()
                yield from learn(tokens)
                yield env.timeout(flow.sync_s)
                ends.append(env.now)
            return
        tokens = yield from rollout.collect()
        ends.append(env.now)  # the first batch has nothing beside it and is not counted
        for _ in range(flow.steps):
            learner = env.process(learn(tokens))
            sampler = env.process(rollout.collect())
            yield learner
            tokens = yield sampler
            yield env.timeout(flow.sync_s)
            ends.append(env.now)

    env.run(until=env.process(run()))
    return _report(flow, rollout, list(itertools.chain.from_iterable(engines)), learning, ends)


def _report(
    flow: Flow, rollout: _Rollout, engines: Sequence[EngineBase], learning: Sequence[float], ends: Sequence[float]
) -> StepReport:
    batches = flow.steps + (flow.order == "overlapped")
    begun = ends[0] if flow.order == "overlapped" else 0.0
    seconds = (ends[-1] - begun) / flow.steps
    busy = sum(engine.busy for engine in engines)
    report = StepReport(
        seconds=seconds,
        rollout_s=rollout.seconds / batches,
        update_s=float(np.mean(learning)),
        sync_s=flow.sync_s,
        tail_s=rollout.tail / batches,
        tokens_per_s=rollout.tokens / batches / seconds,
        engine_busy=busy / len(engines) / rollout.seconds,
        engine_rows=sum(engine.row_seconds for engine in engines) / busy,
        runner_busy=rollout.runner_seconds / flow.runner_cores / rollout.seconds,
        learner_busy=float(np.mean(learning)) / seconds,
        turns=rollout.turns / batches,
    )
    report.bottleneck = _bottleneck(report)
    return report


def _bottleneck(report: StepReport) -> str:
    phases = {"rollout": report.rollout_s, "learners": report.update_s, "weight sync": report.sync_s}
    longest = max(phases, key=lambda name: phases[name])
    if longest != "rollout":
        return longest
    if report.tail_s > report.rollout_s / 2:
        return "stragglers"
    return "engines" if report.engine_busy >= report.runner_busy else "runners"
