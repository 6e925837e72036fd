"""Seconds of decoding, prefill and updates: a line in layers, FLOP and bytes, the same form for every device.

``seconds = per_layer · layers + per_flop · FLOP + per_byte · bytes``. On a GPU it is a roofline: rates are published
peaks times assumed shares, and computing and reading overlap, so the larger of the two counts. On the CPU the three
numbers are fitted to measured points (``python -m benchmarks.performance.capacity_points``).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trainers.capacity.devices import Device, assumptions
from trainers.capacity.memory import layer_activation_bytes
from trainers.capacity.shapes import ModelShape
from trainers.recipe_files import ConfigError

__all__ = [
    "ADAMW_BYTES", "POINTS", "Features", "Line", "Rates", "decode_features", "fit_line", "fit_points", "point_features",
    "prefill_features", "rates_of", "update_features",
]  # fmt: skip

POINTS = Path(__file__).parent / "cpu_points.json"
"""The points that were measured on a CPU."""

ADAMW_BYTES = 28
"""Bytes that a step of AdamW moves for a parameter: weight, gradient and two moments are read, all but the gradient
written, in float32."""


@dataclass(frozen=True, slots=True)
class Features:
    """What is computed: layers run through, FLOP, bytes moved."""

    layers: float
    flops: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of a layer, a FLOP and a byte; ``overlap``: of the last two only the larger counts."""

    per_layer: float
    per_flop: float
    per_byte: float
    overlap: bool = False

    def seconds(self, what: Features) -> float:
        """How long it takes."""
        computing, moving = self.per_flop * what.flops, self.per_byte * what.bytes
        return self.per_layer * what.layers + (max(computing, moving) if self.overlap else computing + moving)


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device does with a back end.

    Attributes:
        decode: One step of decoding.
        prefill: Reading prompts.
        update: Forward and backward passes, and steps of the optimiser.
        measured: Whether they are fitted to measured points.
    """

    decode: Line
    prefill: Line
    update: Line
    measured: bool


def decode_features(shape: ModelShape, rows: float, context: float, width: int) -> Features:
    """One step that writes a token in each of ``rows`` rows of ``context`` tokens; ``width`` bytes a number."""
    return Features(shape.layers, shape.forward_flops(rows, context, rows), shape.decode_bytes(rows, context, width))


def prefill_features(
    shape: ModelShape, prompts: float, length: float, passes: float = 1.0, *, half: bool = False
) -> Features:
    """Prompts of ``length`` tokens, read in ``passes`` forward passes; ``half``: in bfloat16."""
    tokens = prompts * length
    return Features(
        shape.layers * passes, shape.forward_flops(tokens, length / 2, prompts), tokens * _written(shape, half)
    )


def _written(shape: ModelShape, half: bool) -> float:
    """Bytes that the layers write of a token: what they would keep for a backward pass."""
    return float(shape.layers * layer_activation_bytes(shape, half=half))


def update_features(
    shape: ModelShape,
    *,
    tokens: float,
    length: float,
    predicted: float,
    passes: float,
    steps: float,
    trained: float,
    recompute: bool = False,
    lora: bool = False,
    again: float = 0.0,
    half: bool = False,
) -> Features:
    """An update: per token one forward pass, its gradient by activations, and by weights where these are trained.

    Args:
        shape: The model.
        tokens: Tokens that are computed, once an epoch each.
        length: Mean length of a turn.
        predicted: Completion tokens among them.
        passes: Micro-batches.
        steps: Optimiser steps.
        trained: Parameters that are trained.
        recompute: Whether layers are computed again in the backward pass.
        lora: Whether only adapters are trained.
        again: Forward passes without gradient over all tokens (old and reference log-probs).
        half: Whether products are taken in bfloat16.
    """
    factor = 1 + 1 + (0 if lora else 1) + (1 if recompute else 0) + again
    flops = factor * shape.forward_flops(tokens, length / 2, predicted)
    moved = factor * tokens * _written(shape, half) + ADAMW_BYTES * trained * steps
    return Features(shape.layers * passes, flops, moved)


def fit_line(features: Sequence[Features], seconds: Sequence[float]) -> tuple[Line, float]:
    """Fit a line with coefficients of 0 or more, so that the sum of squared relative errors is least.

    Args:
        features: N points.
        seconds: What each of them took.

    Returns:
        The line, and its largest relative error on a point.

    Raises:
        ValueError: There is no point.
    """
    if not features:
        raise ValueError("there is no point to fit")
    rows = np.array([[f.layers, f.flops, f.bytes] for f in features], dtype=float) / np.asarray(seconds)[:, None]
    scale = np.maximum(rows.max(axis=0), 1e-300)
    ones = np.ones(len(rows))
    best, coefficients = float("inf"), np.zeros(3)
    # Of three coefficients there are eight sets that are above 0: the best of the fits without a negative one.
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(3), k) for k in (1, 2, 3)):
        solved = np.linalg.lstsq(rows[:, chosen] / scale[list(chosen)], ones, rcond=None)[0]
        error = float(np.square(rows[:, chosen] / scale[list(chosen)] @ solved - 1).sum())
        if (solved >= 0).all() and error < best - 1e-12:
            best, coefficients = error, np.zeros(3)
            coefficients[list(chosen)] = solved / scale[list(chosen)]
    worst = float(np.abs(rows @ coefficients - 1).max())
    per_layer, per_flop, per_byte = coefficients.tolist()
    return Line(per_layer, per_flop, per_byte), worst


def point_features(point: Mapping[str, Any]) -> Features:
    """What was computed in a measured point."""
    shape = ModelShape(**point["shape"])
    kind = point["kind"].rpartition(".")[2]
    if kind == "decode":
        return decode_features(shape, point["rows"], point["context"], 4)
    if kind == "prefill":
        return prefill_features(shape, point["rows"], point["length"], point["passes"])
    return update_features(
        shape,
        tokens=point["tokens"],
        length=point["length"],
        predicted=point["predicted"],
        passes=point["passes"],
        steps=1,
        trained=shape.parameters,
    )


@cache
def fit_points(path: Path = POINTS) -> dict[str, tuple[Line, float]]:
    """Fit the measured points: a line and its largest relative error for ``update`` and each back end's two kinds."""
    points = json.loads(path.read_text(encoding="utf-8"))["points"]
    kinds = sorted({point["kind"] for point in points})
    return {
        kind: fit_line(
            [point_features(point) for point in points if point["kind"] == kind],
            [point["seconds"] for point in points if point["kind"] == kind],
        )
        for kind in kinds
    }


def rates_of(device: Device, backend: str, points: Path = POINTS) -> Rates:
    """The rates of a device with a back end.

    Raises:
        ConfigError: On a CPU, nothing was measured with this back end.
    """
    if not device.gpu:
        fits = fit_points(points)
        if f"{backend}.decode" not in fits:
            raise ConfigError(
                f"no point was measured with the back end {backend!r} on a CPU: measure some with "
                "`python -m benchmarks.performance.capacity_points`"
            )
        return Rates(fits[f"{backend}.decode"][0], fits[f"{backend}.prefill"][0], fits["update"][0], measured=True)
    share = assumptions()
    memory = 1 / (device.bandwidth * share["decode_bandwidth"])
    launch = share["layer_launch_s"]
    return Rates(
        decode=Line(launch, 1 / (device.flops * share["decode_flops"]), memory, overlap=True),
        prefill=Line(launch, 1 / (device.flops * share["prefill_flops"]), memory, overlap=True),
        update=Line(share["update_launch_s"], 1 / (device.flops * share["update_flops"]), memory),
        measured=False,
    )
