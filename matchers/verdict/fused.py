"""Judge an operation of one run against its parts in the other by statistics of the parts put together.

L1 norms of parts add up, squares of L2 norms too; minimum and maximum are those of all. These numbers do not tell in
which order the parts lie, so the error is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np

from matchers.arrays import one_of
from matchers.laws.law import Form
from matchers.laws.register import law
from matchers.logs.op_log import OpLog
from matchers.ops.shapes import dimensions, side_by_side
from matchers.ops.values import Result, as_values, first_output, together
from matchers.pairing.pairing import Method
from matchers.verdict.case import Case, Judgement
from matchers.verdict.judge_values import Differences, Tolerances

__all__ = ["BY_PARTS", "are_parts", "folded", "judge_fused"]

BY_PARTS = (Method.PARTS, Method.OVERRIDE, Method.TEMPLATE)
"""Methods whose groups may be an operation and its parts; a collective and its wait are none."""


def are_parts(a: OpLog, b: OpLog, rows_a: Sequence[int], rows_b: Sequence[int]) -> bool:
    """True if the results of several rows of one log, side by side, have the shape of a row of the other."""
    if min(len(rows_a), len(rows_b)) != 1 or len(rows_a) == len(rows_b):
        return False
    (log, rows), (other, (whole,)) = ((b, rows_b), (a, rows_a)) if len(rows_a) == 1 else ((a, rows_a), (b, rows_b))
    names = {log.op_name(row) for row in rows} | {other.op_name(whole)}
    dtypes = {log.dtype_text(row) for row in rows} | {other.dtype_text(whole)}
    if len(names) > 1 or len(dtypes) > 1:
        return False
    shapes, shape = [dimensions(log.shape_text(row)) for row in rows], dimensions(other.shape_text(whole))
    return shape in side_by_side(shapes) or _norms(names, [shape, *shapes])


def _norms(names: AbstractSet[str], shapes: Sequence[tuple[int, ...]]) -> bool:
    """True if the results are norms, of which the squares add up."""
    return all(law(name).form is Form.NORM for name in names) and not any(shapes)


def folded(log: OpLog, rows: Sequence[int]) -> Result:
    """The rows' first outputs side by side. Norms give the norm of what they measure together."""
    whole = together([first_output(log, row) for row in rows])
    if not _norms({log.op_name(row) for row in rows}, [dimensions(log.shape_text(row)) for row in rows]):
        return whole
    return replace(whole, l1=whole.l2, min=whole.l2, max=whole.l2)


def judge_fused(case: Case, judged: Judgement) -> Judgement:
    """Judge operations and their parts by the statistics of the parts together."""
    a, b, pairing, verdicts = case.a, judged.b, case.pairing, judged.verdicts
    groups = []
    for k in np.flatnonzero(pairing.grouped & one_of(pairing.method, BY_PARTS)).tolist():
        members = pairing.members(k)
        if are_parts(a, b, *members):
            groups.append((k, *members))
    if not groups:
        return judged
    x, y = (as_values([folded(log, of[side]) for of in groups]) for side, log in ((1, a), (2, b)))
    which = np.array([k for k, _, _ in groups])
    found = Differences(x, y).verdicts(Tolerances.of(verdicts.tolerance[which]))
    slots = {k: slot for k, slot in verdicts.slots.items() if k not in which}
    columns = {"error": found.error, "bound": found.bound, "limit": found.limit}
    return judged.claimed(which, found.status, found.reason, slots=slots, **columns)
