"""What the sections of a configuration share: unknown keys are errors, and each problem is one line that helps."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from trainers.recipe_files import ConfigError

if typing.TYPE_CHECKING:
    from trainers.config import TrainConfig

__all__ = ["Section", "changed", "check_fields", "check_staleness", "explain"]


class Section(BaseModel):
    """A part of a configuration. It takes no unknown key and does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


def explain(entry: Any, root: type[BaseModel] | None = None) -> str:
    """One line for one of pydantic's errors, with the closest known key of ``root``'s where a key is unknown."""
    location = [str(part) for part in entry["loc"]]
    where = ".".join(location) or "config"
    if entry["type"] == "value_error":
        problem = entry["ctx"]["error"]
        return str(problem) if isinstance(problem, ConfigError) or not location else f"{where}: {problem}"
    if root is None or entry["type"] != "extra_forbidden":
        given = "" if entry["type"] == "missing" else f" (got {entry['input']!r})" if location else ""
        return f"{where}: {entry['msg']}{given}"
    known = _fields_at(root, location[:-1])
    close = difflib.get_close_matches(location[-1], known, n=1)
    hint = f" Did you mean `{close[0]}`?" if close else ""
    return f"{where}: unknown key `{location[-1]}`.{hint} Known keys: {', '.join(known)}"


def _fields_at(root: type[BaseModel], location: Sequence[str]) -> list[str]:
    """The fields of the section at ``location``. A part that is no field is a name in a mapping of sections."""
    section = root
    named = False
    for part in location:
        if named or part not in section.model_fields:
            named = False
            continue
        annotation = section.model_fields[part].annotation
        inner = [a for a in (annotation, *typing.get_args(annotation)) if isinstance(a, type)]
        found = next((a for a in inner if issubclass(a, BaseModel)), None)
        section, named = found or section, found is not None and typing.get_origin(annotation) is dict
    return list(section.model_fields)


def check_fields(where: str, values: Mapping[str, Any], cls: type) -> None:
    """Check that ``values`` names fields of the dataclass ``cls``.

    Raises:
        ConfigError: It names another; the closest known one is suggested.
    """
    known = [f.name for f in dataclasses.fields(cls)]
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean `{close[0]}`?" if close else ""
            raise ConfigError(f"{where}: unknown key `{name}`.{hint} Known keys: {', '.join(known)}")


_Data = typing.TypeVar("_Data")


def changed(where: str, data: _Data, changes: Mapping[str, Any]) -> _Data:
    """Return the dataclass object ``data`` with other values, each read as the type of its field.

    Raises:
        ConfigError: A value does not fit.
    """
    fields = {field.name: getattr(data, field.name) for field in dataclasses.fields(data)}  # type: ignore[arg-type]
    try:
        return TypeAdapter(type(data)).validate_python({**fields, **changes})
    except ValidationError as problem:
        lines = [explain({**entry, "loc": (where, *entry["loc"])}) for entry in problem.errors()]
        raise ConfigError("\n".join(lines)) from problem


def check_staleness(config: TrainConfig) -> None:
    """Check that what is trained on older turns corrects for that, and that no setting is without effect.

    Raises:
        ConfigError: A policy's loss does not, or ``max_staleness`` is 0 beside settings that need it.
    """
    if config.max_staleness == 0:
        for name, value in (("on_new_weights", "continue"), ("uncorrected_staleness", True)):
            if getattr(config, name) == value:
                raise ConfigError(f"{name} has no effect while max_staleness is 0: raise that, or drop {name}")
        return
    for name, policy in config.policies.items():
        if policy.trainable and not (config.uncorrected_staleness or config.loss_of(name).needs_sampler_logprobs):
            raise ConfigError(
                f"max_staleness is {config.max_staleness}, but the loss of policies.{name} takes turns of older "
                "weights for turns of the newest. Set algorithm.loss.importance=token, or importance=off with "
                "reference=sampler, which correct for it; or allow it: uncorrected_staleness=true"
            )
