"""Statistics of a whole tensor from those of its parts, where the log of one run has it whole and that of the other in
parts.

L1 norms and counts add up, and so do the squares of L2 norms; the extremes are those of all parts, the mean is the
weighted one. Equal statistics do not prove equal tensors: the parts may lie in another order.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Float64, Int64

__all__ = ["folded_counts", "folded_statistics"]


def folded_statistics(stats: Float64, counts: Int64, size: Float64, start: Int64) -> Float64:
    """Statistics of whole tensors, float64[5, g] as in `OpLog.stats`; NaN where a part lacks one.

    Args:
        stats: float64[5, m], of all parts, those of one whole together.
        counts: int64[4, m], as in `OpLog.counts`; -1 where unknown.
        size: float64[m], number of elements of each part.
        start: int64[g], the first part of each whole.
    """
    l1, l2, least, largest, mean = stats
    finite = size - np.maximum(counts[1], 0) - np.maximum(counts[2], 0)
    # a part without a finite value has no extremes and no mean
    least, largest = np.where(finite == 0, np.inf, least), np.where(finite == 0, -np.inf, largest)
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = np.add.reduceat(finite, start)
        out = np.stack(
            (
                np.add.reduceat(np.where(finite == 0, 0.0, l1), start),
                np.sqrt(np.add.reduceat(np.where(finite == 0, 0.0, l2**2), start)),
                np.minimum.reduceat(least, start),
                np.maximum.reduceat(largest, start),
                np.add.reduceat(np.where(finite == 0, 0.0, mean * finite), start) / whole,
            )
        )
    out[:, whole == 0] = np.nan
    return out


def folded_counts(counts: Int64, start: Int64) -> Int64:
    """int64[4, g], the counts of whole tensors; -1 where those of a part are unknown. Arguments as above."""
    return np.where(np.minimum.reduceat(counts, start, axis=1) < 0, -1, np.add.reduceat(counts, start, axis=1))
