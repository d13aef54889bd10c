"""Pairs whose shapes differ because one run computes in another form, such as attention that repeats heads itself.

They lie in a region whose results agree: the form makes no difference, and what lies between is not judged by itself.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.logs.columns import Ragged
from matchers.logs.hashing import shared_ids
from matchers.regions.find import find_regions
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.reason import Reason

__all__ = ["without_other_forms"]


def without_other_forms(case: Case, judged: Judgement) -> Judgement:
    """Claim pairs of other shapes in a region whose results agree: NOT_JUDGED.

    One run alone has an operation in it; another dtype is no other form.
    """
    a, b, i, j, pairing, verdicts = case.a, case.b, case.i, case.j, case.pairing, judged.verdicts
    dtype_a, dtype_b, _ = shared_ids(a.dtypes, b.dtypes)
    other = (verdicts.status == Status.SHAPE) & (dtype_a[a.dtype[i]] == dtype_b[b.dtype[j]]) & ~a.updates[i]
    other &= _read(case.flow.a, i) & _read(case.flow.b, j)
    if not other.any():
        return judged
    regions = find_regions(a, b, pairing, verdicts.status, case.flow)
    alone = np.concatenate((regions.of_a[pairing.of_a < 0], regions.of_b[pairing.of_b < 0]))
    other &= regions.covered("a")[i] & regions.covered("b")[j] & np.isin(regions.of_a[i], alone)
    slots = {k: slot for k, slot in verdicts.slots.items() if not other[k]}
    return judged.claimed(other, Status.NOT_JUDGED, Reason.OTHER_FORM, slots=slots)


def _read(flow: Ragged, records: Int64) -> Bool:
    """bool: an operation reads the results of each of some records."""
    return np.bincount(flow.value[flow.value >= 0], minlength=len(flow))[records] > 0
