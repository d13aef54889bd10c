"""Machine words at any place of a text: what lets thousands of names and numbers be read at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["PADDING", "Words"]

PADDING = 32
"""Zero bytes that must follow the text, so that words can be read at its last byte."""


class Words:
    """Little-endian words at any position of a byte buffer: `Words(buffer).at(positions)` is eight bytes from each."""

    def __init__(self, buffer: bytes) -> None:
        """`buffer` ends in `PADDING` zero bytes."""
        # one word per byte: they overlap, and nothing is copied
        self._words = np.ndarray((max(len(buffer) - 7, 0),), np.dtype("<u8"), buffer, strides=(1,))

    def at(self, position: NDArray[np.int64]) -> NDArray[np.uint64]:
        return self._words[position]
