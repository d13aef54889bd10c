"""First causes within the tolerance: where two runs of the same kernels begin to differ.

In bfloat16 a mistake may stay within the tolerance for many layers, until an operation of a finer dtype shows it. If
such a red row follows from an operation that read equal bits and returned others, unlike all others of its kind, that
operation is the cause.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from matchers.causes.consequences import reached
from matchers.causes.first_difference import Equality
from matchers.rows import Rows
from matchers.status import Role, Status

__all__ = ["blame_beginnings"]

_MAX_BEGINNINGS: Final = 63
"""Beginnings that are followed, the earliest ones: each takes one bit of a 64-bit word."""
_GROWTH: Final = 32.0
"""Factor by which an error may grow until it is red; by more it is another one."""


def blame_beginnings(c: Rows) -> Rows:
    """The rows with such beginnings as first causes in place of those that follow from them."""
    later = c.cause & (c.pair >= 0) & ~c.inputs_equal & (c.status != Status.IGNORED) & np.isfinite(c.error)
    if not later.any() or not len(c.a.digests.value) or not len(c.b.digests.value):
        return c
    begins = c.inputs_equal & (c.status == Status.CLOSE) & (c.error > 0) & ~c.unread
    rows = np.flatnonzero(begins)
    rows = rows[rows < np.flatnonzero(later)[-1]][:_MAX_BEGINNINGS]
    equality = Equality(c) if len(rows) else None
    rows = np.array([row for row in rows.tolist() if equality is not None and not equality.others(row)[1]], np.int64)
    if not len(rows):
        return c
    start = np.zeros(len(c), np.uint64)
    start[rows] = np.left_shift(np.uint64(1), np.arange(len(rows)).astype(np.uint64))
    bits = reached(c, start)
    cause, role = c.cause.copy(), c.role.copy()
    for row in np.flatnonzero(later & (bits != 0)).tolist():
        from_here = [k for n, k in enumerate(rows.tolist()) if int(bits[row]) >> n & 1 and k != row]
        if from_here and float(c.error[row]) <= _GROWTH * max(float(c.error[k]) for k in from_here):
            cause[row], role[row] = False, Role.RECEIVER if c.red[row] else role[row]
            cause[from_here[0]] = True
    return replace(c, cause=cause, role=role)
