"""JSON that is too long to be read at once, value by value; a damaged value costs only itself."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from typing import Any, Final

from matchers.logs.source import LogSource

__all__ = ["Damaged", "Pieces"]

_BETWEEN = re.compile(r"[\s,:]*")
_LARGEST: Final = 16 << 20
"""Characters of a value; an operation on 100,000 tensors takes a third of that."""
_NEAR_END: Final = 32
"""Characters before the end of what was read in which an error may mean that more has to be read."""
_DECODE: Final = json.JSONDecoder().raw_decode


class Damaged(ValueError):
    """Raised at a value that cannot be read."""


class Pieces:
    """The text of a file, of which what was read already is dropped.

    Attributes:
        text: a part of the file.
        at: place in it.
        line: the line of this place, from 1.
    """

    def __init__(self, source: LogSource) -> None:
        self._blocks = source.blocks()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.text = ""
        self.at = 0
        self.line = 1

    def more(self) -> bool:
        """Read on, as much as there is; False at the end."""
        rest = len(self.text) - self.at
        parts = [self.text[self.at :]]
        size = 0
        for block in self._blocks:
            parts.append(self._decoder.decode(block))
            size += len(parts[-1])
            if size > rest:
                break
        self.text, self.at = "".join(parts), 0
        return size > 0

    def move(self, to: int) -> None:
        """Go on to a place."""
        self.line += self.text.count("\n", self.at, to)
        self.at = to

    def skip(self) -> str:
        """Skip spaces, commas and colons; return the character after them, empty at the end."""
        while True:
            self.move(_BETWEEN.match(self.text, self.at).end())  # type: ignore[union-attr] # it matches nothing too
            if self.at < len(self.text) or not self.more():
                return self.text[self.at : self.at + 1]

    def value(self) -> Any:
        """Read the value here.

        Raises:
            Damaged: it cannot be read; the place is behind its beginning.
        """
        while True:
            try:
                found, end = _DECODE(self.text, self.at)
            except (ValueError, RecursionError) as error:
                wrong = getattr(error, "pos", self.at)
                open_ = wrong > len(self.text) - _NEAR_END or "Unterminated" in str(error)
                if open_ and len(self.text) - self.at < _LARGEST and self.more():
                    continue
                self.move(max(wrong, self.at + 1))
                raise Damaged from None
            self.move(end)
            return found

    def seek(self, find: Callable[[str, int], int]) -> bool:
        """Go on to what is found in the text from a place on (-1: nothing there); False: to the end."""
        while (found := find(self.text, self.at)) < 0:
            self.move(max(len(self.text) - _NEAR_END, self.at))
            if not self.more():
                self.move(len(self.text))
                return False
        self.move(found)
        return True
