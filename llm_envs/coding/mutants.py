"""Wrong variants of a solution, for task sets that bring none: small edits of its syntax tree.

The operators are the usual ones of mutation testing (Offutt et al. 1996, "An experimental determination of sufficient
mutant operators"): another comparison, another arithmetic operator, a constant off by one, a negated condition, and a
result that is dropped. A mutant may by chance be right; callers ask that *some* mutant fails.

>>> mutants("def f(a, b):\\n    return a + b\\n", most=1)
('def f(a, b):\\n    return a - b',)
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools

__all__ = ["mutants"]

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
}


@functools.lru_cache(maxsize=1024)
def mutants(source: str, most: int = 5) -> tuple[str, ...]:
    """Returns up to ``most`` wrong variants of ``source``, spread over its syntax tree, the same ones every time.

    Raises:
        SyntaxError: ``source`` is not Python.
    """
    tree = ast.parse(source)
    places = [i for i, node in enumerate(ast.walk(tree)) if _mutate(copy.copy(node))]
    if len(places) > most:
        places = [places[i * len(places) // most] for i in range(most)]
    found = []
    for place in places:
        changed = copy.deepcopy(tree)
        _mutate(next(itertools.islice(ast.walk(changed), place, None)))
        found.append(ast.unparse(ast.fix_missing_locations(changed)))
    return tuple(dict.fromkeys(found))


def _mutate(node: ast.AST) -> bool:
    """Change ``node`` itself, none of its children; False if there is no way to."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        node.ops = [_COMPARISONS[type(node.ops[0])](), *node.ops[1:]]  # not in place: `copy.copy` shares the list
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        node.op = _OPERATORS[type(node.op)]()
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Name | ast.Call):
        node.value = ast.Constant(None)
    else:
        return False
    return True
