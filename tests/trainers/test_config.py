"""Configurations: what is read, what is refused, and whether the message says what to do."""

from __future__ import annotations

import json

import pytest

from trainers.config import ConfigError, TrainConfig, load_config, recipe_names


@pytest.fixture
def values():
    """The least that a configuration of two policies holds."""
    return {"env": {"id": "math-2agent"}, "policies": {"solver": {"model": "a"}, "verifier": {"model": "a"}}}


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_loads_and_survives_json(name):
    config = load_config(name)
    assert load_config(f"{name}.yaml") == config
    assert TrainConfig.model_validate_json(json.dumps(config.model_dump(mode="json"))) == config


def test_the_recipes_are_found_by_name():
    assert {"dr_mas_math", "dr_mas_math_cpu", "grpo_math_1agent_cpu"} <= set(recipe_names())


# ---- overrides ------------------------------------------------------------------------------------------------------


def test_overrides_are_yaml_and_win(values):
    config = load_config(
        {**values, "updates": 3},
        ["updates=5", "policies.solver.sampling.stop=['#', '##']", "policies.solver.learning_rate=1e-4", "wandb=null"],
    )
    assert config.updates == 5
    assert config.policies["solver"].sampling.stop == ("#", "##")
    assert config.policies["solver"].learning_rate == 1e-4
    assert config.wandb is None


def test_a_star_stands_for_every_name(values):
    config = load_config(values, ["policies.*.lora.rank=4", "policies.verifier.lora.rank=2"])
    assert [policy.lora.rank for policy in config.policies.values()] == [4, 2]


def test_a_star_that_matches_nothing_is_an_error(values):
    with pytest.raises(ConfigError, match=r"there is none"):
        load_config(values, ["roles.*=solver"])


def test_an_override_of_one_policy_does_not_reach_another_through_a_yaml_alias(tmp_path):
    file = tmp_path / "aliases.yaml"
    file.write_text("env: {id: math-2agent}\npolicies: {solver: &p {model: a, learning_rate: 0.5}, verifier: *p}\n")
    config = load_config(file, ["policies.solver.learning_rate=0.25"])
    assert {name: policy.learning_rate for name, policy in config.policies.items()} == {"solver": 0.25, "verifier": 0.5}


def test_an_override_does_not_reach_another_policy_of_a_mapping_or_the_mapping_itself(values):
    policy = {"model": "a"}
    values["policies"] = {"solver": policy, "verifier": policy}
    config = load_config(values, ["policies.solver.model=b"])
    assert [p.model for p in config.policies.values()] == ["b", "a"]
    assert policy == {"model": "a"}


# ---- algorithms -----------------------------------------------------------------------------------------------------


def test_fields_of_the_algorithm_and_its_loss_are_read_as_their_types(values):
    overrides = {
        "mean_by": ["task", "role"],
        "eps": "1e-4",
        "baseline": {"by": ["agent"], "decay": 0.5},
        "extra": [{"score": "turn_reward", "coefficient": 2}],
    }
    values["algorithm"] = {"preset": "dr_mas", "loss": {"clip_high": "2.8e-1"}, "overrides": overrides}
    algorithm = load_config(values).algorithm.build()
    assert algorithm.mean_by == ("task", "role")
    assert algorithm.eps == 1e-4
    assert (algorithm.baseline.by, algorithm.baseline.decay) == (("agent",), 0.5)
    assert (algorithm.extra[0].score, algorithm.extra[0].coefficient) == ("turn_reward", 2.0)
    assert (algorithm.loss.clip_high, algorithm.loss.dual_clip) == (0.28, 3.0)  # the preset's, where not given
    assert algorithm.std_by == ("task", "agent")


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("updtes=3", "unknown key `updtes`. Did you mean `updates`?"),
        ("env.taks=x", "env.taks: unknown key `taks`. Did you mean `tasks`?"),
        ("policies.solver.learning_rat=1", "Did you mean `learning_rate`?"),
        ("policies.solver.lora.rnak=4", "policies.solver.lora.rnak: unknown key `rnak`. Did you mean `rank`?"),
        ("policies.solver.sampling.temprature=1", "Did you mean `temperature`?"),
        ("algorithm.presett=grpo", "Did you mean `preset`?"),
        ("algorithm.loss.clip_hihg=1", "algorithm.loss: unknown key `clip_hihg`. Did you mean `clip_high`?"),
        ("algorithm.overrides.mean_bi=[task]", "Did you mean `mean_by`?"),
        ("algorithm.overrides.baseline={dekay: 0.5}", "Did you mean `decay`?"),
        ("algorithm.overrides.extra=[{scor: x}]", "Did you mean `score`?"),
        ("checkpoint.evry=1", "Did you mean `every`?"),
        ("evaluation.task=1", "Did you mean `tasks`?"),
    ],
)
def test_an_unknown_key_suggests_the_right_one(values, override, message):
    with pytest.raises(ConfigError) as caught:
        load_config(values, [override])
    assert message in str(caught.value)


def test_a_policy_may_be_called_as_a_field_is():
    values = {"env": {"id": "math-1agent"}, "policies": {"sampling": {"model": "a", "lora": {"rnak": 4}}}}
    with pytest.raises(ConfigError, match="Did you mean `rank`"):
        load_config(values)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm.preset=dr_mass", "Did you mean 'dr_mas'"),
        ("algorithm.loss.kind=pppo", r"algorithm.loss.kind: .*'ppo'.*\(got 'pppo'\)"),
        ("algorithm.loss.clip_high=high", r"algorithm.loss.clip_high: .*number.*\(got 'high'\)"),
        ("algorithm.loss.dual_clip=0.5", r"algorithm.loss: dual_clip is 0.5; it must be above 1"),
        ("algorithm.overrides.mean_by=[tsk]", "Unknown group key 'tsk'. Did you mean 'task'"),
        ("algorithm.overrides.mean_by=task", r"algorithm.overrides.mean_by: .*\(got 'task'\)"),
        ("algorithm.overrides.loss={clip_low: 1}", "go under algorithm.loss"),
        ("algorithm.overrides.sampling=tree", "algorithm.overrides: sampling=.tree. needs scores of the turn alone"),
        ("policies.solver.sampling.top_k=0", "policies.solver.sampling: top_k must be"),
        ("policies.solver.sampling.stop=x", r"policies.solver.sampling.stop: .*\(got 'x'\)"),
        ("policies.solver.betas=[0.9, 1]", r"policies.solver.betas.1: .*less than 1"),
        ("policies.solver.learning_rate=0", "policies.solver.learning_rate: .*greater than 0"),
        ("policies.solver.learning_rate=.inf", "finite"),
        ("policies.solver.backend=vlm", "policies.solver: backend is 'vlm'; it is one of vllm, hf, openai, oracle"),
        ("policies.solver={}", "policies.solver: model is missing"),
        ("policies={}", "`policies` is empty"),
        ("policies={a/b: {model: x}}", "the name 'a/b'"),
        ("roles={solver: solve, verifier: verifier}", "roles.solver names the policy 'solve'; the policies are solver"),
        ("roles={solver: solver, verifier: solver}", "policies.verifier plays no role"),
        ("env.kwargs.split=test", "env.kwargs.split would take the place of env.split"),
        ("updates=", r"updates: .*\(got None\)"),
        ("updates=many", "updates: .*integer"),
        ("seed=-1", "seed"),
        ("updates", "not of the form key=value"),
        ("=3", "not of the form key=value"),
        ("updates=[", "not YAML"),
        ("policies.solver.model.x=1", "`model` holds 'a' and has no fields"),
    ],
)
def test_a_bad_value_is_named(values, override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(values, [override])


def test_a_decay_needs_updates_after_the_warm_up(values):
    overrides = ["updates=3", "policies.solver.warmup_updates=3"]
    assert load_config(values, overrides).updates == 3
    with pytest.raises(ConfigError, match=r"policies.solver.warmup_updates is 3.*cosine"):
        load_config(values, [*overrides, "policies.solver.schedule=cosine"])


def test_every_problem_is_listed(values):
    with pytest.raises(ConfigError) as caught:
        load_config(values, ["updates=0", "sead=1"])
    assert len(str(caught.value).splitlines()) == 2


# ---- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "cannot be read as YAML"),
        ("- a", "must hold a mapping of fields, found list"),
        ("", "must hold a mapping of fields, found NoneType"),
        ("updates: 1\nenv: {id: x}\nupdates: 2", "'updates' is given twice"),
        ("policies:\n  solver: {model: a, model: b}", "'model' is given twice"),
    ],
)
def test_a_file_that_is_no_recipe(tmp_path, text, message):
    file = tmp_path / "recipe.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(file)


def test_no_such_file_lists_the_recipes(tmp_path):
    with pytest.raises(ConfigError, match="dr_mas_math_cpu"):
        load_config("dr_mas_maths")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


def test_yaml_merge_keys_still_work(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text(
        "env: {id: math-2agent}\npolicies:\n  solver: &p {model: a, epochs: 2}\n  verifier: {<<: *p, epochs: 3}\n"
    )
    assert [policy.epochs for policy in load_config(file).policies.values()] == [2, 3]
