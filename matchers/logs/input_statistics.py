"""Text of the field `Input statistics`: extremes, mean and checksum of what an operation reads (docs/log-format.md)."""

from __future__ import annotations

import binascii
import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from matchers.arrays import Float64

__all__ = ["FIELD", "PER_INPUT", "pack", "unpack", "unpacked"]

FIELD: Final = "Input statistics"
_PACKED: Final = b"\0"
PER_INPUT: Final = 4
"""Numbers of an input: Min, Max, Mean and its checksum; NaN for one that is unknown."""


def pack(values: Float64) -> Iterator[bytes]:
    """The packed texts of the inputs of many records, float64[records, …], the numbers of one input after the other."""
    data, size = values.astype("<f8").tobytes(), values.nbytes // len(values)
    return (_PACKED + data[at : at + size] for at in range(0, len(data), size))


def unpack(text: bytes) -> bytes:
    """The text of a packed one, and any other text itself."""
    return binascii.b2a_base64(text[1:], newline=False) if text[:1] == _PACKED else text


def unpacked(text: bytes, place: int) -> Float64:
    """float64[4] of the input at a place; NaN where the text has none."""
    try:
        found = np.frombuffer(binascii.a2b_base64(text), "<f8")
    except ValueError:  # no base64, or half of a number
        found = np.zeros(0)
    at = PER_INPUT * place
    told = found[at : at + PER_INPUT].astype(np.float64)
    return told if len(told) == PER_INPUT else np.full(PER_INPUT, math.nan)
