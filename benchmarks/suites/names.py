"""What suites there are. This imports nothing that a plain run does not need."""

from __future__ import annotations

from pathlib import Path

__all__ = ["builtin_path", "is_suite", "suite_names"]

BUILTIN = Path(__file__).parent / "builtin"
SUFFIXES = (".yaml", ".yml")


def suite_names() -> list[str]:
    """Return the suites that ship with the package, the quickest first.

    Example:
        >>> suite_names()[0]
        'quick'
    """
    return ["quick", *sorted(path.stem for path in BUILTIN.glob("*.yaml") if path.stem != "quick")]


def builtin_path(name: str) -> Path:
    """Return the file of a suite that ships with the package."""
    return BUILTIN / f"{name}.yaml"


def is_suite(name: str) -> bool:
    """Whether ``name``, where a command takes the id of an environment, means a suite.

    Example:
        >>> [is_suite(name) for name in ("quick", "mine.yaml", "math-2agent")]
        [True, True, False]
    """
    return name.endswith(SUFFIXES) or name in suite_names()
