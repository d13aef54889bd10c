"""Differences of two tensors in words: how many elements, where, by which pattern, else by how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.elements.moves import moved
from matchers.elements.relations import related
from matchers.tensor import Tensor, to_bfloat16
from matchers.verdict.tolerance import EPSILON

__all__ = ["Differences", "differences"]

_MOST_RUNS: Final = 4
_MOST_SEARCHED: Final = 1 << 26
"""Elements of a tensor in which moves are looked for."""


@dataclass(frozen=True, slots=True)
class Differences:
    """The difference between two tensors.

    Attributes:
        many, of: elements whose bits differ, of all.
        move: how b's elements are a's at other places; empty if they are not.
        place: to which slices the differences are confined; empty if to none.
        relation: what b's differing elements are of a's; empty if unknown.
        largest: the largest difference in words; empty where a pattern says all.
    """

    many: int
    of: int
    move: str = ""
    place: str = ""
    relation: str = ""
    largest: str = ""

    @property
    def text(self) -> str:
        """The same as one clause."""
        if not self.many:
            return "equal in every bit"
        told = f"{self.many:,} of {self.of:,} elements differ"
        if self.move:
            return f"{told}: b is a, {self.move}"
        told += f", only in {self.place}" if self.place else ""
        return f"{told}: {self.relation or self.largest}" if self.relation or self.largest else told


def differences(a: Tensor, b: Tensor) -> Differences:
    """Compare two tensors by their bits, and find the pattern of what differs."""
    if a.dtype != b.dtype:
        fine, coarse = (a, b) if b.dtype == "bfloat16" else (b, a)
        if coarse.dtype == "bfloat16" and fine.dtype == "float32" and fine.values is not None:
            rounded = np.array_equal(to_bfloat16(fine.values), coarse.bits)
            move = ("" if fine is a else "before it was ") + "rounded to bfloat16" if rounded else ""
            return Differences(b.bits.size, b.bits.size, move, relation=f"{a.dtype} in a, {b.dtype} in b")
        return Differences(b.bits.size, b.bits.size, relation=f"{a.dtype} in a, {b.dtype} in b")
    if a.bits.shape != b.bits.shape:
        move = moved(a.bits, b.bits)
        shapes = f"shape {list(a.bits.shape)} in a, {list(b.bits.shape)} in b"
        return Differences(b.bits.size, b.bits.size, move, relation=shapes)
    at = a.bits != b.bits
    many = int(np.count_nonzero(at))
    if not many:
        return Differences(0, at.size)
    move = moved(a.bits, b.bits) if many > 1 and at.size <= _MOST_SEARCHED else ""
    if move:
        return Differences(many, at.size, move)
    relation = related(_chosen(a, at), _chosen(b, at))
    largest = "" if relation and many > 1 else _largest(a, b, at)
    return Differences(many, at.size, "", _place(at, many), relation if many > 1 else "", largest)


def _chosen(tensor: Tensor, at: Bool) -> Tensor:
    values = tensor.values
    return Tensor(tensor.dtype, tensor.bits[at], None if values is None else values[at])


def _place(at: Bool, many: int) -> str:
    """Name the slices outside which nothing differs; of a single element its index."""
    if many == 1:
        return f"element {[int(each[0]) for each in np.nonzero(at)]}"
    parts = []
    for dim in range(at.ndim):
        used = np.flatnonzero(at.any(axis=tuple(k for k in range(at.ndim) if k != dim)))
        if len(used) < at.shape[dim]:
            parts.append(f"{_runs(used, at.shape[dim])} of dimension {dim}")
    return ", ".join(parts)


def _runs(used: Int64, size: int) -> str:
    """Name some of the indices of a dimension: `3–7`, `the last 16`, `every 2nd from 1`."""
    if used[-1] - used[0] + 1 == len(used):
        if len(used) == 1:
            return str(used[0])
        ends = {0: "the first", size - len(used): "the last"}.get(int(used[0]))
        return f"{ends} {len(used)}" if ends else f"{used[0]}–{used[-1]}"
    steps = np.diff(used)
    if len(used) > 2 and (steps == steps[0]).all():
        return f"every {steps[0]}{'nd' if steps[0] == 2 else 'rd' if steps[0] == 3 else 'th'} from {used[0]}"
    cuts = np.flatnonzero(steps > 1) + 1
    runs = [_runs(run, -1) for run in np.split(used, cuts)]
    more = f" and {len(runs) - _MOST_RUNS} more" if len(runs) > _MOST_RUNS else ""
    return ", ".join(runs[:_MOST_RUNS]) + more


def _largest(a: Tensor, b: Tensor, at: Bool) -> str:
    """Say how large the differences are, in steps between neighbouring floats, and where the largest is."""
    x: Any
    y: Any
    if not a.is_float or a.values is None or b.values is None:
        where = np.argwhere(at)[0]
        x, y = ((each.bits if each.values is None else each.values)[tuple(where)] for each in (a, b))
        return f"first at {where.tolist()}, {x} in a, {y} in b"
    finite = np.isfinite(a.values) & np.isfinite(b.values)
    ulps = np.where(at, np.where(finite, np.abs(a.ordered - b.ordered), np.iinfo(np.int64).max), -1)
    where = np.unravel_index(int(ulps.argmax()), ulps.shape)
    x, y = a.values[where], b.values[where]
    index = [int(each) for each in where]
    middle, binade = int(np.median(ulps[at])), int(1 / EPSILON[a.dtype])
    if np.count_nonzero(at) == 1:
        return f"{f'{middle:,} ulp, ' if 0 < middle <= binade else ''}{x!s} in a, {y!s} in b"
    size = f"median {middle:,} ulp" if middle <= binade else "most by more than a factor of two"
    return f"{size}, the largest at {index}: {x!s} in a, {y!s} in b"
