"""Weighted statistics of groups of scores."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["GroupStatistics", "Labels"]

FloatArray = NDArray[np.float64]
Labels = Sequence[Hashable]

_EQUAL_ULPS = 8


class GroupStatistics:
    """Weighted statistics of every group.

    Args:
        labels: N hashable group labels.
        scores: N finite scores, float64.
        weight: N frequency weights.
        ddof: Variance = Σ w (r−m)² / (Σ w − ddof).
        what: Name of the labels in messages.

    Attributes:
        of: Index of the group of each item, shape [N].
        total: Σ w of each group, shape [G] as all that follow.
        mean: Weighted mean.
        std: Weighted standard deviation.
        degenerate: Whether the group rests on one item or all its scores are equal up to rounding.
    """

    def __init__(
        self, labels: Labels, scores: FloatArray, weight: FloatArray, ddof: int = 1, what: str = "labels"
    ) -> None:
        if len(labels) != len(scores):
            raise ValueError(f"{what} has {len(labels)} labels for {len(scores)} scores")
        index: dict[Hashable, int] = {}
        for label in labels:
            if label != label:  # NaN is unequal to itself: every one would be its own group
                raise ValueError(f"{what} has a label that is not a number; labels must be comparable")
            index.setdefault(label, len(index))
        size = len(index)
        self.of = np.fromiter((index[label] for label in labels), dtype=np.intp, count=len(scores))
        self.total = np.bincount(self.of, weights=weight, minlength=size)
        safe = np.where(self.total > 0, self.total, 1.0)
        self.mean = np.bincount(self.of, weights=weight * scores, minlength=size) / safe
        squares = np.bincount(self.of, weights=weight * (scores - self.mean[self.of]) ** 2, minlength=size)
        enough = self.total > max(1, ddof)
        self.std = np.sqrt(squares / np.where(enough, self.total - ddof, 1.0))
        low, high = np.full(size, np.inf), np.full(size, -np.inf)
        counted = weight > 0
        np.minimum.at(low, self.of[counted], scores[counted])
        np.maximum.at(high, self.of[counted], scores[counted])
        known = high >= low
        rounding = _EQUAL_ULPS * np.finfo(np.float64).eps * np.maximum(np.abs(low), np.abs(high))
        varies = np.zeros(size, dtype=bool)
        varies[known] = (high - low)[known] > rounding[known]
        self.degenerate = ~(enough & varies)
