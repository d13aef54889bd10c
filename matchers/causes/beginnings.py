"""First causes within the tolerance: where two runs of the same kernels begin to differ.

In bfloat16 a mistake may stay within the tolerance for many layers, until an operation of a finer dtype shows it. If
such a red row follows from an operation that read equal bits and returned others, unlike all others of its kind, that
operation is the cause; so is one that only one run has, if an operation reads its result beside nothing else that
differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np

from matchers.arrays import Bool
from matchers.causes.consequences import reached
from matchers.causes.first_difference import Equality, Kind, differences
from matchers.causes.red_inputs import is_alone
from matchers.causes.unpaired_branches import Branches, Side
from matchers.ops.dataflow import DataFlow, downstream
from matchers.rows import Rows
from matchers.status import Role, Status
from matchers.verdict.reason import Reason

__all__ = ["blame_beginnings"]

_MAX_BEGINNINGS: Final = 63
"""Beginnings that are followed, the earliest ones: each takes one bit of a 64-bit word."""
_GROWTH: Final = 32.0
"""Factor by which an error may grow until it is red; by more it is another one."""


def blame_beginnings(c: Rows) -> Rows:
    """The rows with such beginnings as first causes in place of those that follow from them."""
    later = c.cause & ~c.inputs_equal & (c.status != Status.IGNORED) & (c.reason != Reason.ARGUMENTS)
    if c.flow is None or not later.any() or not len(c.a.digests.value) or not len(c.b.digests.value):
        return c
    begins = (c.status == Status.CLOSE) & (c.error > 0) & (c.inputs_equal | _reads_unpaired(c, c.flow))
    begins[np.flatnonzero(later)[-1] :] = False
    found = list(islice(_beginnings(c, c.flow, begins), _MAX_BEGINNINGS)) if begins.any() else []
    if not found:
        return c
    start = np.zeros(len(c), np.uint64)
    for n, (row, shows) in enumerate(found):
        start[[row, shows]] |= np.uint64(1 << n)
    bits = reached(c, start)
    cause, role = c.cause.copy(), c.role.copy()
    for row in np.flatnonzero(later & (bits != 0)).tolist():
        from_here = [pair for n, pair in enumerate(found) if int(bits[row]) >> n & 1 and row not in pair]
        if from_here and _error(c, c.flow, row) <= _GROWTH * max(float(c.error[shows]) for _, shows in from_here):
            cause[row], role[row] = False, Role.RECEIVER if c.red[row] else role[row]
            cause[from_here[0][0]] = True
    return replace(c, cause=cause, role=role)


def _reads_unpaired(c: Rows, flow: DataFlow) -> Bool:
    """bool[r]: an operation that only one run has made an input."""
    found = np.zeros(len(c), bool)
    for made, of, at in ((flow.a, c.pairing.of_a, c.at_a), (flow.b, c.pairing.of_b, c.at_b)):
        found[at[made.row[is_alone(made.value, of)]]] = True
    return found


def _beginnings(c: Rows, flow: DataFlow, among: Bool) -> Iterator[tuple[int, int]]:
    """The rows where an error begins, and those that show it first."""
    sides = (
        Side("a", c.a, c.pairing.of_a.astype(np.int64), flow.a),
        Side("b", c.b, c.pairing.of_b.astype(np.int64), flow.b),
    )
    branches = Branches(*sides)
    for found in differences(c, Equality(c), among):
        if found.kind == Kind.UNPAIRED:
            ends = [(s.name, r) for s, r in zip(sides, found.makers, strict=True) if r >= 0 and s.of[r] < 0]
            name, record = branches.start(*ends)
            yield int((c.at_a if name == "a" else c.at_b)[record]), found.reader
        elif found.kind in (Kind.OPERATION, Kind.DRAW, Kind.ENTERS) and not found.others_differ:
            yield found.row, found.row


def _error(c: Rows, flow: DataFlow, row: int) -> float:
    """The error of a row; of an operation that only one run has, the largest that it leads to over such operations."""
    if c.pair[row] >= 0:
        return float(c.error[row])
    p, of_a = c.pairing, bool(c.row_a[row] >= 0)
    made, of, at, record = (flow.a, p.of_a, c.at_a, c.row_a[row]) if of_a else (flow.b, p.of_b, c.at_b, c.row_b[row])
    start = np.zeros(len(of), bool)
    start[record] = True
    behind = np.append(downstream(made, start, of < 0), False)
    return float(np.max(np.nan_to_num(c.error[at[made.row[behind[made.value]]]], nan=0.0), initial=0.0))
