"""Array types named after their elements (each column's docstring gives the meaning), and a stable order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bool", "Float64", "Hash", "Int32", "Int64", "stable_order"]

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Hash = NDArray[np.uint64]


def stable_order(keys: NDArray[Any]) -> Int64:
    """The order that sorts keys, equal ones as they come: `argsort(kind="stable")`, which is slow for 64 bits.

    numpy sorts with vector instructions only where equal elements may change places. So the keys are numbered in
    ascending order, and the numbers sorted again together with the places.
    """
    order = np.argsort(keys)
    ordered = keys[order]
    bits = len(keys).bit_length()
    number = np.zeros(len(keys), np.int64)
    np.cumsum(ordered[1:] != ordered[:-1], out=number[1:])
    number <<= bits
    number |= order
    number.sort()
    number &= (1 << bits) - 1
    return number
