"""Pairs of operations on lists of tensors: another number of tensors is a difference like another shape, unless they
hold the same elements (lists.py).

An optimizer may update all parameters in one operation in one run, and group by group in the other. Such a pair cannot
be judged by itself, if the operations that do the rest have no partners either.
"""

from __future__ import annotations

import numpy as np

from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import OpLog
from matchers.ops.arguments import returns_all_asked
from matchers.ops.laws import on_lists
from matchers.ops.shapes import sharded_runs
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.judge_values import Limits
from matchers.verdict.lists import judge_lists
from matchers.verdict.reason import Reason
from matchers.verdict.slots import SlotVerdict

__all__ = ["length", "with_lengths"]

_FURTHER_INPUTS = 3
"""Number of inputs that an operation on lists may have beside them: a factor, a learning rate."""


def length(log: OpLog, row: int) -> int:
    """Number of tensors that a record returned or wrote; of its inputs where the log prints neither; 0 if unknown."""
    if returned := len(log.outputs[row]):
        return returned
    if written := log.texts("Mutated").raw(row).count(b'{"input":'):
        return written
    return len(log.inputs[row]) if on_lists(log)[row] else 0


def with_lengths(case: Case, judged: Judgement) -> Judgement:
    """Claim pairs of one operation that handle another number of tensors: SHAPE.

    SHARDED if the runs are; NOT_JUDGED if unpaired operations of the other run may handle the rest, or if it was not
    asked for.
    """
    a, b, i, j, pairing, verdicts = case.a, case.b, case.i, case.j, case.pairing, judged.verdicts
    op_a, op_b, _ = shared_ids(a.ops, b.ops)
    same = (op_a[a.op[i]] == op_b[b.op[j]]) & ~pairing.grouped & (verdicts.status != Status.SHARDED)
    silent = (a.outputs.count[i] == 0) & (b.outputs.count[j] == 0)
    other = np.where(
        silent,
        np.abs(a.inputs.count[i] - b.inputs.count[j]) > _FURTHER_INPUTS,
        a.outputs.count[i] != b.outputs.count[j],
    )
    found = [(k, length(a, int(i[k])), length(b, int(j[k]))) for k in np.flatnonzero(same & other).tolist()]
    found = [(k, x, y) for k, x, y in found if x != y and min(x, y) > 0]
    known, told = case.earlier.lists, dict[tuple[int, int], SlotVerdict | None]()
    for k, _, _ in found:
        at = int(i[k]), int(j[k])
        told[at] = known[at] if at in known else judge_lists(a, b, *at, Limits())
    case.earlier.lists = told
    found = [(k, x, y) for k, x, y in found if told[int(i[k]), int(j[k])] is None]
    if not found:
        return judged
    status = []
    sharded = sharded_runs(a, b)
    for k, x, y in found:
        shorter, row, of = (a, int(i[k]), pairing.of_a) if x < y else (b, int(j[k]), pairing.of_b)
        rest = np.flatnonzero((of < 0) & (shorter.op == shorter.op[row]) & (shorter.phase == shorter.phase[row]))
        explained = sum(length(shorter, r) for r in rest.tolist()) >= abs(x - y)
        explained |= returns_all_asked(a, int(i[k])) and returns_all_asked(b, int(j[k]))
        status.append(Status.SHARDED if sharded else Status.NOT_JUDGED if explained else Status.SHAPE)
    which = np.array([k for k, _, _ in found])
    return judged.claimed(which, np.array(status), Reason.OTHER_LIST_LENGTH, error=np.nan, bound=False)
