"""A tensor of any dtype as bits and as numbers; numpy has neither bfloat16 nor float8."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["SIZES", "Tensor", "row_major", "to_bfloat16"]

_BITS: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_FLOATS: Final = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
_COMPLEX: Final = {"complex64": "float32", "complex128": "float64"}
_WHOLE: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
_FLOAT8: Final = {
    "float8_e4m3fn": (3, 7, (0x7F, 0xFF)),
    "float8_e5m2": (2, 15, (0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF)),
    "float8_e4m3fnuz": (3, 8, (0x80,)),
    "float8_e5m2fnuz": (2, 16, (0x80,)),
}
"""Bits of the mantissa, bias of the exponent, and what is NaN; e5m2 has infinities too."""
SIZES: Final = {"bfloat16": 2, "complex64": 8, "complex128": 16} | {
    **{name: np.dtype(name).itemsize for name in (*_FLOATS, *_WHOLE)},
    **dict.fromkeys(_FLOAT8, 1),
}
"""Bytes of an element."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor; a complex one has a last dimension of two more, real and imaginary parts.

    Attributes:
        dtype: without `torch.`; of a complex tensor that of its parts.
        bits: unsigned integers of its shape.
        values: its numbers, float32 for bfloat16 and float8; None for dtypes whose numbers are unknown here (float4).
    """

    dtype: str
    bits: NDArray[Any]
    values: NDArray[Any] | None

    @classmethod
    def of(cls, data: bytes, dtype: str, shape: Sequence[int], strides: Sequence[int], offset: int) -> Tensor:
        """Read a tensor from the bytes of its storage; strides and offset are in elements, and lie within them."""
        size = SIZES.get(dtype, 1)
        part = _COMPLEX.get(dtype, dtype)
        width = SIZES.get(part, 1)
        shape, strides = [*shape], [step * size for step in strides]
        if part != dtype:
            shape, strides = [*shape, 2], [*strides, width]
        if 0 in shape:
            bits: NDArray[Any] = np.zeros(shape, _BITS[width])
        else:
            view = np.ndarray(shape, _BITS[width], data, offset * size, strides)
            bits = np.ascontiguousarray(view).reshape(shape)
        return cls.of_bits(bits, dtype)

    @classmethod
    def of_bits(cls, bits: NDArray[Any], dtype: str) -> Tensor:
        """Make a tensor of its bits, in row-major order; those of a complex one have the dimension of parts."""
        part = _COMPLEX.get(dtype, dtype)
        if part == "bfloat16":
            return cls(part, bits, (bits.astype(np.uint32) << 16).view(np.float32))
        if part in _FLOAT8:
            return cls(part, bits, _float8(part)[bits])
        known = part in _FLOATS or part in _WHOLE
        return cls(part, bits, bits.view(np.dtype(part)) if known else None)

    @property
    def is_float(self) -> bool:
        return self.values is not None and self.values.dtype.kind == "f"

    @property
    def ordered(self) -> NDArray[np.int64]:
        """int64 of its shape: neighbours among the floats are neighbours here, 0.0 and −0.0 are equal."""
        width = self.bits.dtype.itemsize * 8
        sign = np.array(1 << (width - 1), self.bits.dtype)
        size = (self.bits & ~sign).astype(np.int64)
        return np.where(self.bits & sign != 0, -size, size)


@cache
def _float8(dtype: str) -> NDArray[np.float32]:
    """float32[256], the number of each byte."""
    mantissa, bias, nan = _FLOAT8[dtype]
    byte = np.arange(256)
    exponent, rest = (byte & 0x7F) >> mantissa, byte & ((1 << mantissa) - 1)
    size = np.where(exponent > 0, 1 + rest / (1 << mantissa), rest / (1 << (mantissa - 1)))
    values = np.where(byte & 0x80, -1.0, 1.0) * size * 2.0 ** (exponent - bias)
    values[list(nan)] = np.nan
    if dtype == "float8_e5m2":
        values[[0x7C, 0xFC]] = np.inf, -np.inf
    return values.astype(np.float32)


def row_major(shape: Sequence[int]) -> list[int]:
    """Return the strides, in elements, of a tensor in row-major order."""
    return [math.prod(shape[k + 1 :]) for k in range(len(shape))]


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round float32 to the bits of bfloat16, to the nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
