"""First causes of merged ranks that read the terms of a sum as if it were the sum.

Each term is right, and so is their sum, with which one process agrees. What reads the term of its rank goes wrong: the
cause is that no collective adds the terms up.
"""

from __future__ import annotations

from matchers.causes.causes import Causes
from matchers.ops.placement import merged_records, unsummed
from matchers.rows import Rows
from matchers.status import AGREE

__all__ = ["blame_unsummed", "unsummed_side"]


def blame_unsummed(found: Causes) -> None:
    """Blame such terms in place of the first causes that follow from them."""
    c = found.c
    rows = sorted(
        int(at[record])
        for log, at in ((c.a, c.at_a), (c.b, c.at_b))
        for record in merged_records(log)
        if unsummed(log, record)
    )
    found.follow_from(found.cause.copy(), [(row, row) for row in rows if c.status[row] in AGREE], lambda *_: True)


def unsummed_side(c: Rows, row: int) -> tuple[str, str]:
    """The run whose ranks have such terms in a row, `a` or `b`, and how they read them; empty for neither."""
    records = (c.a, int(c.row_a[row]), "a"), (c.b, int(c.row_b[row]), "b")
    found = ((side, unsummed(log, record)) for log, record, side in records if record >= 0)
    return next(((side, how) for side, how in found if how), ("", ""))
