"""Hashes of columns: equal rows of two logs get equal numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from matchers.arrays import Float64, Hash, Int64
from matchers.logs.columns import Ragged

__all__ = ["fingerprint", "float_bits", "mix", "shared_ids"]

_U = np.uint64


def mix(x: Hash) -> Hash:
    """Scramble 64-bit words (the finaliser of splitmix64), so that sums of them make good hashes."""
    x = x ^ (x >> _U(30))
    x *= _U(0xBF58476D1CE4E5B9)
    x ^= x >> _U(27)
    x *= _U(0x94D049BB133111EB)
    x ^= x >> _U(31)
    return x


def float_bits(values: Float64) -> Hash:
    """The bits of each number, with both zeros mapped to one pattern and all NaNs to another."""
    values = values + 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)


def fingerprint(lists: Ragged) -> Hash:
    """An order-sensitive hash of each row's list."""
    count = lists.count
    place = np.arange(len(lists.value)) - lists.start[lists.row]
    salt = mix(np.arange(1, count.max(initial=0) + 1, dtype=np.uint64))
    bits = lists.value if lists.value.dtype == np.uint64 else float_bits(lists.value)
    total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mix(bits + salt[place]))))
    return np.diff(total[lists.start])


def shared_ids(a: Sequence[str], b: Sequence[str]) -> tuple[Int64, Int64, int]:
    """Number the texts of two tables jointly; return (ids of a, ids of b, number of texts). Entry -1 (the last) is "no
    text".
    """
    ids: dict[str, int] = {}
    left = [ids.setdefault(text, len(ids)) for text in a]
    right = [ids.setdefault(text, len(ids)) for text in b]
    return np.array([*left, -1], np.int64), np.array([*right, -1], np.int64), len(ids)
