"""Determinism, learned from two logs: how often operations of one kind return equal results for equal inputs.

A kind is an operation of one dtype in one phase; both runs of a pair of logs use one device. Where dozens of `mm` with
equal inputs agree to the bit, one that does not is a difference of any size. Where others differ as well, another
kernel or reduction order is at work.

Among those of one shape, too, this is proof in runs of one build of torch, device, number of threads and set of flags:
the kernel repeats, so a result with other bits was computed otherwise. Not proof: an operation whose bits may vary by
its law, one that reads a tensor of another operation (and so perhaps of other strides), or a constant.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from matchers.arrays import Bool, Hash, Int64, columns, numbered_together, one_of
from matchers.logs.hashing import mix, shared_ids
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.input_statistics import alike
from matchers.ops.laws import rows_where
from matchers.ops.module_path import NO_MODULE
from matchers.ops.run_info import same_kernels
from matchers.ops.shapes import reduction_length
from matchers.status import Status
from matchers.verdict.arguments import other_arguments
from matchers.verdict.case import Case, Judgement
from matchers.verdict.digests import inputs_equal, shared_inputs
from matchers.verdict.reason import Reason
from matchers.verdict.tolerance import UNSURE

__all__ = ["Determinism", "equal_inputs", "judge_repetition", "made_elsewhere"]

_SIBLINGS = 2
"""Fewest other operations that must repeat before one that does not is red."""


def equal_inputs(a: OpLog, b: OpLog, i: Int64, j: Int64, by_digest: Bool) -> tuple[Bool, bool]:
    """bool[p], the inputs of the pairs (i[k], j[k]) are equal; and whether that means their bits.

    Without digests in one of the logs, every printed number of every input must be equal; an operation without inputs
    counts where the logs list inputs at all.

    Args:
        by_digest: bool[p], the digests of all inputs are equal; see `matchers.verdict.digests`.
    """
    if len(a.input_digests.value) and len(b.input_digests.value):
        return by_digest, True
    if not (len(a.inputs.value) and len(b.inputs.value)):
        return np.zeros(len(i), bool), False
    unknown_a, unknown_b = (
        np.bincount(log.inputs.row[np.isnan(log.inputs.value)], minlength=len(log)) > 0 for log in (a, b)
    )
    same = (a.inputs.count[i] == b.inputs.count[j]) & (a.fingerprints("inputs")[i] == b.fingerprints("inputs")[j])
    return np.asarray(same & ~unknown_a[i] & ~unknown_b[j] & alike(a, b, i, j)), False


@columns
class Determinism:
    """The pairs with equal inputs, by kind of operation.

    Attributes:
        kind: int64[p], -1 for pairs of different operations or dtypes, or that were asked something else.
        counted: bool[p], the inputs are equal and the results could be compared.
        differs: bool[p], the results are not equal.
    """

    kind: Int64
    counted: Bool
    differs: Bool

    @classmethod
    def of(cls, a: OpLog, b: OpLog, i: Int64, j: Int64, counted: Bool, differs: Bool) -> Determinism:
        """Learn from the pairs (i[k], j[k])."""
        op_a, op_b, _ = shared_ids(a.ops, b.ops)
        dtype_a, dtype_b, dtypes = shared_ids(a.dtypes, b.dtypes)
        op, dtype, phase = op_a[a.op[i]], dtype_a[a.dtype[i]], a.phase[i].astype(np.int64)
        alike = (op == op_b[b.op[j]]) & (dtype == dtype_b[b.dtype[j]]) & (phase == b.phase[j])
        alike &= ~other_arguments(a, b, i, j)
        kind = (op * (dtypes + 1) + dtype + 1) * (len(Phase) + 1) + phase + 1
        return cls(np.where(alike, kind, -1), counted, differs)

    def others(self, k: int, end: int | None = None) -> tuple[int, int]:
        """(pairs of the same kind with equal inputs, beside this one; those of them whose results differ).

        Args:
            end: count only the pairs before this one.
        """
        if self.kind[k] < 0:
            return 0, 0
        found = self.counted & (self.kind == self.kind[k])
        found[k] = False
        if end is not None:
            found[end:] = False
        return int(np.count_nonzero(found)), int(np.count_nonzero(found & self.differs))

    def alone(self, form: Int64, place: Int64) -> Bool:
        """bool[p]: the pair differs where others of its kind and form agree, two or more, and none differs elsewhere.

        Args:
            form: int64[p, m], numbers that are equal where two pairs of one kind are to repeat each other.
            place: int64[p], the module, in which a loop or a copy may repeat the difference; -1 for none.
        """
        out = np.zeros(len(self.kind), bool)
        rows = np.flatnonzero(self.counted & (self.kind >= 0))
        if not self.differs[rows].any():
            return out
        of = numbered_together(self.kind[rows], *np.atleast_2d(form[rows].T))
        differs = self.differs[rows]
        agree = np.bincount(of[~differs], minlength=len(rows))
        where = np.where(place[rows] < 0, -1 - rows, place[rows])
        differ = np.bincount(np.unique(np.column_stack((of, where))[differs], axis=0)[:, 0], minlength=len(rows))
        out[rows] = differs & (agree[of] >= _SIBLINGS) & (differ[of] == 1)
        return out


def judge_repetition(case: Case, found: Judgement) -> Judgement:
    """Claim operations that return other bits of equal inputs, unlike all others of their form."""
    a, b, i, j, verdicts = case.a, case.b, case.i, case.j, found.verdicts
    if case.bitwise or case.expectation.explains or not same_kernels(a.header.run, b.header.run):
        return found
    equal, by_digest = equal_inputs(a, b, i, j, inputs_equal(a, b, i, j))
    differs = one_of(verdicts.status, (Status.CLOSE, Status.NOT_JUDGED, Status.DIVERGED))
    shape_a, shape_b, _ = shared_ids(a.shapes, b.shapes)
    counted = equal & (differs | (verdicts.status == Status.EQUAL)) & ~case.pairing.grouped & by_digest
    counted &= (case.pairing.confidence >= UNSURE) & rows_where(a, lambda law: law.repeats, i)
    counted &= (shape_a[a.shape[i]] == shape_b[b.shape[j]]) & _varied(a)[i]
    learned = Determinism.of(a, b, i, j, counted, differs)
    outside = np.array([*(name == NO_MODULE for name in a.modules), True])[a.module[i]]
    place = np.where(outside, -1, a.module[i])
    terms = reduction_length(a)[i].clip(max=1 << 62).astype(np.int64)
    form = np.column_stack((a.shape[i], a.inputs.count[i], terms))
    red = learned.alone(form, place)
    if red.any():
        red &= learned.alone(np.column_stack((form, _strides(case, np.isin(learned.kind, learned.kind[red])))), place)
    red &= np.isnan(case.rtol) & (verdicts.status != Status.DIVERGED) & ~made_elsewhere(a, b, i, j)
    red[[k for k, slot in verdicts.slots.items() if slot.only]] = False
    red[red] = _same_makers(case, i[red], j[red])
    claim: dict[str, Any] = {"status": Status.DIVERGED, "reason": Reason.NOT_REPEATED, "limit": 0.0}
    slots = {k: replace(slot, **claim) if red[k] else slot for k, slot in verdicts.slots.items()}
    return found.claimed(red, **claim, tolerance=0.0, slots=slots)


def _strides(case: Case, which: Bool) -> Int64:
    """int64[p]: a number for the forms of the inputs of some pairs, as far as logs say them; its own if they differ."""
    ids: dict[bytes, int] = {}
    out = np.zeros(len(which), np.int64)
    texts_a, texts_b = case.a.texts("Inputs"), case.b.texts("Inputs")
    for k in np.flatnonzero(which).tolist():
        x, y = texts_a.raw(int(case.i[k])), texts_b.raw(int(case.j[k]))
        out[k] = ids.setdefault(x, len(ids)) if x == y else -1 - k
    return out


def _varied(log: OpLog) -> Bool:
    """bool[n]: the result is no constant: one of zeros repeats whatever made it."""
    with np.errstate(invalid="ignore"):
        return np.asarray((log.stats[2] < log.stats[3]) | ((log.counts[0] == 1) & (log.stats[3] != 0)))


def _same_makers(case: Case, i: Int64, j: Int64) -> Bool:
    """bool[p]: partners made each input, or no operation in either log."""
    a, b, flow, pairing = case.a, case.b, case.flow, case.pairing
    same = a.inputs.count[i] == b.inputs.count[j]
    owner, _, at_a, at_b = shared_inputs(a, b, i, j)
    maker_a, maker_b = flow.a.value[at_a], flow.b.value[at_b]
    of_a, of_b = np.append(pairing.of_a, -1)[maker_a], np.append(pairing.of_b, -1)[maker_b]
    apart = ((maker_a >= 0) != (maker_b >= 0)) | ((maker_a >= 0) & ((of_a < 0) | (of_a != of_b)))
    same[owner[apart]] = False
    return same


def made_elsewhere(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """bool[p]: another operation of b read the same and returned what a's did: the pair is wrong, not the run."""
    out = np.zeros(len(i), bool)
    if not (len(a.digests.value) and len(b.digests.value)):
        return out
    op_a, op_b, _ = shared_ids(a.ops, b.ops)
    known = (a.digests.count[i] > 0) & (a.input_digests.count[i] > 0) & (op_a[a.op[i]] == op_b[b.op[j]])
    out[known] = np.isin(_calls(a, op_a[a.op])[i[known]], _calls(b, op_b[b.op]))
    return out


def _calls(log: OpLog, op: Int64) -> Hash:
    """uint64[n]: a hash of what an operation is, reads and returns."""
    read, returned = log.fingerprints("input_digests"), log.fingerprints("digests")
    return mix(mix(read + op.astype(np.uint64)) ^ returned)
