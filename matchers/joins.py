"""Joins of keys. Each is written twice: here, and in `joins.c`, taken where it can be had."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from capture import native_library
from matchers.arrays import Int64, stable_order

__all__ = ["INSTALLED", "SOURCE", "first_equal"]

SOURCE: Final = Path(__file__).with_name("joins.c")
INSTALLED: Final = native_library.installed(SOURCE)
"""The library in an installed wheel; None in a checkout."""


def first_equal(keys: NDArray[Any], among: NDArray[Any]) -> Int64:
    """int64[keys]: the place of the first one that is equal among other keys; -1 where none is."""
    if (compiled := _compiled()) is not None:
        given = [np.ascontiguousarray(of).astype(np.uint64, copy=False) for of in (keys, among)]
        out = np.empty(len(keys), np.int64)
        sides = [part for of in given for part in (len(of), of.ctypes.data)]
        if compiled.joins_first_equal(*sides, out.ctypes.data):
            return out
    return _first_equal(keys, among)


def _first_equal(keys: NDArray[Any], among: NDArray[Any]) -> Int64:
    order = stable_order(np.concatenate((among, keys)))
    ordered = np.concatenate((among, keys))[order]
    new = np.append(True, ordered[1:] != ordered[:-1])[: len(order)]
    first = np.empty(len(order), np.int64)
    first[order] = order[new][np.cumsum(new) - 1]
    found = first[len(among) :]
    return np.where(found < len(among), found, -1)


@cache
def _compiled() -> ctypes.CDLL | None:
    """The compiled joins; None where there are none."""
    found, _ = native_library.attempt(SOURCE, INSTALLED)
    if found is not None:
        number, pointer = ctypes.c_int64, ctypes.c_void_p
        found.joins_first_equal.restype = number
        found.joins_first_equal.argtypes = (number, pointer, number, pointer, pointer)
    return found
