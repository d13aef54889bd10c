"""Acquit operations whose scalar arguments follow from a tensor that differs, though no tensor leads there.

Python may have read the number from a red result. In an optimizer it does so from states: a bias correction is computed
on the host from the step that a state counts, so the inputs of the operation that divides by it are equal to the bit,
and its result is not. Where a state of a parameter differs before the step, that is the first cause of all that the
step makes of this parameter.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from matchers.arrays import Bool, marked
from matchers.causes.causes import Causes
from matchers.logs.op_log import Phase
from matchers.ops.arguments import argument_differences
from matchers.ops.dataflow import upstream
from matchers.ops.last_contents import GRADIENT, LastContents
from matchers.rows import Rows
from matchers.verdict.arguments import perhaps_read

__all__ = ["acquit_reads", "blame_states", "read_from"]


def acquit_reads(found: Causes) -> None:
    """Acquit the first causes whose arguments Python may have read from a result that is red itself."""
    c = found.c
    blamed = np.flatnonzero(found.cause & (c.pair >= 0)).tolist()
    found.acquit(np.array([row for row in blamed if _reads_red(c, row)], int))


def _reads_red(c: Rows, row: int) -> bool:
    read = read_from(c, row)
    return bool(read) and bool(c.red[read].all())


def read_from(c: Rows, row: int) -> list[int]:
    """Return the rows of the results that Python may have read a pair's other arguments from; none if one is not read.

    Args:
        c: rows of a comparison.
        row: of a pair.
    """
    i, j = int(c.row_a[row]), int(c.row_b[row])
    if c.a.op_name(i) != c.b.op_name(j):
        return []
    reads = [perhaps_read(c.a, c.b, i, j, each) for each in argument_differences(c.a, c.b, i, j)]
    found = [int(c.at_a[read.of]) for read in reads if read is not None]
    return found if len(found) == len(reads) else []


def blame_states(found: Causes, a: LastContents, b: LastContents) -> None:
    """Acquit the first causes that follow from states."""
    c = found.c
    rows = np.flatnonzero(c.red & (c.pair >= 0) & (c.phase == Phase.OPTIMIZER))
    if not found.cause[rows].any():
        return
    given = {row: {a.base(name) for name in _given(c, row, a, b)} for row in rows.tolist()}
    if differ := set().union(*given.values()):
        updates = np.flatnonzero(c.a.phase == Phase.OPTIMIZER)
        unnamed = marked([k for k in updates.tolist() if not any(a.names(k))], len(c.a))
        blamed = [row for row in rows[found.cause[rows]].tolist() if not given[row]]
        found.acquit(np.array([row for row in blamed if differ & _parameters(c, a, row, unnamed)], int))


def _given(c: Rows, row: int, a: LastContents, b: LastContents) -> Iterable[str]:
    """The states that a row is the first to read, that differ, and that no operation of the step has made."""
    assert c.flow is not None
    i, j = int(c.row_a[row]), int(c.row_b[row])
    for x, y, made, there in zip(a.names(i), b.names(j), c.flow.a[i], c.flow.b[j], strict=False):
        if made >= 0 or there >= 0:
            continue
        if x == y and a.base(x) != x and not x.endswith(GRADIENT):
            one, other = a.first[x], b.first[x]
            before, held = a.before(one), b.before(other)
            differs = before.l1 != held.l1 if None in (before.digest, held.digest) else before.digest != held.digest
            if differs and (one.row, other.row) == (i, j):
                yield x


def _parameters(c: Rows, contents: LastContents, row: int, unnamed: Bool) -> set[str]:
    """The parameters of the inputs of a's record, or of those that unnamed inputs are made from in the optimizer."""
    assert c.flow is not None
    leads = upstream(c.flow.a, c.row_a[[row]], unnamed) & (c.a.phase == Phase.OPTIMIZER)
    return {contents.base(name) for k in np.flatnonzero(leads).tolist() for name in contents.names(k) if name}
