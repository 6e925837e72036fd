"""Micro-batches in which a prefix that several sequences share is laid out, and computed, once.

The turns of a group share their prompt, the turns of an episode a growing history. Sequences sorted as words in a
dictionary have their common prefixes next to each other, so a run of them is a *tree*: every sequence adds the tokens
after what it shares with the one before. Written down in that order (depth first), the descendants of a token are the
tokens right behind it up to its *end*, hence token i may see token j if j ≤ i < end(j): its ancestors and itself, which
are the tokens before it in its own sequence. With its depth as its position, every token has the hidden state that it
would have in a sequence of its own.

A row of a micro-batch holds one tree or several. What is best cut into trees is a matter of cost: attention in a row of
n tokens takes n², so long trees that share little are cut and their common prefix is computed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ints", "Layout", "Plan", "Row", "common_prefix", "lay_out", "pack_rows", "plan_trees", "split_trees"]

Ints: TypeAlias = NDArray[np.int64]
Row: TypeAlias = list[list[int]]
"""Trees of one row, each the indices of its sequences in sorted order."""
Plan: TypeAlias = list[list[Row]]
"""Rows of each micro-batch."""


def common_prefix(one: Ints, other: Ints) -> int:
    """Return how many tokens two sequences share from their beginning."""
    n = min(len(one), len(other))
    differ = one[:n] != other[:n]
    return int(differ.argmax()) if differ.any() else n


def plan_trees(sequences: Sequence[Ints], max_tokens: int, attention_cost: float) -> Plan:
    """Split sequences into micro-batches of rows of trees.

    Args:
        sequences: N sequences of at least one token.
        max_tokens: Bound on the tokens of a micro-batch, padding included (rows × longest row). A sequence above it is
            alone in its micro-batch. With it the attention masks of a micro-batch have at most ``max_tokens``²
            entries, and far fewer where rows are short.
        attention_cost: What attention to one more token costs, over all the rest that is computed of a token.

    Returns:
        For each micro-batch its rows, for each row its trees, for each tree the indices of its sequences, sorted. Every
        sequence exactly once.
    """
    # Big-endian words compare as bytes do, and bytes compare fast.
    words = [sequence.astype(">u8").tobytes() for sequence in sequences]
    order = sorted(range(len(sequences)), key=lambda i: (words[i], i))
    lengths = np.array([len(sequences[i]) for i in order], dtype=np.int64)
    shared = np.zeros(len(order), dtype=np.int64)
    for k in range(1, len(order)):
        shared[k] = common_prefix(sequences[order[k - 1]], sequences[order[k]])
    spans = split_trees(lengths, shared, max_tokens, attention_cost)
    sizes = [int(lengths[start:stop].sum() - shared[start + 1 : stop].sum()) for start, stop in spans]
    chains = [size == int(lengths[start:stop].max()) for size, (start, stop) in zip(sizes, spans, strict=True)]
    plans = [pack_rows(sizes, max_tokens, fill=fill) for fill in (False, True)]
    best = min(plans, key=lambda plan: _cost(plan, sizes, chains, attention_cost))
    trees = [order[start:stop] for start, stop in spans]
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


def pack_rows(sizes: Sequence[int], max_tokens: int, *, fill: bool) -> list[list[list[int]]]:
    """Distribute trees over the rows of micro-batches: largest first, in a row as long as the largest of its batch.

    Args:
        sizes: Tokens of each tree.
        max_tokens: Bound on rows × longest row of a micro-batch; a larger tree is alone.
        fill: Whether a row takes further trees while there is room (first fit decreasing), or one tree only.

    Returns:
        For each micro-batch its rows, for each row the indices of its trees.

    Example:
        >>> pack_rows([2, 9, 3, 6], 18, fill=True)
        [[[1], [3, 2]], [[0]]]
    """
    left = sorted(range(len(sizes)), key=lambda t: (-sizes[t], t))
    batches = []
    while left:
        width = sizes[left[0]]
        rows: list[list[int]] = []
        room: list[int] = []
        rest = []
        for tree in left:
            place = next((r for r, free in enumerate(room) if free >= sizes[tree]), None) if fill else None
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


def _cost(plan: list[list[list[int]]], sizes: Sequence[int], chains: Sequence[bool], attention_cost: float) -> float:
    """What a plan takes to compute. Rows of one chain need no mask, so a causal kernel skips half of their square."""
    total = 0.0
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


def lay_out(sequences: Mapping[int, Ints] | Sequence[Ints], rows: Sequence[Row]) -> Layout:
    """Write the trees of a micro-batch into its rows."""
    written = [_lay_out_row(sequences, row) for row in rows]
    width = max(len(ids) for ids, _, _, _ in written)
    columns = np.arange(width)
    input_ids = np.zeros((len(rows), width), dtype=np.int64)
    positions = np.tile(columns, (len(rows), 1))
    ends = positions + 1  # padding sees itself: a softmax over nothing is not a number
    owners: list[int] = []
    paths: list[Ints] = []
    chains = True
    for r, (ids, depths, stops, own) in enumerate(written):
        n = len(ids)
        input_ids[r, :n], positions[r, :n], ends[r, :n] = ids, depths, stops
        chains = chains and bool((depths == columns[:n]).all())
        owners += [r] * len(own)
        paths += own
    return Layout(input_ids, positions, None if chains else ends, owners, paths)


def _lay_out_row(sequences: Mapping[int, Ints] | Sequence[Ints], row: Row) -> tuple[Ints, Ints, Ints, list[Ints]]:
    """Return the ids, depths and ends of a row's tokens, and the columns of each sequence."""
    ids: list[Ints] = []
    depths: list[Ints] = []
    paths: list[Ints] = []
    offset = 0
    for tree in row:
        previous, path = np.empty(0, np.int64), np.empty(0, np.int64)
        for i in tree:
            sequence = sequences[i]
            known = common_prefix(previous, sequence)
            new = len(sequence) - known
            ids.append(sequence[known:])
            depths.append(np.arange(known, len(sequence)))
            path = np.concatenate([path[:known], np.arange(offset, offset + new)])
            paths.append(path)
            previous = sequence
            offset += new
    depth = np.concatenate(depths)
    return np.concatenate(ids), depth, _ends(depth), paths


def _ends(depth: Ints) -> Ints:
    """The next token that is not deeper, for each token: where its descendants end. The first of a tree has depth 0."""
    ends = np.full(len(depth), len(depth), dtype=np.int64)
    starts = np.flatnonzero(np.diff(depth, prepend=-2) != 1)  # tokens that do not follow their parent
    path = np.empty(int(depth.max()) + 1, dtype=np.int64)  # the token at each depth
    length = 0
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(depth)], strict=True):
        top = int(depth[start])
        ends[path[top:length]] = start
        length = top + stop - start
        path[top:length] = np.arange(start, stop)
    return ends
