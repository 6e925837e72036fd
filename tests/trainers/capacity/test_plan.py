from __future__ import annotations

import json

import pytest

from trainers.capacity.devices import parse_pools
from trainers.capacity.placement import Placement, place, placements
from trainers.capacity.plan import main, plan
from trainers.capacity.workload import read_episodes, recorded_lengths, workload
from trainers.cli import main as llm_train
from trainers.config import load_config, recipe_names
from trainers.models import build_tiny_model
from trainers.recipe_files import ConfigError
from trainers.rollout.records import Episode, Turn


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_can_be_planned(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build_tiny_model("models/kuhn", hidden_size=32, layers=1)  # what the recipe's first command makes
    config = load_config(name)
    pools = parse_pools("cpu" if name.endswith("_cpu") else "16xH100")
    report = plan(config, pools, workload(config))
    assert report["fits"], report["placements"]
    for placement in report["placements"]:
        if placement["fits"]:
            assert placement["seconds"]["total"] > 0
            assert all(phase["need"] <= phase["room"] for phase in placement["phases"])
    assert {policy["name"] for policy in report["policies"]} == {
        policy for policy, settings in config.policies.items() if not settings.scripted
    }


def test_what_cannot_fit_is_refused_and_the_fix_is_named(capsys):
    assert llm_train(["plan", "--config", "dr_mas_math", "--devices", "1xRTX4090"]) == 1
    message = capsys.readouterr().err
    assert "colocated: learning needs" in message
    assert "GiB on each RTX4090" in message
    assert "too many" in message
    assert "solver: weights and optimiser" in message
    assert main(["--config", "at_grpo_math", "--devices", "1xH100"]) == 1
    assert "policies.*.engine.gpu_memory_utilization=" in capsys.readouterr().err


def test_a_named_fix_fixes(capsys):
    wide = ["--config", "dr_mas_math", "--devices", "2xA100-80G"]
    assert main([*wide, "policies.*.micro_batch_tokens=200000", "policies.*.gradient_checkpointing=false"]) == 1
    assert "policies.*.gradient_checkpointing=true" not in capsys.readouterr().err  # not by itself
    assert main([*wide, "policies.*.micro_batch_tokens=12288", "policies.*.lora.rank=16"]) == 0


def test_an_engine_without_room_for_one_sequence_is_refused(capsys):
    arguments = ["--config", "dr_mas_math", "--devices", "8xH100", "policies.*.engine.gpu_memory_utilization=0.12"]
    assert main(arguments) == 1
    assert "raise engine.gpu_memory_utilization" in capsys.readouterr().err


def test_json_and_table_say_the_same(capsys):
    arguments = ["--config", "dr_mas_math", "--devices", "4xH100+4xL40S", "--turns", "1", "--prompt-tokens", "500"]
    assert main([*arguments, "--completion-tokens", "1000", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (split,) = report["placements"]
    assert (split["learners_on"], split["engines_on"]) == ("4xH100", "4xL40S")
    assert report["lengths"] == "given"
    assert report["basis"]["assumptions"]["update_flops"] == 0.4
    assert set(report["basis"]["sources"]) == {"H100", "L40S"}
    assert main([*arguments, "--completion-tokens", "1000"]) == 0
    text = capsys.readouterr().out
    assert f"{split['seconds']['total']:,.2f} s" in text
    assert "not measured by us" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "dr_mas_mth", "--devices", "cpu"], "no file"),
        (["--config", "dr_mas_math", "--devices", "8xX"], "not known"),
        (["--config", "dr_mas_math", "--devices", "1xH100", "policies.*.model=a/b"], "hf download a/b"),
        (["--config", "dr_mas_math", "--devices", "1xH100", "policies.*.sampling.max_tokens=20000"], "no room"),
        (["--config", "dr_mas_math", "--devices", "1xH100", "--episodes", "nowhere"], "episodes.jsonl"),
    ],
)
def test_bad_arguments_are_named(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_more_devices_never_take_more_memory_or_time():
    config = load_config("dr_mas_math")
    works = workload(config)
    before = None
    for count in (2, 4, 8, 16, 32):
        (pool,) = parse_pools(f"{count}xH200")
        fit = place(config, works, Placement("colocated", pool, pool))
        learning = fit.phases[1].need
        if before is not None:
            assert learning <= before[0]
            assert fit.time.total <= before[1] * 1.001
        before = learning, fit.time.total


def test_more_episodes_never_take_less_time():
    (pool,) = parse_pools("8xH100")
    times = []
    for tasks in (8, 32, 128):
        config = load_config("dr_mas_math", [f"tasks_per_update={tasks}"])
        times.append(place(config, workload(config), Placement("colocated", pool, pool)).time.total)
    assert times == sorted(times)


def test_shared_prompts_are_computed_once():
    config = load_config("at_grpo_math")
    (work, _) = workload(config, turns=1, prompt=100, completion=10)
    assert work.turns == 32 * 4
    assert work.update_tokens == 32 * 100 + 32 * 4 * 10
    padded = load_config("at_grpo_math", ["policies.*.packing=padded"])
    (work, _) = workload(padded, turns=1, prompt=100, completion=10)
    assert work.update_tokens == 32 * 4 * 110


def test_adapters_in_one_process_share_their_base():
    config = load_config("dr_mas_math_cpu")
    works = workload(config)
    (resident,) = placements(parse_pools("cpu"))
    solver, verifier = place(config, works, resident).learners.values()
    assert solver.weights - verifier.weights == 4 * works[0].shape.parameters
    (pool,) = parse_pools("2xH100")  # on a cluster each learner has processes of its own
    solver, verifier = place(config, works, Placement("colocated", pool, pool)).learners.values()
    assert solver.weights == verifier.weights


def test_one_device_is_not_split():
    assert [found.name for found in placements(parse_pools("1xH100"))] == ["resident", "colocated"]
    assert [found.name for found in placements(parse_pools("2xH100"))] == ["colocated", "split"]


def write_episodes(folder, turns):
    folder.mkdir()
    episode = Episode("t#0", "math-2agent-v0", "t", 0, "h", 0, 0)
    episode.turns = [
        Turn("t#0", "t", agent, "p", i, 0, "", "", prompt_tokens=prompt, completion_tokens=completion)
        for i, (agent, prompt, completion) in enumerate(turns)
    ]
    (folder / "episodes.jsonl").write_text(json.dumps(episode.to_dict()) + "\n")
    return folder


def test_lengths_come_from_recorded_episodes(tmp_path):
    folder = write_episodes(tmp_path / "run", [("solver_0", 10, 4), ("verifier_0", 20, 2), ("solver_0", 30, 6)])
    found = recorded_lengths(folder)
    assert (found["solver_0"].turns, found["solver_0"].prompt, found["solver_0"].completion) == (2, 20, 5)
    works = {work.name: work for work in workload(load_config("dr_mas_math"), recorded=found)}
    assert works["solver"].turns == 2 * 256
    assert works["verifier"].prompt == 20


def test_episodes_that_say_nothing_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no turn has token counts"):
        recorded_lengths(write_episodes(tmp_path / "scripted", [("solver_0", 0, 0)]))
    other = recorded_lengths(write_episodes(tmp_path / "other", [("planner_0", 1, 1)]))
    with pytest.raises(ConfigError, match="no turn of solver_0"):
        workload(load_config("dr_mas_math"), recorded=other)
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match="line 1"):
        list(read_episodes(tmp_path / "bad.jsonl"))
