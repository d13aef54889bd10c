"""Relations: what b's differing elements are of a's, one by one. Each is proved on the bits of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from matchers.tensor import Tensor, to_bfloat16
from matchers.verdict.tolerance import EPSILON

__all__ = ["related"]

_TINY: Final = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
_FRACTIONS: Final = 64
"""Largest denominator of a factor that is tried as a fraction."""


def related(a: Tensor, b: Tensor) -> str:
    """Say what the elements of b are of those of a, all of which differ: `the negative of a`; empty if unknown.

    Args:
        a, b: of one dtype, flat, with at least one element.
    """
    if not (a.is_float and a.values is not None and b.values is not None):
        return ""
    width = a.bits.dtype.itemsize * 8
    if ((a.bits ^ b.bits) == np.array(1 << (width - 1), a.bits.dtype)).all():
        return "the negative of a"
    x, y = a.values, b.values
    for side, own, other in (("b", y, x), ("a", x, y)):
        if np.isnan(own).all() and not np.isnan(other).any():
            return f"NaN in {side} alone"
        if np.isinf(own).all() and np.isfinite(other).all():
            return f"infinite in {side} alone"
        if not own.any():
            flushed = (np.abs(other) < _TINY[a.dtype]).all()
            return f"denormal numbers flushed to zero in {side}" if flushed else f"zero in {side}"
    if len(y) > 1 and (b.bits == b.bits[0]).all():
        return f"all {y[0]!s} in b"
    if told := _rounded(a, b):
        return told
    return _multiplied(a, b)


def _rounded(a: Tensor, b: Tensor) -> str:
    if a.dtype != "float32" or a.values is None or b.values is None:
        return ""
    for side, fine, coarse in (("b", a.values, b), ("a", b.values, a)):
        if ((to_bfloat16(fine).astype(np.uint32) << np.uint32(16)) == coarse.bits).all():
            return f"rounded to bfloat16 in {side}"
        with np.errstate(over="ignore"):
            if (fine.astype(np.float16).astype(np.float32).view(np.uint32) == coarse.bits).all():
                return f"rounded to float16 in {side}"
    return ""


def _multiplied(a: Tensor, b: Tensor) -> str:
    """Name the factor between a and b, the simplest one of those that give all of b's bits."""
    assert a.values is not None
    assert b.values is not None
    x, y = a.values.astype(np.float64), b.values.astype(np.float64)
    if len(x) < 2 or not (np.isfinite(x).all() and np.isfinite(y).all() and x.all() and y.all()):
        return ""
    signs = np.unique(np.sign(x) * np.sign(y))
    if len(signs) > 1:
        return ""
    ratio, half = np.abs(y) / np.abs(x), EPSILON[a.dtype] / 2
    low, high = float((ratio * (1 - half)).max()), float((ratio * (1 + half)).min())
    if low > high:
        return ""
    for size in _simple(low, high, np.float64 if a.dtype == "float64" else np.float32):
        factor = float(signs[0]) * size
        if (_times(a, factor) == b.bits).all():
            return f"a times {factor:.9g}"
    return ""


def _simple(low: float, high: float, kind: Any) -> Iterator[float]:
    """Yield numbers that lie in an interval as numbers of a kind, simple ones first, at last its middle."""
    middle = (low + high) / 2
    tried = [float(f"{middle:.{digits}g}") for digits in range(1, 8)]
    tried += [round(middle * under) / under for under in range(3, _FRACTIONS + 1)]
    tried += [1 / round(1 / middle)] if middle < 1 else []
    yield from (one for one in tried if low * (1 - 1e-15) <= kind(one) <= high * (1 + 1e-15))
    yield middle


def _times(a: Tensor, factor: float) -> NDArray[Any]:
    """Return the bits of a tensor times a number, rounded once, as torch computes it."""
    assert a.values is not None
    with np.errstate(all="ignore"):
        if a.dtype == "float64":
            return (a.values * factor).view(np.uint64)
        product = a.values.astype(np.float32) * np.float32(factor)
    if a.dtype == "bfloat16":
        return to_bfloat16(product)
    return product.view(np.uint32) if a.dtype == "float32" else product.astype(np.float16).view(np.uint16)
