"""Compare the outputs of the user's own hash function: numbers by value, as norms are, anything else for equality."""

from __future__ import annotations

import math

import numpy as np

from matchers.arrays import Bool, Float64, Int64
from matchers.logs.op_log import OpLog
from matchers.verdict.relative_error import relative_difference

__all__ = ["user_differences"]


def user_differences(a: OpLog, b: OpLog, i: Int64, j: Int64) -> tuple[Float64, Bool]:
    """(largest relative difference of the numbers, any difference at all) per pair."""
    error, differ = np.zeros(len(i)), np.zeros(len(i), bool)
    texts_a, texts_b = a.texts("User hash"), b.texts("User hash")
    if not texts_a or not texts_b:
        return error, differ
    for k, (row_a, row_b) in enumerate(zip(i.tolist(), j.tolist(), strict=True)):
        x, y = texts_a.get(row_a, ""), texts_b.get(row_b, "")
        if x and y and x != y:
            differ[k] = True
            error[k] = max(map(_difference, x.split(", "), y.split(", ")))
    return error, differ


def _difference(x: str, y: str) -> float:
    """Relative difference of two numbers with a fraction; 0 for everything else (a whole number can be a hash)."""
    try:
        if x.lstrip("-").isdigit() or y.lstrip("-").isdigit():
            return 0.0
        one, two = float(x), float(y)
    except ValueError:
        return 0.0
    return relative_difference(one, two) if math.isfinite(max(abs(one), abs(two))) else 0.0
