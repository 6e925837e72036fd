"""The sub-command ``llm-bench view``."""

from __future__ import annotations

import argparse
import errno
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.protocols.group import expand
from benchmarks.results import ResultsError
from benchmarks.viewer.page import write_page
from benchmarks.viewer.server import ADDRESS, DEFAULT_PORT, ViewServer
from benchmarks.viewer.source import Source

__all__ = ["add_view", "view_runs"]

_DESCRIPTION = f"""\
Look at runs in a browser: plots, a list of episodes to filter and search, every episode as a conversation, trees, two
runs side by side, and the curves of a training run.

A RUN is a results folder of `llm-bench`, the folder of a training run, or a JSONL file of episodes. Without --html the
runs are served on {ADDRESS}, to this machine only, until Ctrl-C. Nothing is changed; a run may still be going on."""

_EXAMPLES = """\
examples:
  llm-bench view runs/my-run
  llm-bench view runs/before runs/after --port 0
  llm-bench view runs/my-run --html my-run.html

The page of --html holds all that was played and said, and config.json with its command line: see what is in it before
you send it to anybody."""


def add_view(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command to the parser of ``llm-bench``."""
    parser = commands.add_parser(
        "view", help="look at runs in a browser", description=_DESCRIPTION, epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="a results folder, a training run, or a JSONL file of episodes")
    add("--port", type=int, default=DEFAULT_PORT, help="0 takes a free one (default: %(default)s)")
    add("--html", metavar="FILE", help="write one page that works without a server, instead of serving")


def view_runs(runs: Sequence[str], console: Console, *, port: int = DEFAULT_PORT, html: str | None = None) -> None:
    """Serve runs until a KeyboardInterrupt, or write a page.

    Raises:
        ResultsError: If a run cannot be read, the page cannot be written, or the port is taken.
    """
    sources = [Source(path) for path in expand(runs)]
    if html is not None:
        write_page(sources, Path(html))
        size = Path(html).stat().st_size / 2**20
        console.print(f"page: {html} ({size:.1f} MiB)", markup=False, highlight=False, soft_wrap=True)
        return
    if not 0 <= port <= 65535:
        raise ResultsError(f"--port must be between 0 and 65535, got {port}")
    for source in sources:
        source.index()  # what cannot be read is said here, not in the browser
    try:
        server = ViewServer(sources, port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise ResultsError(
            f"Port {port} cannot be used ({error.strerror}); give another --port, or --port 0"
        ) from error
    with server:
        console.print(f"viewer: {server.url} (Ctrl-C ends it)", markup=False, highlight=False, soft_wrap=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
