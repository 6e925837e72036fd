"""Spaces for free text: any unicode string within length bounds, sampled from examples.

``gymnasium.spaces.Text`` lists its whole character set, which is neither cheap nor meaningful for language: its default
lacks the space, and a full-unicode one takes seconds to build. :class:`FreeText` keeps the type (so code that checks
for ``gymnasium.spaces.Text`` works) and drops the list.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Text

MAX_OBSERVATION_CHARS = 10_000_000
MAX_ACTION_CHARS = 1_000_000
_SAMPLE_ALPHABET = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJ 0123456789 .,:;!?<>/\\{}[]()'\"`#é漢\n"


class TextObs(str):
    """A ``str`` with the ``dtype`` that PettingZoo's own API test reads from every observation.

    It is an ordinary string in every other way. Serialisers that insist on exact types take ``str(observation)``.
    """

    __slots__ = ()
    dtype = np.dtype(str)


class FreeText(Text):
    """Any unicode string whose length lies in ``[min_length, max_length]`` characters.

    Args:
        max_length: The longest accepted text, in characters.
        min_length: The shortest accepted text, in characters.
        examples: Texts that :meth:`sample` draws from uniformly. Without them a short random text is drawn.
        seed: Seed of the space's own generator.

    Raises:
        gymnasium.error.InvalidBound: The bounds are negative or crossed, or an example lies outside them.

    >>> space = FreeText(20, examples=("yes", "no"), seed=0)
    >>> space.contains("any text: é漢"), space.contains("x" * 21)
    (True, False)
    >>> space.sample() in space.examples
    True
    """

    def __init__(
        self,
        max_length: int = MAX_ACTION_CHARS,
        *,
        min_length: int = 0,
        examples: tuple[str, ...] = (),
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if not 0 <= min_length <= max_length:
            raise gymnasium.error.InvalidBound(
                f"FreeText expects 0 <= min_length <= max_length, actual values: {min_length}, {max_length}"
            )
        for example in examples:
            if not min_length <= len(example) <= max_length:
                raise gymnasium.error.InvalidBound(
                    f"FreeText example of {len(example)} characters lies outside "
                    f"[{min_length}, {max_length}]: {example[:60]!r}"
                )
        self.min_length = int(min_length)
        self.max_length = int(max_length)
        self.examples = tuple(examples)
        # The parent class builds its character tables in __init__; free text has none, so only Space.__init__ runs.
        gymnasium.spaces.Space.__init__(self, dtype=str, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Draw one of the examples uniformly, or a short random text where there are none.

        Args:
            mask: Not supported for free text; must be None.
            probability: Not supported for free text; must be None.
        """
        if mask is not None or probability is not None:
            raise gymnasium.error.Error("FreeText has no character set: `mask` and `probability` must be None.")
        if self.examples:
            return self.examples[int(self.np_random.integers(len(self.examples)))]
        length = int(self.np_random.integers(self.min_length, min(self.max_length, self.min_length + 32) + 1))
        picks = self.np_random.integers(len(_SAMPLE_ALPHABET), size=length)
        return "".join(_SAMPLE_ALPHABET[i] for i in picks)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string within the length bounds."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    @property
    def is_np_flattenable(self) -> bool:
        """Free text has no fixed-size array form."""
        return False

    def __repr__(self) -> str:
        """The bounds and how many examples there are."""
        return f"FreeText({self.min_length}, {self.max_length}, examples={len(self.examples)})"

    def __eq__(self, other: object) -> bool:
        """Spaces are equal when their bounds and examples are."""
        return isinstance(other, FreeText) and (self.min_length, self.max_length, self.examples) == (
            other.min_length,
            other.max_length,
            other.examples,
        )

    __hash__ = None  # type: ignore[assignment]
