"""`scripts/studies` runs every command that a page of docs/studies gives to repeat what is on it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs" / "studies").glob("*.md"))


def _flags(words: list[str]) -> tuple[str, ...]:
    """A command without where it writes its page; flags with their values in any order, numbers as numbers."""
    flags: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            flags.append([])
        try:
            flags[-1].append(repr(float(word)))
        except ValueError:
            flags[-1].append(word)
    return tuple(sorted(" ".join(flag) for flag in flags if flag[:1] != ["--docs"]))


def _of_page(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(r"^\$ python -m benchmarks\.(.*)$", text, re.MULTILINE)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, ...]]:
    """What the script runs: an interpreter that only writes its arguments down takes the place of Python."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / "scripts").mkdir()
    script = folder / "scripts" / "studies"
    script.write_text((ROOT / "scripts" / "studies").read_text(encoding="utf-8"), encoding="utf-8")
    python = folder / "python"
    python.write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    said = subprocess.run(
        ["sh", str(script)], env={**os.environ, "PYTHON": str(python)}, capture_output=True, text=True, check=True
    )
    return {_flags(shlex.split(line.removeprefix("-m benchmarks."))) for line in said.stdout.splitlines()}


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_commands_of_a_page_are_run(page: Path, commands: set[tuple[str, ...]]) -> None:
    given = _of_page(page)
    assert given, f"{page.name} says no command"
    for command in given:
        assert _flags(shlex.split(command)) in commands, command
