"""Array types named after their elements (each column's docstring gives the meaning), and a stable order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> object:
        return lambda decorator: decorator


__all__ = ["Bool", "Float64", "Hash", "Int32", "Int64", "columns", "distinct", "is_among", "stable_order"]

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


def is_among(values: NDArray[_Value], ascending: NDArray[_Value]) -> Bool:
    """bool: the values that are among others, which are in ascending order."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    return np.asarray(ascending[np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)] == values)


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
