"""Micro-batches in which a prefix that several sequences share is laid out, and computed, once.

The turns of a group share their prompt, the turns of an episode a growing history. Sequences sorted as words in a
dictionary have their common prefixes next to each other, so a run of them is a *tree*: every sequence adds the tokens
after what it shares with the one before. Written down in that order (depth first), the descendants of a token are the
tokens right behind it up to its *end*, hence token i may see token j if j ≤ i < end(j): its ancestors and itself, which
are the tokens before it in its own sequence. With its depth as its position, every token has the hidden state that it
would have in a sequence of its own.

A row of a micro-batch holds one tree or several. What is best cut into trees, and which trees are best computed
together, is a matter of cost: attention in a row of n tokens takes n², so long trees that share little are cut and
their common prefix is computed twice; rows are padded to the longest of their micro-batch, so trees of like size belong
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Ints",
    "Layout",
    "Row",
    "Tree",
    "common_prefix",
    "fill_rows",
    "lay_out",
    "plan_trees",
    "sort_rows",
    "split_trees",
]

_MASK_ENTRIES = 2**28
_STRETCHES = (1, 2, 4)

Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tree:
    """Sequences that are computed together.

    Attributes:
        members: Indices of the sequences, sorted as words in a dictionary.
        shared: Tokens that each shares with the one before; the first shares none.
    """

    members: tuple[int, ...]
    shared: tuple[int, ...]


Row: TypeAlias = list[Tree]
"""Trees of one row."""


def common_prefix(one: Ints, other: Ints) -> int:
    """Return how many tokens two sequences share from their beginning."""
    n = min(len(one), len(other))
    if n == 0:
        return 0
    differ = one[:n] != other[:n]
    first = int(differ.argmax())
    return first if differ[first] else n


def plan_trees(
    sequences: Sequence[Ints], max_tokens: int, attention_cost: float, overhead: float = 0.0
) -> list[list[Row]]:
    """Split sequences into micro-batches of rows of trees.

    Args:
        sequences: N sequences of at least one token.
        max_tokens: Bound on the tokens of a micro-batch, padding included (rows × longest row). A sequence above it is
            alone in its micro-batch. Attention masks have ``max_tokens`` × longest row entries, so trees are cut
            earlier where that would be more than 2²⁸.
        attention_cost: What attention to one more token costs, over all the rest that is computed of a token.
        overhead: What one more micro-batch costs, in tokens.

    Returns:
        For each micro-batch its rows, for each row its trees. Every sequence is in exactly one tree.
    """
    # Big-endian words compare as bytes do, and bytes compare fast.
    words = [sequence.astype(">u8").tobytes() for sequence in sequences]
    order = sorted(range(len(sequences)), key=lambda i: (words[i], i))
    lengths = np.array([len(sequences[i]) for i in order], dtype=np.int64)
    shared = np.zeros(len(order), dtype=np.int64)
    for k in range(1, len(order)):
        shared[k] = common_prefix(sequences[order[k - 1]], sequences[order[k]])
    spans = split_trees(lengths, shared, min(max_tokens, _MASK_ENTRIES // max_tokens), attention_cost)
    sizes = [int(lengths[start:stop].sum() - shared[start + 1 : stop].sum()) for start, stop in spans]
    chains = [size == int(lengths[start:stop].max()) for size, (start, stop) in zip(sizes, spans, strict=True)]
    plans = [sort_rows(sizes, max_tokens, attention_cost * (0.5 if all(chains) else 1.0), overhead)]
    plans += [fill_rows(sizes, max_tokens, stretch) for stretch in _STRETCHES]
    best = min(plans, key=lambda plan: _cost(plan, sizes, chains, attention_cost, overhead))
    trees = [Tree(tuple(order[start:stop]), (0, *shared[start + 1 : stop].tolist())) for start, stop in spans]
    return [[[trees[t] for t in row] for row in rows] for rows in best]


def split_trees(lengths: Ints, shared: Ints, max_tokens: int, attention_cost: float) -> list[tuple[int, int]]:
    """Cut sorted sequences into trees so that Σ n·(1 + attention_cost·n) over the trees' sizes n is least.

    Args:
        lengths: Tokens of each sequence, shape [N].
        shared: Tokens that each shares with the one before, shape [N]; the first is 0.
        max_tokens: Bound on a tree of more than one sequence.
        attention_cost: As in :func:`plan_trees`.

    Returns:
        Start and stop of each tree, in order.
    """
    n = len(lengths)
    before = np.concatenate([[0], np.cumsum(lengths - shared)])
    best = np.zeros(n + 1)
    cut = np.zeros(n + 1, dtype=np.int64)
    start = 0
    for stop in range(1, n + 1):
        if shared[stop - 1] == 0:
            start = stop - 1  # nothing is gained by a tree across this place
        while start < stop - 1 and before[stop] - before[start] + shared[start] > max_tokens:
            start += 1
        size = before[stop] - before[start:stop] + shared[start:stop]
        cost = best[start:stop] + size * (1.0 + attention_cost * size)
        chosen = int(cost.argmin())
        best[stop], cut[stop] = cost[chosen], start + chosen
    spans = []
    stop = n
    while stop:
        spans.append((int(cut[stop]), stop))
        stop = int(cut[stop])
    return spans[::-1]


def sort_rows(sizes: Sequence[int], max_tokens: int, attention_cost: float, overhead: float) -> list[list[list[int]]]:
    """Distribute trees over micro-batches, a tree a row, so that Σ (R·L·(1 + attention_cost·L) + overhead) is least.

    R and L are the rows and the longest row of a micro-batch. Trees are sorted by size and cut into runs.

    Args:
        sizes: Tokens of each tree.
        max_tokens: Bound on R·L; a larger tree is alone.
        attention_cost: As in :func:`plan_trees`.
        overhead: As there.

    Returns:
        For each micro-batch its rows, for each row the indices of its trees.

    Example:
        >>> sort_rows([2, 9, 3, 8], 18, 0.0, 1.0)
        [[[1], [3]], [[2], [0]]]
    """
    order = sorted(range(len(sizes)), key=lambda t: (-sizes[t], t))
    widths = np.array([sizes[t] for t in order], dtype=np.int64)
    last = np.arange(len(order)) + np.maximum(1, max_tokens // widths)  # where a micro-batch from here must end
    best = np.zeros(len(order) + 1)
    cut = np.zeros(len(order) + 1, dtype=np.int64)
    price = widths * (1.0 + attention_cost * widths)
    start = 0
    for stop in range(1, len(order) + 1):
        while last[start] < stop:
            start += 1
        starts = np.arange(start, stop)
        cost = best[start:stop] + (stop - starts) * price[start:stop] + overhead
        chosen = int(cost.argmin())
        best[stop], cut[stop] = cost[chosen], start + chosen
    batches: list[list[list[int]]] = []
    stop = len(order)
    while stop:
        batches.append([[t] for t in order[cut[stop] : stop]])
        stop = int(cut[stop])
    return batches[::-1]


def fill_rows(sizes: Sequence[int], max_tokens: int, stretch: int) -> list[list[list[int]]]:
    """Distribute trees over the rows of micro-batches: largest first, each in the first row that has room for it.

    Args:
        sizes: Tokens of each tree.
        max_tokens: Bound on rows × longest row of a micro-batch; a larger tree is alone.
        stretch: Room in a row, in sizes of the largest tree of the micro-batch.

    Returns:
        For each micro-batch its rows, for each row the indices of its trees.

    Example:
        >>> fill_rows([2, 9, 3, 6], 18, 1)
        [[[1], [3, 2]], [[0]]]
    """
    left = sorted(range(len(sizes)), key=lambda t: (-sizes[t], t))
    batches = []
    while left:
        width = max(sizes[left[0]], min(max_tokens, stretch * sizes[left[0]]))
        rows: list[list[int]] = []
        room: list[int] = []
        rest = []
        for tree in left:
            place = next((r for r, free in enumerate(room) if free >= sizes[tree]), None)
            if place is not None:
                rows[place].append(tree)
                room[place] -= sizes[tree]
            elif len(rows) < max(1, max_tokens // width):
                rows.append([tree])
                room.append(width - sizes[tree])
            else:
                rest.append(tree)
        batches.append(rows)
        left = rest
    return batches


def _cost(
    plan: list[list[list[int]]],
    sizes: Sequence[int],
    chains: Sequence[bool],
    attention_cost: float,
    overhead: float,
) -> float:
    """What a plan takes to compute. Rows of one chain need no mask, so a causal kernel skips half of their square."""
    total = overhead * len(plan)
    for rows in plan:
        width = max(sum(sizes[t] for t in row) for row in rows)
        causal = all(len(row) == 1 and chains[row[0]] for row in rows)
        total += len(rows) * width * (1.0 + attention_cost * width * (0.5 if causal else 1.0))
    return total


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows of trees as arrays, R rows padded to T tokens.

    Attributes:
        input_ids: Shape [R, T]; padding is id 0.
        positions: Depth of each token, shape [R, T]; of padding its column.
        ends: Where the descendants of each token end, shape [R, T]: token i sees token j if j ≤ i < ends[j]. None if
            every row is one chain, in which each token sees all before it.
        rows: Row of each sequence, in the order of the trees.
        paths: Columns of the tokens of each sequence, in the same order.
    """

    input_ids: Ints
    positions: Ints
    ends: Ints | None
    rows: list[int]
    paths: list[Ints]


def lay_out(sequences: Sequence[Ints], rows: Sequence[Row]) -> Layout:
    """Write the trees of a micro-batch into its rows."""
    fresh = [
        [[len(sequences[i]) - known for i, known in zip(tree.members, tree.shared, strict=True)] for tree in row]
        for row in rows
    ]
    sizes = [sum(map(sum, row)) for row in fresh]
    width = max(sizes)
    columns = np.arange(width)
    input_ids = np.zeros((len(rows), width), dtype=np.int64)
    positions = np.tile(columns, (len(rows), 1))
    ends = positions + 1  # padding sees itself: a softmax over nothing is not a number
    paths: list[Ints] = []
    for r, row in enumerate(rows):
        offset = 0
        for tree, news in zip(row, fresh[r], strict=True):
            path = columns[:0]
            for i, known, new in zip(tree.members, tree.shared, news, strict=True):
                ends[r, path[known:]] = offset  # these have no further descendants
                stop = offset + new
                path = np.concatenate((path[:known], columns[offset:stop]))
                input_ids[r, offset:stop] = sequences[i][known:]
                positions[r, offset:stop] = columns[known : known + new]
                paths.append(path)
                offset = stop
            ends[r, path] = offset
    chains = all(bool((positions[r, :n] == columns[:n]).all()) for r, n in enumerate(sizes))
    owners = [r for r, row in enumerate(rows) for tree in row for _ in tree.members]
    return Layout(input_ids, positions, None if chains else ends, owners, paths)
