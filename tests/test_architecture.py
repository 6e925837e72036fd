"""The shape of the code base: imports point downwards only, and `import llm_envs` stays light."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# package -> the packages above it, which it must not know
ABOVE = {"llm_envs": {"trainers", "benchmarks"}, "trainers": {"benchmarks"}}

# What needs a model, a JVM, a cluster or seconds to import.
MODEL_LIBRARIES = {"torch", "transformers", "vllm", "ray", "peft", "tokenizers", "openai", "jnius", "pyserini", "jpype"}
HEAVY_LIBRARIES = MODEL_LIBRARIES | {
    "chess",
    "datasets",
    "latex2sympy2_extended",
    "math_verify",
    "matplotlib",
    "numba",
    "pandas",
    "pyarrow",
    "pydantic",
    "pygame",
    "pyspiel",
    "reasoning_gym",
    "rich",
    "scipy",
    "sympy",
    "tensorboard",
    "unified_planning",
    "yaml",
}


def imported_modules(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, module) of every absolute import in `source`, at any depth, import_module("...") included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.lineno, node.module
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def imports_of(source: str, packages: set[str]) -> list[tuple[int, str]]:
    """Return the imports in `source` whose top-level package is one of `packages`."""
    return [(line, module) for line, module in imported_modules(source) if module.split(".")[0] in packages]


@pytest.mark.parametrize(
    "source",
    [
        "import trainers",
        "from trainers.rollout import records",
        "def f():\n    import trainers.team as t",
        "import importlib\nimportlib.import_module('trainers.team')",
    ],
)
def test_an_import_is_found_wherever_it_stands(source: str) -> None:
    assert imports_of(source, {"trainers"})


def test_a_name_that_only_looks_alike_is_no_import() -> None:
    assert not imports_of("from .trainers import x\nimport trainers_tools\ntrainers = 'import trainers'", {"trainers"})


@pytest.mark.parametrize("package", ABOVE)
def test_imports_point_downwards(repository: Path, package: str) -> None:
    files = sorted((repository / package).rglob("*.py"))
    assert files, f"{package} has no modules: is this the root of the clone?"
    upward = [
        f"{file.relative_to(repository)}:{line} imports {module}"
        for file in files
        for line, module in imports_of(file.read_text(encoding="utf-8"), ABOVE[package])
    ]
    assert not upward, "\n".join(upward)


def test_environments_import_no_model_library(repository: Path) -> None:
    found = [
        f"{file.relative_to(repository)}:{line} imports {module}"
        for file in sorted((repository / "llm_envs").rglob("*.py"))
        for line, module in imports_of(file.read_text(encoding="utf-8"), {"torch", "transformers", "vllm", "ray"})
    ]
    assert not found, "\n".join(found)


# Rules of the game only: they can be read, tested and used without an environment.
RULES = [
    *("planning/grid.py", "planning/sokoban.py", "planning/sokoban_solver.py"),
    *("games/sudoku.py", "games/sudoku_solver.py", "games/tictactoe.py"),
]


@pytest.mark.parametrize("module", RULES)
def test_rules_know_no_environment(repository: Path, module: str) -> None:
    source = (repository / "llm_envs" / module).read_text(encoding="utf-8")
    found = [
        f"{module}:{line} imports {name}"
        for line, name in imported_modules(source)
        if name.split(".")[0] in MODEL_LIBRARIES | {"pettingzoo"} or name == "llm_envs.core"
    ]
    assert not found, "\n".join(found)


def modules_after(repository: Path, code: str) -> set[str]:
    """Return the top-level names in sys.modules after `code` ran in a fresh interpreter."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    run = subprocess.run([sys.executable, "-c", script], cwd=repository, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_importing_llm_envs_is_light(repository: Path) -> None:
    loaded = modules_after(repository, "import llm_envs")
    assert "llm_envs" in loaded
    assert not loaded & HEAVY_LIBRARIES


@pytest.mark.parametrize("env_id", ["math-2agent", "search-2agent"])
def test_playing_an_environment_loads_no_model_library(repository: Path, env_id: str) -> None:
    loaded = modules_after(
        repository,
        "import llm_envs\n"
        f"env = llm_envs.make('{env_id}')\n"
        "env.reset(seed=0)\n"
        "for agent in env.agent_iter():\n"
        "    observation, reward, termination, truncation, info = env.last()\n"
        "    env.step(None if termination or truncation else env.unwrapped.oracle(agent))\n",
    )
    assert not loaded & MODEL_LIBRARIES


def test_importing_llm_envs_takes_under_half_a_second(repository: Path) -> None:
    # Seconds of processor time, the least of five: other load on the machine does not count.
    script = "import time; start = time.process_time(); import llm_envs; print(time.process_time() - start)"
    seconds = [
        float(subprocess.run([sys.executable, "-c", script], cwd=repository, capture_output=True, check=True).stdout)
        for _ in range(5)
    ]
    assert min(seconds) < 0.5
