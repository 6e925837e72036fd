r"""Parse the text of an answer into a small expression tree. No algebra is done and nothing is evaluated here.

The grammar is strict: a text is an expression only if the whole of it is consumed, so nothing is ever picked out of a
text that is not understood. Sizes are bounded before any arithmetic: `TooComplex` is raised for texts that are too long
or too deeply nested. The node kinds are listed in `llm_envs.math._nodes`.
"""

from __future__ import annotations

from itertools import product

from llm_envs.math._arithmetic import SEPARATOR_WORDS, ArithmeticParser
from llm_envs.math._nodes import Node, ParseError, TooComplex
from llm_envs.math._tokens import tokenize
from llm_envs.math.units import DEGREE, DOLLAR, EURO, PERCENT, POUND_STERLING, Unit, is_plain_unit_word, parse_unit

__all__ = ["MAX_CHARACTERS", "Node", "ParseError", "TooComplex", "parse"]

MAX_CHARACTERS = 4096
MAX_HEIGHT = 100
MAX_SIGNS = 4

_RELATIONS = {"=": "=", "==": "=", "!=": "!=", "<": "<", ">": ">", "<=": "<=", ">=": ">="}
_RELATION_COMMANDS = {"leq": "<=", "geq": ">=", "neq": "!=", "in": "in", "lt": "<", "gt": ">"}
_MATRICES = frozenset("pmatrix bmatrix Bmatrix matrix smallmatrix".split())
_CURRENCIES = {r"\$": DOLLAR, r"\pounds": POUND_STERLING, r"\euro": EURO}
_OPEN_TO_CLOSE = {"(": ")", "[": "]"}


class AnswerParser(ArithmeticParser):
    """Lists, relations, units, sets, points and matrices around the arithmetic."""

    def answer(self) -> Node:
        """The whole text: elements joined by commas, semicolons, ``or`` and ``and``."""
        items = [self.element()]
        joins: set[str] = set()
        while self.peek() is not None:
            join = self._join()
            if join is None:
                raise ParseError(f"unexpected {self.take().text!r}")
            joins.add(join)
            items.append(self.element())
        if len(items) == 1:
            return items[0]
        words = joins - {","}
        if len(words) == 1 and all(item.kind == "rel" and set(item.value) != {"="} for item in items):
            return Node(words.pop(), tuple(items))
        return Node("list", tuple(items))

    def _join(self) -> str | None:
        token = self.peek()
        if token is None:
            return None
        join = (
            ","
            if token.kind in (",", ";")
            else SEPARATOR_WORDS.get(token.text.lower())
            if token.kind in ("text", "word")
            else None
        )
        if token.text in (r"\lor", r"\land"):
            join = "or" if token.text == r"\lor" else "and"
        if join is not None:
            self.position += 1
            if join == ",":  # "a, b, and c"
                follow = self.peek()
                if follow is not None and follow.kind in ("text", "word") and follow.text.lower() in SEPARATOR_WORDS:
                    self.position += 1
                    join = SEPARATOR_WORDS[follow.text.lower()]
        return join

    def element(self) -> Node:
        """A relation or an expression, with currency before it and units after it."""
        currency = self._currency()
        node = self.relation()
        if currency is not None:
            return Node("unit", (node,), currency)
        return node

    def _currency(self) -> Unit | None:
        token, follow = self.peek(), self.tokens[self.position + 1 : self.position + 2]
        if token is not None and token.text in _CURRENCIES:
            self.position += 1
            return _CURRENCIES[token.text]
        if token is not None and token.text == "-" and follow and follow[0].text in _CURRENCIES:
            del self.tokens[self.position + 1]
            return _CURRENCIES[follow[0].text]
        return None

    def relation(self) -> Node:
        sides = [self.quantity()]
        operators: list[str] = []
        while (operator := self._relation_operator()) is not None:
            operators.append(operator)
            sides.append(self.quantity())
        return Node("rel", tuple(sides), tuple(operators)) if operators else sides[0]

    def _relation_operator(self) -> str | None:
        token = self.peek()
        if token is None or token.kind == "text":
            return None
        operator = _RELATIONS.get(token.text) or (
            _RELATION_COMMANDS.get(token.text[1:]) if token.kind == "cmd" else None
        )
        if operator is not None:
            self.position += 1
        return operator

    def quantity(self) -> Node:
        """A set expression, or an expression with a unit after it (``5 \\text{ cm}^2``, ``90^\\circ``, ``50\\%``)."""
        currency = self._currency()
        node = self.set_expression()
        if self.at(":"):
            terms = [node]
            while self.accept(":"):
                terms.append(self.additive())
            node = Node("ratio", tuple(terms))
        if node.kind == "deg":
            node = Node("unit", node.args, DEGREE)
        elif node.kind == "pct":
            node = Node("unit", node.args, PERCENT)
        elif node.kind == "neg" and node.args[0].kind in ("deg", "pct"):
            node = Node("unit", (Node("neg", node.args[0].args),), DEGREE if node.args[0].kind == "deg" else PERCENT)
        if currency is not None:
            node = Node("unit", (node,), currency)
        return self._units(node)

    def _units(self, node: Node) -> Node:
        start = self.position
        pieces: list[str] = []
        while (token := self.peek()) is not None:
            if token.kind == "text" or (
                token.kind == "word" and (is_plain_unit_word(token.text) or (pieces and token.text == "per"))
            ):
                if token.text.lower() in SEPARATOR_WORDS:
                    break
                pieces.append(token.text)
                self.position += 1
                if self.accept("^"):
                    braced = self.accept("{")
                    pieces[-1] += "^" + self.take().text
                    if braced:
                        self.take("}")
            elif pieces and token.text == "/" and self.tokens[self.position + 1 : self.position + 2]:
                pieces.append("/")
                self.position += 1
            else:
                break
        if not pieces or not "".join(pieces).strip():
            return node
        unit = parse_unit(" ".join(pieces))
        if unit is None:
            self.position = start
            raise ParseError(f"{' '.join(pieces)!r} is no unit")
        factor, measure = unit
        if factor != 1:
            inner = node.args[0] if node.kind == "unit" else node
            scaled = Node("mul", (inner, Node("num", (), factor)))
            node = Node("unit", (scaled,), node.value) if node.kind == "unit" else scaled
        if not measure.dimensions and node.kind == "unit":
            return node
        return Node("unit", (node.args[0] if node.kind == "unit" else node,), measure)

    def set_expression(self) -> Node:
        node = self.additive()
        while token := self.accept(r"\cup", r"\cap", r"\setminus"):
            node = Node("setop", (node, self.additive()), token.text[1:])
        return node

    # Brackets

    def items(self, *closing: str) -> list[Node]:
        items: list[Node] = []
        if not self.at(*closing):
            items.append(self.quantity())
            while self.accept(",", ";"):
                items.append(self.quantity())
        return items

    def bracketed(self, left: str) -> Node:
        self.descend()
        items = self.items(")", "]")
        token = self.take()
        self.depth -= 1
        if token.text not in (")", "]") or token.kind == "text":
            raise ParseError(f"{left} closed by {token.text!r}")
        if len(items) == 1 and token.text == _OPEN_TO_CLOSE[left]:
            inner = items[0]
            if inner.kind == "unit" and inner.value in (DEGREE, PERCENT):
                return Node("deg" if inner.value is DEGREE else "pct", inner.args)
            return inner
        if len(items) == 2:
            return Node("pair", tuple(items), left + token.text)
        if len(items) > 2 and token.text == _OPEN_TO_CLOSE[left]:
            return Node("tuple", tuple(items), left + token.text)
        raise ParseError("empty or mixed brackets")

    def compound(self, opening: str) -> Node:
        """A set, vector or matrix."""
        if opening == "{":
            return self._set()
        return self._vector() if opening == "langle" else self._matrix()

    def _set(self) -> Node:
        items = self.items(r"\}")
        self.take(r"\}")
        return Node("set", tuple(items))

    def _vector(self) -> Node:
        items = self.items(r"\rangle")
        self.take(r"\rangle")
        if len(items) < 2:
            raise ParseError("a vector of fewer than two entries")
        return Node("pair" if len(items) == 2 else "tuple", tuple(items), "()")

    def _matrix(self) -> Node:
        name = self._environment()
        if name == "array":
            self.take("{")
            while not self.accept("}"):
                self.take()
        elif name not in _MATRICES:
            raise ParseError(f"the environment {name}")
        rows: list[Node] = []
        entries: list[Node] = []
        while True:
            entries.append(self.set_expression())
            if self.accept("&"):
                continue
            rows.append(Node("row", tuple(entries)))
            entries = []
            if self.accept(r"\\") and not self.at(r"\end"):
                continue
            break
        self.take(r"\end")
        if self._environment() != name or len({len(row.args) for row in rows}) != 1:
            raise ParseError("a ragged or unclosed matrix")
        return Node("matrix", tuple(rows))

    def _environment(self) -> str:
        self.take("{")
        name = self.take().text
        self.take("}")
        return name


_NESTABLE = frozenset("num sym const add mul neg div pow root fn app deg pct pm mp".split())


def _check_height(root: Node) -> None:
    """Raise TooComplex for a tree too high to recurse over (chains such as ``a/b/c/…`` or ``5!!!…``)."""
    stack = [(root, 1)]
    while stack:
        node, height = stack.pop()
        if height > MAX_HEIGHT:
            raise TooComplex(f"a tree higher than {MAX_HEIGHT}")
        stack.extend((child, height + 1) for child in node.args)


def _check(node: Node, inside: bool = False) -> None:
    """Raise ParseError where a set, list, relation or unit stands inside arithmetic."""
    if inside and node.kind not in _NESTABLE:
        raise ParseError(f"a {node.kind} inside an expression")
    if node.kind == "setop" and any(child.kind not in ("pair", "set", "setop", "named") for child in node.args):
        raise ParseError("a set operation on what is no set")
    for child in node.args:
        _check(child, inside=node.kind in _NESTABLE)


def _choose(node: Node, signs: list[int]) -> Node:
    """Replace the double signs of ``node``, left to right, by the chosen ones (consumed from ``signs``)."""
    if node.kind in ("pm", "mp"):
        sign = signs.pop(0)
        inner = _choose(node.args[0], signs)
        return Node("neg", (inner,)) if sign < 0 else inner
    if not node.args:
        return node
    return Node(node.kind, tuple(_choose(child, signs) for child in node.args), node.value)


def _kinds(node: Node) -> list[str]:
    found = [node.kind] if node.kind in ("pm", "mp") else []
    for child in node.args:
        found.extend(_kinds(child))
    return found


def _expand_signs(node: Node) -> list[Node]:
    r"""Write out ``\pm``: independent signs each way; with ``\mp`` present upper and lower signs belong together."""
    kinds = _kinds(node)
    if not kinds:
        return [node]
    if len(kinds) > MAX_SIGNS:
        raise TooComplex(f"{len(kinds)} double signs")
    if "mp" in kinds:
        choices = [[1 if kind == "pm" else -1 for kind in kinds], [-1 if kind == "pm" else 1 for kind in kinds]]
    else:
        choices = [list(choice) for choice in product((1, -1), repeat=len(kinds))]
    return [_choose(node, choice) for choice in choices]


def _flatten(node: Node) -> Node:
    if node.kind in ("list", "set"):
        items = tuple(choice for item in node.args for choice in _expand_signs(item))
        return Node(node.kind, items)
    choices = _expand_signs(node)
    return choices[0] if len(choices) == 1 else Node("list", tuple(choices))


def parse(cleaned: str, *, thousands: bool = True) -> Node:
    """Parse a cleaned text (`normalize.clean`) as one expression, relation, set, tuple, matrix or list.

    Args:
        cleaned: The text.
        thousands: Whether ``1,234`` is one number rather than a list of two.

    Raises:
        ParseError: If the text as a whole is not in the grammar.
        TooComplex: If it is longer or deeper than the stated bounds.
    """
    if len(cleaned) > MAX_CHARACTERS:
        raise TooComplex(f"{len(cleaned)} characters")
    parser = AnswerParser(tokenize(cleaned, thousands=thousands))
    node = parser.answer()
    _check_height(node)
    _check(node)
    return _flatten(node)
