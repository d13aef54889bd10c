"""Detours: steps that the two runs take differently to the same result, paired by name and order only.

One run squares by x · x, whose gradient is x·g + x·g; the other by pow(x, 2), whose gradient is (2x)·g. Two of these
products are of one kind, in one module and in order, but they are no partners. The marks of a detour: an input is
another tensor, whose producers are no partners; the result is another one, too; something that reads it agrees again,
and nothing that reads it differs. Sums in another order are another matter (verdict/partial_sums.py).

Copies need less: two that hand on other values, each from a record with a partner of its own, are no partners.

Several such pairs in a row are one detour: one run takes the mean of all, the other adds the sums of two halves and
divides later. Each of them reads other tensors, and all that they lead to agrees.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Int64, distinct, marked, one_of
from matchers.ops.laws import additions, collective
from matchers.ops.shapes import numel
from matchers.pairing.assignment import State, other_copies
from matchers.pairing.features import Features, LogFeatures, tolerance
from matchers.pairing.pairing import Method

__all__ = ["detours"]

_FORKED = 0.85
"""Largest confidence of a pair that reads other tensors, and returns another."""
_OTHER = 0.1
"""Relative difference of the numbers from which on two results are other tensors: a smaller one may vanish in a sum."""
_STEPS = 64
"""Operations between a detour and what it leads to."""


@np.errstate(invalid="ignore")
def detours(f: Features, state: State) -> Int64:
    """Rows of a whose pairs are detours; lowers the confidence of pairs that may be."""
    within = tolerance(f)
    i = np.flatnonzero(one_of(state.method, (Method.ALIGNED, Method.RELAXED)))
    change = np.fmax.reduce(np.abs(f.a.stats[:, i] - f.b.stats[:, state.of_a[i]]), axis=0)
    i, change = i[change > within], change[change > within]
    unlike = marked(i, len(f.a))
    sums = additions(f.a.log)
    i, change = i[~sums[i]], change[~sums[i]]
    apart = i[other_copies(f, state, i, state.of_a[i])]
    forks = _forks(f, state, i, within)
    state.confidence[i[forks]] = np.minimum(state.confidence[i[forks]], _FORKED)
    differs = unlike & ~sums
    differs[i[forks]] = False
    size_a, size_b = (numel(side.log)[side.log.shape] for side in (f.a, f.b))
    # a part has other numbers than its whole
    forks = found = i[forks & (change > _OTHER) & (size_a[i] == size_b[state.of_a[i]])]
    differs_b, unlike_b = np.zeros((2, len(f.b)), bool)
    differs_b[state.of_a[differs]], unlike_b[state.of_a[unlike]] = True, True
    # nor is a term that ranks add up
    edges = _edges(f.a), _edges(f.b)
    agrees_a, rejoins_a = _read_by(edges[0], (state.of_a >= 0) & ~unlike, differs | collective(f.a.log))
    agrees_b, rejoins_b = _read_by(edges[1], (state.of_b >= 0) & ~unlike_b, differs_b | collective(f.b.log))
    j = state.of_a[found]
    found = found[(agrees_a[found] | agrees_b[j]) & rejoins_a[found] & rejoins_b[j]]
    weak = unlike & (state.confidence <= _FORKED) & (size_a == size_b[state.of_a])
    weak &= (np.abs(f.a.inputs - f.b.inputs[:, state.of_a]) > within).any(axis=0)
    return distinct(np.concatenate((apart, found, _in_a_row(f, state, edges, weak, unlike, forks))))


def _in_a_row(f: Features, state: State, edges: tuple[Int64, Int64], weak: Bool, unlike: Bool, forks: Int64) -> Int64:
    """Rows of a whose pairs are a detour together.

    Args:
        edges: `_edges` of a and of b.
        weak: bool[n_a], rows whose pairs are uncertain, and read and return other numbers.
        unlike: bool[n_a], rows whose pairs return other numbers.
        forks: rows of a.
    """
    if not weak[forks].any():
        return forks[:0]
    # pairs have the numbers of their rows of a; what is alone in b has the numbers behind those
    node_b = len(f.a) + np.arange(len(f.b))
    paired = np.flatnonzero(state.of_a >= 0)
    node_b[state.of_a[paired]] = paired
    ends = np.concatenate((edges[0], node_b[edges[1]]), axis=1)
    alone, among, differs, agrees, fork = np.zeros((5, len(f.a) + len(f.b)), bool)
    among[: len(weak)], fork[forks] = weak, True
    differs[: len(weak)] = unlike & ~weak
    agrees[paired] = ~unlike[paired]
    for log, nodes in ((f.a.log, np.arange(len(f.a))), (f.b.log, node_b)):
        differs[nodes[collective(log)]] = True  # a term that ranks add up has other numbers than the sum
    alone[np.flatnonzero(state.of_a < 0)], alone[node_b[node_b >= len(f.a)]] = True, True
    back = ends[::-1, (alone | among)[ends[0]]]
    within = ends[:, among[ends].all(axis=0)]
    within = np.concatenate((within, within[::-1]), axis=1)
    apart = _spread(differs, back) | (among & ~_spread(agrees, back))
    return np.flatnonzero((among & ~_spread(apart & among, within) & _spread(fork & among, within))[: len(weak)])


def _spread(marked: Bool, ends: Int64) -> Bool:
    """bool[n]: the marked nodes, and those that at most `_STEPS` of these edges lead to."""
    out = marked.copy()
    for _ in range(_STEPS):
        more = out[ends[0]] & ~out[ends[1]]
        if not more.any():
            break
        out[ends[1, more]] = True
    return out


def _edges(side: LogFeatures) -> Int64:
    """int64[2, m]: makers, readers."""
    slot, reader = np.nonzero(side.producers >= 0)
    return np.stack((side.producers[slot, reader].astype(np.int64), reader))


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


def _read_by(edges: Int64, agrees: Bool, differs: Bool) -> tuple[Bool, Bool]:
    """(bool[n]: one that agrees reads the row, bool[n]: something reads it, and nothing that differs does)."""
    maker, reader = edges
    by_agreeing, rejoins = np.zeros((2, len(differs)), bool)
    by_agreeing[maker[agrees[reader]]] = True
    rejoins[maker] = True
    rejoins[maker[differs[reader]]] = False
    return by_agreeing, rejoins
