"""The relative difference of two numbers."""

from __future__ import annotations

import math

import numpy as np

from matchers.arrays import Float64

__all__ = ["relative", "relative_difference"]


def relative(x: Float64, y: Float64, scale: Float64 | None = None) -> Float64:
    """|x − y| / scale, by default the larger magnitude; 0 where both are equal (infinities too), NaN with a NaN."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        size = np.maximum(np.abs(x), np.abs(y)) if scale is None else scale
        out = np.abs(x - y) / size
    out = np.where(np.isinf(x) | np.isinf(y), np.inf, out)
    return np.asarray(np.where(x == y, 0.0, np.where(np.isnan(x) | np.isnan(y), np.nan, out)))


def relative_difference(x: float, y: float, scale: float = math.nan) -> float:
    """`relative` of two single numbers; a scale of 0 or NaN stands for the larger magnitude."""
    if x == y:
        return 0.0
    if math.isnan(x) or math.isnan(y):
        return math.nan
    if math.isinf(x) or math.isinf(y):
        return math.inf
    return abs(x - y) / (max(abs(x), abs(y)) if not scale or math.isnan(scale) else scale)
