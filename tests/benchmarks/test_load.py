"""A thousand episodes at once: all are in flight, each is written when it ends, and nothing of it is kept."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.garbage import fewer_collections
from benchmarks.line_places import LinePlaces
from benchmarks.metrics import success_interval
from benchmarks.performance import load
from benchmarks.runner import RunResult, RunSettings, run
from benchmarks.summary import Counts
from trainers.policies.base import Completion, Request
from trainers.policies.scripted import RandomPolicy
from trainers.rollout.records import Episode


class Counting(RandomPolicy):
    """Answers after a millisecond, and counts who is waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = self.most = 0

    async def generate(self, request: Request) -> list[Completion]:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await asyncio.sleep(0.001)
        self.waiting -= 1
        return await super().generate(request)


class Reading:
    """An observer that looks into the results folder whenever an episode ends."""

    def __init__(self, every: int = 1, *, trace: bool = False) -> None:
        self._trace = trace
        self.played_ids: list[str] = []
        self.alive: list[int] = []
        self.memory: list[int] = []
        self._every = every

    def loading(self, specs: Sequence[str]) -> None: ...

    def start(self, path: Path, label: str, planned: int) -> None:
        self._planned = planned
        if self._trace:
            tracemalloc.start()
        self._file = (path / "episodes.jsonl").open("rb")

    def stored(self, task_index: int, success: bool) -> None: ...

    def began(self, task_index: int, sample: int) -> None: ...

    def played(self, episode: Episode) -> None:
        line = self._file.readline()
        assert line.endswith(b"\n"), "the episode is not in the file yet"
        assert json.loads(line)["id"] == episode.id
        assert not self._file.read(1), "there is more in the file than was reported"
        self.played_ids.append(episode.id)
        if len(self.played_ids) == self._planned:
            self._file.close()
        if len(self.played_ids) % self._every == 0:
            self.alive.append(sum(type(found) is Episode for found in gc.get_objects()))
            if tracemalloc.is_tracing():
                gc.collect()
                self.memory.append(tracemalloc.get_traced_memory()[0])


def play(path: Path, policy: RandomPolicy, observer: Reading, *, tasks: int, samples: int, at_once: int) -> RunResult:
    settings = RunSettings("kuhn-poker", ["random"], n=tasks, samples=samples, concurrency=at_once, out=path)
    return asyncio.run(run(settings, observer, make=lambda spec: policy))


def test_a_thousand_are_in_flight_and_each_is_written_when_it_ends(tmp_path: Path) -> None:
    policy, observer = Counting(), Reading(every=700)
    result = play(tmp_path / "run", policy, observer, tasks=100, samples=21, at_once=1000)
    assert result.complete
    assert policy.most == 1000
    assert len(set(observer.played_ids)) == 2100
    assert max(observer.alive) <= 1001
    assert observer.alive[-1] <= 2, "episodes are kept that were written"


def test_memory_does_not_grow_with_the_episodes(tmp_path: Path) -> None:
    observer = Reading(every=500, trace=True)
    try:
        assert play(tmp_path / "run", RandomPolicy(), observer, tasks=100, samples=15, at_once=5).complete
    finally:
        tracemalloc.stop()
    assert max(observer.alive) <= 6
    per_episode = (observer.memory[-1] - observer.memory[0]) / 1000
    # Place and success take 24 and less than 8 bytes, in arrays that grow by an eighth; the ids above take the rest.
    assert per_episode < 150, f"{per_episode:.0f} bytes an episode are kept"


def test_places_are_those_of_the_lines() -> None:
    generator = random.Random(3)
    keys = [(task, sample) for task in range(40) for sample in range(3)]
    generator.shuffle(keys)
    places, lines = LinePlaces(), []
    for key in keys:
        assert key not in places
        lines.append(repr(key).encode() * generator.randrange(1, 5))
        places.add(*key, len(lines[-1]))
        assert key in places
    assert (40, 0) not in places
    assert (0, 3) not in places
    assert len(places) == len(keys)
    assert list(places) == keys
    data = b"".join(lines)
    for place, numbers in ((places, range(len(keys))), (places.reordered(places.order()), places.order().tolist())):
        data = b"".join(lines[number] for number in numbers)
        found = [data[start : start + size] for start, size in map(place.line, range(len(keys)))]
        assert found == [lines[number] for number in numbers]
    assert list(places.reordered(places.order())) == sorted(keys)


@pytest.mark.parametrize("samples", [1, 3])
def test_counts_say_what_the_statistics_of_all_episodes_say(samples: int) -> None:
    generator = random.Random(samples)
    rows = {task: [generator.random() < 0.4 for _ in range(samples)] for task in generator.sample(range(500), 60)}
    counts = Counts()
    for task, row in rows.items():
        for success in row:
            counts.add(task, success)
    low, high = success_interval(list(rows.values()))
    share = sum(map(sum, rows.values())) / (60 * samples)
    assert counts.success() == f"{100 * share:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    assert counts.episodes == 60 * samples


def test_the_garbage_collector_is_as_it_was_after_a_run() -> None:
    before = gc.get_threshold()
    seen = []
    with contextlib.suppress(RuntimeError), fewer_collections():
        seen.append(gc.get_threshold()[0])
        raise RuntimeError
    assert seen[0] > before[0]
    assert gc.get_threshold() == before
    gc.set_threshold(0)  # switched off
    try:
        with fewer_collections():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_load_is_measured_by_whole_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "AT_A_TIME", 10)
    watch = load.play_run("kuhn-poker", 100, load.Busy(), marks=[50, 100])
    assert watch.episodes == 100
    assert watch.turns > 200
    assert watch.computing >= watch.turns * load.ANSWER_S
    assert len(watch.resident) == 2
    engine = load.play_run("math-2agent", 100, load.Engine())
    assert engine.seconds >= engine.turns * load.ANSWER_S * 0.99
    assert load.bare_rate("kuhn-poker", 100) > 0


def test_an_engine_gives_one_answer_after_the_other() -> None:
    async def ask() -> float:
        policy = load.Engine(answer_s=0.01)
        env = load.llm_envs.make("kuhn-poker").unwrapped
        env.reset(seed=0)
        request = Request("o", "player_0", RunSettings("kuhn-poker", []).sampling, 0, env=env)
        started = asyncio.get_running_loop().time()
        await asyncio.gather(*(policy.generate(request) for _ in range(10)))
        return asyncio.get_running_loop().time() - started

    assert asyncio.run(ask()) >= 0.099
