"""Write the table of games in docs/openspiel.md: what OpenSpiel says of each, and how a random game in text ends.

Run it after changing the adapter or the version of OpenSpiel: ``.venv/bin/python scripts/generate_openspiel_docs.py``.
The tests play every game and check that the table is up to date.
"""

from __future__ import annotations

import importlib.metadata
import random
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import llm_envs
from llm_envs.games import openspiel_catalog as catalog
from llm_envs.games.openspiel_catalog import Entry

PAGE = Path(__file__).resolve().parent.parent / "docs" / "openspiel.md"
START, END = "<!-- start of the generated tables: scripts/generate_openspiel_docs.py -->", "<!-- end of the tables -->"
MAX_MOVES = 5_000

LIGHTER = {"bridge_uncontested_bidding": {"num_redeals": 1}}
"""Parameters that make a slow game faster to play here."""

FILES = {
    "efg_game": """EFG 2 R "Tiny" { "Player 1" "Player 2" } ""
p "" 1 1 "root" { "L" "R" } 0
p "" 2 1 "reply" { "l" "r" } 0
t "" 1 "a" { 1, -1 }
t "" 2 "b" { -1, 1 }
t "" 3 "c" { 0, 0 }
""",
    "nfg_game": 'NFG 1 R "Tiny" { "Player 1" "Player 2" } { 3 2 }\n\n1 1 0 2 0 2 1 1 0 3 2 0\n',
}
"""Small games in Gambit's formats, for the games that are read from a file."""


def games(folder: Path) -> Iterator[tuple[Entry, Mapping[str, Any]]]:
    """Every game that is a text environment, with parameters to make it with; files that it needs go to ``folder``."""
    for name in catalog.names():
        entry = catalog.entry(name)
        if name in FILES:
            path = folder / f"{name}.txt"
            path.write_text(FILES[name], encoding="utf-8")
            yield entry, {"filename": str(path)}
        else:
            yield entry, {**entry.example, **LIGHTER.get(name, {})}


def play(name: str, parameters: Mapping[str, Any]) -> str:
    """How deal 0 ends when everybody plays random legal texts."""
    env = llm_envs.make(f"{catalog.NAMESPACE}/{name}", order_enforcing=False, turn_limit=MAX_MOVES, **parameters)
    env.reset(options={"task_index": 0})
    rng = random.Random(0)
    moves = 0
    while env.round_agents:
        agent = env.agent_selection
        env.step(rng.choice(env.legal_actions(agent)))
        reason = env.infos[agent].get("invalid_action")
        if reason is not None:
            return f"a legal move was refused: {reason}"
        moves += 1
    return f"{moves}" if env.terminations[env.agents[0]] else f"not over after {MAX_MOVES}"


def tables() -> str:
    """Both tables: the games that can be played, and the others."""
    rows, others = [], []
    with tempfile.TemporaryDirectory() as folder:
        for entry, parameters in games(Path(folder)):
            made = "filename=…" if entry.name in FILES else catalog.shown(entry.example)
            needs = f"`{made}`" if made else ""
            low, high = entry.players
            rows.append(
                f"| `{entry.name}` | {entry.title} | {low if low == high else f'{low}–{high}'} "
                f"| {'rounds' if entry.simultaneous else 'turns'} | {entry.information} | {entry.utility} "
                f"| {'yes' if entry.chance else 'no'} | {needs} | {play(entry.name, parameters)} |"
            )
    for name in catalog.all_names():
        entry = catalog.entry(name)
        if entry.reason is not None:
            others.append(f"| `{name}` | {entry.title} | {entry.reason} |")
    version = importlib.metadata.version("open-spiel")
    return "\n".join(
        [
            START,
            f"OpenSpiel {version} has {len(rows) + len(others)} games; {len(rows)} of them are text environments here.",
            "",
            "| game | | players | acts in | information | utility | chance | needs | moves |",
            "|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            "The other games, and why they are none:",
            "",
            "| game | | why not |",
            "|---|---|---|",
            *others,
            END,
        ]
    )


def page(text: str, generated: str) -> str:
    """``text`` with the tables between the marks replaced by ``generated``."""
    before, _, rest = text.partition(START)
    return before + generated + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
