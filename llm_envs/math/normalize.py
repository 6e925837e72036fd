"""Clean an answer's text before it is parsed: wrappers, spacing, look-alike characters and synonyms of LaTeX commands.

Everything here is plain text work in linear time: no algebra, nothing that could guess a value.
"""

from __future__ import annotations

import re

_SUPERSCRIPTS = {ord(c): d for c, d in zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", strict=True)}
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")

_CHARACTERS = str.maketrans(
    {
        "−": "-",
        "–": "-",
        "﹣": "-",
        "＋": "+",
        "×": r"\times ",
        "⋅": r"\cdot ",
        "·": r"\cdot ",
        "÷": r"\div ",
        "±": r"\pm ",
        "∓": r"\mp ",
        "π": r"\pi ",
        "√": r"\sqrt ",
        "°": r"^\circ ",
        "∞": r"\infty ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∈": r"\in ",
        "≤": r"\leq ",
        "≥": r"\geq ",
        "≠": r"\neq ",
        "∅": r"\emptyset ",
        "ℝ": r"\Reals ",
        "θ": r"\theta ",
        "α": r"\alpha ",
        "β": r"\beta ",
        "λ": r"\lambda ",
        "½": r"\frac{1}{2}",
        "¼": r"\frac{1}{4}",
        "¾": r"\frac{3}{4}",
        "⅓": r"\frac{1}{3}",
        "⅔": r"\frac{2}{3}",
        "£": r"\pounds ",
        "€": r"\euro ",
        "’": "'",
        "\u00a0": " ",
        "\u2009": " ",
        "\u202f": " ",
        "\u200b": "",
    }
)

_SYNONYMS = {
    "dfrac": "frac",
    "tfrac": "frac",
    "cfrac": "frac",
    "dbinom": "binom",
    "tbinom": "binom",
    "le": "leq",
    "leqslant": "leq",
    "leqq": "leq",
    "ge": "geq",
    "geqslant": "geq",
    "geqq": "geq",
    "ne": "neq",
    "lt": "lt",
    "lbrace": "{",
    "rbrace": "}",
    "lbrack": "[",
    "rbrack": "]",
    "varnothing": "emptyset",
    "R": "Reals",
    "degree": "circ",
    "mbox": "text",
    "textbf": "text",
    "textit": "text",
    "textrm": "text",
    "textnormal": "text",
    "texttt": "text",
    "textsf": "text",
    "hbox": "text",
    "smallsetminus": "setminus",
    "backslash": "setminus",
    "bullet": "cdot",
    "ast": "cdot",
    "log10": "lg",
}
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_SIZES = re.compile(
    r"\\(?:left|right)\s*\.|\\(?:left|right|middle|[bB]igg?[lrm]?|displaystyle|textstyle|limits)(?![A-Za-z])"
)
_BARS = re.compile(r"\\(?:[lr]?vert|mid)(?![A-Za-z])")
_SPACES = re.compile(r"(\\\\)|\\[,;:!> ]|~|\\(?:quad|qquad|enspace|thinspace|hfill|space)(?![A-Za-z])|\s+")
# "10,\!080", "1{,}000" and "10\,000": a comma or a thin space that the author marked as inside one number.
_MARKED_THOUSANDS = re.compile(r"(?<=[0-9])(?:,\s*\\!\s*|\{,\}\s*|\\,)(?=[0-9]{3}(?![0-9]))")
_ROMAN = re.compile(r"\\(?:mathrm|mathsf|mathit|mathnormal|rm|mathbf|boldsymbol|bm)\s*\{([^{}]*)\}")
_ROMAN_LETTER = re.compile(r"\\mathrm\s*+\{?\s*+([ei])\s*\}?(?![A-Za-z])")
_OPERATOR = re.compile(r"\\operatorname\*?\s*\{\s*([A-Za-z]+)\s*\}")
_BLACKBOARD = re.compile(r"\\mathbb\s*+\{?\s*+([RZQNC])\s*\}?")
_BLACKBOARD_NAMES = {"R": "Reals", "Z": "Integers", "Q": "Rationals", "N": "Naturals", "C": "Complexes"}
_LONE_DOLLAR = re.compile(r"(?<!\\)\$")
_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_SPACE_TO_DROP = re.compile(r"(?<![A-Za-z0-9]) | (?![A-Za-z0-9])|(?<=[0-9]) (?=[A-Za-z])")
_NUMBER_AS_TEXT = re.compile(r"\\text\s*\{\s*([-+]?[0-9][0-9.,]*)\s*\}", re.ASCII)
_REPEATING = re.compile(r"(?<![0-9.])([0-9]{0,30})\.([0-9]{0,30})\\overline\s*\{\s*([0-9]{1,30})\s*\}", re.ASCII)
_TEXT_COMMAND = re.compile(r"\\text\s*\{([^{}]*)\}")


def _closes_at_end(text: str, opening: int) -> bool:
    """Whether the brace at index ``opening`` is closed by the last character of ``text``."""
    depth = 0
    for index in range(opening, len(text)):
        character = text[index]
        if character in "{}" and (index == 0 or text[index - 1] != "\\"):
            depth += 1 if character == "{" else -1
            if depth == 0:
                return index == len(text) - 1
    return False


def strip_wrappers(text: str) -> str:
    r"""Take off ``$…$``, ``\(…\)``, ``\boxed{…}`` around the whole text, and one full stop after it."""
    while True:
        before = text
        text = text.strip()
        for left, right in _WRAPPERS:
            inner = text[len(left) : len(text) - len(right)]
            wrapped = len(text) > len(left) + len(right) and text.startswith(left) and text.endswith(right)
            # a price such as "\$5" has a dollar sign of its own, and "$x$ or $y$" is not one formula
            if wrapped and left not in inner.replace(r"\$", "") and not inner.endswith("\\"):
                text = inner.strip()
        for command in (r"\boxed", r"\fbox"):
            if text.startswith(command):
                opening = len(command) + len(text[len(command) :]) - len(text[len(command) :].lstrip())
                if text[opening : opening + 1] == "{" and _closes_at_end(text, opening):
                    text = text[opening + 1 : -1].strip()
        if text.endswith("\\\\"):  # a line break
            text = text[:-2]
        if text.endswith(".") and len(text) > 1 and not text.endswith(".."):
            text = text[:-1]
        if text == before:
            return text


def clean(text: str) -> str:
    r"""Return ``text`` with wrappers gone and one spelling for each LaTeX construct.

    Args:
        text: An answer as written, e.g. ``"$\dfrac12$."``.

    Returns:
        The cleaned text, e.g. ``"\frac12"``; single spaces only.
    """
    text = strip_wrappers(text)
    if not text.isascii():
        text = _SUPERSCRIPT_RUN.sub(lambda m: "^{" + m.group().translate(_SUPERSCRIPTS) + "}", text)
        text = text.translate(_CHARACTERS)
    text = _MARKED_THOUSANDS.sub("", text)
    if "\\" in text:
        text = _OPERATOR.sub(r"\\\1 ", text)
        text = _ROMAN_LETTER.sub(r"\1", text)
        text = _ROMAN.sub(_roman, text)
        text = _BLACKBOARD.sub(lambda m: "\\" + _BLACKBOARD_NAMES[m.group(1)] + " ", text)
        text = _SIZES.sub("", text)
        text = _BARS.sub("|", text)
        text = _COMMAND.sub(lambda m: "\\" + _SYNONYMS.get(m.group(1), m.group(1)), text)
        text = _REPEATING.sub(_repeating, text)
        text = _NUMBER_AS_TEXT.sub(r"\1", text)
    if "$" in text:
        text = _LONE_DOLLAR.sub(r"\\$", text)
    text = _SPACES.sub(lambda m: m.group(1) or " ", text)  # a row break of a matrix stays
    return text.strip()


def _repeating(match: re.Match[str]) -> str:
    r"""``0.1\overline{6}`` as the fraction it is."""
    whole, head, cycle = match.groups()
    top = int(whole + head + cycle) - int(whole + head or "0")
    return rf"\frac{{{top}}}{{{10 ** len(head) * (10 ** len(cycle) - 1)}}}"


def _roman(match: re.Match[str]) -> str:
    content = match.group(1)
    if len(content.strip()) == 1 and match.group().startswith((r"\mathbf", r"\bold", r"\bm")):
        return match.group()  # a bold letter is a vector, not the letter
    if not any(c.isalpha() for c in content):
        return content
    return r"\text{" + content + "}"


def literal(cleaned: str) -> str:
    """Return the canonical literal of a cleaned text: spaces that carry no meaning are gone.

    A space between two digits or two letters stays: ``1 2`` is not ``12``.
    """
    return _SPACE_TO_DROP.sub("", cleaned)


def words(cleaned: str) -> str:
    r"""Return a cleaned text as plain words: ``\text{…}`` unwrapped, case folded, one space between words."""
    text = _TEXT_COMMAND.sub(r" \1 ", cleaned)
    text = re.sub(r"\s+", " ", text).strip().rstrip(".").casefold()
    return re.sub(r"^\( ?([a-z]) ?\)$", r"\1", text)


def is_text_command(cleaned: str) -> bool:
    r"""Whether the cleaned text is nothing but ``\text{…}`` pieces with letters in them, e.g. ``\text{east}``."""
    rest = _TEXT_COMMAND.sub("", cleaned)
    inside = " ".join(_TEXT_COMMAND.findall(cleaned))
    return not rest.strip() and any(c.isalpha() for c in inside) and not any(c in "0123456789\\=^" for c in inside)
