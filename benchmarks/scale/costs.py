"""Seconds of an engine's steps, in a form whose sum over many steps is exact and closed."""

from __future__ import annotations

from dataclasses import dataclass

from trainers.capacity.shapes import ModelShape
from trainers.capacity.timing import Line, Rates, decode_features, prefill_features

__all__ = ["EngineCosts", "engine_costs"]


@dataclass(frozen=True, slots=True)
class EngineCosts:
    """What steps of an engine with B sequences of S tokens in all take.

    A decoding step takes ``fixed + max(row·B + token·S, weights + cache·S)`` seconds where computing and reading
    overlap, else the sum of the three. Reading P prompts of T tokens in all takes ``start + prompt·P + read·T +
    square·Q``, with Q the sum of the squares of their lengths.

    Attributes:
        fixed: Seconds of a step, whatever its batch.
        row: Of computing, for a sequence.
        token: Of computing, for a token in a context.
        weights: Of reading the weights.
        cache: Of reading the cache of a token.
        overlap: Whether computing and reading overlap.
        start: Of a forward pass over prompts.
        prompt: Of a prompt (its logits).
        read: Of a token of a prompt.
        square: Of a pair of tokens of a prompt.
    """

    fixed: float
    row: float
    token: float
    weights: float
    cache: float
    overlap: bool
    start: float
    prompt: float
    read: float
    square: float = 0.0

    def steps(self, count: int, rows: int, tokens: int) -> float:
        """Seconds of ``count`` decoding steps of ``rows`` sequences with ``tokens`` in all before the first.

        Every step makes each sequence longer by one.
        """
        computing, computing_more = self.row * rows + self.token * tokens, self.token * rows
        reading, reading_more = self.weights + self.cache * tokens, self.cache * rows
        if not self.overlap:
            return count * self.fixed + _series(computing + reading, computing_more + reading_more, count)
        if computing < reading:  # so that computing is the larger one at first
            computing, computing_more, reading, reading_more = reading, reading_more, computing, computing_more
        ahead = count
        if reading_more > computing_more:
            # The other is larger from step (computing − reading) / (its growth − this one's) on.
            ahead = min(count, int((computing - reading) / (reading_more - computing_more)) + 1)
        rest = _series(reading + ahead * reading_more, reading_more, count - ahead)
        return count * self.fixed + _series(computing, computing_more, ahead) + rest

    def steps_begun(self, seconds: float, most: int, rows: int, tokens: int) -> int:
        """The fewest steps, and at most ``most``, that take ``seconds`` or more."""
        low, high = 0, most
        while low < high:
            middle = (low + high) // 2
            if self.steps(middle, rows, tokens) >= seconds:
                high = middle
            else:
                low = middle + 1
        return low

    def prefill(self, prompts: int, tokens: int, squares: float = 0.0) -> float:
        """Seconds of one forward pass over prompts; ``squares`` is the sum of the squares of their lengths."""
        return self.start + self.prompt * prompts + self.read * tokens + self.square * squares


def _series(first: float, more: float, count: int) -> float:
    """The sum of ``count`` terms that begin with ``first`` and grow by ``more``."""
    return count * first + more * count * (count - 1) / 2


def engine_costs(shape: ModelShape, rates: Rates, width: int) -> EngineCosts:
    """The costs of a model on a device, from the model of :mod:`trainers.capacity.timing`.

    Args:
        shape: The model.
        rates: What the device does.
        width: Bytes of a number.
    """
    decode: Line = rates.decode
    none, row = decode_features(shape, 0, 0, width), decode_features(shape, 1, 0, width)
    token = decode_features(shape, 1, 1, width)
    prompts, prompt = prefill_features(shape, 0, 0), prefill_features(shape, 1, 0)
    one, two = prefill_features(shape, 1, 1, half=width == 2), prefill_features(shape, 1, 2)
    square = (two.flops - 2 * one.flops + prompt.flops) / 2
    reading = rates.prefill.per_flop * (one.flops - prompt.flops - square)
    return EngineCosts(
        fixed=decode.per_layer * none.layers,
        row=decode.per_flop * row.flops,
        token=decode.per_flop * (token.flops - row.flops),
        weights=decode.per_byte * none.bytes,
        cache=decode.per_byte * (token.bytes - row.bytes),
        overlap=decode.overlap,
        start=rates.prefill.per_layer * prompts.layers,
        prompt=rates.prefill.per_flop * prompt.flops,
        # Where computing and reading overlap, computing is what takes longer for prompts.
        read=reading + (0.0 if decode.overlap else rates.prefill.per_byte * one.bytes),
        square=rates.prefill.per_flop * square,
    )
