"""Joins of keys, and of texts. Each is written twice: here, and in `joins.c`, taken where it can be had."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from capture import native_library
from matchers.arrays import Int64, stable_order

__all__ = ["INSTALLED", "SOURCE", "Texts", "first_equal", "joined_lines"]

SOURCE: Final = Path(__file__).with_name("joins.c")
INSTALLED: Final = native_library.installed(SOURCE)
"""The library in an installed wheel; None in a checkout."""


def first_equal(keys: NDArray[Any], among: NDArray[Any]) -> Int64:
    """int64[keys]: the place of the first one that is equal among other keys; -1 where none is."""
    if (compiled := _compiled()) is not None:
        given = [np.ascontiguousarray(of).astype(np.uint64, copy=False) for of in (keys, among)]
        out = np.empty(len(keys), np.int64)
        sides = [part for of in given for part in (len(of), _at(of))]
        if compiled.joins_first_equal(*sides, _at(out)):
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


Texts = tuple[bytes, Int64, Int64]
"""A column of lines: texts in ASCII with a newline after each, where they start, and the number of each line's."""


def joined_lines(columns: Sequence[Texts]) -> str:
    """Lines of the texts of some columns; a column has none for -1."""
    if (compiled := _compiled()) is None:
        return _joined_lines(columns)
    starts, numbers = ([np.ascontiguousarray(column[k], np.int64) for column in columns] for k in (1, 2))
    blobs = (ctypes.c_char_p * len(columns))(*(blob for blob, _, _ in columns))
    places = [(ctypes.c_void_p * len(columns))(*map(_at, arrays)) for arrays in (starts, numbers)]
    given = len(numbers[0]), len(columns), blobs, *places
    out = np.empty(compiled.joins_lines(*given, None), np.uint8)
    compiled.joins_lines(*given, _at(out))
    return str(out.data, "ascii")


def _joined_lines(columns: Sequence[Texts]) -> str:
    pieces = []
    for blob, start, number in columns:
        begin, end = start[number].tolist(), (start[number + 1] - 1).tolist()
        pieces.append([blob[i:j] if k >= 0 else b"" for i, j, k in zip(begin, end, number.tolist(), strict=True)])
    lines = zip(*pieces, [b"\n"] * len(pieces[0]), strict=True)
    return b"".join(text for line in lines for text in line).decode("ascii")


def _at(values: NDArray[Any]) -> int:
    return values.ctypes.data


@cache
def _compiled() -> ctypes.CDLL | None:
    """The compiled joins; None where there are none."""
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    functions = {
        "joins_first_equal": (number, (number, pointer, number, pointer, pointer)),
        "joins_lines": (number, (number, number, *[pointer] * 4)),
    }
    return native_library.typed(SOURCE, INSTALLED, functions)
