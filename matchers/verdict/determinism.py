"""Determinism, learned from two logs: how often operations of one kind return equal results for equal inputs.

A kind is an operation of one dtype in one phase; both runs of a pair of logs use one device. Where dozens of `mm` with
equal inputs agree to the bit, one that does not is a difference of any size. Where others differ as well, another
kernel or reduction order is at work.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Int64, columns
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import OpLog, Phase

__all__ = ["Determinism", "equal_inputs"]


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
    return np.asarray(same & ~unknown_a[i] & ~unknown_b[j]), False


@columns
class Determinism:
    """The pairs with equal inputs, by kind of operation.

    Attributes:
        kind: int64[p], -1 for pairs of different operations or dtypes.
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
