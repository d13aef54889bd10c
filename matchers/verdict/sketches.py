"""Sketches (`matchers.ops.sketch`) estimate the distance of two tensors, pair by pair.

The mean squared difference of the sums estimates ‖a − b‖² (docs/sketch.md). Sixteen sums leave an uncertainty of about
a fifth in ‖a − b‖, for any tensors; the estimate is not a bound.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Float64
from matchers.ops.placement import same_part
from matchers.ops.sketch import decode_sketches
from matchers.ops.values import Values

__all__ = ["distance", "error_range", "estimates", "parts_compared"]


def distance(x: Float64, y: Float64, size_x: Float64, size_y: Float64) -> Float64:
    """Estimates of ‖a − b‖ relative to the larger of the two norms, from sketches float64[m, 16] and norms float64[m].

    NaN if something is missing or not finite; 0 if both norms are 0.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        apart = np.sqrt(np.mean((x - y) ** 2, axis=1))
        size = np.fmax(size_x, size_y)  # of a partial sum, only the other side's is known; of two, that of the sketches
        if (unknown := np.flatnonzero(np.isnan(size))).size:
            own = np.sqrt(np.mean(np.fmax(x[unknown] ** 2, y[unknown] ** 2), axis=1))
            size[unknown] = np.where(own > 0, own, np.nan)  # those of no finite number are zero
        out = np.where(apart == 0, 0.0, apart / size)
    return np.where(np.isfinite(apart) & np.isfinite(size) & np.isfinite(out), out, np.nan)


def error_range(estimate: float) -> tuple[float, float]:
    """The 95 % range of the true distance, for any tensors (docs/sketch.md)."""
    return estimate / 1.35, estimate / 0.65


_CHUNK = 20_000
"""Number of pairs whose sketches are decoded at once."""


def estimates(x: Values, y: Values, which: Bool) -> tuple[Bool, Float64]:
    """(the placements name different parts of one tensor, estimated relative error) per pair of values.

    The error is NaN without an estimate: outside `which`, without sketches, for different parts.
    """
    same, elsewhere = parts_compared(x, y)
    out = np.full(len(x), np.nan)
    if not any(x.sketch) or not any(y.sketch):
        return elsewhere, out
    rows = np.flatnonzero(which & same)
    for start in range(0, len(rows), _CHUNK):
        k = rows[start : start + _CHUNK]
        one, other = (decode_sketches([values.sketch[row] for row in k.tolist()]) for values in (x, y))
        out[k] = distance(one, other, x.stats[1][k], y.stats[1][k])
    return elsewhere, out


def parts_compared(x: Values, y: Values) -> tuple[Bool, Bool]:
    """(same elements in the same order, different parts of one tensor) per pair of values."""
    size = x.numel == y.numel
    if not (x.placed >= 0).any() and not (y.placed >= 0).any():
        return size, np.zeros(len(x), bool)
    code_x, code_y = ((values.placed + 1) * (len(values.shapes) + 1) + values.shape + 1 for values in (x, y))
    _, first, code = np.unique(
        code_x * (int(code_y.max(initial=0)) + 1) + code_y, return_index=True, return_inverse=True
    )
    same, elsewhere = np.zeros(len(first), bool), np.zeros(len(first), bool)
    for k, at in enumerate(first.tolist()):
        one, other = x.part(at), y.part(at)
        if one is not None and other is not None:
            same[k] = same_part(one, other)
            elsewhere[k] = one.whole == other.whole and not same[k]
    return same[code.reshape(-1)], elsewhere[code.reshape(-1)]
