"""Acquit pairs that only hand on values: views, splits, clones and casts make no error.

Unless such a pair reads equal bits, so that its arguments differ, what made its input is the first cause in its place,
though it may agree in print or within its tolerance. Where that is equal or unknown in one run, the first operation
that reads the result is; where digests tell that the step was given something else, the pair itself stands for that.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool
from matchers.causes.causes import Causes
from matchers.ops.dataflow import fed_by
from matchers.ops.laws import copies, law_of
from matchers.rows import Rows
from matchers.status import Role, Status

__all__ = ["acquit_copies"]


def acquit_copies(found: Causes) -> None:
    """Replace the first causes that cannot make an error."""
    c = found.c
    copying = (c.pair >= 0) & c.by_row(copies)
    blamed = found.cause & copying & (c.verdict == Status.DIVERGED) & ~c.inputs_equal
    by_digest = bool(len(c.a.input_digests.value) and len(c.b.input_digests.value))
    for row in np.flatnonzero(blamed).tolist():
        if c.pairing.grouped[c.pair[row]] or not copies(c.b)[c.row_b[row]]:
            continue
        made = _makers(c, row, copying)
        if alone := [maker for maker in made if maker >= 0 and c.pair[maker] < 0]:
            found.acquit(row, for_=np.array(alone))
        elif made[0] == made[1] >= 0 and c.verdict[made[0]] in (Status.SAME_PRINT, Status.CLOSE):
            found.acquit(row, for_=made[0])
        elif max(made) >= 0 or not by_digest:
            red = (c.verdict >= Status.SHAPE) & (c.pair >= 0)
            readers = np.flatnonzero(fed_by(c.edges, [row], red & copying) & red & ~copying)
            if len(readers):
                found.acquit(row, for_=readers[0])
                found.role[[row, readers[0]]] = Role.UNKNOWN


def _makers(c: Rows, row: int, copying: Bool) -> tuple[int, int]:
    """The rows that made the input of a pair in a and in b, over other such pairs; -1 for none."""
    assert c.flow is not None
    for _ in range(len(c)):
        made = []
        for log, flow, record, at in ((c.a, c.flow.a, c.row_a[row], c.at_a), (c.b, c.flow.b, c.row_b[row], c.at_b)):
            makers, place = flow[record], law_of(log, int(record)).passes_on or 0
            maker = int(makers[min(place, len(makers) - 1)]) if len(makers) else -1
            made.append(int(at[maker]) if maker >= 0 else -1)
        if made[0] != made[1] or made[0] < 0 or not copying[made[0]]:
            return made[0], made[1]
        row = made[0]
    return -1, -1
