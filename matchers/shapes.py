"""Shapes of a log: how many elements, and whether two shapes can be a tensor and its shard."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Float64
from matchers.collectives import collective
from matchers.logs.op_log import OpLog

__all__ = ["dimensions", "is_shard", "numel", "sharded_runs"]


def dimensions(text: str) -> tuple[int, ...]:
    """`[256, 768]` as numbers; a dimension that no tensor can have counts as 0."""
    parts = (part.strip() for part in text.strip("[]").split(","))
    return tuple(int(part) if len(part) < 16 else 0 for part in parts if part.isdigit())


def numel(log: OpLog) -> Float64:
    """float64[shapes + 1], number of elements of each entry of the shape table; NaN for no shape."""
    return np.array([*(float(np.prod(dimensions(text), dtype=np.float64)) for text in log.shapes), np.nan])


def is_shard(x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """One of the two is an even part of the other: no dimension is larger, and each divides."""
    if len(x) != len(y) or x == y or 0 in (*x, *y):
        return False
    part, whole = (x, y) if all(p <= w for p, w in zip(x, y, strict=True)) else (y, x)
    return all(w % p == 0 for p, w in zip(part, whole, strict=True))


def sharded_runs(a: OpLog, b: OpLog) -> bool:
    """Whether tensors can be sharded at all: a log says how they are placed, or communicates."""
    return any("Placement" in log.extra or collective(log).any() for log in (a, b))
