"""Text of the field `Input statistics`: extremes, mean and checksum of what an operation reads (docs/log-format.md)."""

from __future__ import annotations

import binascii
import math
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np

from matchers.arrays import Float64

__all__ = ["FIELD", "PER_INPUT", "pack", "unpacked"]

FIELD: Final = "Input statistics"
PER_INPUT: Final = 4
"""Numbers of an input: Min, Max, Mean and its checksum; NaN for one that is unknown."""


def pack(values: Sequence[float]) -> str:
    """The text of the numbers of a record's inputs, one input after the other."""
    return binascii.b2a_base64(struct.pack(f"<{len(values)}d", *values), newline=False).decode()


def unpacked(text: bytes, place: int) -> Float64:
    """float64[4] of the input at a place; NaN where the text has none."""
    try:
        found = np.frombuffer(binascii.a2b_base64(text), "<f8")
    except ValueError:  # no base64, or half of a number
        found = np.zeros(0)
    at = PER_INPUT * place
    told = found[at : at + PER_INPUT].astype(np.float64)
    return told if len(told) == PER_INPUT else np.full(PER_INPUT, math.nan)
