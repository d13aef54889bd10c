"""Walks over graphs of operations in columns. Each is written twice: here, and in `graph.c`, taken where it can be had.

A list of edges is one of `Ragged`: node i owns `value[start[i]:start[i + 1]]`; -1 is no edge.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from capture import native_library
from matchers.arrays import Bool, Hash, Int64, distinct

__all__ = ["INSTALLED", "SOURCE", "Lists", "between", "connected", "lists", "owners", "renamed", "spread", "union"]

SOURCE: Final = Path(__file__).with_name("graph.c")
INSTALLED: Final = native_library.installed(SOURCE)
"""The library in an installed wheel; None in a checkout."""
_ROUNDS: Final = 4
"""Enough passes where two runs did little in another order."""

_Marks = TypeVar("_Marks", Bool, Hash)


def spread(
    start: Int64, value: Int64, marks: _Marks, through: Bool, *, back: bool = False, rounds: int = _ROUNDS
) -> _Marks:
    """The marks of n nodes, and what arrives of them over edges: bool, or the bits of a word.

    Nodes are in the order in which most edges lead, so that one pass follows any chain. Where some lead against it,
    there are further passes, until one changes nothing.

    Args:
        start, value: of each node, those that it reads.
        through: bool[n], the nodes whose lists count.
        back: a node hands on to those that it reads, not they to it.
        rounds: most passes.
    """
    if (compiled := _compiled()) is None:
        return _spread(start, value, marks, through, back=back, rounds=rounds)
    out, flags = marks.astype(np.uint64), np.ascontiguousarray(through, bool)
    of = _int64(start), _int64(value)
    compiled.graph_spread(len(out), *map(_at, of), _at(flags), _at(out), back, rounds)
    return out.astype(marks.dtype, copy=False)


def _spread(start: Int64, value: Int64, marks: _Marks, through: Bool, *, back: bool, rounds: int) -> _Marks:
    reader = np.repeat(np.arange(len(marks)), np.diff(start))
    inside = np.flatnonzero((value >= 0) & (value < len(marks)) & through[reader])
    before, after = value[inside], reader[inside]
    if back:
        before, after = after[::-1], before[::-1]
    found = marks.tolist()
    edges = list(zip(before.tolist(), after.tolist(), strict=True))
    against = (before > after).any() and (before < after).any()
    for _ in range(rounds if against else 1):
        changed = False
        for one, other in edges:
            if (seen := found[one]) and seen | found[other] != found[other]:
                found[other] |= seen
                changed = True
        if not changed:
            break
    return np.array(found, marks.dtype)


def owners(start: Int64) -> Int64:
    """int64: the node that owns each value."""
    if (compiled := _compiled()) is None:
        return _owners(start)
    begins, out = _int64(start), np.empty(int(start[-1]), np.int64)
    compiled.graph_owners(len(begins) - 1, _at(begins), _at(out))
    return out


def _owners(start: Int64) -> Int64:
    return np.repeat(np.arange(len(start) - 1), np.diff(start))


def lists(row: Int64, value: Int64, many: int) -> tuple[Int64, Int64]:
    """The distinct values (from 0) of each of many rows, ascending: start and value of the lists."""
    if (compiled := _compiled()) is None:
        return _lists(row, value, many)
    pairs, start, out = (_int64(row), _int64(value)), np.zeros(many + 1, np.int64), np.empty(len(value), np.int64)
    left = compiled.graph_lists(len(out), *map(_at, pairs), many, _at(start), _at(out))
    return start, out[:left]


def _lists(row: Int64, value: Int64, many: int) -> tuple[Int64, Int64]:
    size = int(value.max(initial=0)) + 1
    row, value = np.divmod(distinct(row * size + value), size)
    return np.searchsorted(row, np.arange(many + 1)), value


def renamed(start: Int64, value: Int64, at: Int64, many: int) -> tuple[Int64, Int64]:
    """The same of the edges of a graph whose nodes become one of many rows each, `at`.

    Edges within a row are none, nor are those of a node that becomes no row (-1).
    """
    if (compiled := _compiled()) is None:
        return _renamed(start, value, at, many)
    given = _int64(start), _int64(value), _int64(at)
    begins, out = np.zeros(many + 1, np.int64), np.empty(len(value), np.int64)
    left = compiled.graph_renamed(len(at), *map(_at, given), many, _at(begins), _at(out))
    return begins, out[:left]


def _renamed(start: Int64, value: Int64, at: Int64, many: int) -> tuple[Int64, Int64]:
    reader, maker = np.repeat(at, np.diff(start)), np.append(at, -1)[value]
    edge = (reader >= 0) & (maker >= 0) & (maker != reader)
    return _lists(reader[edge], maker[edge], many)


def union(one: tuple[Int64, Int64], other: tuple[Int64, Int64]) -> tuple[Int64, Int64]:
    """The distinct values that each row has in either of two lists of ascending values."""
    if (compiled := _compiled()) is None:
        return _union(one, other)
    lists, start = [_int64(values) for values in (*one, *other)], np.empty(len(one[0]), np.int64)
    out = np.empty(len(one[1]) + len(other[1]), np.int64)
    left = compiled.graph_union(len(start) - 1, *map(_at, lists), _at(start), _at(out))
    return start, out[:left]


def _union(one: tuple[Int64, Int64], other: tuple[Int64, Int64]) -> tuple[Int64, Int64]:
    rows = [np.repeat(np.arange(len(start) - 1), np.diff(start)) for start, _ in (one, other)]
    return _lists(np.concatenate(rows), np.concatenate((one[1], other[1])), len(one[0]) - 1)


Lists = tuple[Int64, Int64, Int64]
"""Of each node those that it reads, as start and value, and the node that each is among others."""


def between(graphs: Sequence[Lists], made: Bool, read: Bool) -> tuple[Int64, Int64]:
    """The makers and readers of the edges of some graphs, one after the other, from some nodes to some others.

    Args:
        made, read: bool, by node among others.
    """
    if (compiled := _compiled()) is None:
        return _between(graphs, made, read)
    flags = np.ascontiguousarray(made, bool), np.ascontiguousarray(read, bool)
    maker, reader = np.empty((2, sum(len(value) for _, value, _ in graphs)), np.int64)
    many = 0
    for of in graphs:
        given, ends = [*map(_int64, of), *flags], (maker[many:], reader[many:])
        many += compiled.graph_between(len(of[2]), *map(_at, (*given, *ends)))
    return maker[:many], reader[:many]


def _between(graphs: Sequence[Lists], made: Bool, read: Bool) -> tuple[Int64, Int64]:
    maker, reader = np.zeros((2, 0), np.int64)
    for start, value, at in graphs:
        ends = np.append(at, -1)[value], np.repeat(at, np.diff(start))
        edge = (ends[0] >= 0) & made[ends[0]] & read[ends[1]]
        maker, reader = np.append(maker, ends[0][edge]), np.append(reader, ends[1][edge])
    return maker, reader


def connected(group: NDArray[np.int8], i: Int64, j: Int64, one: Lists, other: Lists) -> Int64:
    """int64[n]: the smallest node that each is connected with, within its group; -1 for a node of none.

    By edges of two graphs, and where i[k] of one and j[k] of the other read two nodes at the same place.

    Args:
        group: int8[n]; negative for none.
    """
    if (compiled := _compiled()) is None:
        return _connected(group, i, j, one, other)
    given: list[NDArray[Any]] = [np.ascontiguousarray(group, np.int8), *map(_int64, (*one, *other, i, j))]
    label = np.empty(len(group), np.int64)
    compiled.graph_connected(len(group), len(one[2]), len(other[2]), len(i), *map(_at, (*given, label)))
    return label


def _connected(group: NDArray[np.int8], i: Int64, j: Int64, one: Lists, other: Lists) -> Int64:
    count = np.minimum(np.diff(one[0])[i], np.diff(other[0])[j])
    owner = np.repeat(np.arange(len(i)), count)
    place = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
    u, v = one[1][one[0][i[owner]] + place], other[1][other[0][j[owner]] + place]
    known = (u >= 0) & (v >= 0)
    x, y = _between((one, other), group >= 0, group >= 0)
    x, y = np.append(x, one[2][u[known]]), np.append(y, other[2][v[known]])
    alike = group[x] == group[y]
    return np.where(group >= 0, _components(len(group), x[alike], y[alike]), -1)


def _components(size: int, one: Int64, other: Int64) -> Int64:
    label = np.arange(size)
    while True:
        low, high = np.minimum(label[one], label[other]), np.maximum(label[one], label[other])
        apart = low < high
        if not apart.any():
            return label
        one, other, low, high = one[apart], other[apart], low[apart], high[apart]
        np.minimum.at(label, high, low)
        while not np.array_equal(shorter := label[label], label):
            label = shorter


@cache
def _compiled() -> ctypes.CDLL | None:
    """The compiled walks; None where there are none."""
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    functions = {
        "graph_spread": (None, (number, *[pointer] * 4, number, number)),
        "graph_connected": (None, (*[number] * 4, *[pointer] * 10)),
        "graph_owners": (None, (number, pointer, pointer)),
        "graph_lists": (number, (number, pointer, pointer, number, pointer, pointer)),
        "graph_renamed": (number, (number, *[pointer] * 3, number, pointer, pointer)),
        "graph_between": (number, (number, *[pointer] * 7)),
        "graph_union": (number, (number, *[pointer] * 6)),
    }
    return native_library.typed(SOURCE, INSTALLED, functions)


def _int64(values: NDArray[Any]) -> Int64:
    return np.ascontiguousarray(values, np.int64)


def _at(values: NDArray[Any]) -> int:
    return values.ctypes.data
