"""The folder of a study: whose settings it holds, and files that are whole or not there."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

__all__ = ["same_study", "write_json"]

SETTINGS_FILE = "study.json"


def same_study(settings: Any, out: Path) -> None:
    """Note the settings of a study in its folder, or compare them with those that are noted there.

    Args:
        settings: A dataclass.
        out: The folder; made if it does not exist.

    Raises:
        ValueError: The folder holds a study of other settings; the message names them.
    """
    mine = json.loads(json.dumps(dataclasses.asdict(settings)))
    path = out / SETTINGS_FILE
    if path.is_file():
        theirs = json.loads(path.read_text(encoding="utf-8"))
        changed = [f"{key}: {theirs.get(key)} -> {mine[key]}" for key in mine if theirs.get(key) != mine[key]]
        if changed:
            raise ValueError(f"{out} holds a study of other settings ({'; '.join(changed)}): choose another folder")
        return
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, mine)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file at once, so that an interrupted run leaves no half of one."""
    unfinished = path.with_suffix(".partial")
    unfinished.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)
