"""Who learns, who plays on as it is, and who is no model at all: every policy of a team by itself."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from trainers.api import train
from trainers.config import ConfigError, load_config
from trainers.lora import Bases
from trainers.members import build_members, close_members, with_backend
from trainers.models import build_tiny_model
from trainers.policies.hf import HFPolicy
from trainers.tracking import read_metrics

# ---- one after the other --------------------------------------------------------------------------------------------

IN_TURN = {"order": [["solver"], ["verifier"]], "every": 2}


def moved(runs, run_dir, policy, updates):
    """In which updates the learner's state (weights, moments, counters) has changed at all; the first one is 2."""
    states = [runs.state(run_dir, update, policy) for update in range(1, updates + 1)]
    return [update + 2 for update, pair in enumerate(itertools.pairwise(states)) if not runs.same(*pair)]


def test_who_is_not_in_the_phase_plays_on_and_does_not_change_by_a_bit(recipe, runs, team_model, tmp_path):
    values = recipe(updates=6, alternate=IN_TURN)
    train(values, out=tmp_path / "run")
    assert moved(runs, tmp_path / "run", "solver", 6) == [2, 5, 6]
    assert moved(runs, tmp_path / "run", "verifier", 6) == [3, 4]
    start = runs.weights_of(team_model)
    assert runs.same(dict(runs.state(tmp_path / "run", 2, "verifier")["weights"]), start)
    assert runs.state(tmp_path / "run", 2, "verifier")["steps"] == 0
    rows = read_metrics(tmp_path / "run")
    for name, updates in (("solver", [1, 2, 5, 6]), ("verifier", [3, 4])):
        assert [row["update"] for row in rows if f"policy/{name}/lr" in row] == updates
        assert [row["update"] for row in rows if f"agent/{name}_0/grad_norm" in row] == updates
        assert all(row[f"agent/{name}_0/turns"] > 0 for row in rows)
        assert all(row[f"policy/{name}/sync_difference"] < 1e-4 for row in rows)


def test_schedule_and_warm_up_count_the_updates_in_which_a_policy_learns(recipe, tmp_path):
    policy = {"schedule": "linear", "warmup_updates": 1, "learning_rate": 0.01}
    train(recipe(updates=6, alternate=IN_TURN, policy=policy), out=tmp_path / "run")
    rows = read_metrics(tmp_path / "run")
    rates = {
        name: [row[f"policy/{name}/lr"] for row in rows if f"policy/{name}/lr" in row]
        for name in ("solver", "verifier")
    }
    assert rates["solver"] == pytest.approx([0.01, 0.01, 0.01 * 2 / 3, 0.01 / 3])  # four updates of its own
    assert rates["verifier"] == pytest.approx([0.01, 0.01])  # two: one of warm-up, one at the start of the decay


def test_a_run_that_alternates_resumes_bit_for_bit(recipe, runs, tmp_path):
    values = recipe(updates=5, alternate={"order": [["solver"], ["verifier"], ["solver", "verifier"]]})
    train(values, out=tmp_path / "whole")
    for update in (2, 5):  # a phase ends where the run is cut; the second time in the middle of the order
        train({**values, "updates": update}, out=tmp_path / "cut", resume=update > 2)
    assert runs.metrics(tmp_path / "cut") == runs.metrics(tmp_path / "whole")
    for name in ("solver", "verifier"):
        assert runs.same(runs.state(tmp_path / "cut", 5, name), runs.state(tmp_path / "whole", 5, name))


@pytest.mark.parametrize(
    ("alternate", "message"),
    [
        ({"order": [["solver"]]}, r"alternate.order: .*at least 2"),
        ({"order": [["solver"], ["solver"]]}, "alternate.order: no phase trains verifier"),
        ({"order": [["solver"], ["verifer"]]}, "alternate.order: the policy 'verifer' does not exist"),
        ({"order": [["solver"], []]}, r"alternate.order: the phase \[\] must name one policy"),
        ({"order": [["solver"], ["verifier", "verifier"]]}, "must name one policy or more, each once"),
        ({"order": [["solver"], ["verifier"]], "every": 0}, r"alternate.every: .*greater than or equal to 1"),
        ({"oder": [["solver"], ["verifier"]]}, "Did you mean `order`"),
    ],
)
def test_an_order_that_makes_no_sense_is_named(recipe, alternate, message):
    with pytest.raises(ConfigError, match=message):
        load_config(recipe(alternate=alternate))


def test_a_frozen_policy_has_no_phase(recipe):
    values = recipe(alternate=IN_TURN)
    values["policies"]["verifier"]["trainable"] = False
    with pytest.raises(ConfigError, match=r"'verifier' is frozen; those that learn: \['solver'\]"):
        load_config(values)


def test_a_decay_needs_updates_of_its_own(recipe):
    values = recipe(updates=6, alternate=IN_TURN, policy={"schedule": "cosine", "warmup_updates": 2})
    with pytest.raises(ConfigError, match=r"policies.verifier.warmup_updates is 2: the 2 updates in which it learns"):
        load_config(values)


# ---- frozen, scripted, remote ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["oracle", "random"])
def test_a_script_plays_beside_a_policy_that_learns(recipe, runs, team_model, tmp_path, backend):
    values = recipe(updates=2)
    values["policies"]["verifier"] = {"backend": backend, "trainable": False}
    result = train(values, out=tmp_path / "run")
    assert not runs.same(runs.weights(tmp_path / "run", "solver"), runs.weights_of(team_model))
    assert not (tmp_path / "run" / "models" / "verifier").exists()
    assert result.metrics["agent/verifier_0/turns"] > 0
    assert not any(name.startswith("policy/verifier/") for name in result.metrics)
    if backend == "oracle":
        assert result.metrics["agent/verifier_0/invalid"] == 0


@pytest.fixture
def judge():
    """A server that approves of everything; returns its address and what it was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            choice = {"index": 0, "finish_reason": "stop"}
            choice["message"] = {"role": "assistant", "content": "<verify>approve</verify>"}
            usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
            answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
            body = json.dumps({**answer, "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_plays_beside_a_policy_that_learns(recipe, runs, team_model, tmp_path, judge):
    address, asked = judge
    values = recipe(updates=2)
    values["policies"]["verifier"] = {
        "backend": "openai", "model": "judge", "base_url": address, "trainable": False, "system_prompt": "Be kind.",
        "sampling": {"max_tokens": 7}, "engine": {"logprobs": False},
    }  # fmt: skip
    result = train(values, out=tmp_path / "run")
    assert len(asked) == 2 * 16
    assert asked[0]["model"] == "judge"
    assert asked[0]["max_tokens"] == 7
    assert asked[0]["messages"][0] == {"role": "system", "content": "Be kind."}
    assert "logprobs" not in asked[0]
    assert result.metrics["agent/verifier_0/turns"] == 16
    assert result.metrics["agent/verifier_0/length"] == 3
    assert not runs.same(runs.weights(tmp_path / "run", "solver"), runs.weights_of(team_model))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            {"backend": "oracle"},
            "policies.verifier: a policy with the back end 'oracle' cannot be trained: set `trainable",
        ),
        ({"backend": "oracle", "model": "m", "trainable": False}, "policies.verifier: model has no effect"),
        ({"backend": "random", "system_prompt": "x", "trainable": False}, "system_prompt has no effect"),
        ({"backend": "openai", "model": "m", "trainable": False}, "policies.verifier: base_url is missing"),
        ({"backend": "openai", "base_url": "http://h/v1", "trainable": False}, "policies.verifier: model is missing"),
        ({"backend": "openai", "model": "m", "base_url": "http://h/v1"}, "'openai' cannot be trained"),
        ({"backend": "openai", "model": "m", "base_url": "h", "trainable": False}, "base url that starts with http"),
        ({"backend": "hf", "model": "m", "base_url": "http://h/v1"}, "base_url has no effect with the back end 'hf'"),
        ({"backend": "hf:m", "model": "m"}, "backend is 'hf:m'; it is one of"),
        ({"backend": "replay:runs/x", "trainable": False}, "backend is 'replay:runs/x'; it is one of"),
        ({"backend": "oracle:x", "trainable": False}, "'oracle' takes nothing after it"),
        ({"backend": "hf", "model": "m", "loss": {"kl_cof": 1}}, "policies.verifier.loss: unknown key `kl_cof`"),
        ({"backend": "hf", "model": "m", "loss": {"kl_coef": -1}}, "policies.verifier.loss: kl_coef"),
    ],
)
def test_what_a_policy_cannot_be_is_named(recipe, policy, message):
    values = recipe()
    values["policies"]["verifier"] = policy
    with pytest.raises(ConfigError, match=message):
        load_config(values)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"backend": "mcts", "trainable": False}, r"policies.verifier: .*"),
        ({"backend": "oracle", "trainable": False, "engine": {"sims": 1}}, "oracle.*no option sims"),
        ({"backend": "hf", "model": "m", "trainable": False, "loss": {"kl_coef": 0.1}}, "frozen, so its loss has no"),
    ],
)
def test_who_does_not_fit_the_environment_is_named_before_anything_is_played(recipe, tmp_path, policy, message):
    values = recipe()
    values["policies"]["verifier"] = policy
    with pytest.raises(ValueError, match=message):
        train(values, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_another_back_end_for_the_models_leaves_scripts_and_servers_alone(recipe):
    values = recipe()
    values["policies"]["verifier"] = {"backend": "oracle", "trainable": False}
    changed = with_backend(load_config(values), "vllm")
    assert [policy.backend for policy in changed.policies.values()] == ["vllm", "oracle"]


# ---- every policy by itself -----------------------------------------------------------------------------------------


def test_four_agents_on_three_policies_of_different_models(recipe, runs, team_model, four_tasks, tmp_path, monkeypatch):
    """Solver and refiner share a policy, the critic has one with another tokenizer, the judge is frozen."""
    played_with = []

    async def close(self):
        played_with.append({name: value.clone() for name, value in self.model.named_parameters()})

    monkeypatch.setattr(HFPolicy, "close", close)
    bytewise = build_tiny_model(tmp_path / "bytes", hidden_size=64, layers=1, intermediate_size=32, init_std=0.1)
    base = recipe()["policies"]["solver"]
    values = recipe(updates=2, samples_per_task=2)
    values["env"] = {"id": "math-4agent", "tasks": str(four_tasks), "split": None}
    values["policies"] = {
        "worker": base,
        "critic": {**base, "model": str(bytewise), "learning_rate": 0.001, "sampling": {"max_tokens": 5}},
        "judge": {**base, "trainable": False},
    }
    values["roles"] = {"solver": "worker", "refiner": "worker", "critic": "critic", "verifier": "judge"}
    values["algorithm"] = {"preset": "dr_mas", "overrides": {"mean_by": ["agent"], "std_by": ["agent"]}}
    result = train(values, out=tmp_path / "run")
    for name, model in (("worker", team_model), ("critic", bytewise)):
        before, after = runs.weights_of(model), runs.weights(tmp_path / "run", name)
        assert before.keys() == after.keys()
        assert all(not before[key].equal(after[key]) for key in before)
    assert sorted(path.name for path in (tmp_path / "run" / "models").iterdir()) == ["critic", "worker"]
    frozen = [weights for weights in played_with if runs.same(weights, runs.weights_of(team_model))]
    assert (len(played_with), len(frozen)) == (3, 1)  # the judge's sampler has kept every bit
    assert result.metrics["policy/worker/samples"] == sum(
        result.metrics[f"agent/{agent}/turns"] for agent in ("solver_0", "refiner_0")
    )
    assert result.metrics["agent/critic_0/length_max"] <= 5
    assert result.metrics["policy/worker/lr"] == 0.01
    assert result.metrics["policy/critic/lr"] == 0.001
    assert "agent/verifier_0/grad_norm" not in result.metrics


@pytest.mark.parametrize("lora", [None, {"rank": 2}])
def test_a_loss_of_ones_own(recipe, tmp_path, lora):
    """The KL term is the solver's alone, and so are steps, clipping and temperature."""
    values = recipe(policy={"lora": lora}, updates=2)
    values["policies"]["solver"] |= {"loss": {"kl_coef": 0.1, "kl_estimator": "k2"}, "minibatches": 3, "epochs": 2}
    values["policies"]["verifier"]["sampling"] = {"max_tokens": 1, "temperature": 1.5}
    result = train(values, out=tmp_path / "run")
    assert result.metrics["policy/solver/ref_kl"] > 0
    assert "policy/verifier/ref_kl" not in result.metrics
    assert result.metrics["policy/solver/steps"] == 6
    assert result.metrics["policy/verifier/steps"] == 1
    assert result.metrics["agent/verifier_0/length_max"] == 1
    assert result.metrics["agent/solver_0/length_max"] == 2
    config = load_config(values)
    assert config.loss_of("solver").dual_clip == config.loss_of("verifier").dual_clip == 3.0  # the preset's


def base_weights(member):
    return {name: p for name, p in member.learner.model.named_parameters() if "lora_" not in name}


def test_adapters_share_one_base_in_memory(recipe, tmp_path):
    config = load_config(recipe(policy={"lora": {"rank": 4}}))
    members = asyncio.run(build_members(config, tmp_path))
    solver, verifier = (base_weights(members[name]) for name in ("solver", "verifier"))
    assert solver.keys() == verifier.keys()
    assert solver
    assert all(solver[name].data_ptr() == verifier[name].data_ptr() for name in solver)
    asyncio.run(close_members(members))
    members = asyncio.run(build_members(load_config(recipe()), tmp_path))  # weights that are trained are nobody else's
    solver, verifier = (base_weights(members[name]) for name in ("solver", "verifier"))
    assert all(solver[name].data_ptr() != verifier[name].data_ptr() for name in solver)
    asyncio.run(close_members(members))


@pytest.mark.parametrize(("options", "threads"), [({}, 1), ({"threads": 2}, 2)])
def test_a_tiny_model_beside_learners_samples_with_one_thread(recipe, tmp_path, options, threads):
    values = recipe(policy={"engine": options})
    values["policies"]["verifier"]["trainable"] = False
    members = asyncio.run(build_members(load_config(values), tmp_path))
    found = {name: member.policy.threads for name, member in members.items()}
    assert found == {"solver": threads, "verifier": threads}
    asyncio.run(close_members(members))


def test_a_shared_base_changes_nothing(recipe, runs, tmp_path, monkeypatch):
    values = recipe(policy={"lora": {"rank": 4}})
    train(values, out=tmp_path / "shared")
    monkeypatch.setattr(Bases, "share", lambda self, source, model: None)
    train(values, out=tmp_path / "apart")
    assert runs.metrics(tmp_path / "shared") == runs.metrics(tmp_path / "apart")
    for name in ("solver", "verifier"):
        assert runs.same(runs.weights(tmp_path / "shared", name), runs.weights(tmp_path / "apart", name))


def test_a_base_is_shared_by_equal_models_only():
    bases = Bases()
    bases.share("plain", torch.nn.Linear(2, 3))
    with pytest.raises(ValueError, match=r"weight of plain is torch.float32 \(3, 3\)"):
        bases.share("plain", torch.nn.Linear(3, 3))
