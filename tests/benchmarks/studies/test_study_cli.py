"""The command line that studies share: a flag a setting, lines with their time, errors that end it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.studies.study_cli import Log, add_choice, add_settings, read_settings, run_command, study_parser


@dataclass(frozen=True)
class Settings:
    size: int = 3
    rate: float = 1e-3
    choose: str = "argmax"
    tool: bool = True


def parser_of() -> argparse.ArgumentParser:
    parser = study_parser("some_study", "What it asks.\n\n    kept as it is")
    add_choice(parser, "--arms", {"one": 1, "two": 2})
    add_settings(parser, Settings)
    return parser


def test_without_flags_a_study_is_that_of_its_defaults() -> None:
    given = parser_of().parse_args([])
    assert read_settings(given, Settings) == Settings()
    assert (given.out, given.seeds, given.arms) == (Path("runs/some_study"), 3, ["one", "two"])


def test_every_setting_has_a_flag_of_its_type() -> None:
    argv = ["--size", "4", "--rate", "2e-4", "--choose", "random", "--no-tool", "--arms", "two", "--seeds", "1"]
    given = parser_of().parse_args(argv)
    assert read_settings(given, Settings) == Settings(4, 2e-4, "random", False)
    assert (given.arms, given.seeds) == (["two"], 1)


@pytest.mark.parametrize("argv", [["--size", "four"], ["--arms", "three"], ["--sizes", "4", "5"]])
def test_what_cannot_be_meant_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser_of().parse_args(argv)
    assert ended.value.code == 2
    assert "some_study: error" in capsys.readouterr().err


def test_lines_have_their_time_and_the_table_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    def run(log: Log) -> str:
        log("halfway")
        return "| a |\n"

    assert run_command(parser_of(), run) == 0
    out = capsys.readouterr().out
    assert out.endswith(" s] halfway\n| a |\n")
    assert out.startswith("[")


def test_a_study_that_cannot_be_run_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    def run(log: Log) -> str:
        raise ValueError("another folder")

    assert run_command(parser_of(), run) == 2
    assert capsys.readouterr().err == "python -m benchmarks.studies.some_study: another folder\n"
