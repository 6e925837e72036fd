"""Line charts as inline SVG: no script, colours from the page's style sheet, a title and a description for each.

A line is told by its dashes as well as by its colour. Long lines are thinned so that every peak stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from trainers.run_report_data import Points

COLORS = 8
"""Colours of the style sheet (``.c0`` to ``.c7``)."""
DASHES = ("", "6 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
MOST_POINTS = 400
"""Points of a line that are drawn."""
MOST_DOTS = 60
"""Lines up to this length show every point."""
LOG_FROM = 100.0
"""Ratio of the largest to the smallest value from which a chart that may be logarithmic is."""

_WIDTH, _HEIGHT = 300, 196
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 10, 10, 38


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart.

    Attributes:
        label: What it is, for the legend.
        points: (update, value), by update.
        color: Index of its colour.
        dash: Index of its dashes.
        not_finite: Updates whose value is not a number; marked at the lower edge.
    """

    label: str
    points: Points
    color: int = 0
    dash: int = 0
    not_finite: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Attributes:
        id: Prefix of its element ids, unique in the page.
        title: What it shows.
        lines: Its lines.
        unit: Limits that the values have by nature, if any (0 and 1 for a share).
        log: Whether a logarithmic scale is taken where values differ widely.
        reference: A value that a thin line marks, such as 1 for a ratio.
        alarms: Updates that are marked, with what happened.
    """

    id: str
    title: str
    lines: Sequence[Line]
    unit: tuple[float, float] | None = None
    log: bool = False
    reference: float | None = None
    alarms: Sequence[tuple[int, str]] = field(default_factory=tuple)


def number(value: float) -> str:
    """A number for people: three significant digits, thousands whole.

    >>> number(12345.6), number(0.1234), number(0.00001234)
    ('12,346', '0.123', '1.23e-05')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def draw(chart: Chart) -> str:
    """Return the chart as an ``<svg>`` element."""
    scale = _Scale(chart)
    parts = [
        f'<svg class="chart" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-labelledby="{chart.id}-t {chart.id}-d">',
        f'<title id="{chart.id}-t">{escape(chart.title)}</title>',
        f'<desc id="{chart.id}-d">{escape(describe(chart, scale.log))}</desc>',
        *_axes(scale),
    ]
    if chart.reference is not None and scale.low <= chart.reference <= scale.high:
        y = scale.y(chart.reference)
        parts.append(f'<line class="ref" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for update, what in chart.alarms:
        x = scale.x(update)
        parts.append(
            f'<line class="alarm" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}">'
            f"<title>{escape(f'update {update}: {what}')}</title></line>"
        )
    for line in chart.lines:
        parts += _line(line, scale)
    return "".join([*parts, "</svg>"])


def swatch(line: Line) -> str:
    """Return the legend's piece of a line; the label beside it says what it is."""
    return (
        '<svg class="swatch" viewBox="0 0 26 8" aria-hidden="true">'
        f'<line class="c{line.color % COLORS}" x1="1" x2="25" y1="4" y2="4"{_dash(line)}/></svg>'
    )


def describe(chart: Chart, log: bool = False) -> str:
    """Say in words what the chart shows."""
    texts = []
    for line in chart.lines:
        if not line.points:
            texts.append(f"{line.label}: no number.")
            continue
        (first, start), (last, end) = line.points[0], line.points[-1]
        values = [value for _, value in line.points]
        if first == last:
            texts.append(f"{line.label}: {number(start)} at update {first}.")
        else:
            texts.append(
                f"{line.label}: {number(start)} at update {first}, {number(end)} at update {last}, lowest "
                f"{number(min(values))}, highest {number(max(values))}."
            )
    texts += [f"Update {update}: {what}." for update, what in chart.alarms]
    return " ".join([*(["Logarithmic scale."] if log else []), *texts])


def thin(points: Points, most: int = MOST_POINTS) -> Points:
    """Return at most ``most`` points: of each of most/2 stretches the lowest and the highest, and both ends."""
    if len(points) <= most:
        return list(points)
    size = math.ceil(len(points) / ((most - 2) // 2))
    kept = {0, len(points) - 1}
    for start in range(0, len(points), size):
        stretch = range(start, min(start + size, len(points)))
        kept |= {min(stretch, key=lambda i: points[i][1]), max(stretch, key=lambda i: points[i][1])}
    return [points[i] for i in sorted(kept)]


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers that span ``low`` to ``high``: steps of 1, 2 or 5 times a power of ten.

    >>> ticks(0.0, 1.0), ticks(3.0, 17.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 5.0, 10.0, 15.0, 20.0])
    """
    span = high - low
    base = 10.0 ** math.floor(math.log10(span / most))
    step = next(base * factor for factor in (1, 2, 5, 10) if span / (base * factor) <= most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


class _Scale:
    """From updates and values to the places on the chart."""

    def __init__(self, chart: Chart) -> None:
        values = [value for line in chart.lines for _, value in line.points]
        updates = [update for line in chart.lines for update, _ in line.points]
        updates += [update for line in chart.lines for update in line.not_finite]
        self.first, self.last = (min(updates), max(updates)) if updates else (0, 1)
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        self.log = chart.log and low > 0 and high / low >= LOG_FROM
        if self.log:
            decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            self.ticks = [10.0**k for k in decades][:: max(1, math.ceil(len(decades) / 6))]
            if self.ticks[-1] < high:
                self.ticks.append(10.0 ** decades[-1])
        else:
            if chart.unit is not None:
                low, high = min(low, chart.unit[0]), max(high, chart.unit[1])
            elif low >= 0 and low < 0.5 * high:
                low = 0.0
            if high - low <= 1e-12 * max(abs(low), abs(high)) or high == low:
                pad = abs(high) / 2 or 1.0
                low, high = low - pad, high + pad
            self.ticks = ticks(low, high)
        self.low, self.high = self.ticks[0], self.ticks[-1]

    def x(self, update: int) -> float:
        width = _WIDTH - _LEFT - _RIGHT
        if self.first == self.last:
            return _LEFT + width / 2
        place = (update - self.first) / (self.last - self.first)
        return _LEFT + width * min(1.0, max(0.0, place))

    def y(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - at) / (high - low)


def _axes(scale: _Scale) -> list[str]:
    parts = []
    bottom = _HEIGHT - _BOTTOM
    for tick in scale.ticks:
        y = scale.y(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{_short(tick)}</text>')
    for update in _update_ticks(scale.first, scale.last):
        x = scale.x(update)
        anchor = "end" if x > _WIDTH - _RIGHT - 12 else "middle"
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="{anchor}">{update:,}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text class="tick" x="{middle}" y="{_HEIGHT - 4}" text-anchor="middle">update</text>')
    return parts


def _update_ticks(first: int, last: int) -> list[int]:
    if first == last:
        return [first]
    return [int(tick) for tick in ticks(first, last) if tick == int(tick) and first <= tick <= last]


def _line(line: Line, scale: _Scale) -> list[str]:
    style = f'class="c{line.color % COLORS}"'
    points = thin(line.points)
    parts = []
    if len(points) > 1:
        path = " ".join(f"{scale.x(update):.1f},{scale.y(value):.1f}" for update, value in points)
        parts.append(f'<polyline {style} points="{path}"{_dash(line)}/>')
    if len(points) <= MOST_DOTS:
        radius = 2.2 if len(points) > 1 else 3.5
        parts += [
            f'<circle {style} cx="{scale.x(update):.1f}" cy="{scale.y(value):.1f}" r="{radius}">'
            f"<title>{escape(line.label)}, update {update}: {number(value)}</title></circle>"
            for update, value in points
        ]
    parts += [
        f'<text {style} x="{scale.x(update):.1f}" y="{_HEIGHT - _BOTTOM - 3}" text-anchor="middle">×'
        f"<title>{escape(line.label)}, update {update}: not a number</title></text>"
        for update in line.not_finite
    ]
    return parts


def _dash(line: Line) -> str:
    dashes = DASHES[line.dash % len(DASHES)]
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (abs(value) >= size and letter != "k"):
            return f"{value / size:g}{letter}"
    return f"{value:g}".replace("e-0", "e-")
