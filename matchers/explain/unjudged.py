"""The reason for not judging a row, where its logs tell."""

from __future__ import annotations

import numpy as np

from matchers.rows import Rows
from matchers.verdict.cancellation import condition
from matchers.verdict.digests import other_bits
from matchers.verdict.reason import UNSIZED
from matchers.verdict.tolerance import MOST_ALLOWED, default_tolerance

__all__ = ["why_not_judged"]


def why_not_judged(c: Rows, row: int) -> str:
    """The reason why a pair was not judged, a clause; empty if the row does not show it."""
    sides = ((c.a, int(c.row_a[row])), (c.b, int(c.row_b[row])))
    folded = [(log.folding, record) for log, record in sides if log.folding is not None and record >= 0]
    if any(folding.terms[record] for folding, record in folded):
        return "a term of each micro-batch; what they add up to is judged"
    if any(folding.by_part[record] for folding, record in folded):
        return "batch statistics and random numbers depend on the size of micro-batches"
    i, j = (np.array([record]) for _, record in sides)
    first = np.isnan(c.error[row]) and min(i, j) >= 0 and other_bits(c.a, c.b, i, j)[0]
    if first or (row in c.slots and c.slots[row].reason in UNSIZED):
        return "other bits; no number in both logs says by how much"
    if c.flow is None:
        return ""
    factors = [
        float(condition(log, flow)[record])
        for (log, record), flow in zip(sides, (c.flow.a, c.flow.b), strict=True)
        if record >= 0
    ]
    factor = max(factors, default=1.0)
    if factor * default_tolerance(c.a.dtype_text(sides[0][1])) > MOST_ALLOWED:
        return f"cancellation: the terms are {factor:.0e} times their sum, which is rounding"
    return ""
