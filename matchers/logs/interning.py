"""Intern names to small integers, thousands at a time.

A log repeats a few hundred names a hundred thousand times. Slicing out each for a dictionary lookup costs more than all
numbers of the log, so names are identified by a 64-bit hash computed on whole arrays; only a new name is sliced out.
Two names are confused only if all 64 bits collide.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Hash, Int32, Int64
from matchers.logs.byte_words import Words

__all__ = ["InternTable", "hash_text"]

_U = np.uint64
_MULTIPLIER = _U(0x9E3779B97F4A7C15)
_KEEP = np.array([(1 << (8 * k)) - 1 for k in range(9)], np.uint64)
_LONG = 256
"""Names longer than this are rare, and hashed one by one."""


def hash_text(buffer: bytes, words: Words, start: Int64, end: Int64) -> Hash:
    """A hash of each `buffer[start[i]:end[i]]`, valid within this process."""
    length = end - start
    out = length.astype(np.uint64) * _MULTIPLIER
    # all names have at least this many whole words; the remaining words concern fewer and fewer names
    common = min(int(length.min(initial=_LONG)), _LONG) // 8 * 8
    for offset in range(0, common, 8):
        out = _mixed(out, words.at(start + offset))
    active = np.flatnonzero((length > common) & (length <= _LONG))
    at, rest = start[active] + common, length[active] - common
    while len(active):
        word = words.at(at) & _KEEP.take(rest, mode="clip")
        out[active] = _mixed(out[active], word)
        more = np.flatnonzero(rest > 8)
        active, at, rest = active[more], at[more] + 8, rest[more] - 8
    for i in np.flatnonzero(length > _LONG).tolist():
        out[i] = hash(buffer[start[i] : end[i]]) & 0xFFFFFFFFFFFFFFFF
    return out


def _mixed(out: Hash, word: Hash) -> Hash:
    mixed = (out ^ word) * _MULTIPLIER
    mixed ^= mixed >> _U(32)
    return mixed


class InternTable:
    """Distinct names in order of first appearance."""

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self._hashes = np.zeros(0, np.uint64)  # ascending
        self._ids = np.zeros(0, np.int32)

    def ids(self, buffer: bytes, words: Words, start: Int64, end: Int64) -> Int32:
        """The number of each name."""
        hashes = hash_text(buffer, words, start, end)
        if not len(hashes):
            return np.zeros(0, np.int32)
        at = self._places(hashes)
        if not len(self._hashes) or not np.array_equal(self._hashes[at], hashes):
            self._add(hashes, buffer, start, end)
            at = self._places(hashes)
        return self._ids[at]

    def _places(self, hashes: Hash) -> Int64:
        """The position of each hash in the table, or its insertion point."""
        return np.minimum(np.searchsorted(self._hashes, hashes), max(len(self._hashes) - 1, 0))

    def _add(self, hashes: Hash, buffer: bytes, start: Int64, end: Int64) -> None:
        new, first = np.unique(hashes, return_index=True)
        if len(self._hashes):
            unseen = self._hashes[self._places(new)] != new
            new, first = new[unseen], first[unseen]
        by_place = np.argsort(first)
        ids = np.empty(len(new), np.int32)
        ids[by_place] = np.arange(len(new)) + len(self.names)
        places = first[by_place]
        self.names.extend(buffer[s:e] for s, e in zip(start[places].tolist(), end[places].tolist(), strict=True))
        together = np.concatenate((self._hashes, new))
        order = np.argsort(together, kind="stable")
        self._hashes, self._ids = together[order], np.concatenate((self._ids, ids))[order]
