"""First causes at which merged ranks begin to contradict each other, though they must hold one value.

One process has one value there, and the merged record is that of one rank or of all together, so that the pair may
agree: a gradient that is not summed over ranks shows in what its norm scales.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, marked, one_of
from matchers.causes.causes import BY_SIZE, Causes
from matchers.ops.placement import CONTRADICTED
from matchers.rows import Rows

__all__ = ["blame_contradicted", "contradiction"]


def blame_contradicted(found: Causes) -> None:
    """Blame such records to which nothing red leads, in place of first causes of nothing else that prove nothing."""
    c = found.c
    rows = [int(at[record]) for log, at in ((c.a, c.at_a), (c.b, c.at_b)) for record in log.texts(CONTRADICTED)]
    if not rows:
        return
    unproven = found.cause & ~c.inputs_equal & one_of(c.reason, BY_SIZE)
    led = _behind(c, c.red | (found.cause & ~unproven))
    begins = marked([row for row in rows if found.cause[row] or not led[row]], len(c))
    if not begins.any():
        return
    behind = _behind(c, begins)
    for row in np.flatnonzero(unproven & ~begins).tolist():
        if not (c.red & _behind(c, marked([row], len(c))) & ~behind).any():
            found.acquit(row)
    found.cause[begins] = True


def _behind(c: Rows, begins: Bool) -> Bool:
    """bool[r]: some rows, and what follows from them."""
    return c.reached(begins.astype(np.uint64)) != 0


def contradiction(c: Rows, row: int) -> tuple[str, str]:
    """The run whose ranks begin to contradict each other in a row, `a` or `b`, and in what; empty for neither."""
    sides = zip("ab", (c.a, c.b), c.members(row), strict=True)
    found = ((side, log.texts(CONTRADICTED).get(record, "")) for side, log, records in sides for record in records)
    return next(((side, text) for side, text in found if text), ("", ""))
