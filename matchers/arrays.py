"""Array types named after their elements (each column's docstring gives the meaning), and a stable order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> object:
        return lambda decorator: decorator


__all__ = [
    "Bool",
    "Float64",
    "Hash",
    "Int32",
    "Int64",
    "columns",
    "distinct",
    "longest_rising",
    "marked",
    "marked_at",
    "numbered",
    "numbered_together",
    "one_of",
    "stable_order",
]

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Hash = NDArray[np.uint64]


_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def columns(cls: type[_Class]) -> type[_Class]:
    """A frozen dataclass for arrays. That it is frozen, the type checker says.

    Comparing two of them, or printing one, answers no question; and Python compiles the methods for it anew in each
    process, six of them in half a millisecond for every class.
    """
    return dataclass(slots=True, eq=False, repr=False)(cls)


_Value = TypeVar("_Value", bound=np.generic)


def distinct(values: NDArray[_Value]) -> NDArray[_Value]:
    """The distinct values, ascending: `np.unique`, which loads numpy.ma for it, as much code as a third of numpy."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]


def one_of(codes: NDArray[np.int8], members: Sequence[int]) -> Bool:
    """bool: the codes of an enumeration that are one of a few members: `isin`, many times faster."""
    out = np.zeros(codes.shape, bool)
    for member in members:
        out |= codes == int(member)
    return out


def marked(index: Bool | Int64 | Int32 | list[int] | int, size: int) -> Bool:
    """bool[size], True at some places, which may be such flags already."""
    out = np.zeros(size, bool)
    out[index] = True
    return out


def marked_at(flags: Bool, place: Int64 | Int32) -> Bool:
    """bool: the flags at some places; False for no place (-1)."""
    return np.append(flags, False)[place]


def stable_order(keys: NDArray[Any]) -> Int64:
    """The order that sorts integers, equal ones as they come: `argsort(kind="stable")`, which is slow for 64 bits.

    numpy sorts 16 bits by counting. Wider keys are sorted themselves, with their places in the lowest bits, which is
    much faster than to find their order. Where both do not fit in 64 bits, the lowest bits of the keys are left out,
    and looked at afterwards.
    """
    if not len(keys):
        return np.zeros(0, np.int64)
    least, width = keys.min(), (int(keys.max()) - int(keys.min())).bit_length()
    above = keys.astype(np.uint64, copy=False) - least.astype(np.uint64)
    if width <= 16:
        return np.argsort(above.astype(np.uint16), kind="stable")
    bits = len(keys).bit_length()
    left_out = np.uint64(max(width + bits - 64, 0))
    placed = above >> left_out
    placed <<= np.uint64(bits)
    placed |= np.arange(len(keys), dtype=np.uint64)
    placed.sort()
    placed &= np.uint64((1 << bits) - 1)
    order = placed.view(np.int64)
    if left_out and _hidden_by(above[order], left_out):
        return np.argsort(above, kind="stable")
    return order


def _hidden_by(ordered: Hash, left_out: np.uint64) -> bool:
    """True if neighbours differ in their lowest bits only."""
    apart = ordered[1:] ^ ordered[:-1]
    return bool(((apart != 0) & (apart >> left_out == 0)).any())


def longest_rising(values: Sequence[int]) -> Int64:
    """int64: the positions, ascending, of one longest strictly rising subsequence (by patience sorting)."""
    tops: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for position, value in enumerate(values):
        pile = bisect_left(tops, value)
        before.append(at[pile - 1] if pile else -1)
        tops[pile : pile + 1], at[pile : pile + 1] = [value], [position]
    found = []
    position = at[-1] if at else -1
    while position >= 0:
        found.append(position)
        position = before[position]
    return np.array(found[::-1], np.int64)


_WIDE = 1 << 31
"""Span of numbers from which on they are numbered first, so that products of them fit in 64 bits."""
_TABLE = 1 << 22
"""Largest range of codes that are numbered by a table of them."""


def numbered_together(*columns: NDArray[Any]) -> Int64:
    """int64[n]: the number of each row of some columns of integers among the distinct rows, ascending.

    `np.unique(…, axis=1, return_inverse=True)`, which sorts rows as bytes.
    """
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values = column.astype(np.int64)
        least = int(values.min(initial=0))
        span = int(values.max(initial=0)) - least + 1
        if span > _WIDE:
            (values, span), least = numbered(values), 0
        number, _ = numbered(number * span + (values - least))
    return number


def numbered(codes: Int64) -> tuple[Int64, int]:
    """Number the distinct codes in ascending order: (number of each, how many there are).

    `np.unique` with its inverse, which sorts; a table of the codes is faster where they are small.
    """
    if not len(codes):
        return codes, 0
    least = codes.min()
    span = int(codes.max()) - int(least) + 1
    if span > _TABLE:
        order = stable_order(codes)
        ordered = codes[order]
        number = np.empty(len(codes), np.int64)
        number[order] = np.cumsum(np.append(False, ordered[1:] != ordered[:-1]))
        return number, int(number[order[-1]]) + 1
    occurs = np.zeros(span, bool)
    occurs[codes - least] = True
    found = np.flatnonzero(occurs)
    numbers = np.empty(span, np.int64)
    numbers[found] = np.arange(len(found))
    return numbers[codes - least], len(found)
