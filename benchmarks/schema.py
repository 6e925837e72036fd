"""Versions of the results folder: what a reader of this version can read, and what older folders lack.

Every field is described in ``docs/results.md``. A version is raised when a field is added, changes its meaning or goes.

==========  ============================================================================================================
version     what is new in it
==========  ============================================================================================================
1           (In ``config.json`` it stands as ``"format": 1``.)
2           ``context`` holds ``environment``, ``hardware`` and ``variables``, ``source`` the branch and a digest of
            uncommitted changes, ``identity.versions`` the packages of the environment's family, and a line of
            ``timings.jsonl`` when the episode ended.
3           ``context`` holds ``protocol``. ``identity`` may hold ``budget``, and then ``samples`` is None.
==========  ============================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["SCHEMA_VERSION", "SchemaError", "added_since", "upgrade"]

SCHEMA_VERSION = 3
"""Version of the results folders that are written."""

_ADDED_TO_CONTEXT = {"environment": 2, "hardware": 2, "variables": 2, "protocol": 3}


class SchemaError(ValueError):
    """A configuration is of no version that can be read. The message says which it is."""


def upgrade(config: Any) -> dict[str, Any]:
    """Return a configuration with all fields of this version; what its own version lacks is None.

    ``schema_version`` stays that of the folder.

    Args:
        config: What ``config.json`` holds.

    Raises:
        SchemaError: If it is newer than this version, or no configuration.
    """
    if not isinstance(config, Mapping):
        raise SchemaError(f"it holds no JSON object but {type(config).__name__}")
    version = config.get("schema_version", config.get("format"))
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise SchemaError(f"its schema_version is {version!r}, not a whole number from 1 on")
    if version > SCHEMA_VERSION:
        raise SchemaError(
            f"it has schema version {version}, and this version of llm-envs reads up to {SCHEMA_VERSION}. "
            "Read it with the version that wrote it, or a newer one: pip install -U llm-envs"
        )
    for name in ("identity", "context"):
        if not isinstance(config.get(name), Mapping):
            raise SchemaError(f"it has no {name!r}")
    rest = {name: value for name, value in config.items() if name not in ("format", "schema_version", "context")}
    missing = dict.fromkeys(name for name, since in _ADDED_TO_CONTEXT.items() if version < since)
    return {"schema_version": version, **rest, "context": {**missing, **config["context"]}}


def added_since(version: int, name: str) -> bool:
    """Whether a folder of ``version`` may lack this setting of the identity, a dotted name, though it had its value."""
    return version < 2 and name.startswith("versions.")
