"""Templates about graphs. Nodes are numbered from 0."""

from __future__ import annotations

from itertools import pairwise

from llm_envs.coding.templates.base import BOOL, INT, INTS, ROWS, Template


def _large_components(n: int, edges: list[list[int]], k: int) -> int:
    neighbours: list[list[int]] = [[] for _ in range(n)]
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    seen = [False] * n
    count = 0
    for start in range(n):
        if seen[start]:
            continue
        seen[start] = True
        stack = [start]
        size = 0
        while stack:
            node = stack.pop()
            size += 1
            for other in neighbours[node]:
                if not seen[other]:
                    seen[other] = True
                    stack.append(other)
        if size >= k:
            count += 1
    return count


def _within_steps(n: int, edges: list[list[int]], start: int, k: int) -> int:
    reached = {start}
    border = {start}
    for _ in range(k):
        border = {b for a, b in edges if a in border} - reached
        reached |= border
    return len(reached)


def _nodes_of_degree(n: int, edges: list[list[int]], k: int) -> list[int]:
    degree = [0] * n
    for a, b in edges:
        degree[a] += 1
        degree[b] += 1
    return [node for node in range(n) if degree[node] >= k]


def _task_order(n: int, edges: list[list[int]], first: str) -> list[int]:
    waiting = [0] * n
    for _, b in edges:
        waiting[b] += 1
    ready = [node for node in range(n) if waiting[node] == 0]
    order = []
    while ready:
        node = min(ready) if first == "smallest" else max(ready)
        ready.remove(node)
        order.append(node)
        for a, b in edges:
            if a == node:
                waiting[b] -= 1
                if waiting[b] == 0:
                    ready.append(b)
    return order if len(order) == n else []


def _cheapest_route(n: int, roads: list[list[int]], toll: int) -> int:
    far = 10**9
    cost = [far] * n
    cost[0] = 0
    for _ in range(n):
        for a, b, length in roads:
            cost[b] = min(cost[b], cost[a] + length + toll)
            cost[a] = min(cost[a], cost[b] + length + toll)
    return cost[n - 1] if cost[n - 1] < far else -1


def _count_triangles(n: int, edges: list[list[int]], node: int) -> int:
    linked = {(a, b) for a, b in edges} | {(b, a) for a, b in edges}
    count = 0
    for a in range(n):
        for b in range(a + 1, n):
            if (node, a) in linked and (node, b) in linked and (a, b) in linked:
                count += 1
    return count


def _nodes_at_depth(parents: list[int], k: int) -> int:
    count = 0
    for node in range(len(parents)):
        depth = 0
        while parents[node] != -1:
            node = parents[node]
            depth += 1
        if depth == k:
            count += 1
    return count


def _two_groups(n: int, edges: list[list[int]], pair: int) -> bool:
    group: dict[int, int] = {}
    for start in range(n):
        if start in group:
            continue
        group[start] = 0
        stack = [start]
        while stack:
            node = stack.pop()
            for a, b in edges:
                if node in (a, b):
                    other = a + b - node
                    if other not in group:
                        group[other] = 1 - group[node]
                        stack.append(other)
                    elif group[other] == group[node]:
                        return False
    return group[pair] == 0


def _edges(rng, n, most, directed=False):  # type: ignore[no-untyped-def]
    pairs = [(a, b) for a in range(n) for b in range(n) if (a != b if directed else a < b)]
    chosen = rng.sample(pairs, min(len(pairs), rng.randint(0, most)))
    return [[a, b] if directed or rng.random() < 0.5 else [b, a] for a, b in chosen]


def _sized(rng, **_):  # type: ignore[no-untyped-def]
    n = rng.randint(3, 9)
    return (n, _edges(rng, n, n))


def _dense(rng, fewest, edges):  # type: ignore[no-untyped-def]
    n = rng.randint(fewest, fewest + 4)
    return (n, _edges(rng, n, edges * n))


def _directed(rng, k):  # type: ignore[no-untyped-def]
    n = rng.randint(k + 2, k + 6)
    chain = list(range(n))
    rng.shuffle(chain)
    edges = [list(pair) for pair in pairwise(chain) if rng.random() < 0.9]
    return (n, edges + [e for e in _edges(rng, n, 2, True) if e not in edges], chain[0])


def _ordering(rng, first):  # type: ignore[no-untyped-def]
    n = rng.randint(3, 7)
    rank = list(range(n))
    rng.shuffle(rank)
    edges = [[a, b] if rank[a] < rank[b] else [b, a] for a, b in _edges(rng, n, n)]
    if edges and rng.random() < 0.4:  # Two tasks that wait for each other.
        edges.append(rng.choice(edges)[::-1])
    return (n, edges)


def _roads(rng, toll):  # type: ignore[no-untyped-def]
    n = rng.randint(4, 7)
    chain = [[i + 1, i, rng.randint(1, 4)] for i in range(n - 2, -1, -1) if rng.random() < 0.85]
    return (n, [[a, b, rng.randint(5, 30)] for a, b in _edges(rng, n, n)] + chain)


def _tree(rng, k):  # type: ignore[no-untyped-def]
    size = rng.randint(k + 1, k + 7)
    parents = [-1]
    for node in range(1, size):
        parents.append(node - 1 if node <= k and rng.random() < 0.8 else rng.randint(max(0, node - 3), node - 1))
    return (parents,)


def _groups(rng, pair):  # type: ignore[no-untyped-def]
    n = pair + rng.randint(1, 4)
    side = [rng.randint(0, 1) for _ in range(n)]
    edges = _edges(rng, n, 2 * n)
    return (n, edges if rng.random() < 0.5 else [e for e in edges if side[e[0]] != side[e[1]]])


_GRAPH = "A graph has the nodes 0 to n-1; each row of `edges` is a pair of nodes that are linked (in both directions)."

TEMPLATES = (
    Template(
        "large-components",
        f"{_GRAPH} Count its connected components that have at least {{k}} nodes.",
        _large_components,
        {"n": INT, "edges": ROWS},
        INT,
        _sized,
        ((">= k", "> k"), ("neighbours[b].append(a)", "pass"), ("if size >= k:", "if size:")),
        {"k": (2, 3, 4)},
    ),
    Template(
        "within-steps",
        "A directed graph has the nodes 0 to n-1; each row a b of `edges` is an arrow from a to b. Count the nodes "
        "that can be reached from `start` along at most {k} arrows, `start` included.",
        _within_steps,
        {"n": INT, "edges": ROWS, "start": INT},
        INT,
        _directed,
        (("range(k)", "range(k - 1)"), ("range(k)", "range(k + 1)"), ("len(reached)", "len(reached) - 1")),
        {"k": (1, 2, 3, 4, 5)},
    ),
    Template(
        "nodes-of-degree",
        f"{_GRAPH} Return the nodes that are linked to at least {{k}} others, in increasing order.",
        _nodes_of_degree,
        {"n": INT, "edges": ROWS},
        INTS,
        lambda rng, k: _dense(rng, k + 1, (k + 1) // 2 + 1),
        ((">= k", "> k"), ("degree[b] += 1", "pass"), (">= k", "== k")),
        {"k": (1, 2, 3, 4, 5)},
    ),
    Template(
        "task-order",
        "There are tasks 0 to n-1; each row a b of `edges` says that a must be done before b. Return the order that "
        "does, at every moment, the {first} task that can be done, or an empty list if not all tasks can be done.",
        _task_order,
        {"n": INT, "edges": ROWS},
        INTS,
        _ordering,
        (
            (" if len(order) == n else []", ""),
            ('node = min(ready) if first == "smallest" else max(ready)', "node = ready[-1]"),
            ('first == "smallest"', 'first != "smallest"'),
            ('node = min(ready) if first == "smallest" else max(ready)', "node = ready[0]"),
        ),
        {"first": ("smallest", "largest")},
    ),
    Template(
        "cheapest-route",
        "There are towns 0 to n-1. Each row a b c of `roads` is a road between a and b (in both directions) of "
        "length c. Using a road costs its length plus a toll of {toll}. Return the lowest cost from town 0 to town "
        "n-1, or -1 if there is no way.",
        _cheapest_route,
        {"n": INT, "roads": ROWS},
        INT,
        _roads,
        (
            ("cost[a] + length + toll", "cost[a] + length"),
            ("cost[a] = min(cost[a], cost[b] + length + toll)", "pass"),
            ("for _ in range(n):", "for _ in range(1):"),
            ("else -1", "else 0"),
        ),
        {"toll": (1, 2, 3, 4, 5, 6, 7, 8, 9)},
    ),
    Template(
        "count-triangles",
        f"{_GRAPH} Count the triangles that node {{node}} is part of: the pairs of nodes that are linked to it and "
        f"to each "
        "other.",
        _count_triangles,
        {"n": INT, "edges": ROWS},
        INT,
        lambda rng, node: _dense(rng, max(4, node + 1), 3),
        ((" and (a, b) in linked", ""), ("range(a + 1, n)", "range(n)"), (" | {(b, a) for a, b in edges}", "")),
        {"node": (0, 1, 2, 3, 4, 5)},
    ),
    Template(
        "nodes-at-depth",
        "`parents` describes a tree: entry i is the parent of node i, and -1 for the root. Count the nodes that are "
        "exactly {k} steps below the root.",
        _nodes_at_depth,
        {"parents": INTS},
        INT,
        _tree,
        (("depth == k", "depth >= k"), ("depth = 0", "depth = 1"), ("depth == k", "depth == k + 1")),
        {"k": (1, 2, 3, 4, 5, 6)},
    ),
    Template(
        "two-groups",
        _GRAPH
        + " The nodes are put into two groups, A and B. Going from the smallest node to the largest, a node that "
        "is not yet in a group comes into A, and then everything connected to it, near or far, is put so that linked "
        "nodes are in different groups. Say whether this works for all links and node {pair} comes into A. n is "
        "larger than {pair}.",
        _two_groups,
        {"n": INT, "edges": ROWS},
        BOOL,
        _groups,
        (
            ("return False", "continue"),
            ("group[start] = 0", "group[start] = 1"),
            ("return group[pair] == 0", "return group[pair] == 1"),
            ("return group[pair] == 0", "return True"),
        ),
        {"pair": (1, 2, 3, 4, 5)},
    ),
)
