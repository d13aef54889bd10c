"""Search of many texts for those that match a pattern: only those with its rarest plain text are looked at.

Thousands of patterns are matched against the names of a log, and most match nothing: a search for their plain text in
all names at once costs a microsecond. What patterns of one form read from the texts is kept, so that those that differ
in an offset only are read once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from matchers.rules.kept import Kept
from matchers.rules.pattern import Glob, Pattern

__all__ = ["TextIndex"]

_MAX_READINGS: Final = 100_000
"""Texts read by patterns that are kept."""


class TextIndex:
    """Texts by number, in one string, for searches."""

    __slots__ = ("_all", "_readings", "_starts")

    def __init__(self, texts: Iterable[str]) -> None:
        texts = list(texts)
        # What stands between two texts only separates them: a hit across it is no match.
        self._all = "\n".join(texts)
        self._starts = array("q", accumulate((len(text) + 1 for text in texts), initial=0))
        self._readings = Kept[list[tuple[int, tuple[str, ...]]]](_MAX_READINGS)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> str:
        return self._all[self._starts[number] : self._starts[number + 1] - 1]

    def may_match(self, literals: Sequence[str]) -> bool:
        """False if some plain text is in none of the texts."""
        return all(literal in self._all for literal in literals)

    def _candidates(self, literals: Sequence[str]) -> Sequence[int]:
        """Numbers of the texts with the rarest of some plain texts, ascending; all texts if there are none."""
        if not literals:
            return range(len(self))
        least, rarest = min((self._all.count(literal), literal) for literal in literals)
        if not least:
            return ()
        found: list[int] = []
        at = self._all.find(rarest)
        while at >= 0:
            found.append(bisect_right(self._starts, at) - 1)
            at = self._all.find(rarest, self._starts[found[-1] + 1])
        return found

    def matching(self, pattern: Pattern) -> dict[int, dict[str, int | str]]:
        """The captures of each text that matches, by its number, ascending."""
        readings = self._readings.get(pattern.form)
        if readings is None:
            read = ((number, pattern.reading(self[number])) for number in self._candidates(pattern.literals))
            readings = [(number, groups) for number, groups in read if groups is not None]
            self._readings.put(pattern.form, readings, len(readings) + 1)
        captured = ((number, pattern.captures(groups)) for number, groups in readings)
        return {number: captures for number, captures in captured if captures is not None}

    def globbed(self, glob: Glob) -> list[int]:
        """Numbers of the texts that a glob matches, ascending."""
        numbers = self._candidates(glob.literals)
        if glob.anywhere and "\n" not in glob.text:
            return list(numbers)
        return [number for number in numbers if glob.match(self[number])]
