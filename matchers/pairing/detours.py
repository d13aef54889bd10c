"""Detours: steps that the two runs take differently to the same result, paired by name and order only.

One run squares by x · x, whose gradient is x·g + x·g; the other by pow(x, 2), whose gradient is (2x)·g. Two of these
products are of one kind, in one module and in order, but they are no partners. The marks of a detour: an input is
another tensor, whose producers are no partners; the result is another one, too; something that reads it agrees again,
and nothing that reads it differs. Sums in another order are another matter (verdict/partial_sums.py).
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.ops.collectives import collective
from matchers.ops.op_names import additions
from matchers.ops.shapes import numel
from matchers.pairing.assignment import State
from matchers.pairing.features import Features, LogFeatures
from matchers.pairing.pairing import Method
from matchers.pairing.twins import tolerance

__all__ = ["detours"]

_FORKED = 0.85
"""Largest confidence of a pair that reads other tensors, and returns another."""
_OTHER = 0.1
"""Relative difference of the numbers from which on two results are other tensors: a smaller one may vanish in a sum."""


@np.errstate(invalid="ignore")
def detours(f: Features, state: State) -> Int64:
    """Rows of a whose pairs are detours; lowers the confidence of pairs that may be."""
    within = tolerance(f)
    i = np.flatnonzero(np.isin(state.method, (Method.ALIGNED, Method.RELAXED)))
    change = np.fmax.reduce(np.abs(f.a.stats[:, i] - f.b.stats[:, state.of_a[i]]), axis=0)
    i, change = i[change > within], change[change > within]
    unlike = np.zeros(len(f.a), bool)
    unlike[i] = True
    sums = additions(f.a.log)
    i, change = i[~sums[i]], change[~sums[i]]
    forks = _forks(f, state, i, within)
    state.confidence[i[forks]] = np.minimum(state.confidence[i[forks]], _FORKED)
    differs = unlike & ~sums
    differs[i[forks]] = False
    size_a, size_b = (numel(side.log)[side.log.shape] for side in (f.a, f.b))
    # a part has other numbers than its whole
    found = i[forks & (change > _OTHER) & (size_a[i] == size_b[state.of_a[i]])]
    differs_b, unlike_b = np.zeros((2, len(f.b)), bool)
    differs_b[state.of_a[differs]], unlike_b[state.of_a[unlike]] = True, True
    # nor is a term that ranks add up
    agrees_a, rejoins_a = _read_by(f.a, (state.of_a >= 0) & ~unlike, differs | collective(f.a.log))
    agrees_b, rejoins_b = _read_by(f.b, (state.of_b >= 0) & ~unlike_b, differs_b | collective(f.b.log))
    j = state.of_a[found]
    return found[(agrees_a[found] | agrees_b[j]) & rejoins_a[found] & rejoins_b[j]]


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


def _read_by(side: LogFeatures, agrees: Bool, differs: Bool) -> tuple[Bool, Bool]:
    """(bool[n]: one that agrees reads the row, bool[n]: something reads it, and nothing that differs does)."""
    known = side.producers >= 0
    maker, reader = side.producers[known], np.nonzero(known)[1]
    by_agreeing, rejoins = np.zeros((2, len(differs)), bool)
    by_agreeing[maker[agrees[reader]]] = True
    rejoins[maker] = True
    rejoins[maker[differs[reader]]] = False
    return by_agreeing, rejoins
