"""First causes of merged ranks that read the terms of a sum as if it were the sum.

Each term is right, and so is their sum, with which one process agrees as far as it is known. What reads the term of its
rank goes wrong: the cause is that no collective adds the terms up.
"""

from __future__ import annotations

from matchers.causes.causes import Causes
from matchers.ops.laws import law_of
from matchers.ops.placement import merged_records, unsummed
from matchers.rows import Rows
from matchers.status import AGREE, Status

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
    agreeing = [row for row in rows if c.status[row] in AGREE or _copies(c, row) or _unknown(c, row)]
    found.follow_from(found.cause.copy(), [(row, row) for row in agreeing], lambda *_: True)


def _unknown(c: Rows, row: int) -> bool:
    """True if no number of the sum is known, as of several micro-batches, and nothing that it is made of is red."""
    if c.flow is None or c.status[row] != Status.NO_VALUES:
        return False
    sides = (c.row_a, c.at_a, c.flow.a), (c.row_b, c.at_b, c.flow.b)
    makers = [(at, flow[int(of[row])]) for of, at, flow in sides if of[row] >= 0]
    return not any(c.red[at[made[made >= 0]]].any() for at, made in makers)


def _copies(c: Rows, row: int) -> bool:
    """True if one run alone copies there what agrees."""
    if c.flow is None or min(c.row_a[row], c.row_b[row]) >= 0:
        return False
    log, of, at, flow = (c.a, c.row_a, c.at_a, c.flow.a) if c.row_b[row] < 0 else (c.b, c.row_b, c.at_b, c.flow.b)
    record = int(of[row])
    maker = int(flow.first(of[[row]], -1)[0]) if law_of(log, record).copies else -1
    return maker >= 0 and c.status[at[maker]] in AGREE


def unsummed_side(c: Rows, row: int) -> tuple[str, str]:
    """The run whose ranks have such terms in a row, `a` or `b`, and how they read them; empty for neither."""
    records = (c.a, int(c.row_a[row]), "a"), (c.b, int(c.row_b[row]), "b")
    found = ((side, unsummed(log, record)) for log, record, side in records if record >= 0)
    return next(((side, how) for side, how in found if how), ("", ""))
