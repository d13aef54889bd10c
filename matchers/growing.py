"""A column of which nobody knows the length beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["GrowingColumn"]

_LEAST = 1 << 12


class GrowingColumn:
    """Values that come in pieces, in one array.

    A list of the pieces, joined in the end, would take the memory twice: what the pieces leave behind is too scattered
    to be used again.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._values: NDArray[Any] = np.empty(_LEAST, dtype)
        self._size = 0

    def add(self, piece: NDArray[Any]) -> None:
        """Append values."""
        size = self._size + len(piece)
        if size > len(self._values):
            # in place, where the system can; nothing else refers to the array yet
            self._values.resize(max(size, len(self._values) * 5 // 4), refcheck=False)
        self._values[self._size : size] = piece
        self._size = size

    def take(self) -> NDArray[Any]:
        """All values; the column is empty afterwards."""
        values = self._values
        values.resize(self._size, refcheck=False)
        self._values, self._size = np.empty(0, values.dtype), 0
        return values
