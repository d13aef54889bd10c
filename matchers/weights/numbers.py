"""Two weights in numbers: how many elements differ, how much, what is zero or NaN."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from matchers.logs.imported.measured import measured
from matchers.tensor import SIZES, Tensor, to_bfloat16
from matchers.weights.states import Weight

__all__ = ["Numbers", "Outcome", "coarser", "compare_bits", "compare_known", "measure", "rounded"]

_CHUNK: Final = 1 << 22
_FLOATS: Final = ("float64", "float32", "float16", "bfloat16")


class Outcome(IntEnum):
    """Result of comparing two weights."""

    EQUAL = 0
    """In every bit."""
    ROUNDED = 1
    """The one of the coarser dtype is the other one, rounded."""
    DIFFERENT = 2
    NOT_COMPARED = 3


@dataclass(frozen=True, slots=True)
class Numbers:
    """The difference of two weights.

    Attributes:
        outcome: of the comparison.
        numel: number of elements; None if unknown.
        differing: of these, whose numbers differ (or only bits, where there are no numbers); None if unknown.
        error: ‖a − b‖ / ‖b‖ over elements finite in both; estimated where only sketches are known; NaN if unknown.
        ulps: the largest distance of two elements, in steps between neighbouring floats; None for other dtypes.
        a, b: zeros and NaN of either; None if unknown.
        problem: why they were not compared.
        inside: the only index of the first dimension at which elements differ; None for several, or unknown.
    """

    outcome: Outcome
    numel: int | None = None
    differing: int | None = None
    error: float = math.nan
    ulps: int | None = None
    a: tuple[int, int] | None = None
    b: tuple[int, int] | None = None
    problem: str = ""
    inside: int | None = None


def coarser(a: str | None, b: str | None) -> str | None:
    """Return the one of two floating dtypes that holds fewer digits; None if they are one, or no such dtypes."""
    if a == b or a not in _FLOATS or b not in _FLOATS:
        return None
    return max(a, b, key=_FLOATS.index)


def rounded(bits: NDArray[Any], dtype: str, to: str) -> NDArray[Any]:
    """Round a tensor's bits to a coarser dtype, to the nearest, ties to even."""
    values = Tensor.of_bits(bits, dtype).values
    assert values is not None
    if to == "bfloat16":
        single = values.astype(np.float32)
        return np.where(np.isnan(single), np.uint16(0x7FC0), to_bfloat16(np.ascontiguousarray(single)))
    with np.errstate(over="ignore"):
        short = values.astype({"float32": np.float32, "float16": np.float16}[to])
    return short.view({"float32": np.uint32, "float16": np.uint16}[to])


def compare_bits(a: NDArray[Any], b: NDArray[Any], dtypes: tuple[str, str]) -> Numbers:
    """Compare two tensors of one shape."""
    if dtypes[0] == dtypes[1] and np.array_equal(a, b):
        return Numbers(Outcome.EQUAL, a.size, 0, 0.0)
    outcome, coarse = Outcome.DIFFERENT, coarser(*dtypes)
    if coarse is not None:
        fine = 0 if dtypes[1] == coarse else 1
        if np.array_equal(rounded((a, b)[fine], dtypes[fine], coarse), (a, b)[1 - fine]):
            outcome = Outcome.ROUNDED
    differing = 0
    squares = size = 0.0
    ulps = -1
    counts = np.zeros((2, 2), np.int64)
    known = dtypes[0] in SIZES and dtypes[1] in SIZES
    inside = _only_index(a, b) if a.dtype == b.dtype else None
    a, b = a.reshape(-1), b.reshape(-1)
    for at in range(0, len(a), _CHUNK):
        x, y = (Tensor.of_bits(each[at : at + _CHUNK], dtype) for each, dtype in zip((a, b), dtypes, strict=True))
        if x.values is None or y.values is None:
            differing += int(np.count_nonzero(x.bits != y.bits)) if x.bits.dtype == y.bits.dtype else x.bits.size
            continue
        u, v = x.values.astype(np.float64), y.values.astype(np.float64)
        counts += [[int(np.sum(w == 0)), int(np.isnan(w).sum())] for w in (u, v)]
        differing += int(np.sum(~((u == v) | (np.isnan(u) & np.isnan(v)))))
        finite = np.isfinite(u) & np.isfinite(v)
        squares += float(np.sum(np.square(u - v, where=finite, out=np.zeros_like(u))))
        size += float(np.sum(np.square(v, where=finite, out=np.zeros_like(v))))
        if x.is_float and x.dtype == y.dtype:
            apart = np.abs(x.ordered - y.ordered)[finite]
            ulps = max(ulps, int(apart.max(initial=0)))
    if not known:
        return Numbers(outcome, len(a), differing, inside=inside)
    error = math.sqrt(squares / size) if size else (math.inf if squares else 0.0)
    of_a, of_b = ((int(zero), int(nan)) for zero, nan in counts)
    return Numbers(outcome, len(a), differing, error, ulps if ulps >= 0 else None, of_a, of_b, inside=inside)


def _only_index(a: NDArray[Any], b: NDArray[Any]) -> int | None:
    if a.ndim < 2:
        return None
    found = None
    for index in range(len(a)):
        if not np.array_equal(a[index], b[index]):
            if found is not None:
                return None
            found = index
    return found


def measure(weight: Weight, bits: NDArray[Any]) -> Weight:
    """Return a stored weight with the numbers that a log would have of it."""
    dtype = weight.dtype or ""
    found = measured(Tensor.of_bits(bits, dtype), 2 if dtype.startswith("complex") else 1)
    return Weight(
        weight.name,
        weight.shape,
        weight.dtype,
        digest=f"{found.digest:016x}",
        sketch=tuple(found.sketch.tolist()) or None,
        l2=found.stats.get("L2 norm"),
        counts=found.counts or None,
    )


def compare_known(a: Weight, b: Weight) -> Numbers:
    """Compare two weights of which digests, sketches and norms are known."""
    of_a, of_b = (None if of.counts is None else (of.counts[3], of.counts[1]) for of in (a, b))
    numel = a.numel if a.numel is not None else b.numel
    if a.digest is None or b.digest is None:
        return Numbers(Outcome.NOT_COMPARED, numel, problem="no digest")
    if a.digest == b.digest:
        return Numbers(Outcome.EQUAL, numel, 0, 0.0)
    if a.dtype != b.dtype and a.dtype and b.dtype:
        problem = f"{a.dtype} in a, {b.dtype} in b, and only digests are known"
    else:
        problem = ""
    error = math.nan
    if a.sketch and b.sketch and b.l2 is not None:
        distance = math.dist(a.sketch, b.sketch) / math.sqrt(len(a.sketch))
        error = distance / b.l2 if b.l2 else (math.inf if distance else 0.0)
    elif a.l2 is not None and b.l2:
        error = abs(a.l2 - b.l2) / b.l2
    outcome = Outcome.NOT_COMPARED if problem and not error > 0.1 else Outcome.DIFFERENT
    return Numbers(outcome, numel, None, error, None, of_a, of_b, problem)
