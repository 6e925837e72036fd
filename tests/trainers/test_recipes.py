"""The recipes that ship: those for a laptop run in a shrunken form, those for GPUs are set up to the first episode."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from trainers.api import train
from trainers.config import PolicyConfig, load_config, recipe_names
from trainers.models import build_tiny_model
from trainers.recipe_files import RECIPES
from trainers.tracking import read_metrics
from trainers.trainer import Trainer

LAPTOP = [name for name in recipe_names() if name.endswith("_cpu")]
PUBLISHED = [name for name in recipe_names() if not name.endswith("_cpu")]

# Two rows in the form of every published set that a recipe names: what they hold is of no matter here.
STAND_INS = {
    "dapo-math-17k/train": {"prompt": "What is {i} + 1?", "reward_model": {"ground_truth": "5"}},
    "polaris-53k/train": {"problem": "What is {i} + 2?", "answer": "5"},
    "math500/test": {"problem": "What is {i} + 3?", "answer": "5"},
    "aime24/test": {"problem": "What is {i} + 4?", "answer": "5"},
    "hotpotqa/train": {"id": "a{i}", "question": "Who is {i}?", "golden_answers": ["Ann"]},
    "hotpotqa/test": {"id": "b{i}", "question": "Whose is {i}?", "golden_answers": ["Ann"]},
    "code_contests/train": {
        "name": "a{i}", "description": "Print {i}.", "public_tests": {"input": ["1"], "output": ["1"]},
        "private_tests": {"input": ["2"], "output": ["2"]},
        "solutions": {"language": [3], "solution": ["print(input())"]},
    },
}  # fmt: skip
STAND_INS["code_contests/test"] = {**STAND_INS["code_contests/train"], "name": "b{i}", "description": "Say {i}."}


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """Local copies of the published sets, of 130 rows each."""
    for name, row in STAND_INS.items():
        path = tmp_path / "data" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(row)
        path.write_text("".join(text.replace("{i}", str(i)) + "\n" for i in range(130)))
    monkeypatch.setenv("LLM_ENVS_DATA", str(tmp_path / "data"))


@pytest.fixture(scope="module")
def bytewise(tmp_path_factory):
    """A model that reads any text, and has nothing to say."""
    folder = tmp_path_factory.mktemp("models") / "bytes"
    return build_tiny_model(folder, hidden_size=32, layers=1, intermediate_size=32, max_length=4096)


def test_what_was_published_has_a_form_for_a_laptop():
    assert {f"{name}_cpu" for name in PUBLISHED} <= set(LAPTOP)
    assert {"rae_kuhn_poker_cpu", "rae_tictactoe_cpu"} <= set(LAPTOP)
    for name in PUBLISHED:
        published, laptop = load_config(name), load_config(f"{name}_cpu")
        assert (published.env.id, published.algorithm.preset) == (laptop.env.id, laptop.algorithm.preset)
        assert published.policies.keys() == laptop.policies.keys()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_recipe_is_set_up_to_the_first_episode(name, stand_ins, tmp_path):
    """Configuration, environment, tasks, roles, and the held-out tasks: everything but the weights."""
    config = load_config(name)
    trainer = Trainer(config, tmp_path / "run")
    env = trainer._env.fork()
    env.reset(seed=0)
    assert {config.role_map()[agent.rpartition("_")[0]] for agent in env.possible_agents} == set(config.policies)
    text = (RECIPES / f"{name}.yaml").read_text()
    assert f"llm-train --config {name}\n" in text or f"llm-train --config {name} " in text
    assert re.search(r"arXiv \d{4}\.\d{5}", text)
    assert "github.com" in text or "released scripts" in text


@pytest.mark.parametrize("name", LAPTOP)
def test_a_recipe_for_a_laptop_runs(name, bytewise, tmp_path):
    """One update of one task, with a tiny model in place of the bundled one."""
    config = load_config(name, ["updates=1", "tasks_per_update=1", "samples_per_task=2", "policies.*.warmup_updates=0"])
    values = config.model_dump()
    for policy in values["policies"].values():
        if not PolicyConfig(**policy).scripted:
            policy |= {"model": str(bytewise), "backend": "hf", "engine": {}}
            policy["sampling"]["max_tokens"] = 4
    if values["evaluation"]["every"]:
        values["evaluation"] |= {"every": 1, "tasks": 1}
    result = train(values, out=tmp_path / "run")
    assert result.metrics["train/failed_episodes"] == 0
    assert result.metrics["train/turns"] > 0
    assert sorted(path.name for path in (result.run_dir / "models").iterdir()) == sorted(
        policy for policy, settings in config.policies.items() if settings.trainable
    )
    evaluated = [row["update"] for row in read_metrics(result.run_dir) if "eval/episodes" in row]
    assert evaluated == ([0, 1] if config.evaluation.every else [])


def yaml_blocks():
    """The YAML that the training page shows."""
    page = (RECIPES.parent.parent / "docs" / "training.md").read_text(encoding="utf-8")
    return re.findall(r"^```yaml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", yaml_blocks())
def test_what_the_documentation_shows_can_be_read(text):
    """Each block is a recipe, or a part of one that goes with two policies."""
    two = {name: {"model": "any"} for name in ("solver", "verifier")}
    config = load_config({"env": {"id": "math-2agent"}, "policies": two, **yaml.safe_load(text)})
    assert config.algorithm.build()


def test_the_documentation_lists_every_recipe():
    page = (RECIPES.parent.parent / "docs" / "training.md").read_text(encoding="utf-8")
    table = page[page.index("| recipe |") : page.index("The recipes that end in")]
    assert sorted(re.findall(r"`(\w+_(?:cpu|[a-z]+))`", table)) == recipe_names()
