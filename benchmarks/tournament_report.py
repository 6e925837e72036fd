"""The tables of a tournament: ratings, pairings, and what sitting first is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.figures import escape, estimate, money, number, percent
from benchmarks.run_state import missing_note

__all__ = ["print_tournament"]

NAME_WIDTH = 20


def print_tournament(summary: dict[str, Any], console: Console) -> None:
    """Print what :func:`benchmarks.tournament_summary.summarize_tournament` returns."""
    tasks = summary["tasks"]
    played = f"{summary['episodes']} of {summary['planned']} games"
    console.print(
        escape(f"{summary['run']}: {summary['env']}, {played}, {summary['deals']} deals of {tasks['name']}"),
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    players = summary["players"]
    stakes = any(_has_stakes(player) for player in players.values())
    header = ["player", "Elo", "95 %", "score", "return", "w/d/l", "forfeits", "invalid"]
    rows = [
        [
            escape(name), *_elo(player["elo"]), estimate(player["score"], interval=False), number(player["return"], 3),
            _record(player), str(player["forfeits"]), percent(player["invalid_rate"]),
        ]
        for name, player in players.items()
    ]  # fmt: skip
    if not stakes:  # what the game paid is no news
        header, *rows = ([*row[:4], *row[5:]] for row in (header, *rows))
    _print(console, f"Ratings ({summary['anchor']}; games won/drawn/lost; own forfeits)", header, rows)
    _print(
        console, "Pairings (the first one's score and 95 % interval, w/d/l when first and second)",
        ["pairing", "score", "first", "second", "forfeits"],
        [
            [
                escape(" – ".join(pairing["players"])), estimate(pairing["score"]), _record(pairing["as_first"]),
                _record(pairing["as_second"]), " – ".join(map(str, pairing["forfeits"].values())),
            ]
            for pairing in summary["pairings"]
        ],
    )  # fmt: skip
    priced = any(player["cost"] is not None for player in players.values())
    if priced or any(player["tokens_out"] for player in players.values()):
        _print(
            console, "Texts (turns, tokens and cost per game)" if priced else "Texts (turns and tokens per game)",
            ["player", "turns", "tokens out", "cut off", *(["cost"] if priced else [])],
            [
                [
                    escape(name), number(player["turns"]), number(player["tokens_out"], 0), percent(player["cut_rate"]),
                    *([money(player["cost"]["game"], player["cost"]["currency"])] if priced else []),
                ]
                for name, player in players.items()
            ],
        )  # fmt: skip
    for note in _notes(summary):
        console.print(escape(note), highlight=False, soft_wrap=True)


def _has_stakes(player: dict[str, Any]) -> bool:
    """Whether the game paid a player other than 1 for a win and -1 for a loss."""
    games = player["games"]
    return games > 0 and abs(player["return"] - (player["wins"] - player["losses"]) / games) > 1e-9


def _print(console: Console, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(header[0], overflow="fold", max_width=max(NAME_WIDTH, console.width - 58))
    for name in header[1:]:
        table.add_column(name, overflow="fold", justify="right")
    for row in rows:
        table.add_row(*row)
    console.print(title, highlight=False, soft_wrap=True)
    console.print(table)


def _notes(summary: dict[str, Any]) -> list[str]:
    seat = summary["first_seat"]
    notes = []
    if seat["score"] is not None:
        worth = "" if seat["elo"] is None else f", worth {seat['elo']['value']:+.0f} Elo"
        notes.append(
            f"First seat: {estimate(seat['score'])} of the points{worth} ({_record(seat)} won/drawn/lost). "
            "Every pairing plays every deal in both seats, so it favours nobody."
        )
    if summary["virtual_draws"]:
        notes.append(
            "Some players took no point from the others, which no finite rating explains: for the ratings "
            f"{summary['virtual_draws']:g} virtual draws were added to every pairing."
        )
    missing = missing_note(summary, "games")
    if missing is not None:
        notes.append(missing)
    return notes


def _record(counts: dict[str, int]) -> str:
    return f"{counts['wins']}/{counts['draws']}/{counts['losses']}"


def _elo(value: dict[str, Any] | None) -> tuple[str, str]:
    if value is None:
        return "–", "–"
    low, high = value["interval"]
    return f"{value['value']:+.0f}", f"[{low:+.0f}, {high:+.0f}]"
