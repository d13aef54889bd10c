"""Shapes of a log: element counts, shard tests, and the length of reductions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod

import numpy as np

from matchers.arrays import Float64
from matchers.laws.law import Form, Law
from matchers.logs.op_log import OpLog, once_per_log
from matchers.ops.laws import collective, positions, rows_where

__all__ = [
    "but_for_ones",
    "dimensions",
    "elements",
    "is_shard",
    "numel",
    "reduction_length",
    "sharded_runs",
    "side_by_side",
]


@lru_cache(1 << 16)
def dimensions(text: str) -> tuple[int, ...]:
    """Parse `[256, 768]`; a dimension too large for any tensor counts as 0."""
    parts = (part.strip() for part in text.strip("[]").split(","))
    return tuple(int(part) if len(part) < 16 else 0 for part in parts if part.isdigit())


def but_for_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without dimensions of size 1, which change nothing in the order of the elements."""
    return tuple(n for n in shape if n != 1)


def side_by_side(shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The shapes that tensors can have put together along one dimension, the one in which they differ."""
    first = shapes[0]
    if any(len(shape) != len(first) for shape in shapes):
        return []
    along = [k for k in range(len(first)) if any(shape[k] != first[k] for shape in shapes)]
    if len(along) > 1:
        return []
    return [
        (*first[:k], sum(shape[k] for shape in shapes), *first[k + 1 :]) for k in along or range(len(first) - 1, -1, -1)
    ]


def elements(shapes: Iterable[str]) -> Float64:
    """float64, number of elements of each shape, in a row; NaN at the end, for "no shape"."""
    return np.array([*(prod(map(float, dimensions(text))) for text in shapes), np.nan])


@once_per_log
def numel(log: OpLog) -> Float64:
    """float64[shapes + 1], number of elements of each entry of the shape table; NaN for "no shape"."""
    return elements(log.shapes)


def is_shard(x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """True if one shape is an even fraction of the other: no dimension is larger, and each divides."""
    if len(x) != len(y) or x == y or 0 in (*x, *y):
        return False
    part, whole = (x, y) if all(p <= w for p, w in zip(x, y, strict=True)) else (y, x)
    return all(w % p == 0 for p, w in zip(part, whole, strict=True))


def sharded_runs(a: OpLog, b: OpLog) -> bool:
    """True if tensors may be sharded: a log has placements, or communicates."""
    return any("Placement" in log.extra or collective(log).any() for log in (a, b))


_SUMS = (Form.SUM, Form.MEAN, Form.NORM, Form.REDUCTION)


def _summed(law: Law) -> int | None:
    """Position of the tensor whose elements, or their products with others, are added up; None for no sum."""
    return 0 if law.form in _SUMS and not law.on_lists else law.factor


@once_per_log
def reduction_length(log: OpLog) -> Float64:
    """float64[n]: terms of each sum, from the sizes of the result and of named producers' outputs.

    1 if unknown, and for operations without a sum; infinite for the norms of a list, whose tensors are parameters.
    """
    position = positions(log, _summed)
    product = rows_where(log, lambda law: law.factor is not None)
    count = log.inputs.count
    known = (position >= 0) & (log.producers.count == count) & (count > position)
    rows = np.flatnonzero(known)
    out = np.ones(len(log))
    # torch adds the squares of all of a tensor in float32, on a CPU one after the other
    out[rows_where(log, lambda law: law.form is Form.NORM and law.on_lists)] = np.inf
    if not len(rows):
        return out
    maker = log.producers.value[log.producers.start[rows] + position[rows]]
    rows, maker = rows[maker >= 0], maker[maker >= 0]
    # a view has as many elements as its base; a slice has another norm
    same = log.outputs.first(maker) == log.inputs.value[log.inputs.start[rows] + position[rows]]
    rows, maker = rows[same], maker[same]
    size = numel(log)
    last = np.array([*(float((dimensions(text) or (1,))[-1]) for text in log.shapes), 1.0])
    with np.errstate(divide="ignore", invalid="ignore"):  # dimensions of size 0
        result = size[log.shape[rows]] / np.where(product[rows], last[log.shape[rows]], 1.0)
        length = size[log.shape[maker]] / result
    out[rows] = np.where(np.isfinite(length) & (length > 1), length, 1.0)
    return out
