"""First causes of merged ranks that read the terms of a sum as if it were the sum.

Each term is right, and so is their sum, with which one process agrees. What reads the term of its rank goes wrong: the
cause is that no collective adds the terms up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from matchers.causes.consequences import reached
from matchers.ops.placement import MERGED, unsummed
from matchers.rows import Rows
from matchers.status import AGREE, Role

__all__ = ["blame_unsummed", "unsummed_side"]

_MAX_SUMS: Final = 63
"""Sums that are followed, the earliest ones: each takes one bit of a 64-bit word."""


def blame_unsummed(c: Rows) -> Rows:
    """The rows with such terms as first causes in place of those that follow from them."""
    rows = sorted(
        int(at[record])
        for log, at in ((c.a, c.at_a), (c.b, c.at_b))
        for record in log.texts(MERGED)
        if unsummed(log, record)
    )
    rows = [row for row in rows if c.status[row] in AGREE][:_MAX_SUMS]
    if c.flow is None or not rows or not c.cause.any():
        return c
    start = np.zeros(len(c), np.uint64)
    for n, row in enumerate(rows):
        start[row] |= np.uint64(1 << n)
    bits = reached(c, start)
    cause, role = c.cause.copy(), c.role.copy()
    for row in np.flatnonzero(c.cause & (bits != 0)).tolist():
        first = int(bits[row]) & -int(bits[row])
        cause[row], role[row] = False, Role.RECEIVER if c.red[row] else role[row]
        cause[rows[first.bit_length() - 1]] = True
    return replace(c, cause=cause, role=role)


def unsummed_side(c: Rows, row: int) -> tuple[str, str]:
    """The run whose ranks have such terms in a row, `a` or `b`, and how they read them; empty for neither."""
    records = (c.a, int(c.row_a[row]), "a"), (c.b, int(c.row_b[row]), "b")
    found = ((side, unsummed(log, record)) for log, record, side in records if record >= 0)
    return next(((side, how) for side, how in found if how), ("", ""))
