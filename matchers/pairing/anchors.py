"""Rows that are partners beyond doubt, and what they say about where the others are to be expected."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Hash, Int64
from matchers.logs.hashing import float_bits, mix
from matchers.pairing.evidence import Order
from matchers.pairing.features import Features

__all__ = [
    "expected_order",
    "ranked_join",
    "same_copies",
    "same_names",
    "same_reads",
    "same_results",
    "same_values",
    "unique_join",
]


_BLOCK = 32
_STRAY = 96
"""An anchor further than so many rows from where its neighbours point is not believed."""


def _groups(key: Hash, most: int | None) -> tuple[Int64, Int64, Int64]:
    """(order, rank, count) of the rows sorted by key: rank counts within equal keys, count is their number.

    `most`: 1 where only rows that are alone with their key matter; the others are in no order then.
    """
    order = np.argsort(key, kind=None if most == 1 else "stable")
    ordered = key[order]
    new = np.concatenate(([True], ordered[1:] != ordered[:-1])) if len(key) else np.zeros(0, bool)
    first = np.flatnonzero(new)
    size = np.diff(np.append(first, len(key)))
    return order, np.arange(len(key)) - np.repeat(first, size), np.repeat(size, size)


def ranked_join(a: Hash, b: Hash, most: int | None = None) -> tuple[Int64, Int64]:
    """Pairs the r-th row of each key in a with the r-th in b, for keys that occur equally often on both sides.

    `most`: only keys that occur at most so often.
    """
    order_a, rank_a, size_a = _groups(a, most)
    order_b, _, size_b = _groups(b, most)
    if not len(order_a) or not len(order_b):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    key_a, key_b = a[order_a], b[order_b]
    start = np.searchsorted(key_b, key_a)
    at = np.minimum(start, len(key_b) - 1)
    ok = (key_b[at] == key_a) & (size_b[at] == size_a)
    if most is not None:
        ok &= size_a <= most
    return order_a[ok], order_b[(at + rank_a)[ok]]


def unique_join(a: Hash, b: Hash) -> tuple[Int64, Int64]:
    """Pairs the rows whose key occurs once on each side."""
    return ranked_join(a, b, most=1)


def same_values(f: Features) -> tuple[Int64, Int64]:
    """Rows of one kind and phase with the same printed numbers, inputs included, that no other row has."""
    phase = np.uint64(0x9E3779B97F4A7C15)
    key_a = f.a.exact + f.a.phase.astype(np.uint64) * phase
    key_b = f.b.exact + f.b.phase.astype(np.uint64) * phase
    rows_a, rows_b = np.flatnonzero(f.a.telling), np.flatnonzero(f.b.telling)
    i, j = unique_join(key_a[rows_a], key_b[rows_b])
    return rows_a[i], rows_b[j]


def same_results(f: Features, free_a: Bool, free_b: Bool) -> tuple[Int64, Int64]:
    """Free rows of one kind whose results have the same bits, which no other free row of it made."""
    rows_a = np.flatnonzero(free_a & (f.a.result != 0))
    rows_b = np.flatnonzero(free_b & (f.b.result != 0))
    i, j = unique_join(
        f.a.result[rows_a] + mix(f.a.kind[rows_a].astype(np.uint64)),
        f.b.result[rows_b] + mix(f.b.kind[rows_b].astype(np.uint64)),
    )
    return rows_a[i], rows_b[j]


def same_reads(f: Features, phases: bool) -> tuple[Int64, Int64]:
    """Collectives of one kind that read the same tensor, in order where several did.

    Their results may have been logged before they were there; what went in is known. `phases`: also of one phase.
    """
    rows_a, rows_b = np.flatnonzero(f.a.read > 0), np.flatnonzero(f.b.read > 0)
    keys = []
    for side, rows in ((f.a, rows_a), (f.b, rows_b)):
        what = ((side.op[rows] + 1) * (f.shapes + 2) + side.shape[rows] + 1) * 4 + side.phase[rows] * phases
        keys.append(mix(what.astype(np.uint64)) + float_bits(side.read[rows]))
    i, j = ranked_join(keys[0], keys[1])
    return rows_a[i], rows_b[j]


def same_copies(f: Features, of_a: Int64, of_b: Int64) -> tuple[Int64, Int64]:
    """Free recomputed rows that repeat partners, in order, where both sides ran those again equally often."""
    rows_a = np.flatnonzero((of_a < 0) & (f.a.original >= 0))
    rows_b = np.flatnonzero((of_b < 0) & (f.b.original >= 0))
    repeats = of_a[f.a.original[rows_a]]
    rows_a, repeats = rows_a[repeats >= 0], repeats[repeats >= 0]
    i, j = ranked_join(repeats.astype(np.uint64), f.b.original[rows_b].astype(np.uint64))
    return rows_a[i], rows_b[j]


def same_names(f: Features, free_a: Bool, free_b: Bool) -> tuple[Int64, Int64]:
    """The r-th row of a module and kind in a and the r-th in b, where both have equally many; numbers ignored."""
    rows_a, rows_b = np.flatnonzero(free_a), np.flatnonzero(free_b)
    width = np.uint64(f.names.size + 2)
    key_a = f.a.kind[rows_a].astype(np.uint64) * width + (f.a.module[rows_a] + 1).astype(np.uint64)
    key_b = f.b.kind[rows_b].astype(np.uint64) * width + (f.b.module[rows_b] + 1).astype(np.uint64)
    i, j = ranked_join(key_a, key_b)
    return rows_a[i], rows_b[j]


def near_others(i: Int64, j: Int64) -> Bool:
    """Which anchors point to about where the anchors around them do; i is sorted."""
    n = len(i)
    if n == 0:
        return np.zeros(0, bool)
    offset = j - i
    blocks = -(-n // _BLOCK)
    # the last block is filled up with copies of its own offsets, so that its median stays its own
    padded = offset[np.minimum(np.arange(blocks * _BLOCK), n - 1)]
    if blocks * _BLOCK > n:
        padded[n:] = np.resize(offset[(blocks - 1) * _BLOCK :], blocks * _BLOCK - n)
    median = np.partition(padded.reshape(blocks, _BLOCK), _BLOCK // 2, axis=1)[:, _BLOCK // 2]
    block = np.arange(n) // _BLOCK
    stray = np.abs(offset - median[block])
    for step in (-1, 1):
        stray = np.minimum(stray, np.abs(offset - median[np.clip(block + step, 0, blocks - 1)]))
    return stray <= _STRAY


def expected_order(f: Features, i: Int64, j: Int64) -> Order:
    """Where each row of a is expected in b, by the nearest anchors before and after it (itself left out).

    i is sorted. Without an anchor, rows are expected in proportion.
    """
    n_a, n_b = len(f.a), len(f.b)
    rows = np.arange(n_a)
    if not len(i):
        scaled = rows * n_b // max(n_a, 1)
        return Order(scaled, scaled)
    before = np.searchsorted(i, rows, side="left") - 1
    after = np.searchsorted(i, rows, side="right")
    at_before = np.where(before >= 0, before, np.minimum(after, len(i) - 1))
    at_after = np.where(after < len(i), after, np.maximum(before, 0))
    offset = j - i
    return Order(rows + offset[at_before], rows + offset[at_after])
