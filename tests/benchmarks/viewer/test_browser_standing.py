"""What the overview says of a run that is going on, was stopped, or was killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.benchmarks.viewer.browser import Browser
from tests.benchmarks.viewer.synthetic import write_math_run
from trainers.folder_lock import LOCK, FolderLock

NOTE = "[...document.querySelectorAll('.headline .note')].map((one) => one.innerText).join(' ')"


def unfinished(path: Path) -> Path:
    """A run of 6 episodes of which 4 are there."""
    write_math_run(path, 6)
    config = json.loads((path / "config.json").read_text())
    assert config["identity"]["n"] * config["identity"]["samples"] == 6
    file = path / "episodes.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:4]))
    return path


def test_the_overview_says_how_a_run_stands(browser: Browser, served: Any, tmp_path: Path) -> None:
    path = unfinished(tmp_path / "run")
    address = served(path)
    (path / LOCK).write_text("4242\nopen\n")
    browser.open(address)
    browser.wait(f"{NOTE}.includes('process 4242 was killed, or its machine went down; 2 of 6 are missing')")
    with FolderLock(path):
        browser.open(address)
        browser.wait(f"{NOTE}.includes('was writing it when it was read; 2 of 6 are to come')")
    browser.open(address)
    browser.wait(f"{NOTE}.startsWith('Not complete: 2 of 6 are missing.')")


def test_the_overview_says_nothing_of_a_complete_run(browser: Browser, served: Any, tmp_path: Path) -> None:
    browser.open(served(write_math_run(tmp_path / "run", 6)))
    browser.wait("document.querySelectorAll('.headline svg').length > 0")
    assert "missing" not in browser.js(f"return {NOTE}")
    assert "to come" not in browser.js(f"return {NOTE}")
