"""Result of one pass over a tensor: a row of 64-bit fields, the same for every kernel.

    0 nan   1 inf   2 zero   3 digest                (integers)
    4 l1    5 l2    6 min    7 max    8 mean         (float64, over the finite values)
    9 … 24 the sketch                                (float64)

With no finite value, the fields 4 to 8 mean nothing.
"""

from __future__ import annotations

import struct

from ..sketch import PROJECTIONS

__all__ = ["DIGEST_AT", "FIELDS", "INTEGERS", "ROW", "SKETCH"]

INTEGERS = 4
"""Fields before the floating-point ones."""
DIGEST_AT = 3 * 8
"""Offset of the digest, in bytes."""
SKETCH = 9
"""The first field of the sketch."""
FIELDS = SKETCH + PROJECTIONS
ROW = struct.Struct(f"=qqqQ5d{8 * PROJECTIONS}s")
"""(nan, inf, zero, digest, l1, l2, min, max, mean, the bytes of the sketch)"""
