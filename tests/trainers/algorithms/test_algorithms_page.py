"""docs/algorithms.md: its code runs, and its table of presets is the table in the code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import yaml

from trainers.algorithms.algorithm import Algorithm
from trainers.algorithms.presets import presets
from trainers.algorithms.scores import SCORES
from trainers.config import AlgorithmConfig


def test_the_snippets_run(repository: Path) -> None:
    page = (repository / "docs" / "algorithms.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    try:
        for snippet in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            exec(snippet, names)
        assert isinstance(names["gigpo"], Algorithm)
        assert isinstance(names["short"], Algorithm)
        assert isinstance(names["ppo"], Algorithm)
        (recipe,) = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
        built = AlgorithmConfig.model_validate(recipe["algorithm"]).build()
        assert built == replace(presets["gae"], kl_in_reward=0.01, overlong="mask")
    finally:
        SCORES.pop("brevity", None)


def test_the_table_is_that_of_the_code(repository: Path) -> None:
    page = (repository / "docs" / "algorithms.md").read_text(encoding="utf-8")
    table = page.split("## Presets")[1].split("Scores (")[0]
    rows = {}
    for line in (line for line in table.splitlines() if line.startswith("|")):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].startswith("`"):
            rows[cells[0].strip("`")] = cells
    assert rows.keys() == presets.keys()
    for name, (_, _, mean, deviation, counts, *_) in rows.items():
        algorithm = presets[name]
        assert mean == _written(algorithm.mean_by), name
        centred = ", of the scores less their mean" if algorithm.center_first else ""
        assert deviation == _written(algorithm.std_by) + centred, name
        assert counts == algorithm.weight, name


def _written(keys: tuple[str, ...] | None) -> str:
    return "–" if keys is None else ", ".join(keys) or "batch"
