"""The text of a sketch: sixteen signed sums of a tensor's elements (docs/sketch.md), which add up as tensors do."""

from __future__ import annotations

import binascii
from base64 import b64encode
from collections.abc import Sequence

import numpy as np

from matchers.arrays import Float64

__all__ = ["PROJECTIONS", "decode_sketches", "encode_sketch"]

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


def encode_sketch(sketch: Float64) -> bytes:
    """The text of one; empty if it is not known."""
    return b64encode(sketch.astype("<f8").tobytes()) if np.isfinite(sketch).all() else b""
