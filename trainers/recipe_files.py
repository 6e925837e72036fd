"""Recipes as files: YAML in, a plain mapping out, with ``key.sub=value`` overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

RECIPES = Path(__file__).parent / "recipes"


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the key, the value and the fix."""


def recipe_names() -> list[str]:
    """The recipes that ship with the package."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def read_recipe(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, or in the recipe of that name.

    Raises:
        ConfigError: There is neither, it is not YAML, or it holds something else.
    """
    shipped = RECIPES / f"{path.name.removesuffix('.yaml')}.yaml"
    if not path.is_file() and len(path.parts) == 1 and shipped.is_file():
        path = shipped
    if not path.exists():
        raise ConfigError(
            f"There is no file {str(path)!r}, and the recipes that ship are: {', '.join(recipe_names())}."
        )
    return read_mapping(path)


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. A key that stands twice is an error.

    Raises:
        ConfigError: It cannot be read, is not YAML, or holds something else.
    """
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise ConfigError(f"{path} cannot be read as YAML: {problem}") from problem
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold a mapping of fields, found {type(values).__name__}.")
    return values


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that a section has twice, of which YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a section."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def separate(value: Any) -> Any:
    """Copy nested values so that no two places share a mapping.

    Places that a YAML alias fills do, and an override of one policy must not reach another.
    """
    if isinstance(value, Mapping):
        return {key: separate(item) for key, item in value.items()}
    return [separate(item) for item in value] if isinstance(value, list) else value


def override(values: dict[str, Any], text: str) -> None:
    """Set one field from ``key.sub=value``, the value being YAML; ``*`` stands for every key there is.

    Raises:
        ConfigError: The text is of another form, or names a field of something that has none.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"Override {text!r} is not of the form key=value, such as `updates=10`.")
    try:
        _assign(values, key.strip().split("."), yaml.safe_load(value), text)
    except yaml.YAMLError as problem:
        raise ConfigError(f"Override {text!r}: the value is not YAML: {problem}") from problem


def _assign(section: dict[str, Any], keys: Sequence[str], value: Any, text: str) -> None:
    """Set a nested key."""
    head, *rest = keys
    if head == "*" and not section:
        raise ConfigError(f"Override {text!r}: `*` stands for every name there is, and there is none.")
    for name in list(section) if head == "*" else [head]:
        if not rest:
            section[name] = value
            continue
        if section.get(name) is None:
            section[name] = {}
        if not isinstance(section[name], dict):
            raise ConfigError(f"Override {text!r}: `{name}` holds {section[name]!r} and has no fields.")
        _assign(section[name], rest, value, text)
