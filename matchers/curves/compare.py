"""Compare the curves of runs: the first step that differs, and by how much."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from matchers.curves.curves import Curves

__all__ = ["CurveComparison", "Difference", "compare_curves", "relative"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two values of one step; `error` is |a − b| / |b|, infinite where only one is NaN, infinite or 0."""

    step: int
    a: float
    b: float
    error: float


@dataclass(frozen=True, slots=True)
class CurveComparison:
    """A curve of two runs.

    Attributes:
        name: of the curve.
        a, b: by step.
        steps: those that both have, ascending.
        differing: number of these that differ, beyond the tolerance.
        first: the first of them, None without one.
        largest: the largest difference of all steps, None where none differs at all.
    """

    name: str
    a: Mapping[int, float]
    b: Mapping[int, float]
    steps: tuple[int, ...]
    differing: int
    first: Difference | None
    largest: Difference | None


def relative(a: float, b: float) -> float:
    """Return |a − b| / |b|; 0 for equal values, which two NaN are."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)) or b == 0:
        return math.inf
    return abs(a - b) / abs(b)


def compare_curves(a: Curves, b: Curves, rtol: float = 0.0) -> list[CurveComparison]:
    """Compare the curves that both runs have; the loss and the norm of the gradients first.

    Args:
        rtol: relative differences up to it are none.
    """
    names = [name for name in a.of if name in b.of]
    names.sort(key=lambda name: (name != "loss", name != "grad_norm"))
    return [_compared(name, a.of[name], b.of[name], rtol) for name in names]


def _compared(name: str, a: Mapping[int, float], b: Mapping[int, float], rtol: float) -> CurveComparison:
    steps = tuple(sorted(a.keys() & b.keys()))
    found = [Difference(step, a[step], b[step], relative(a[step], b[step])) for step in steps]
    beyond = [one for one in found if one.error > rtol]
    largest = max(found, key=lambda one: one.error, default=None)
    return CurveComparison(
        name,
        a,
        b,
        steps,
        len(beyond),
        next(iter(beyond), None),
        largest if largest is not None and largest.error else None,
    )
