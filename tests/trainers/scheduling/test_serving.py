"""What `serving` refuses, how the pipeline sleeps and wakes, and which devices processes get."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from trainers.config import ConfigError, load_config
from trainers.members import Member
from trainers.pipeline import Colocated, OnPolicy, Overlapped, make_pipeline
from trainers.policies import devices as devices_module
from trainers.policies.devices import on_devices, present
from trainers.policies.scripted import RandomPolicy
from trainers.run_metrics import Clock
from trainers.scheduling.binding import bind_learners, left_for_learners
from trainers.tracking import read_metrics
from trainers.trainer import Trainer

CORE = max(os.sched_getaffinity(0))


@pytest.fixture
def vllm_policy():
    """Settings of a small engine."""
    return {
        "backend": "vllm",
        "engine": {"max_model_len": 256, "max_num_seqs": 16, "kv_cache_memory_bytes": 64 * 2**20},
    }


@pytest.fixture
def team(recipe):
    """A recipe of two policies that vLLM samples."""

    def build(policy=None, **changes):
        return recipe({"backend": "vllm", **(policy or {})}, **changes)

    return build


COLOCATED = {"mode": "colocated"}
DISCARD = {"mode": "colocated", "sleep_level": 2}
BOTH = {"solver": [0], "verifier": [1]}


@pytest.mark.parametrize(
    ("serving", "changes", "message"),
    [
        ({"mode": "together"}, {}, r"serving.mode: Input should be 'resident', 'colocated' or 'split'"),
        ({"sleep_levels": 2}, {}, r"serving.sleep_levels: unknown key.*Did you mean `sleep_level`"),
        ({"sleep_level": 2}, {}, r"sleep_level has no effect with serving.mode=resident"),
        ({"devices": BOTH}, {}, r"devices has no effect with serving.mode=resident"),
        (COLOCATED, {"max_staleness": 1, "uncorrected_staleness": True}, r"max_staleness is 1.*sleep play nothing"),
        ({"mode": "split"}, {}, r"names no devices for solver, verifier"),
        ({"mode": "split", "devices": {"solver": [0], "verifier": [0]}}, {}, r"gives device 0 to two engines"),
        ({"mode": "split", "devices": {**BOTH, "judge": [2]}}, {}, r"devices.judge: no policy of this name"),
        ({"mode": "split", "devices": {"solver": [], "verifier": [1]}}, {}, r"devices.solver is \[\]"),
    ],
)
def test_what_engines_cannot_do_is_refused(team, serving, changes, message):
    with pytest.raises(ConfigError, match=message):
        load_config(team(serving=serving, **changes))


@pytest.mark.parametrize(
    ("policy", "serving", "message"),
    [
        ({"trainable": False}, DISCARD, r"sleep_level is 2.*policies.verifier is frozen.*Use sleep_level 1"),
        ({"lora": {"rank": 4}}, DISCARD, r"sleep_level is 2.*policies.verifier trains an adapter"),
        ({"engine": {"enable_sleep_mode": True}}, COLOCATED, r"verifier.engine.enable_sleep_mode cannot be set"),
        ({"engine": {"engine": "local"}}, {"mode": "split", "devices": BOTH}, r"in a process of its own"),
    ],
)
def test_what_one_policy_cannot_do_is_refused(team, policy, serving, message):
    values = team(serving=serving)
    values["policies"]["verifier"] |= policy
    with pytest.raises(ConfigError, match=message):
        load_config(values)


def test_adapters_that_share_an_engine_have_the_same_devices(team):
    lora = {"lora": {"rank": 4}}
    load_config(team(lora, serving={"mode": "split", "devices": {"solver": [0, 1], "verifier": [0, 1]}}))
    with pytest.raises(ConfigError, match=r"solver and policies.verifier share an engine.*\[0\] and \[1\]"):
        load_config(team(lora, serving={"mode": "split", "devices": BOTH}))


def test_a_mode_that_no_policy_has_an_engine_for_is_refused(recipe):
    with pytest.raises(ConfigError, match=r"mode is 'colocated', but no policy has the back end vllm"):
        load_config(recipe(serving=COLOCATED))


def test_samplers_are_made_for_the_mode(team):
    config = load_config(team(serving=COLOCATED))
    assert config.serving.options("solver", config.policies["solver"]) == {"enable_sleep_mode": True}
    config = load_config(team(serving={"mode": "split", "devices": BOTH}))
    assert config.serving.options("verifier", config.policies["verifier"]) == {"engine": "async", "devices": (1,)}
    config = load_config(team())
    assert config.serving.options("solver", config.policies["solver"]) == {}


class Sleeper(RandomPolicy):
    """Notes what is asked of it."""

    def __init__(self, name, log):
        super().__init__()
        self._who, self.log = name, log

    async def sleep(self, level=1):
        self.log.append(f"{self._who} sleep {level}")

    async def wake(self, parts=()):
        self.log.append(f"{self._who} wake {'+'.join(parts)}")


class LoggedMember(Member):
    """Notes when it is given weights."""

    async def push(self, version):
        self.policy.log.append(f"{self.name} push {version}")


class Collects:
    def __init__(self, log):
        self._log = log

    async def collect(self, team, cursor, update, learning):
        self._log.append("collect")
        return [], {}


@pytest.mark.parametrize("level", [1, 2])
def test_engines_sleep_between_a_batch_and_the_new_weights(team, level, monkeypatch):
    """Weights wake first, then come the new ones, and then the caches; level 2 brings back those that did not learn."""
    alternate = {"order": [["solver"], ["verifier"]]}
    config = load_config(team(serving={"mode": "colocated", "sleep_level": level}, alternate=alternate))
    log = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: log.append("empty"))
    members = {name: LoggedMember(name, config.policies[name], Sleeper(name, log)) for name in ("solver", "verifier")}
    pipeline = make_pipeline(Collects(log), None, config)
    assert type(pipeline) is Colocated
    pipeline.open(None, members, 0)
    members["verifier"].policy.weight_version = 7
    clock = Clock()

    async def update():
        await pipeline.batch(0, clock)
        log.append("update")
        await pipeline.push(1, ["solver"], clock, hold=True)

    asyncio.run(update())
    assert log == [
        "collect",
        f"solver sleep {level}",
        f"verifier sleep {level}",
        "update",
        "empty",  # what learners keep of a GPU for their next update
        "solver wake weights",
        "verifier wake weights",
        *(["verifier push 7"] if level == 2 else []),
        "solver push 1",
        "solver wake kv_cache",
        "verifier wake kv_cache",
    ]
    assert {"time/sleep_s", "time/wake_s", "time/sync_s", "time/rollout_s"} <= clock.metrics(0).keys()


def test_other_modes_do_not_sleep(team):
    assert type(make_pipeline(None, None, load_config(team()))) is OnPolicy
    config = load_config(team(max_staleness=1, uncorrected_staleness=True))
    assert type(make_pipeline(None, None, config)) is Overlapped


ASK = """
import os
print(open("/proc/self/status").read().split("Cpus_allowed_list:")[1].split()[0], os.environ["OMP_NUM_THREADS"])
"""


def test_a_child_runs_on_its_cores_alone():
    before, threads = os.sched_getaffinity(0), os.environ.get("OMP_NUM_THREADS")
    command = [sys.executable, "-c", ASK]
    with on_devices([CORE]):
        bound = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert bound == [str(CORE), "1"]
    assert (os.sched_getaffinity(0), os.environ.get("OMP_NUM_THREADS")) == (before, threads)
    with on_devices(None):
        assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(("outside", "seen"), [(None, "2,0"), ("4,5,6", "6,4")])
def test_a_child_sees_its_gpus_alone(monkeypatch, outside, seen):
    """The environment that a process on a machine with GPUs would get; none is here."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if outside:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", outside)
    with on_devices([2, 0]):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == seen
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == outside


def test_learners_have_what_engines_leave(team, monkeypatch):
    monkeypatch.setattr("trainers.scheduling.binding.present", lambda: [0, 1, 2, 3, 4])
    config = load_config(team(serving={"mode": "split", "devices": BOTH}))
    assert left_for_learners(config) == [2, 3, 4]
    before = torch.get_num_threads()
    try:
        bind_learners(config)
        assert torch.get_num_threads() == 3
        bind_learners(load_config(team(serving={"mode": "split", "devices": BOTH}, threads=1)))
        assert torch.get_num_threads() == 3  # the run sets the number that was asked for
    finally:
        torch.set_num_threads(before)
    absent, all_of_them = ({"solver": [0], "verifier": [9]}, {"solver": [0, 1, 2], "verifier": [3, 4]})
    config = load_config(team(serving={"mode": "split", "devices": absent}))
    with pytest.raises(ConfigError, match=r"devices.verifier names device 9, and this process has \[0, 1, 2, 3, 4\]"):
        left_for_learners(config)
    config = load_config(team(serving={"mode": "split", "devices": all_of_them}))
    with pytest.raises(ConfigError, match=r"all of \[0, 1, 2, 3, 4\]: leave one to the learners"):
        left_for_learners(config)


def test_the_cores_of_this_process_are_its_devices(monkeypatch):
    assert present() == sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(devices_module.os, "sched_getaffinity", lambda pid: {5, 3})
    assert present() == [3, 5]


def threads_of(pid):
    """On which cores each thread of a process may run."""
    folder = f"/proc/{pid}/task"
    lists = {}
    for thread in os.listdir(folder):
        with open(f"{folder}/{thread}/status") as status:
            lists[thread] = next(line.split()[1] for line in status if line.startswith("Cpus_allowed_list"))
    return lists


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a core for the engine and one for the learner")
def test_an_engine_and_a_learner_have_cores_of_their_own(recipe, tmp_path, vllm_policy):
    import psutil

    seen = []

    def look(progress):
        children = psutil.Process().children(recursive=True)
        (engine,) = [child.pid for child in children if "EngineCore" in child.name()]
        seen.append((set(threads_of(engine).values()), torch.get_num_threads()))

    values = recipe(updates=1, serving={"mode": "split", "devices": {"everyone": [CORE]}})
    config = load_config({**values, "policies": {"everyone": {**values["policies"]["solver"], **vllm_policy}}})
    before = torch.get_num_threads()
    try:
        asyncio.run(Trainer(config, tmp_path / "run", on_progress=look).run())
    finally:
        torch.set_num_threads(before)
    assert seen == [({str(CORE)}, len(os.sched_getaffinity(0)) - 1)] * 2


@pytest.mark.vllm
@pytest.mark.slow
def test_engines_that_sleep_change_no_result(recipe, tmp_path, runs, vllm_policy):
    """One episode at a time, so that batches do not depend on the clock: all is equal to the last bit."""
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text('{"question": "Two, and two more.", "answer": "4"}\n')
    evaluation = {"every": 2, "task_set": str(held_out), "split": None, "samples": 2}
    values = recipe(vllm_policy, updates=3, concurrency=1, threads=1, evaluation=evaluation)
    values["policies"] = {"everyone": values["policies"]["solver"]}
    found = []
    for serving in ({"mode": "resident"}, COLOCATED, DISCARD):
        out = tmp_path / str(len(found))
        asyncio.run(Trainer(load_config({**values, "serving": serving}), out).run())
        found.append((runs.metrics(out), runs.weights(out, "everyone")))
        assert all(("time/sleep_s" in row) == (serving["mode"] == "colocated") for row in read_metrics(out)[1:])
    (metrics, weights), *others = found
    assert not runs.same(weights, runs.weights_of(Path(values["policies"]["everyone"]["model"])))  # it has learned
    for other_metrics, other_weights in others:
        assert runs.same(weights, other_weights)
        assert other_metrics == metrics
