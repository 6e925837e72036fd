"""Templates about text."""

from __future__ import annotations

from llm_envs.coding.templates.base import BOOL, INT, STR, WORDS, Template, text_of, words_of


def _count_runs(text: str, k: int) -> int:
    count = length = 0
    for i, letter in enumerate(text):
        length = length + 1 if i > 0 and text[i - 1] == letter else 1
        if length == k:
            count += 1
    return count


def _shift_letters(text: str, k: int) -> str:
    shifted = []
    for letter in text:
        if letter.islower():
            shifted.append(chr((ord(letter) - ord("a") + k) % 26 + ord("a")))
        elif letter.isupper():
            shifted.append(chr((ord(letter) - ord("A") + k) % 26 + ord("A")))
        else:
            shifted.append(letter)
    return "".join(shifted)


def _drop_every(text: str, k: int) -> str:
    return "".join(letter for i, letter in enumerate(text, start=1) if i % k != 0)


def _compress_runs(text: str, k: int) -> str:
    pieces = []
    i = 0
    while i < len(text):
        j = i
        while j < len(text) and text[j] == text[i]:
            j += 1
        pieces.append(f"{text[i]}{j - i}" if j - i >= k else text[i:j])
        i = j
    return "".join(pieces)


def _count_palindromes(words: list[str], k: int) -> int:
    return sum(1 for word in words if len(word) >= k and word == word[::-1])


def _words_by_length(words: list[str], k: int) -> list[str]:
    return sorted((word for word in words if len(word) >= k), key=lambda word: (len(word), word))


def _bracket_depth(text: str, opening: str, closing: str) -> int:
    depth = deepest = 0
    for letter in text:
        if letter == opening:
            depth += 1
        elif letter == closing:
            depth -= 1
            if depth < 0:
                return -1
        deepest = max(deepest, depth)
    return deepest if depth == 0 else -1


def _is_subsequence(text: str, pattern: str) -> bool:
    position = 0
    for letter in text:
        if position < len(pattern) and letter == pattern[position]:
            position += 1
    return position == len(pattern)


def _bracket_texts(rng, opening, closing):  # type: ignore[no-untyped-def]
    if rng.random() < 0.4:
        return (text_of(rng, opening + closing + "x", 0, 8),)
    text = ""
    for _ in range(rng.randint(1, 3)):
        depth = rng.randint(1, 4)
        text += "x" * rng.randint(0, 1) + opening * depth + "x" * rng.randint(0, 2) + closing * depth
    if rng.random() < 0.3:
        text += rng.choice([opening, closing])
    return (text,)


TEMPLATES = (
    Template(
        "count-runs",
        "A run is a longest possible stretch of equal neighbouring letters. Count the runs of `text` that are at least "
        "{k} letters long.",
        _count_runs,
        {"text": STR},
        INT,
        lambda rng, k: ("".join(rng.choice("abc") * rng.randint(1, k + 2) for _ in range(rng.randint(1, 7))),),
        (("length == k", "length > k"), ("length == k", "length >= k"), ("+ 1 if", "+ 0 if")),
        {"k": (2, 3, 4, 5, 6, 7, 8)},
    ),
    Template(
        "shift-letters",
        "Replace every letter a-z and A-Z of `text` by the letter {k} places later in the alphabet. After z comes a "
        "again, after Z comes A. Leave all other characters as they are.",
        _shift_letters,
        {"text": STR},
        STR,
        lambda rng, k: (text_of(rng, "abcxyzABCXYZmnMN-.3", 6, 14),),
        (
            ('ord("a") + k', 'ord("a") - k'),
            ("shifted.append(letter)", "continue"),
            ('("A") + k) % 26 + ord("A")', '("A") + k) % 26 + ord("a")'),
            ("elif letter.isupper()", "elif False"),
        ),
        {"k": tuple(k for k in range(1, 26) if k != 13)},
    ),
    Template(
        "drop-every",
        "Remove every {k}-th character of `text`: the characters number {k}, 2·{k}, 3·{k} and so on, where the first "
        "character has the number 1.",
        _drop_every,
        {"text": STR},
        STR,
        lambda rng, k: (text_of(rng, "abcdefgh", 1, 3 * k + 2),),
        (("start=1", "start=0"), ("!= 0", "== 0"), ("i % k != 0", "i != k")),
        {"k": (2, 3, 4, 5, 6, 7, 8, 9)},
    ),
    Template(
        "compress-runs",
        "A run is a longest possible stretch of equal neighbouring letters. Rewrite `text`: each run of at least "
        "{k} letters becomes the letter followed by the length of the run, shorter runs stay as they are.",
        _compress_runs,
        {"text": STR},
        STR,
        lambda rng, k: ("".join(rng.choice("pqr") * rng.randint(1, k + 2) for _ in range(rng.randint(1, 6))),),
        ((">= k", "> k"), ("else text[i:j]", "else text[i]"), ("{j - i}", "{j - i - 1}")),
        {"k": (3, 4, 5, 6, 7)},
    ),
    Template(
        "count-palindromes",
        "Count the words in `words` that have at least {k} letters and read the same from both ends.",
        _count_palindromes,
        {"words": WORDS},
        INT,
        lambda rng, k: (
            [
                half + half[::-1][rng.randint(0, 1) :] if rng.random() < 0.7 else half + rng.choice("xy")
                for half in words_of(rng, "ab", 1, 7, k)
            ],
        ),
        ((">= k", "> k"), (" and word == word[::-1]", ""), ("len(word) >= k and ", "")),
        {"k": (2, 3, 4, 5, 6)},
    ),
    Template(
        "words-by-length",
        "Keep the words of `words` that have at least {k} letters, and sort them: shorter ones first, words of the "
        "same length in alphabetical order. A word that occurs twice is kept twice.",
        _words_by_length,
        {"words": WORDS},
        WORDS,
        lambda rng, k: (words_of(rng, "abc", 3, 9, k + 2),),
        ((">= k", "> k"), ("(len(word), word)", "word"), ("(len(word), word)", "(-len(word), word)")),
        {"k": (1, 2, 3, 4, 5, 6)},
    ),
    Template(
        "bracket-depth",
        "The brackets {opening} and {closing} in `text` are balanced if every {closing} closes an earlier {opening} "
        "and none is left open. Return how many are open at once at most, or -1 if they are not balanced. Other "
        "characters do not count.",
        _bracket_depth,
        {"text": STR},
        INT,
        _bracket_texts,
        (
            ("deepest if depth == 0 else -1", "deepest"),
            ("deepest = max(deepest, depth)", "deepest += letter == opening"),
            ("                return -1", "                depth = 0"),
        ),
        {"opening": ("(", "[", "<"), "closing": (")", "]", ">", "|", "/")},
    ),
    Template(
        "is-subsequence",
        'Say whether the letters of "{pattern}" occur in `text` in this order, not necessarily next to each other.',
        _is_subsequence,
        {"text": STR},
        BOOL,
        lambda rng, pattern: (
            "".join(letter + text_of(rng, pattern, 0, 2) for letter in pattern if rng.random() < 0.9)
            if rng.random() < 0.6
            else text_of(rng, pattern, 3, 9),
        ),
        (
            ("return position == len(pattern)", "return pattern in text"),
            ("return position == len(pattern)", "return position >= len(pattern) - 1"),
            ("return position == len(pattern)", "return all(letter in text for letter in pattern)"),
        ),
        {"pattern": ("cat", "abba", "tree", "noon", "alpha", "bird", "echo", "gate", "stone", "river", "moon", "salt")},
    ),
)
