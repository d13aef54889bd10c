"""Detours: steps that the two runs take differently to the same result, paired by name and order only.

One run squares by x · x, whose gradient is x·g + x·g; the other by pow(x, 2), whose gradient is (2x)·g. Two of these
products are of one kind, in one module and in order, but they are no partners. The marks of a detour: an input is
another tensor, whose producers are no partners; the result differs; what reads it agrees again, and so does everything
around. Sums in another order are another matter (verdict/partial_sums.py).
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.ops.op_names import additions
from matchers.pairing.assignment import State
from matchers.pairing.features import Features, LogFeatures
from matchers.pairing.pairing import Method
from matchers.pairing.twins import tolerance

__all__ = ["detours"]

_FORKED = 0.85
"""Largest confidence of a pair that reads other tensors, and returns another."""
_AROUND = 32
"""Rows before and after, which agree but for detours."""


@np.errstate(invalid="ignore")
def detours(f: Features, state: State) -> Int64:
    """Rows of a whose pairs are detours; lowers the confidence of pairs that may be."""
    within = tolerance(f)
    differs = np.zeros(len(f.a), bool)
    i = np.flatnonzero(np.isin(state.method, (Method.ALIGNED, Method.RELAXED)))
    i = i[(np.abs(f.a.stats[:, i] - f.b.stats[:, state.of_a[i]]) > within).any(axis=0)]
    i = i[~additions(f.a.log)[i]]
    differs[i] = True
    found = i[_forks(f, state, i, within)]
    state.confidence[found] = np.minimum(state.confidence[found], _FORKED)
    differs[found] = False
    found = found[~_near(differs, found)]
    differs_b = np.zeros(len(f.b), bool)
    differs_b[state.of_a[differs]] = True
    return found[_rejoins(f.a, differs)[found] & _rejoins(f.b, differs_b)[state.of_a[found]]]


def _forks(f: Features, state: State, i: Int64, within: float) -> Bool:
    """bool: an input of the pair differs, and its producers are no partners."""
    j = state.of_a[i]
    out = np.zeros(len(i), bool)
    for k in range(len(f.a.producers)):
        p, q = f.a.producers[k, i], f.b.producers[k, j]
        other = ((p >= 0) & (state.of_a[p] < 0)) | ((q >= 0) & (state.of_b[q] < 0))
        other |= (p >= 0) & (q >= 0) & (state.of_a[p] != q)
        out |= other & (np.abs(f.a.inputs[k, i] - f.b.inputs[k, j]) > within)
    return out


def _near(rows: Bool, at: Int64) -> Bool:
    """bool: one of these rows is around."""
    total = np.concatenate(([0], np.cumsum(rows)))
    return np.asarray(total[np.minimum(at + _AROUND + 1, len(rows))] > total[np.maximum(at - _AROUND, 0)])


def _rejoins(side: LogFeatures, differs: Bool) -> Bool:
    """bool[n]: something reads the row, and nothing that differs does."""
    known = side.producers >= 0
    maker, reader = side.producers[known], np.nonzero(known)[1]
    out = np.zeros(len(differs), bool)
    out[maker] = True
    out[maker[differs[reader]]] = False
    return out
