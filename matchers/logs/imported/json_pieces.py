"""JSON that is too long to be read at once, value by value; a damaged value costs only itself."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from matchers.logs.imported.columns import Columns
from matchers.logs.imported.json_shapes import SPAN, Entry, Record, Shapes
from matchers.logs.records import MAX_PROBLEMS
from matchers.logs.source import LogSource

__all__ = ["Pieces"]

_BETWEEN = re.compile(r"[\s,:]*")
_LARGEST: Final = 16 << 20
"""Characters of a value; an operation on 100,000 tensors takes a third of that."""
_NEAR_END: Final = 32
"""Characters before the end of what was read in which an error may mean that more has to be read."""
_DECODE: Final = json.JSONDecoder().raw_decode


class _Damaged(ValueError):
    """Raised at a value that cannot be read."""


class Pieces:
    """The text of a file, of which what was read already is dropped.

    Attributes:
        text: a part of the file.
        at: place in it.
    """

    def __init__(self, source: LogSource) -> None:
        self._blocks = source.blocks()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.text = ""
        self.at = 0
        self._line, self._line_at = 1, 0
        """The line of a place."""

    @property
    def line(self) -> int:
        """The line of the place here, from 1."""
        self._line += self.text.count("\n", self._line_at, self.at)
        self._line_at = self.at
        return self._line

    def more(self) -> bool:
        """Read on, as much as there is; False at the end."""
        self._line, rest = self.line, len(self.text) - self.at
        parts = [self.text[self.at :]]
        size = 0
        for block in self._blocks:
            parts.append(self._decoder.decode(block))
            size += len(parts[-1])
            if size > rest:
                break
        self.text, self.at, self._line_at = "".join(parts), 0, 0
        return size > 0

    def _skip(self) -> str:
        """Skip spaces, commas and colons; return the character after them, empty at the end."""
        while True:
            self.at = _BETWEEN.match(self.text, self.at).end()  # type: ignore[union-attr] # it matches nothing too
            if self.at < len(self.text) or not self.more():
                return self.text[self.at : self.at + 1]

    def entries(
        self,
        end: str,
        next_value: Callable[[str, int], int],
        columns: Columns,
        shapes: Shapes | None = None,
        *,
        named: bool = False,
    ) -> Iterator[Entry]:
        """Yield each entry of a list or an object, besides with its name, and read the file to its end.

        A damaged entry perhaps has the name of the one before; what is between it and the next is left out.

        Args:
            end: the bracket that closes it.
            next_value: the place of the next entry in a text from a place on; -1: there is none.
            shapes: split them; else a content is a whole value, without a shape.
            named: it is an object.
        """
        damaged = 0
        name = ""
        while self._skip() not in ("", end) and damaged < MAX_PROBLEMS:
            if shapes is not None and shapes.quick:
                if entries := self._many(shapes, named=named):
                    yield from entries
                    name = entries[-1][4]
                    continue
                if len(self.text) - self.at < SPAN and self.more():
                    continue
            line = self.line
            try:
                if named:
                    name = str(self._value())
                    self._skip()
                value = self._value()
            except _Damaged as error:
                damaged += 1
                yield line, 0, None, error, name
                self._seek(next_value)
            else:
                yield (line, 0, None, value, name) if shapes is None else shapes.one(line, value, name)
        if damaged == MAX_PROBLEMS:
            columns.problem(self.line, "so much is damaged that the rest was not read")
        elif not self._skip():
            columns.cut_off = True
            columns.problem(self.line, "the file ends within its entries")
        while self.more():  # the digest of a file is of all its bytes
            self.at = len(self.text)

    def _many(self, shapes: Shapes, *, named: bool) -> list[Record]:
        """Return the entries from here on that are quickly split, and go on to their end."""
        text, line = self.text[self.at : self.at + SPAN].encode(), self.line
        found = [*shapes.many(text, line, named=named)]
        end = found[-1][1] if found else 0
        self.at += end if text.isascii() else len(text[:end].decode())
        # where lines are short, several times faster than to search for each break
        self._line = line + int(np.count_nonzero(np.frombuffer(text, np.uint8, end) == ord("\n")))
        self._line_at = self.at
        return found

    def _value(self) -> Any:
        while True:
            try:
                found, end = _DECODE(self.text, self.at)
            except (ValueError, RecursionError) as error:
                wrong = getattr(error, "pos", self.at)
                open_ = wrong > len(self.text) - _NEAR_END or "Unterminated" in str(error)
                if open_ and len(self.text) - self.at < _LARGEST and self.more():
                    continue
                self.at = max(wrong, self.at + 1)
                raise _Damaged from None
            self.at = end
            return found

    def _seek(self, find: Callable[[str, int], int]) -> None:
        """Go on to what is found, else to the end."""
        while (found := find(self.text, self.at)) < 0:
            self.at = max(len(self.text) - _NEAR_END, self.at)
            if not self.more():
                found = len(self.text)
                break
        self.at = found
