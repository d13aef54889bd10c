"""Acquit operations whose scalar arguments follow from a tensor that differs, though no tensor leads there.

Python may have read the number from a red result. In an optimizer it does so from states: a bias correction is computed
on the host from the step that a state counts, so the inputs of the operation that divides by it are equal to the bit,
and its result is not. Where a state of a parameter differs before the step, that is the first cause of all that the
step makes of this parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from matchers.logs.op_log import Phase
from matchers.ops.arguments import argument_differences
from matchers.ops.dataflow import DataFlow
from matchers.ops.last_contents import GRADIENT, LastContents
from matchers.rows import Rows
from matchers.status import Role
from matchers.verdict.arguments import perhaps_read

__all__ = ["blame_states", "without_reads"]


def without_reads(c: Rows) -> Rows:
    """The rows without first causes whose arguments Python may have read from a result that is red itself."""
    follow = [row for row in np.flatnonzero(c.cause & (c.pair >= 0)).tolist() if _reads_red(c, row)]
    cause, role = c.cause.copy(), c.role.copy()
    cause[follow], role[follow] = False, Role.RECEIVER
    return replace(c, cause=cause, role=role)


def _reads_red(c: Rows, row: int) -> bool:
    i, j = int(c.row_a[row]), int(c.row_b[row])
    if c.a.op_name(i) != c.b.op_name(j):
        return False
    told = argument_differences(c.a, c.b, i, j)
    reads = [perhaps_read(c.a, c.b, i, j, each) for each in told]
    return bool(told) and all(read is not None and c.red[c.at_a[read.of]] for read in reads)


def blame_states(c: Rows, a: LastContents, b: LastContents) -> Rows:
    """The rows without first causes that follow from states."""
    rows = np.flatnonzero(c.red & (c.pair >= 0))
    rows = rows[c.a.phase[c.row_a[rows]] == Phase.OPTIMIZER]
    if c.flow is None or not c.cause[rows].any():
        return c
    given = {row: {a.base(name) for name in _given(c, row, a, b)} for row in rows.tolist()}
    differ = set().union(*given.values())
    follow = [
        row
        for row in (rows[c.cause[rows]].tolist() if differ else ())
        if not given[row] and differ & _parameters(c.flow, a, int(c.row_a[row]))
    ]
    cause, role = c.cause.copy(), c.role.copy()
    cause[follow], role[follow] = False, Role.RECEIVER
    return replace(c, cause=cause, role=role)


def _given(c: Rows, row: int, a: LastContents, b: LastContents) -> Iterable[str]:
    """The states that a row is the first to read, and that differ."""
    i, j = int(c.row_a[row]), int(c.row_b[row])
    for x, y in zip(a.names(i), b.names(j), strict=False):
        if x == y and a.base(x) != x and not x.endswith(GRADIENT):
            one, other = a.first[x], b.first[x]
            before, there = a.before(one), b.before(other)
            differs = before.l1 != there.l1 if None in (before.digest, there.digest) else before.digest != there.digest
            if differs and (one.row, other.row) == (i, j):
                yield x


def _parameters(flow: DataFlow, contents: LastContents, record: int) -> set[str]:
    """The parameters of a record's inputs, or of those that unnamed inputs are made from."""
    found: set[str] = set()
    left, seen = [record], {record}
    while left:
        at = left.pop()
        names = contents.names(at)
        found.update(contents.base(name) for name in names if name)
        makers = set() if any(names) else {int(maker) for maker in flow.a[at] if maker >= 0} - seen
        left += [maker for maker in makers if contents.log.phase[maker] == Phase.OPTIMIZER]
        seen |= makers
    return found
