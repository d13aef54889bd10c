"""Sketches: sixteen signed sums of a tensor's elements, which estimate the distance of two tensors, pair by pair.

The mean squared difference of the sums estimates ‖a − b‖² (docs/sketch.md). Sixteen sums leave an uncertainty of about
a fifth in ‖a − b‖, for any tensors; the estimate is not a bound.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence

import numpy as np

from matchers.arrays import Bool, Float64, Int64
from matchers.logs.op_log import OpLog
from matchers.ops.json_values import parsed_object
from matchers.ops.placement import Part, part_of, same_part
from matchers.ops.shapes import dimensions, numel

__all__ = ["PROJECTIONS", "decode_sketches", "distance", "error_range", "estimates", "parts_compared"]

PROJECTIONS = 16
_BYTES = 8 * PROJECTIONS


def decode_sketches(texts: Sequence[bytes | str]) -> Float64:
    """float64[m, 16] from base64 texts; NaN if missing or unreadable."""
    nothing = np.full(PROJECTIONS, np.nan).astype("<f8").tobytes()
    parts = []
    for text in texts:
        try:
            raw = binascii.a2b_base64(text)
        except ValueError:
            raw = b""
        parts.append(raw if len(raw) == _BYTES else nothing)
    return np.frombuffer(b"".join(parts), "<f8").astype(np.float64).reshape(len(texts), PROJECTIONS)


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


def estimates(a: OpLog, b: OpLog, i: Int64, j: Int64, which: Bool) -> tuple[Bool, Float64]:
    """(the placements name different parts of one tensor, estimated relative error) per pair.

    The error is NaN without an estimate: outside `which`, without sketches, for different parts.
    """
    same, elsewhere = parts_compared(a, b, i, j)
    out = np.full(len(i), np.nan)
    sketches_a, sketches_b = a.texts("Sketch"), b.texts("Sketch")
    if not sketches_a or not sketches_b:
        return elsewhere, out
    rows = np.flatnonzero(which & same)
    for start in range(0, len(rows), _CHUNK):
        k = rows[start : start + _CHUNK]
        x = decode_sketches([sketches_a.raw(row) for row in i[k].tolist()])
        y = decode_sketches([sketches_b.raw(row) for row in j[k].tolist()])
        out[k] = distance(x, y, a.stats[1][i[k]], b.stats[1][j[k]])
    return elsewhere, out


def parts_compared(a: OpLog, b: OpLog, i: Int64, j: Int64) -> tuple[Bool, Bool]:
    """(same elements in the same order, different parts of one tensor) per pair."""
    size = numel(a)[a.shape[i]] == numel(b)[b.shape[j]]
    if not a.texts("Placement") and not b.texts("Placement"):
        return size, np.zeros(len(i), bool)
    code_a, part_a = _placed(a)
    code_b, part_b = _placed(b)
    together = code_a[i] * (int(code_b.max(initial=0)) + 1) + code_b[j]
    _, first, code = np.unique(together, return_index=True, return_inverse=True)
    same, elsewhere = np.zeros(len(first), bool), np.zeros(len(first), bool)
    for k, at in enumerate(first.tolist()):
        x, y = part_a(int(i[at])), part_b(int(j[at]))
        if x is not None and y is not None:
            same[k] = same_part(x, y)
            elsewhere[k] = x.whole == y.whole and not same[k]
    has_shape = (a.shape[i] >= 0) & (b.shape[j] >= 0)
    return same[code.reshape(-1)] & has_shape, elsewhere[code.reshape(-1)] & has_shape


def _placed(log: OpLog) -> tuple[Int64, Callable[[int], Part | None]]:
    """A number for each record's combination of placement and shape, and a function from a record to its part."""
    ids: dict[bytes, int] = {}
    texts = log.texts("Placement")
    code = np.zeros(len(log), np.int64)
    for row in texts:
        code[row] = 1 + ids.setdefault(texts.raw(row), len(ids))

    def part(row: int) -> Part | None:
        text = texts.get(row, "")
        placement = parsed_object(text)
        return None if text and placement is None else part_of(placement, dimensions(log.shape_text(row)))

    return code * (len(log.shapes) + 1) + log.shape + 1, part
