"""The way of weights from a learner to the engines of a cluster: which one is taken, and what a failure leads to."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest
import ray
from ray.exceptions import RayActorError

from trainers.config import ConfigError, load_config
from trainers.distributed import weight_groups
from trainers.distributed.engines import EnginePolicy, EngineSync
from trainers.distributed.weight_groups import EngineProcess, EnginesClient, GroupTransfer, Push, group_backend
from trainers.policy_checks import check_policies, check_transfers
from trainers.weight_sync import WeightSyncError

GPUS = {"learner_gpus": 1, "engine_gpus": 2}


@pytest.fixture
def config(recipe):
    """A recipe of two policies with options of their engines."""

    def build(engine=None, cluster=None, **policy):
        return load_config(recipe({"backend": "vllm", "engine": engine or {}, **policy}, cluster=cluster or {}))

    return build


@pytest.mark.parametrize(
    ("engine", "cluster", "backend"),
    [
        ({}, {}, None),
        ({"transfer": "auto"}, {"learner_gpus": 1}, None),
        ({"transfer": "auto"}, {"engine_gpus": 1}, None),
        ({"transfer": "auto"}, GPUS, "nccl"),
        ({}, GPUS, "nccl"),
        ({"transfer": "copy"}, GPUS, None),
        ({"transfer": "copy", "engine": "async"}, GPUS, None),
        ({"transfer": "gloo"}, {}, "gloo"),
        ({"transfer": "gloo", "transfer_timeout": 5}, GPUS, "gloo"),
        ({"transfer": "nccl", "engine": "async"}, GPUS, "nccl"),
    ],
)
def test_the_way_follows_from_the_settings(config, engine, cluster, backend):
    settings = config(engine, cluster)
    check_policies(settings)
    assert group_backend("solver", settings) == backend


@pytest.mark.parametrize(
    ("engine", "cluster", "message"),
    [
        ({"transfer": "ipc"}, GPUS, "'ipc': .*devices of their own.*auto, copy, nccl, gloo"),
        ({"transfer": "shared", "engine": "async"}, {}, "'shared': .*devices of their own"),
        ({"transfer": "folder", "engine": "async"}, {}, "'folder': .*devices of their own"),
        ({"transfer": "rdma"}, {}, "'rdma'; on a cluster it is one of auto, copy, nccl, gloo"),
        ({"transfer": "nccl"}, {"learner_gpus": 1}, r"learner_gpus is 1, cluster\.engine_gpus 0\. Give both"),
        ({"transfer": "copy", "transfer_timeout": 5}, {}, "_timeout has no effect"),
        ({"transfer_timeout": 5}, {}, "_timeout has no effect"),
        ({"transfer": "gloo", "transfer_timeout": 0}, {}, "number of seconds above 0"),
    ],
)
def test_a_way_that_does_not_lead_there_is_refused(config, engine, cluster, message):
    with pytest.raises(ConfigError, match=rf"policies\.solver\.engine\.transfer.*{message}"):
        group_backend("solver", config(engine, cluster))


def test_adapters_and_other_engines_are_not_sent_this_way(config, recipe):
    with pytest.raises(ConfigError, match=r"transfer has no effect: policies\.solver has a lora"):
        check_policies(config({"transfer": "gloo"}, lora={"rank": 4}))
    assert group_backend("solver", config(cluster=GPUS, lora={"rank": 4})) is None
    assert group_backend("solver", config(cluster=GPUS, trainable=False)) is None
    hf = load_config(recipe({"backend": "hf", "engine": {"transfer": "gloo"}}))
    with pytest.raises(ConfigError, match=r"transfer has no effect: only vLLM's engines"):
        group_backend("solver", hf)


def test_gloo_is_refused_without_a_cluster(config):
    settings = config({"transfer": "gloo"})
    check_policies(settings)
    with pytest.raises(ConfigError, match=r"solver\.engine\.transfer: .*'gloo' is a broadcast to the engines of a c"):
        check_transfers(settings)


# The learner's end


class Calls:
    """Stands in for ray: what engines answer, in the order in which they do."""

    def __init__(self):
        self.made = []
        self.answers = {}
        self.kill = []

    def engine(self, number):
        def method(name):
            def remote(*args):
                self.made.append((number, name, args))
                return number

            return SimpleNamespace(remote=remote)

        return SimpleNamespace(join=method("join"), receive=method("receive"))

    def wait(self, refs, num_returns, timeout):
        done = [ref for ref in refs if self.answers.get(ref) != "hangs"]
        return done[:1], refs

    def get(self, ref):
        answer = self.answers.get(ref)
        if isinstance(answer, Exception):
            raise answer


@pytest.fixture
def calls(monkeypatch):
    calls = Calls()
    monkeypatch.setattr(weight_groups, "ray", calls)
    return calls


def push(engines, workers=(1, 1)):
    processes = [EngineProcess(f"process {number}", n) for number, n in enumerate(workers)]
    return Push("everyone", 7, "gloo", engines, processes, 5.0)


def test_every_engine_has_ranks_of_its_own(calls):
    client = EnginesClient(push([calls.engine(n) for n in range(3)], workers=(2, 1, 4)))
    client.init_weight_transfer_engine({"rank_offset": 1, "world_size": 8})
    assert [(number, args[3]["rank_offset"]) for number, _, args in calls.made] == [(0, 1), (1, 3), (2, 4)]
    assert all(args[:3] == ("everyone", f"process {number}", "gloo") for number, _, args in calls.made)
    assert all(args[3]["world_size"] == 8 for _, _, args in calls.made)


def test_an_update_is_one_call(calls):
    client = EnginesClient(push([calls.engine(n) for n in range(2)]))
    client.start_weight_update()
    client.update_weights({"names": ["a"]})
    client.finish_weight_update()
    assert calls.made == [
        (number, "receive", ("everyone", f"process {number}", 7, {"names": ["a"]}, 5.0)) for number in range(2)
    ]


def test_who_died_and_who_hangs_is_named(calls):
    client = EnginesClient(push([calls.engine(n) for n in range(2)]))
    calls.answers[1] = "hangs"
    with pytest.raises(WeightSyncError, match="`receive` of engine 1 took more than 5 s"):
        client.update_weights({})
    calls.answers[1] = RayActorError()
    with pytest.raises(WeightSyncError, match="engine 1 died in `receive`"):
        client.update_weights({})


# The driver's part


class Pool:
    """Engines that are what they are."""

    def __init__(self, settle):
        self.actors = [SimpleNamespace(settle=SimpleNamespace(remote=settle)) for _ in range(2)]

    async def call(self, method, name, only):
        assert (method, name) == ("process", "solver")
        return EngineProcess(f"process {only}", 1)


class Learner:
    """Sends as it is told."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.pushes = []

    def send(self, push, payload):
        assert payload == "weights"
        self.pushes.append(push)
        return self.outcomes.pop(0)


async def test_a_failure_is_a_warning_until_there_are_too_many(config, caplog):
    async def settle(name, process):
        settled.append(process)

    settled = []
    settings = config({"transfer": "gloo", "transfer_timeout": 5}, {"attempts": 2})
    transfer = GroupTransfer(Pool(settle), "solver", settings, "gloo")
    learner = Learner("", "engine 1 died", "", "one thing", "another")
    for version in range(4):
        await transfer.send(learner, "weights", version)
    assert settled == ["process 0", "process 1"] * 2
    assert [push.version for push in learner.pushes] == [0, 1, 2, 3]
    assert learner.pushes[0].timeout_s == 5
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "Weights of 'solver', version 1, did not reach all engines by 'gloo': engine 1 died" in warnings[0]
    with pytest.raises(WeightSyncError, match=r"2 pushes in a row .* version 4, because: another\. .*'copy'"):
        await transfer.send(learner, "weights", 4)


async def test_an_engine_that_hangs_is_ended(config, monkeypatch, caplog):
    async def settle(name, process):
        if process == "process 1":
            await asyncio.sleep(3600)
        raise RayActorError

    ended = []
    monkeypatch.setattr(weight_groups, "SETTLE", 0.1)
    monkeypatch.setattr(ray, "kill", lambda actor, no_restart: ended.append((actor, no_restart)))
    pool = Pool(settle)
    await GroupTransfer(pool, "solver", config({"transfer": "gloo"}), "gloo").send(Learner("it hangs"), "weights", 1)
    assert ended == [(pool.actors[1], False)]
    assert "Engine 1 of 'solver' hangs" in caplog.text


async def test_engines_are_asked_to_load_after_the_group_has_sent(config):
    """Whoever has the weights by then does nothing; see `Engine.load`."""
    order = []

    class Engines:
        actors = (None, None)

        async def call(self, method, name, weights, only):
            order.append((method, weights.version, weights.refs, only))

    class Group:
        async def send(self, learner, payload, version):
            order.append(("send", version, payload))

    learner = SimpleNamespace(publish=lambda: "payload")
    policy = EnginePolicy("solver", "vllm:it", "it", Engines())
    await EngineSync(policy, Group()).push(learner, 3)
    assert order == [("send", 3, "payload"), *(("load", 3, ["payload"], number) for number in range(2))]
