"""What a run asks of a cluster, before there is one."""

from __future__ import annotations

import pytest
import ray

from trainers.cli import main
from trainers.config import ConfigError, load_config
from trainers.distributed.cluster import check, connect, engine_groups, plan
from trainers.distributed.workers import RayWorkers


@pytest.fixture
def nodes(monkeypatch):
    """Says which nodes there are."""

    def set_nodes(*resources):
        alive = [{"Alive": True, "Resources": node} for node in resources]
        monkeypatch.setattr(ray, "nodes", lambda: [*alive, {"Alive": False, "Resources": {"CPU": 999.0}}])

    return set_nodes


def test_there_is_a_slot_for_every_worker(recipe):
    cluster = {"runners": 3, "engines": 2, "learner_ranks": 2, "engine_gpus": 1, "learner_cpus": 2}
    values = recipe(cluster=cluster)
    values["policies"]["verifier"]["trainable"] = False
    slots = plan(load_config(values))
    found = [(slot.kind, slot.owner, slot.number, slot.bundle) for slot in slots]
    assert found == [
        *(("learner", "solver", n, {"CPU": 2.0}) for n in range(2)),
        *(("engine", "solver", n, {"CPU": 1.0, "GPU": 1.0}) for n in range(2)),
        *(("engine", "verifier", n, {"CPU": 1.0, "GPU": 1.0}) for n in range(2)),
        *(("runner", "", n, {"CPU": 1.0}) for n in range(3)),
    ]


def test_engines_of_a_pool_belong_to_nobody(recipe, nodes):
    cluster = {"runners": 1, "engines": "auto", "engine_pool": 3, "engine_cpus": 2}
    found = [slot for slot in plan(load_config(recipe(cluster=cluster))) if slot.kind == "engine"]
    assert [(slot.owner, slot.number, slot.bundle) for slot in found] == [("", n, {"CPU": 2.0}) for n in range(3)]
    with pytest.raises(ConfigError, match=r"engine_pool is 1, and 2 policies.*\(solver, verifier\): raise it to 2"):
        plan(load_config(recipe(cluster={**cluster, "engine_pool": 1})))


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"engines": "auto"}, "engine_pool is missing"),
        ({"engine_pool": 4}, "engine_pool has no effect with `engines: 1`"),
        ({"engines": 2, "balance_every": 1}, "balance_every has no effect with `engines: 2`"),
        ({"engines": "all"}, "engines"),
    ],
)
def test_settings_of_a_pool_without_one_are_refused(recipe, cluster, message):
    with pytest.raises(ConfigError, match=message):
        load_config(recipe(cluster=cluster))


def test_adapters_share_engines_and_scripted_players_have_none(recipe):
    values = recipe({"backend": "vllm", "lora": {"rank": 4}})
    assert engine_groups(load_config(values).policies) == {"solver": ["solver", "verifier"]}
    values["policies"]["verifier"]["lora"] = None
    assert engine_groups(load_config(values).policies) == {"solver": ["solver"], "verifier": ["verifier"]}
    values["policies"]["verifier"] = {"backend": "random", "trainable": False}
    assert engine_groups(load_config(values).policies) == {"solver": ["solver"]}


def test_a_worker_that_no_node_holds_is_refused(recipe, nodes):
    nodes({"CPU": 8.0}, {"CPU": 8.0, "GPU": 1.0})
    slots = plan(load_config(recipe(cluster={"engine_gpus": 2})))
    with pytest.raises(ConfigError, match=r"no node has 1 CPUs and 2 GPUs for one engine.*8 CPUs and 1 GPUs$"):
        check(slots)


def test_more_than_all_nodes_hold_is_refused(recipe, nodes):
    config = load_config(recipe(cluster={"runners": 4}))
    nodes({"CPU": 4.0}, {"CPU": 4.0})
    check(plan(config))
    nodes({"CPU": 4.0}, {"CPU": 3.0})
    with pytest.raises(ConfigError, match=r"asks for 8 CPUs.*4 runners of 1 CPUs.*has 7 CPUs and 0 GPUs on 2 node"):
        check(plan(config))


@pytest.mark.parametrize("address", ["local", "local:", "local:0", "local:many", "somewhere"])
def test_an_address_of_another_form_is_refused(address):
    with pytest.raises(ConfigError, match=r"--cluster .*local:"):
        connect(address)
    assert not ray.is_initialized()


def test_what_has_no_place_on_a_cluster_is_refused(recipe, nodes, monkeypatch):
    monkeypatch.setattr("trainers.distributed.workers.connect", lambda address: False)
    nodes({"CPU": 99.0})
    workers = RayWorkers("auto")
    workers.check(load_config(recipe()))
    workers.check(load_config(recipe(algorithm={"preset": "gae"})))
    vllm = recipe({"backend": "vllm"}, serving={"mode": "colocated"})
    with pytest.raises(ConfigError, match=r"serving.mode is 'colocated'.*without --cluster"):
        workers.check(load_config(vllm))
    overlapped = recipe(max_staleness=1, cluster={"engines": "auto", "engine_pool": 4})
    with pytest.raises(ConfigError, match=r"max_staleness is 1 and cluster.engines is 'auto'.*a number"):
        workers.check(load_config(overlapped))
    workers.check(load_config({**overlapped, "cluster": {"engines": 2}}))


def test_an_unknown_key_of_the_section_is_refused(recipe):
    with pytest.raises(ConfigError, match=r"cluster.runner: unknown key `runner`. Did you mean `runners`"):
        load_config(recipe(cluster={"runner": 2}))


def test_the_command_says_what_is_wrong_with_an_address(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--config", "dr_mas_math_cpu", "--cluster", "nowhere"]) == 2
    assert "--cluster 'nowhere': expected `auto`" in capsys.readouterr().err
