"""Sketches: sixteen signed sums of a tensor's elements, from which the distance of two tensors can be told.

The mean of the squared differences of the sums estimates ‖a − b‖² (docs/sketch.md). With sixteen of them the estimate
of ‖a − b‖ is uncertain by about a fifth, whatever the tensors are; it is not a bound.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence

import numpy as np

from matchers.arrays import Float64

__all__ = ["PROJECTIONS", "decode_sketches", "distance", "error_range"]

PROJECTIONS = 16
_BYTES = 8 * PROJECTIONS


def decode_sketches(texts: Sequence[bytes | str]) -> Float64:
    """float64[m, 16] of base64 texts; NaN where there is none, or one that cannot be read."""
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

    NaN where something is missing or not finite; 0 where both norms are.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        apart = np.sqrt(np.mean((x - y) ** 2, axis=1))
        out = np.where(apart == 0, 0.0, apart / np.maximum(size_x, size_y))
    known = np.isfinite(apart) & np.isfinite(size_x) & np.isfinite(size_y)
    return np.where(known & np.isfinite(out), out, np.nan)


def error_range(estimate: float) -> tuple[float, float]:
    """Where the true distance lies in 95 % of all cases, whatever the tensors are (docs/sketch.md)."""
    return estimate / 1.35, estimate / 0.65
