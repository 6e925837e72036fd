"""``KEY=VALUE`` on the command line: arguments of the environment and options of the policies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from benchmarks.runner import SettingsError
from llm_envs.console import read_value
from trainers.team import EVERYONE

__all__ = ["parse_env_arguments", "parse_options", "read_value"]

_OPTION = re.compile(r"(?:(?P<role>[a-z]+(?:_[0-9]+)?)\.)?(?P<key>[A-Za-z_][A-Za-z0-9_]*)")


def parse_env_arguments(pairs: Sequence[str]) -> dict[str, Any]:
    """Turn the values of ``--env`` into arguments of the environment.

    Raises:
        SettingsError: If one is not ``key=value``, is given twice, or has a command-line option of its own.
    """
    kwargs: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise SettingsError(f"--env takes key=value, got {pair!r}")
        if key in ("tasks", "split"):
            raise SettingsError(f"--env {key}=… : use --{key} instead")
        if key in kwargs:
            raise SettingsError(f"--env {key} was given twice")
        kwargs[key] = read_value(text)
    return kwargs


def parse_options(pairs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Turn the values of ``--option`` into options by role.

    Args:
        pairs: ``key=value`` for every policy with a model, ``role.key=value`` for one role.

    Raises:
        SettingsError: If one has another form or is given twice.

    Example:
        >>> parse_options(["max_model_len=1024", "solver.system_prompt=Answer in one line."])
        {'*': {'max_model_len': 1024}, 'solver': {'system_prompt': 'Answer in one line.'}}
    """
    options: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        match = _OPTION.fullmatch(name)
        if not equals or match is None:
            raise SettingsError(f"--option takes key=value or role.key=value, got {pair!r}")
        values = options.setdefault(match["role"] or EVERYONE, {})
        if match["key"] in values:
            raise SettingsError(f"--option {name} was given twice")
        values[match["key"]] = read_value(text)
    return options
