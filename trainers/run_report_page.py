"""The page of a report: alarms first, then a table of the runs, the charts, configuration and versions.

Whatever comes from a run is escaped, and the page's own policy forbids it to load or run anything.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from statistics import median
from typing import Any

from trainers.folder_lock import Writer
from trainers.run_report_alarms import CHECKED, Alarm
from trainers.run_report_charts import Chart, Line, draw, number, swatch
from trainers.run_report_data import Points, RunData, flat
from trainers.run_report_panels import SECTIONS, Panel, match

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
"""


def render(runs: Sequence[RunData], alarms: Sequence[Sequence[Alarm]]) -> str:
    """Return the whole page.

    Args:
        runs: The runs, at least one.
        alarms: The alarms of each.
    """
    style = resources.files("trainers").joinpath("run_report.css").read_text(encoding="utf-8")
    title = "Training run " + runs[0].name if len(runs) == 1 else f"{len(runs)} training runs"
    sections = [(name, charts) for name, charts in _sections(runs, alarms) if charts]
    names = ["Alarms", "Summary", *(name for name, _ in sections), "Configuration", "Versions"]
    parts = [
        _HEAD.format(title=escape(title), style=style),
        f"<header><h1>{escape(title)}</h1>",
        *(f'<p class="soft">{escape(_state(run, len(runs) > 1))}</p>' for run in runs),
        '<nav aria-label="Sections"><ul>',
        *(f'<li><a href="#{name.lower()}">{name}</a></li>' for name in names),
        "</ul></nav></header>\n<main>\n",
        _alarms(runs, alarms),
        _section("Summary", _summary(runs, alarms)),
        *(_section(name, f'<div class="charts">{"".join(charts)}</div>') for name, charts in sections),
        _section("Configuration", _configuration(runs)),
        _section("Versions", _versions(runs)),
        "</main>\n</body>\n</html>\n",
    ]
    return "".join(parts)


def _section(name: str, body: str) -> str:
    return f'<section aria-labelledby="{name.lower()}"><h2 id="{name.lower()}">{name}</h2>\n{body}</section>\n'


def _state(run: RunData, named: bool) -> str:
    """Say how far a run is, and what a reader must know of its numbers."""
    planned = run.planned
    done = f"{run.updates} of {planned} updates" if planned is not None else f"{run.updates} updates"
    if run.stopped is not None:
        state = f"{done}; the run stopped itself (see the alarms)."
    elif run.finished and (planned is None or run.updates >= planned or run.setting("token_budget") is not None):
        state = f"{done}; finished."
    else:
        state = f"{done}; not finished: {_standing(run.writer)}."
    notes = [f"{run.name}: {state}" if named else state[0].upper() + state[1:]]
    if len(run.rows) == 1:
        notes.append("There is one line of metrics so far, so the charts show points and no trend.")
    if run.torn:
        notes.append("The last line of metrics is cut off (written just now, or when the run was killed): left out.")
    if run.tree:
        notes.append(
            "It sampled trees: success and returns in training are those of a path chosen by reward among several "
            "candidates a turn. They do not say how the policies play; held-out success does."
        )
    if run.zero_sum:
        notes.append("Its environment is a zero-sum game: success is the share of games that somebody won by play.")
    return " ".join(notes)


def _standing(writer: Writer | None) -> str:
    """Say why a run is not finished."""
    if writer is None:
        return "it is still going, or was ended from outside"
    process = f"process {writer.pid}" if writer.pid else "another process"
    return {
        "running": f"{process} is at work on it",
        "killed": f"{process} was killed, or its machine went down",
        "closed": "it was interrupted",
    }[writer.state]


def _alarms(runs: Sequence[RunData], alarms: Sequence[Sequence[Alarm]]) -> str:
    parts = []
    for run, found in zip(runs, alarms, strict=True):
        if len(runs) > 1:
            parts.append(f"<h3>{escape(run.name)}</h3>")
        if not found:
            parts.append(f'<p class="note fine">No alarm. Looked for: {escape(", ".join(CHECKED))}.</p>')
            continue
        items = (
            f"<li><strong>Update {alarm.update}: {escape(alarm.title)}.</strong><p>{escape(alarm.detail)}</p></li>"
            for alarm in found
        )
        parts.append(f'<ul class="alarms">{"".join(items)}</ul>')
    return _section("Alarms", "".join(parts))


def _summary(runs: Sequence[RunData], alarms: Sequence[Sequence[Alarm]]) -> str:
    rows: list[tuple[str, list[str]]] = [
        ("environment", [_text(run.setting("env.id")) for run in runs]),
        ("tasks", [_text(run.setting("env.tasks") or "default") for run in runs]),
        ("algorithm", [_text(run.setting("algorithm.preset")) for run in runs]),
        ("policies", [_policies(run) for run in runs]),
        ("seed", [_text(run.setting("seed")) for run in runs]),
        ("updates", [f"{run.updates}" + (f" of {run.planned}" if run.planned else "") for run in runs]),
        ("success in training, first → last", [_ends(run.series("train/success")) for run in runs]),
        ("held-out success, first → last", [_ends(run.series("eval/success")) for run in runs]),
        ("held-out success, best", [_best(run.series("eval/success")) for run in runs]),
        ("won against the opponent, first → last", [_ends(run.series("eval/win")) for run in runs]),
        ("success of tree paths, first → last", [_ends(run.series("train/path_success")) for run in runs]),
        ("team outcome, first → last", [_ends(run.series("train/team_return")) for run in runs]),
        ("seconds an update, median", [_middle(run.series("time/total_s")) for run in runs]),
        ("tokens a second, median", [_middle(run.series("time/rollout_tokens_per_s")) for run in runs]),
        ("alarms", [str(len(found)) for found in alarms]),
    ]
    return _table("Runs", [run.name for run in runs], [row for row in rows if any(cell != "–" for cell in row[1])])


def _sections(runs: Sequence[RunData], alarms: Sequence[Sequence[Alarm]]) -> Iterator[tuple[str, list[str]]]:
    ids = (f"chart{count}" for count in itertools.count(1))
    shown: set[str] = set()
    for name, panels in SECTIONS:
        charts = []
        for panel in panels:
            for agent in _agents(runs) if panel.per_agent else [None]:
                lines, metrics = _lines(runs, panel, agent)
                shown.update(metrics)
                if lines:
                    charts.append(_figure(panel, agent, lines, metrics, next(ids), runs, alarms))
        yield name, charts
    rest = sorted({name for run in runs for name in run.names} - shown)
    groups: dict[str, dict[str, str]] = {}
    for metric in rest:  # those of all agents, or of all policies, on one chart
        parts = metric.split("/")
        several = parts[0] in ("agent", "policy") and len(parts) > 2
        title = "/".join(["…", *parts[2:]]) if several else metric
        groups.setdefault(f"{parts[0]} {title}" if several else title, {})[metric] = parts[1] if several else ""
    others = []
    for title, members in groups.items():
        panel = Panel(title.replace(" …/", ": ").replace("_", " "), "", members)
        lines, metrics = _lines(runs, panel, None)
        if lines:
            others.append(_figure(panel, None, lines, metrics, next(ids), runs, alarms))
    yield "Other", others


def _agents(runs: Sequence[RunData]) -> list[str]:
    return sorted({agent for run in runs for agent in run.agents})


def _lines(runs: Sequence[RunData], panel: Panel, agent: str | None) -> tuple[list[Line], set[str]]:
    """The lines of a panel, and the metrics on it. Of one run each line has its colour, of several each run."""
    found: dict[str, str] = {}
    names = sorted({name for run in runs for name in run.names})
    for pattern, label in panel.metrics.items():
        for name in names:
            stars = match(pattern, name)
            if stars is None or (agent is not None and stars[0] != agent):
                continue
            words = [*(stars[1:] if agent is not None else stars), label]
            found.setdefault(name, " ".join(word for word in words if word))
    lines = []
    for index, run in enumerate(runs):
        for place, (name, label) in enumerate(found.items()):
            points, missing = run.series(name), run.not_finite(name)
            if points or missing:
                whole = " · ".join(part for part in (run.name if len(runs) > 1 else "", label) if part)
                color = index if len(runs) > 1 else place
                lines.append(Line(whole or panel.title, points, color, place, missing))
    return lines, set(found)


def _figure(
    panel: Panel,
    agent: str | None,
    lines: Sequence[Line],
    metrics: set[str],
    chart_id: str,
    runs: Sequence[RunData],
    alarms: Sequence[Sequence[Alarm]],
) -> str:
    title = panel.title.replace("{agent}", agent or "")
    marks = [
        (alarm.update, f"{run.name}: {alarm.title}" if len(runs) > 1 else alarm.title)
        for run, found in zip(runs, alarms, strict=True)
        for alarm in found
        if metrics & set(alarm.metrics)
    ]
    chart = Chart(chart_id, title, lines, panel.unit, panel.log, panel.reference, marks)
    legend = "".join(f"<li>{swatch(line)}{escape(line.label)}</li>" for line in lines)
    rows = [
        (line.label, [_first(line.points), _last(line.points), *_extremes(line.points), str(len(line.points))])
        for line in lines
    ]
    numbers = _table(f"{title}: numbers", ["first", "last", "lowest", "highest", "updates"], rows)
    about = f"<p>{escape(panel.about)}</p>" if panel.about else ""
    return (
        f"<figure><figcaption><h3>{escape(title)}</h3>{about}</figcaption>{draw(chart)}"
        f'<ul class="legend">{legend}</ul><details><summary>Numbers</summary>{numbers}</details></figure>\n'
    )


def _configuration(runs: Sequence[RunData]) -> str:
    settings = [{key: _text(value) for key, value in flat(run.config or {}).items()} for run in runs]
    keys = list(dict.fromkeys(key for one in settings for key in one))
    if not keys:
        return '<p class="note">No configuration was found (config.json).</p>'
    rows = [(key, [one.get(key, "–") for one in settings]) for key in keys]
    names = [run.name for run in runs]
    if len(runs) == 1:
        return _table("Settings", names, rows)
    differing = [row for row in rows if len(set(row[1])) > 1]
    first = _table("Settings that differ", names, differing) if differing else "<p>The settings are all equal.</p>"
    return f"{first}<details><summary>All settings</summary>{_table('All settings', names, rows)}</details>"


def _versions(runs: Sequence[RunData]) -> str:
    parts = []
    for run in runs:
        if not run.versions:
            parts.append(f'<p class="note">{escape(run.name)}: no versions were noted (versions.json).</p>')
            continue
        columns = [
            "from the start" if not entry.get("after_update") else f"after update {entry['after_update']}"
            for entry in run.versions
        ]
        found = [entry.get("versions") or {} for entry in run.versions]
        names = list(dict.fromkeys(name for one in found for name in one))
        rows = [(name, [_text(one.get(name)) for one in found]) for name in names]
        parts.append(_table(f"Versions of {run.name}", columns, rows))
    return "".join(parts)


def _table(caption: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for name, cells in rows
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table><caption>'
        f"{escape(caption)}</caption><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _policies(run: RunData) -> str:
    policies = run.setting("policies")
    if not isinstance(policies, dict):
        return "–"
    shown = []
    for name, policy in policies.items():
        settings = policy if isinstance(policy, dict) else {}
        what = [str(settings.get("model", "?")), str(settings.get("backend", "?"))]
        what += ["LoRA"] if settings.get("lora") else []
        what += [] if settings.get("trainable", True) else ["frozen"]
        shown.append(f"{name} ({', '.join(what)})")
    return "; ".join(shown)


def _ends(points: Points) -> str:
    return f"{_first(points)} → {_last(points)}" if points else "–"


def _first(points: Points) -> str:
    return number(points[0][1]) if points else "–"


def _last(points: Points) -> str:
    return number(points[-1][1]) if points else "–"


def _extremes(points: Points) -> tuple[str, str]:
    values = [value for _, value in points]
    return (number(min(values)), number(max(values))) if values else ("–", "–")


def _best(points: Points) -> str:
    if not points:
        return "–"
    update, value = max(points, key=lambda point: point[1])
    return f"{number(value)} (update {update})"


def _middle(points: Points) -> str:
    return number(median(value for _, value in points)) if points else "–"
