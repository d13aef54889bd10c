"""Acquit operations of an optimizer whose scalar arguments follow from a state that differs before the step.

A bias correction is computed on the host from the step that a state counts, so no tensor leads from the count to the
operation that divides by it: its inputs are equal to the bit, its result is not. Where a state of a parameter differs
before the step, that is the first cause of all that the step makes of this parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from matchers.logs.op_log import Phase
from matchers.ops.dataflow import DataFlow
from matchers.ops.last_contents import GRADIENT, LastContents
from matchers.rows import Rows
from matchers.status import Role

__all__ = ["blame_states"]


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
