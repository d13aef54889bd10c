"""The operations that made tensors which a log does not number: known by a property that only one result has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import repeat

__all__ = ["Makers"]

_SEVERAL = -2


class Makers:
    """Rows by what is known of their results: a digest, a norm, statistics. What two rows made has no known maker.

    Attributes:
        first: notes a result of a row, and returns the row that is noted: `keep` need be called for another one only.
    """

    def __init__(self) -> None:
        self._rows: dict[Hashable, int] = {}
        self.first: Callable[[Hashable, int], int] = self._rows.setdefault

    def keep(self, known: Hashable, row: int, read: Collection[Hashable] = ()) -> None:
        """Note a result of a row; what it has read and returns unchanged comes from it from then on."""
        maker = self._rows.setdefault(known, row)
        if maker != row:
            self._rows[known] = row if known in read and maker != _SEVERAL else _SEVERAL

    def of(self, known: Hashable) -> int:
        """Return the row that made this; -1: none, or several."""
        return max(self._rows.get(known, -1), -1)

    def of_all(self, known: Iterable[Hashable]) -> list[int]:
        """Return the rows that made these, as `of` each."""
        rows = [*map(self._rows.get, known, repeat(-1))]
        return [max(row, -1) for row in rows] if _SEVERAL in rows else rows
