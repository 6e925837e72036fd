"""The arithmetic part of the answer grammar: sums, products, powers, roots, functions, mixed numbers."""

from __future__ import annotations

from fractions import Fraction

from llm_envs.math._nodes import Node, ParseError, TooComplex
from llm_envs.math._tokens import Token, number
from llm_envs.math.units import is_plain_unit_word

MAX_DEPTH = 40
MAX_ATOMS = 80
SEPARATOR_WORDS = {"or": "or", "and": "and"}

_GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon phi varphi chi psi omega "
    "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell".split()
)
_TRIG = frozenset("sin cos tan cot sec csc".split())
FUNCTIONS = _TRIG | frozenset("arcsin arccos arctan arccot sinh cosh tanh coth ln log lg exp".split())
_PLAIN_FUNCTIONS = {name: name for name in FUNCTIONS} | {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_LETTER_FAMILIES = tuple(frozenset(family) for family in ("abcd", "xyzw", "mnpq", "pqrs", "rstu", "uvw", "bhk", "lwh"))
_FUNCTION_LETTERS = frozenset("fghpqFGHPQTS")


def _times(left: Node, right: Node) -> Node:
    """A product, flat on its left so that long products stay shallow."""
    return Node("mul", (*left.args, right) if left.kind == "mul" else (left, right))


class ArithmeticParser:
    """Recursive descent over the tokens; every method consumes what it returns. Brackets with commas are `compound`."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0
        self.depth = 0
        self.atoms = 0  # that are being read: \sqrt\sqrt\sqrt… nests without brackets
        self.bars = 0  # open absolute values: a bar closes the innermost

    # Cursor

    def peek(self) -> Token | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def at(self, *texts: str) -> bool:
        token = self.peek()
        return token is not None and token.kind != "text" and token.text in texts

    def take(self, text: str | None = None) -> Token:
        token = self.peek()
        if token is None or (text is not None and (token.text != text or token.kind == "text")):
            raise ParseError(f"expected {text or 'more'}, found {token.text if token else 'the end'!r}")
        self.position += 1
        return token

    def accept(self, *texts: str) -> Token | None:
        return self.take() if self.at(*texts) else None

    # Arithmetic

    def descend(self) -> None:
        """Count one level of nesting; whoever calls it takes it off again."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooComplex(f"nested more than {MAX_DEPTH} deep")

    def additive(self) -> Node:
        self.descend()
        terms: list[Node] = []
        while True:
            sign = self.accept("+", "-", r"\pm", r"\mp")
            if sign is None and terms:
                break
            extra = self.accept("-") if sign is not None and sign.text == "+" else None  # "x + -3"
            term = self.term()
            if extra or (sign is not None and sign.text == "-"):
                term = Node("num", (), -term.value) if term.kind == "num" else Node("neg", (term,))
            elif sign is not None and sign.text in (r"\pm", r"\mp"):
                term = Node(sign.text[1:], (term,))
            terms.append(term)
        self.depth -= 1
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def term(self) -> Node:
        node = self.signed_factor()
        while True:
            if self.accept("*", r"\times", r"\cdot"):
                node = _times(node, self.signed_factor())
            elif operator := self.accept("/", r"\div"):
                # 7/3 is a number, 7 ÷ 3 is one to be worked out (`_evaluated`).
                node = Node("div", (node, self.signed_factor()), None if operator.text == "/" else operator.text)
            elif self._juxtaposed():
                token = self.peek()
                if token is not None and token.kind == "num" and not self._closed_before():
                    raise ParseError(f"the number {token.text!r} stands beside another factor")
                node = _times(node, self.power())
            else:
                return node

    def _closed_before(self) -> bool:
        return self.tokens[self.position - 1].text in (")", "]")

    def signed_factor(self) -> Node:
        if self.accept("-"):
            return Node("neg", (self.power(),))
        return self.power()

    def _juxtaposed(self) -> bool:
        token = self.peek()
        if token is None or token.kind == "text":
            return False
        if token.kind == "word":
            return not (is_plain_unit_word(token.text) or token.text.lower() in SEPARATOR_WORDS)
        if token.kind == "cmd":
            name = token.text[1:]
            return (
                name in FUNCTIONS or name in _GREEK or name in ("frac", "sqrt", "pi", "binom", "infty", "begin", "left")
            )
        return token.kind in ("num", "(", "{") or (token.kind == "|" and not self.bars)

    def power(self) -> Node:
        node = self.postfix(self.atom())
        if self.accept("^", "**"):
            node = Node("pow", (node, self.exponent()))
            node = self.postfix(node)
        if self.at("^", "**", "_"):
            raise ParseError("a second exponent or a stray subscript")
        return node

    def postfix(self, node: Node) -> Node:
        while True:
            if self.accept("!"):
                node = Node("fn", (node,), "factorial")
            elif self.accept("%", r"\%"):
                node = Node("pct", (node,))
            elif self.accept(r"\circ"):
                node = Node("deg", (node,))
            elif self.at("^") and [t.text for t in self.tokens[self.position + 1 : self.position + 2]] == [r"\circ"]:
                self.position += 2
                node = Node("deg", (node,))
            elif self.at("^") and [t.text for t in self.tokens[self.position + 1 : self.position + 4]] == [
                "{",
                r"\circ",
                "}",
            ]:
                self.position += 4
                node = Node("deg", (node,))
            else:
                return node

    def exponent(self) -> Node:
        if self.at("{"):
            return self.group("{", "}")
        if self.accept("-"):
            self.descend()
            node = Node("neg", (self.exponent(),))
            self.depth -= 1
            return node
        token = self.peek()
        if token is not None and token.kind == "word" and len(token.text) > 1:
            self.tokens[self.position : self.position + 1] = [Token("word", c, False) for c in token.text]
        base = self.atom()
        if self.accept("^", "**"):  # "9^9^9": to the right, as plain-text writers mean it
            self.descend()
            base = Node("pow", (base, self.exponent()))
            self.depth -= 1
        return base

    def group(self, left: str, right: str) -> Node:
        self.take(left)
        node = self.additive()
        self.take(right)
        return node

    def argument(self) -> Node:
        r"""An argument of ``\frac`` or ``\sqrt``: a group, or one character as in TeX."""
        if self.at("{"):
            return self.group("{", "}")
        token = self.take()
        if token.kind in ("num", "word"):
            if len(token.text) > 1:
                self.tokens.insert(self.position, Token(token.kind, token.text[1:], False))
            if token.kind == "num":
                if not token.text[0].isdigit() or (not token.text[1:].isdigit() and token.text[1:]):
                    raise ParseError(f"{token.text!r} is no single-character argument")
                return Node("num", (), Fraction(int(token.text[0])))
            return self._letter(token.text[0])
        if token.kind == "cmd":
            self.position -= 1
            return self.atom()
        raise ParseError(f"{token.text!r} is no argument")

    def atom(self) -> Node:
        self.atoms += 1
        if self.atoms > MAX_ATOMS:
            raise TooComplex(f"more than {MAX_ATOMS} functions of functions")
        node = self._atom()
        self.atoms -= 1
        return node

    def _atom(self) -> Node:
        token = self.take()
        if token.kind == "num":
            return self._number(token)
        if token.kind == "word":
            return self._word(token.text)
        if token.text in ("(", "["):
            return self.bracketed(token.text)
        if token.text == "{":
            self.position -= 1
            return self.group("{", "}")
        if token.text == "|":
            self.bars += 1
            node = self.additive()
            self.take("|")
            self.bars -= 1
            return Node("fn", (node,), "abs")
        if token.kind == "cmd":
            return self._command(token.text[1:])
        raise ParseError(f"unexpected {token.text!r}")

    def _number(self, token: Token) -> Node:
        whole = Node("num", (), number(token.text))
        if token.text.isdigit():
            start = self.position
            part = self._proper_fraction()
            if part is not None:
                return Node("num", (), whole.value + part)
            self.position = start
        return whole

    def _proper_fraction(self) -> Fraction | None:
        r"""The fraction of a mixed number: ``\frac{1}{2}`` or a spaced ``1/2`` after an integer."""
        token = self.peek()
        if token is None:
            return None
        if token.text == r"\frac":
            if not self._flat_arguments(self.position + 1):
                return None  # and not tried: the attempts would double with every level
            self.position += 1
            saved, levels = list(self.tokens), (self.depth, self.atoms, self.bars)
            try:
                top, bottom = self.argument(), self.argument()
            except ParseError:
                self.tokens = saved
                self.depth, self.atoms, self.bars = levels
                return None
            if top.kind == bottom.kind == "num" and top.value.denominator == bottom.value.denominator == 1:
                if not 0 < top.value < bottom.value:
                    raise ParseError("an integer beside an improper fraction is ambiguous")
                if not self.at("^", "!"):
                    return Fraction(top.value, bottom.value)
            self.tokens = saved
            return None
        if token.kind == "num" and token.spaced and token.text.isdigit():
            follow = self.tokens[self.position + 1 : self.position + 3]
            if len(follow) == 2 and follow[0].text == "/" and follow[1].kind == "num" and follow[1].text.isdigit():
                numerator, denominator = number(token.text), number(follow[1].text)
                if 0 < numerator < denominator:
                    self.position += 3
                    return numerator / denominator
        return None

    def _flat_arguments(self, start: int) -> bool:
        r"""Whether the two arguments of a ``\frac`` that begin at ``start`` are digits, or groups without ``\frac``."""
        depth, arguments = 0, 0
        for token in self.tokens[start:]:
            if (depth == 0 and token.kind not in ("num", "{")) or token.text == r"\frac":
                return False
            depth += (token.text == "{") - (token.text == "}")
            if depth == 0:
                arguments += 2 if token.kind == "num" and len(token.text) > 1 else 1
            if arguments >= 2:
                return True
        return False

    def _word(self, word: str) -> Node:
        if word in _PLAIN_FUNCTIONS:
            return self._function(_PLAIN_FUNCTIONS[word])
        if word == "pi":
            return Node("const", (), "pi")
        if word in ("inf", "infinity", "oo"):
            return Node("const", (), "oo")
        if word == "sqrt":
            return Node("root", (self.group("(", ")"),), 2)
        if len(word) > 2 and not (
            len(set(word)) == len(word) and any(set(word) <= family for family in _LETTER_FAMILIES)
        ):
            raise ParseError(f"the word {word!r}")
        if len(word) > 1:  # a product of letters; a power or subscript belongs to the last
            self.tokens[self.position : self.position] = [Token("word", c, False) for c in word[1:]]
            word = word[0]
        return self._letter(word)

    def _letter(self, letter: str) -> Node:
        if letter == "e":
            return Node("const", (), "e")
        if letter == "i":
            return Node("const", (), "i")
        symbol = self._subscripted(letter)
        if letter in _FUNCTION_LETTERS and [t.kind for t in self.tokens[self.position : self.position + 3]] == [
            "(",
            "word",
            ")",
        ]:
            argument = self.tokens[self.position + 1].text
            if len(argument) == 1 and argument not in "ei":
                self.position += 3
                return Node("app", (symbol, Node("sym", (), argument)))
        return symbol

    def _subscripted(self, name: str) -> Node:
        if self.accept("_"):
            if self.accept("{"):
                inside: list[str] = []
                while not self.at("}"):
                    inside.append(self.take().text)
                self.take("}")
                name += "_" + "".join(inside)
            else:
                name += "_" + self.take().text
        return Node("sym", (), name)

    def _command(self, name: str) -> Node:
        if name == "frac":
            return Node("div", (self.argument(), self.argument()))
        if name == "sqrt":
            return self._root()
        if name == "pi":
            return Node("const", (), "pi")
        if name == "infty":
            return Node("const", (), "oo")
        if name in FUNCTIONS:
            return self._function(name)
        if name in _GREEK:
            return self._subscripted("\\" + name)
        if name == "binom":
            return Node("fn", (self.argument(), self.argument()), "binomial")
        if name in ("lfloor", "lceil"):
            node = self.additive()
            self.take(r"\rfloor" if name == "lfloor" else r"\rceil")
            return Node("fn", (node,), "floor" if name == "lfloor" else "ceil")
        if name in ("{", "langle", "begin"):
            return self.compound(name)
        if name == "emptyset":
            return Node("set")
        if name in ("Reals", "Integers", "Rationals", "Naturals", "Complexes"):
            return Node("named", (), name)
        raise ParseError(f"the command \\{name}")

    def _root(self) -> Node:
        degree = 2
        if self.accept("["):
            index = self.take()
            self.take("]")
            if index.kind != "num" or not index.text.isdigit() or not 2 <= int(index.text[:4]) <= 100:
                raise ParseError(f"a root of degree {index.text!r}")
            degree = int(index.text)
        token = self.peek()
        if token is not None and token.kind == "num" and len(token.text) > 1:
            raise ParseError("a root of several digits without braces is ambiguous")
        if self.at("("):
            return Node("root", (self.group("(", ")"),), degree)
        return Node("root", (self.argument(),), degree)

    def _function(self, name: str) -> Node:
        power: Node | None = None
        base: Node | None = None
        for _ in range(2):
            if self.accept("_"):
                base = self.argument() if not self.at("(") else self.group("(", ")")
                token = self.peek()
                if (
                    self.tokens[self.position - 1].kind == "num"
                    and token is not None
                    and token.kind == "num"
                    and not token.spaced
                ):
                    raise ParseError("a logarithm's base of several digits without braces is ambiguous")
            elif self.accept("^"):
                power = self.exponent()
        if base is not None and name != "log":
            raise ParseError(f"a subscript of {name}")
        if (name in _TRIG and power == Node("neg", (Node("num", (), Fraction(1)),))) or power == Node(
            "num", (), Fraction(-1)
        ):
            name, power = "arc" + name, None
            if name not in FUNCTIONS:
                raise ParseError(f"the function {name}")
        if self.at("(", "{", "|"):
            argument = self.atom()
            if argument.kind in ("pair", "tuple"):
                raise ParseError(f"{name} of several values")
        else:
            argument = self.power()
            while self._juxtaposed() and not self._function_next() and not self.at("("):
                argument = _times(argument, self.power())
        node = Node("fn", (argument,) if base is None else (argument, base), name)
        return node if power is None else Node("pow", (node, power))

    def _function_next(self) -> bool:
        token = self.peek()
        return token is not None and (token.text.lstrip("\\") in _PLAIN_FUNCTIONS)

    def bracketed(self, left: str) -> Node:
        """A bracket that was opened by ``left``."""
        raise ParseError(f"brackets {left}")

    def compound(self, opening: str) -> Node:
        r"""A set, vector or matrix that was opened by the command ``opening``."""
        raise ParseError(f"the command \\{opening}")
