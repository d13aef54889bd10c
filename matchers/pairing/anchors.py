"""Anchors: pairs that are certain, and the positions at which they let the other rows be expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Hash, Int64, stable_order
from matchers.logs.columns import repeated
from matchers.logs.hashing import float_bits, mix
from matchers.logs.op_log import Phase
from matchers.pairing.evidence import Order
from matchers.pairing.features import Features, LogFeatures, tolerance

__all__ = [
    "expected_order",
    "joined",
    "ranked_join",
    "same_copies",
    "same_names",
    "same_reads",
    "same_results",
    "same_values",
]

Sides = tuple[Int64, Int64]
"""Rows of a, and rows of b."""

_BLOCK = 32
_STRAY = 96
"""Maximum distance in rows between an anchor and the position that its neighbours predict."""


def ranked_join(a: Hash, b: Hash, most: int | None = None) -> tuple[Int64, Int64]:
    """Pair the r-th row of each key in a with the r-th in b, for keys that occur equally often on both sides.

    `most`: only keys that occur at most this often.
    """
    key = np.concatenate((a, b))
    order = stable_order(key)
    return _ranked(order, key[order], len(a), most)


def _ranked(order: Int64, key: NDArray[Any], n_a: int, most: int | None = None) -> tuple[Int64, Int64]:
    """The same of rows of a, and of b behind them, in the order of their keys."""
    if not len(order):
        return order, order
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    size = np.diff(np.append(first, len(key)))
    many = np.add.reduceat(order < n_a, first, dtype=np.int64)  # of a: they come first among equal keys
    ok = (2 * many == size) & (many <= (n_a if most is None else most))
    many = many[ok]
    of_key, rank = repeated(np.flatnonzero(ok), many)
    at = first[of_key] + rank
    return order[at], order[at + size[of_key] // 2] - n_a


def joined(f: Features, rows: Sides, key: Callable[[LogFeatures, Int64], Hash], most: int | None = None) -> Sides:
    """Pair rows of a with rows of b, of these, by a key that is made of them: as `ranked_join` does."""
    i, j = ranked_join(key(f.a, rows[0]), key(f.b, rows[1]), most)
    return rows[0][i], rows[1][j]


def same_values(f: Features) -> Sides:
    """Rows of one kind and phase with the same printed numbers, inputs included, shared by no other row."""
    rows = np.flatnonzero(f.a.telling), np.flatnonzero(f.b.telling)
    phase = np.uint64(0x9E3779B97F4A7C15)
    return joined(f, rows, lambda of, at: of.exact[at] + of.phase[at].astype(np.uint64) * phase, most=1)


@np.errstate(invalid="ignore")
def same_results(f: Features, free_a: Bool, free_b: Bool) -> Sides:
    """Free rows of one kind with bitwise equal results, shared by no other free row of that kind.

    Of extremes alone the L2 norm and the mean have to agree, too, up to rounding: the first updates of Adam are all
    about as large as the learning rate.
    """
    rows = np.flatnonzero(free_a & (f.a.result != 0)), np.flatnonzero(free_b & (f.b.result != 0))
    i, j = joined(f, rows, lambda of, at: of.result[at] + mix(of.kind[at].astype(np.uint64)), most=1)
    x, y = f.a.log.written.stats[:, i], f.b.log.written.stats[:, j]
    scale = x[1], np.abs(x[2:4]).max(axis=0)
    agree = ~(np.abs(x - y)[[1, 4]] > tolerance(f) * np.stack(scale)).any(axis=0)
    return i[agree], j[agree]


def same_reads(f: Features, phases: bool) -> Sides:
    """Collectives of one kind that read the same tensor, in order if several did.

    Their results may have been logged before completion; their inputs are reliable. `phases`: require equal phases too.
    """

    def key(side: LogFeatures, rows: Int64) -> Hash:
        what = ((side.op[rows] + 1) * (f.shapes + 2) + side.shape[rows] + 1) * len(Phase) + side.phase[rows] * phases
        return mix(what.astype(np.uint64)) + float_bits(side.read[rows])

    return joined(f, (np.flatnonzero(f.a.read > 0), np.flatnonzero(f.b.read > 0)), key)


def same_copies(f: Features, of_a: Int64, of_b: Int64) -> Sides:
    """Free recomputed rows whose originals are partners, in order, if both sides recomputed them equally often."""
    rows_a = np.flatnonzero((of_a < 0) & (f.a.original >= 0))
    rows_a = rows_a[of_a[f.a.original[rows_a]] >= 0]
    rows_b = np.flatnonzero((of_b < 0) & (f.b.original >= 0))

    def key(side: LogFeatures, rows: Int64) -> Hash:
        original = side.original[rows]
        return (of_a[original] if side is f.a else original).astype(np.uint64)

    return joined(f, (rows_a, rows_b), key)


def same_names(f: Features, free_a: Bool, free_b: Bool) -> Sides:
    """The r-th row of a module and kind in a and the r-th in b, if both have equally many; numbers are ignored."""
    order, key = f.by_names
    free = np.concatenate((free_a, free_b))[order]
    return _ranked(order[free], key[free], len(f.a))


def near_others(i: Int64, j: Int64) -> Bool:
    """Mask of the anchors that agree with their neighbouring anchors about the offset; i is sorted."""
    n = len(i)
    if n == 0:
        return np.zeros(0, bool)
    offset = j - i
    missing = -n % _BLOCK
    # pad the last block with its own offsets, which keeps its median
    blocks = np.append(offset, np.resize(offset[(n - 1) // _BLOCK * _BLOCK :], missing)).reshape(-1, _BLOCK)
    median = np.partition(blocks, _BLOCK // 2, axis=1)[:, _BLOCK // 2 : _BLOCK // 2 + 1]
    stray = np.abs(blocks - median)
    for neighbour in (np.append(median[:1], median[:-1], axis=0), np.append(median[1:], median[-1:], axis=0)):
        stray = np.minimum(stray, np.abs(blocks - neighbour))
    return np.asarray(stray.ravel()[:n] <= _STRAY)


def expected_order(f: Features, i: Int64, j: Int64) -> Order:
    """The expected row of b for each row of a, by the nearest anchors before and after it (itself left out).

    i is sorted. Without any anchor, rows are expected in proportion; before the first one, also where they are in a:
    the runs begin together, while of several micro-batches the last one has the pairs.
    """
    n_a, n_b = len(f.a), len(f.b)
    rows = np.arange(n_a)
    if not len(i):
        scaled = rows * n_b // max(n_a, 1)
        return Order(scaled, scaled)
    here = np.bincount(i, minlength=n_a)
    after = np.cumsum(here)  # anchors up to each row
    before = after - here - 1
    at_after = np.where(after < len(i), after, np.maximum(before, 0))
    offset = j - i
    return Order(rows + np.where(before >= 0, offset[before], 0), rows + offset[at_after])
