"""Unaligned 64-bit reads from a byte buffer, so that thousands of names and numbers are decoded at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Hash, Int64

__all__ = ["PADDING", "WordSet", "Words"]

PADDING = 32
"""Zero bytes that must follow the text, so that words can be read at its last byte."""

_GOLDEN = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio, which scatters well; odd, as are its powers."""
_MAX_BITS = 12


class Words:
    """Little-endian words at any position of a byte buffer: `Words(buffer).at(positions)` reads eight bytes each."""

    def __init__(self, buffer: bytes) -> None:
        """`buffer` ends in `PADDING` zero bytes."""
        # one word per byte: they overlap, and nothing is copied
        self._words = np.ndarray((max(len(buffer) - 7, 0),), np.dtype("<u8"), buffer, strides=(1,))

    def at(self, position: Int64) -> Hash:
        return self._words[position]


class WordSet:
    """A small set of known words, with a vectorised lookup."""

    def __init__(self, words: Sequence[int]) -> None:
        """`words` are distinct, at most 127 of them."""
        known = np.array(words, np.uint64)
        # a perfect hash: a multiplier that gives each word its own place, so a lookup needs no probing
        multiplier, bits = _GOLDEN, 1
        while len(set(((known * np.uint64(multiplier)) >> np.uint64(64 - bits)).tolist())) < len(known):
            multiplier = multiplier * _GOLDEN & 0xFFFFFFFFFFFFFFFF
            bits = min(bits + 1, _MAX_BITS)
        self._multiplier, self._shift = np.uint64(multiplier), np.uint64(64 - bits)
        place = (known * self._multiplier) >> self._shift
        # unused places hold a word that hashes elsewhere, so that nothing matches there
        self._word = np.full(1 << bits, known[0])
        self._index = np.full(1 << bits, -1, np.int8)
        self._word[place], self._index[place] = known, np.arange(len(known))

    def find(self, words: Hash) -> NDArray[np.int8]:
        """Index of each word in the set, -1 for words outside it."""
        place = ((words * self._multiplier) >> self._shift).view(np.int64)
        index = self._index.take(place)
        index[self._word.take(place) != words] = -1
        return index
