"""The typed suite: what ships is sound, and what is wrong is refused with the fix."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import llm_envs
from benchmarks.suites.config import SuiteConfig, load_suite
from benchmarks.suites.names import builtin_path, is_suite, suite_names
from llm_envs.registration import arguments
from trainers.policies.base import parse_spec
from trainers.recipe_files import ConfigError

ENTRY = {"name": "one", "env": "math-2agent"}


def suite(entry: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"description": "d", "entries": [{**ENTRY, **(entry or {})}], **more}


def test_the_suites_that_ship_are_those_that_were_promised() -> None:
    assert suite_names() == ["quick", "at-grpo", "dr-mas-math", "dr-mas-search", "full", "self-play"]
    assert all(is_suite(name) for name in suite_names())


@pytest.mark.parametrize("name", suite_names())
def test_what_ships_is_sound(name: str) -> None:
    found = load_suite(name)
    if found.policy is not None:
        parse_spec(found.policy)
    for entry in found.entries:
        assert set(entry.kwargs) <= set(arguments(llm_envs.spec(entry.env)))
    assert "\n" not in found.description
    assert len(found.description) <= 100


def test_no_environment_is_called_as_a_suite_is() -> None:
    assert not {spec.name for spec in llm_envs.registry.values()} & set(suite_names())


def test_full_holds_every_environment() -> None:
    played = {llm_envs.spec(entry.env).id for entry in load_suite("full").entries}
    assert played == set(llm_envs.registry)


def test_the_published_protocols() -> None:
    for name, runs in (("dr-mas-math", [16]), ("dr-mas-search", [16]), ("at-grpo", [1, 4])):
        found = load_suite(name)
        for entry in found.entries:
            assert [run.samples for run in found.protocol_of(entry).runs] == runs


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (suite({"evn": 1}), r"entries\.one\.evn: unknown key `evn`. Did you mean `env`\?"),
        (suite(polcy="oracle"), r"polcy: unknown key `polcy`. Did you mean `policy`\?"),
        (suite({"sampling": {"temprature": 1}}), r"entries\.one\.sampling\.temprature: .*Did you mean `temperature`\?"),
        (suite({"budget": {"token": 1}}), r"Did you mean `tokens`\?"),
        (suite(budget={"episodes": 1}), r"budget\.episodes: unknown key"),
        (suite({"n": 0}), r"entries\.one\.n: .*greater than or equal to 1.*got 0"),
        (suite({"name": "Two words"}), r"'Two words' names a folder"),
        (suite({"protocol": "dr-mass"}), r"There is no protocol 'dr-mass'.*Did you mean 'dr-mas'\?"),
        (suite({"kwargs": {"tasks": "x"}}), r"kwargs\.tasks would take the place of tasks"),
        (suite({"players": ["random", "oracle"], "policies": {"*": "oracle"}}), r"`policies` for a run or `players`"),
        (suite({"players": ["random", "oracle"], "samples": 2}), r"`samples` of a tournament"),
        (suite({"players": ["random", "oracle"], "split": "test"}), r"`split` has no effect in a tournament"),
        (suite({"protocol": "dr-mas", "samples": 4}), r"entries\.one: the protocol 'dr-mas' plays 16 episodes.*says 4"),
        (suite({"protocol": "greedy", "sampling": {"temperature": 1}}), r"fixes temperature at 0\.0.*says 1\.0"),
        (suite(policy_options={"max_model_len": 1}), r"policy_options has no effect"),
        ({"description": "d", "entries": [ENTRY, ENTRY]}, r"two are called 'one'"),
        ({"description": "d", "entries": []}, r"entries: .*at least 1"),
    ],
)
def test_what_is_wrong_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.compile(message, re.DOTALL)):
        load_suite(values)


def test_what_a_protocol_says_may_be_repeated() -> None:
    found = load_suite(suite({"protocol": "dr-mas", "samples": 16, "sampling": {"temperature": 0.6}}))
    (entry,) = found.entries
    assert (entry.protocol, entry.samples, found.sampling_of(entry).temperature) == ("dr-mas", 16, 0.6)


def test_entries_take_what_the_suite_says_and_say_it_otherwise() -> None:
    found = load_suite(
        suite({"sampling": {"max_tokens": 8}, "options": {"solver": {"system_prompt": "b"}}})
        | {"samples": 3, "sampling": {"temperature": 0.5, "max_tokens": 4}, "options": {"*": {"system_prompt": "a"}}}
    )
    (entry,) = found.entries
    sampling = found.sampling_of(entry)
    assert (sampling.temperature, sampling.max_tokens, sampling.top_p) == (0.5, 8, 1.0)
    assert found.samples_of(entry) == 3
    assert found.options_of(entry) == {"*": {"system_prompt": "a"}, "solver": {"system_prompt": "b"}}


@pytest.mark.parametrize(
    ("name", "message"),
    [("quik", "Did you mean 'quick'"), ("quick.yaml", "There is no file 'quick.yaml'")],
)
def test_a_suite_that_is_not_there(name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        load_suite(name)


def test_files_with_a_key_twice_or_no_mapping(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("description: a\ndescription: b\n")
    with pytest.raises(ConfigError, match="given twice"):
        load_suite(path)
    path.write_text("- 1\n")
    with pytest.raises(ConfigError, match="must hold a mapping"):
        load_suite(path)


def test_a_copied_file_is_the_same_suite(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(builtin_path("quick").read_text(encoding="utf-8"))
    assert load_suite(path) == load_suite("quick")
    assert SuiteConfig.model_validate(load_suite("quick").model_dump()) == load_suite("quick")
