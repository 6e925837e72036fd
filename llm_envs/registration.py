"""The registry of environments: ``register``, ``spec``, ``make``, ``make_parallel``.

Ids are ``<name>-v<version>``; an id without a version means the newest. Every registered environment is also known to
PettingZoo's own registry as ``llm_envs/<id>``. The games of other libraries are not registered one by one: ids such as
``openspiel/kuhn_poker`` and ``pettingzoo/chess_v6`` are looked up when they are asked for (:data:`ADAPTERS`). Errors
follow Gymnasium's wording and are subclasses of ``gymnasium.error.Error``.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pettingzoo
from gymnasium import error
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import aec_to_parallel

from llm_envs.wrappers.order import OrderEnforcing

NAMESPACE = "llm_envs"
ADAPTERS = {"openspiel": "llm_envs.games.openspiel_catalog", "pettingzoo": "llm_envs.games.classic_catalog"}
"""Namespaces of other libraries' games, and the module that knows them, which is imported when such an id is asked for.
It has ``find(name, version) -> EnvSpec`` (no version means the newest) and ``names() -> list[str]``."""
ENV_ID = re.compile(r"(?:(?P<namespace>[\w:-]+)/)?(?P<name>[\w:.-]+?)(?:-v(?P<version>\d+))?")


class UnknownArgument(error.Error, TypeError):
    """An environment was given a keyword argument that it does not take."""


class NotParallelizable(error.UnsupportedMode):
    """A turn-based environment was asked for as a parallel one."""


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What the registry knows of an environment.

    Attributes:
        id: Canonical id, such as ``"math-2agent-v0"``.
        entry_point: The class, or where it is: ``"module:Class"`` (imported on first use).
        kwargs: Keyword arguments that differ from the class's own defaults.
        parallelizable: Whether its agents act in rounds, so that :func:`make_parallel` works.
    """

    id: str
    entry_point: str | Callable[..., AECEnv]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    parallelizable: bool = False

    @property
    def name(self) -> str:
        """The id without its version."""
        return parse_env_id(self.id)[0]

    @property
    def version(self) -> int:
        """The version in the id."""
        return parse_env_id(self.id)[1] or 0

    def load(self) -> Callable[..., AECEnv]:
        """Import and return the entry point."""
        if not isinstance(self.entry_point, str):
            return self.entry_point
        module, _, attribute = self.entry_point.partition(":")
        return getattr(importlib.import_module(module), attribute)


registry: dict[str, EnvSpec] = {}
"""All registered environments by canonical id. Filled through :func:`register`."""

aliases: dict[str, str] = {}
"""Other names of registered environments, without versions. Filled through :func:`register`."""


def parse_env_id(env_id: str) -> tuple[str, int | None]:
    """Split an id into name and version (None where there is none). An adapter's namespace is part of the name.

    Raises:
        gymnasium.error.Error: The id is malformed.
        gymnasium.error.NamespaceNotFound: It has a namespace other than ``llm_envs`` and those of :data:`ADAPTERS`.
    """
    match = ENV_ID.fullmatch(env_id) if isinstance(env_id, str) else None
    if match is None:
        hint = ""
        if isinstance(env_id, str) and "(" in env_id and env_id.startswith(tuple(f"{name}/" for name in ADAPTERS)):
            hint = f" Parameters of a game are keyword arguments: make({env_id.partition('(')[0]!r}, players=3)."
        form = "(Currently all IDs must be of the form (env-name)[-v(version)].)"
        raise error.Error(f"Malformed environment ID: {env_id}. {form}{hint}")
    namespace, name = match["namespace"], match["name"]
    if namespace not in (None, NAMESPACE, *ADAPTERS):
        close = difflib.get_close_matches(namespace, ADAPTERS, n=1) or [NAMESPACE]
        raise error.NamespaceNotFound(f"Namespace {namespace} not found. Did you mean: `{close[0]}`?")
    if namespace in ADAPTERS:
        name = f"{namespace}/{name}"
    return name, None if match["version"] is None else int(match["version"])


def register(
    id: str,
    entry_point: str | Callable[..., AECEnv],
    *,
    parallelizable: bool = False,
    kwargs: Mapping[str, Any] | None = None,
    alias: str | None = None,
) -> None:
    """Register an environment, here and with PettingZoo.

    Args:
        id: ``<name>-v<version>``.
        entry_point: The environment class or ``"module:Class"``.
        parallelizable: Whether its agents act in rounds.
        kwargs: Default keyword arguments.
        alias: Another name that :func:`spec` and :func:`make` take, without a version.

    Raises:
        gymnasium.error.RegistrationError: The id has no version, or it or the alias is taken.
    """
    name, version = parse_env_id(id)
    if "/" in name:
        raise error.RegistrationError(f"Can't register `{id}`: that namespace belongs to the games of another library.")
    if version is None:
        raise error.RegistrationError(f"Can't register the unversioned environment `{id}`. Did you mean: `{id}-v0`?")
    if id in registry:
        raise error.RegistrationError(f"Can't register `{id}`: an environment of that id already exists.")
    if alias is not None and any(alias == other.name for other in registry.values()):
        raise error.RegistrationError(
            f"Can't register `{id}` as `{alias}`: an environment of that name already exists."
        )
    registry[id] = EnvSpec(id, entry_point, dict(kwargs or {}), parallelizable)
    if alias is not None:
        aliases[alias] = name
    pettingzoo.register("aec", f"{NAMESPACE}/{id}", entry_point=functools.partial(make, id))
    if parallelizable:
        pettingzoo.register("parallel", f"{NAMESPACE}/{id}", entry_point=functools.partial(make_parallel, id))


def spec(env_id: str) -> EnvSpec:
    """The spec of a registered environment. An id without a version means the newest one.

    Raises:
        gymnasium.error.NameNotFound: No environment of that name (the message suggests the closest one).
        gymnasium.error.VersionNotFound: No such version (the message names the versions that there are).
        gymnasium.error.DependencyNotInstalled: The library of an adapter's game is not installed.
    """
    name, version = parse_env_id(env_id)
    name = aliases.get(name, name)
    namespace, _, game = name.rpartition("/")
    if namespace:
        return importlib.import_module(ADAPTERS[namespace]).find(game, version)
    versions = sorted(s.version for s in registry.values() if s.name == name)
    _check_name_exists(name, versions)
    check_version_exists(name, version, versions)
    return registry[f"{name}-v{versions[-1] if version is None else version}"]


def make(env_id: str, *, order_enforcing: bool = True, **kwargs: Any) -> AECEnv:
    """Create a registered environment, or a game of another library.

    Args:
        env_id: Such as ``"math-2agent"``, ``"math-2agent-v0"`` or ``"openspiel/kuhn_poker"``.
        order_enforcing: Wrap it so that calls out of order are refused (PettingZoo's ``OrderEnforcingWrapper``).
        **kwargs: Arguments of the environment; ``llm-envs info <id>`` lists them.

    Raises:
        gymnasium.error.UnregisteredEnv: No such id.
        UnknownArgument: The environment takes no such keyword argument.

    >>> import llm_envs
    >>> env = llm_envs.make("math-2agent")
    >>> env.reset(seed=0)
    >>> env.agent_selection
    'solver_0'
    """
    env_spec = spec(env_id)
    creator = env_spec.load()
    merged = {**env_spec.kwargs, **kwargs}
    _check_arguments(env_spec.id, creator, merged)
    env = creator(**merged)
    env.spec = env_spec
    return OrderEnforcing(env) if order_enforcing else env


def make_parallel(env_id: str, **kwargs: Any) -> ParallelEnv:
    """Create a registered environment whose agents act in rounds, as a PettingZoo ``ParallelEnv``.

    Raises:
        NotParallelizable: The environment is turn-based.
    """
    env_spec = spec(env_id)
    if not env_spec.parallelizable:
        rounds = ", ".join(f"`{s.id}`" for s in registry.values() if s.parallelizable)
        raise NotParallelizable(
            f"`{env_spec.id}` is turn-based: its agents act one after the other. Use `llm_envs.make`. "
            f"Environments that have a parallel form: {rounds}."
        )
    return aec_to_parallel(make(env_id, **kwargs))


def pprint_registry() -> None:
    """Print every registered environment with the first line of its description."""
    import sys

    for env_spec in registry.values():
        sys.stdout.write(f"{env_spec.id:24s} {summary(env_spec)}\n")


def summary(env_spec: EnvSpec) -> str:
    """The first line of the environment's docstring."""
    return (inspect.getdoc(env_spec.load()) or "").partition("\n")[0]


def arguments(env_spec: EnvSpec) -> dict[str, inspect.Parameter]:
    """The keyword arguments that the environment takes, by name."""
    return {
        name: parameter
        for name, parameter in inspect.signature(env_spec.load()).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def aec_module(env_id: str) -> types.ModuleType:
    """PettingZoo's module form of an environment: a module with ``env``, ``raw_env`` and, for rounds, ``parallel_env``.

    >>> from llm_envs.math import math_2agent_v0
    >>> math_2agent_v0.env().metadata["name"]
    'math_2agent_v0'
    """
    env_spec = spec(env_id)
    module = types.ModuleType(env_spec.id.replace("-", "_"), summary(env_spec))
    module.env = functools.partial(make, env_id)  # type: ignore[attr-defined]
    module.raw_env = functools.partial(make, env_id, order_enforcing=False)  # type: ignore[attr-defined]
    if env_spec.parallelizable:
        module.parallel_env = functools.partial(make_parallel, env_id)  # type: ignore[attr-defined]
    return module


def _check_name_exists(name: str, versions: list[int]) -> None:
    if versions:
        return
    suggestion = difflib.get_close_matches(name, {s.name for s in registry.values()}, n=1)
    hint = f" Did you mean: `{suggestion[0]}`?" if suggestion else " `llm-envs list` shows all environments."
    if name in ADAPTERS:
        hint = f" Name one of its games: `{name}/<game>`; `llm-envs list {name}` shows them."
    raise error.NameNotFound(f"Environment `{name}` doesn't exist.{hint}")


def check_version_exists(name: str, version: int | None, versions: list[int]) -> None:
    """Check that ``version`` (None for any) is one of ``versions``.

    Raises:
        gymnasium.error.VersionNotFound: It is not.
    """
    if version is None or version in versions:
        return
    there_are = ", ".join(f"`v{v}`" for v in versions)
    raise error.VersionNotFound(
        f"Environment version `v{version}` for environment `{name}` doesn't exist. "
        f"It provides versioned environments: [ {there_are} ]."
    )


def _check_arguments(env_id: str, creator: Callable[..., AECEnv], kwargs: Mapping[str, Any]) -> None:
    parameters = inspect.signature(creator).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in kwargs:
        if name not in parameters:
            suggestion = difflib.get_close_matches(name, parameters, n=1)
            hint = f" Did you mean: `{suggestion[0]}`?" if suggestion else ""
            raise UnknownArgument(
                f"`{env_id}` got an unexpected keyword argument `{name}`.{hint} It takes: {', '.join(parameters)}."
            )
