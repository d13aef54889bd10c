"""Pairs that order chose against the data flow: two optimizers that update the biases of a layer in another order.

Rows of one kind with much the same numbers, each at the place where the other is expected, win that place before
their producers have partners. Where these and the numbers agree on another row, it is the partner.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Int64, distinct, marked
from matchers.ops.laws import collective
from matchers.pairing.assignment import State
from matchers.pairing.evidence import Flow, ValueEvidence, flow, value_bins
from matchers.pairing.features import Features
from matchers.pairing.pairing import Method

__all__ = ["uncross"]

_ROUNDS = 8
"""Exchanges after each other: what reads an exchanged pair may have won its place in the same way."""
_FOUND = 0.95
"""Confidence of a pair by data flow and numbers, against the order."""


def uncross(f: Features, state: State, values: ValueEvidence) -> None:
    """Pair anew, in place, the rows whose producers have other partners, and separate those of other layers."""
    for _ in range(_ROUNDS):
        if not len(found := _crossed(f, state)):
            return
        crossed = marked(found, len(f.a)), marked(state.of_a[found], len(f.b))
        i, j = _candidates(f, state, crossed[0] | state.free_a, crossed[1] | state.free_b)
        agrees = flow(f.a, f.b, i, j, *state.partners()) == Flow.PARTNERS
        i, j = i[agrees], j[agrees]
        score = values.of(value_bins(f.a, f.b, i, j))
        better = (score > 0) & (crossed[0][i] | crossed[1][j])
        for one, other in ((i, state.of_a[i]), (state.of_b[j], j)):
            held = np.flatnonzero((one >= 0) & (other >= 0))
            better[held] &= score[held] > values.of(value_bins(f.a, f.b, one[held], other[held]))
        i, j = i[better], j[better]
        best = np.argsort(-score[better], kind="stable")
        for rows in (i, j):  # each row once, with the candidate of the best score
            _, first = np.unique(rows[best], return_index=True)
            best = best[np.sort(first)]
        i, j = i[best], j[best]
        if not len(i):
            break
        before = state.of_b[j]
        state.free(distinct(np.concatenate((i, before[before >= 0]))))
        state.pair(i, j, Method.ALIGNED, _FOUND)
    else:
        found = _crossed(f, state)
    place_a, place_b = f.a.place[found], f.b.place[state.of_a[found]]
    state.free(found[(place_a != place_b) & (place_a >= 0) & (place_b >= 0)])


def _crossed(f: Features, state: State) -> Int64:
    """Rows of a that the evidence has paired, and whose producers have other partners.

    Not where both have one name, which tells more, nor collectives, which read what other ranks have sent.
    """
    i = np.flatnonzero((state.method == Method.ALIGNED) & ~collective(f.a.log))
    i = i[flow(f.a, f.b, i, state.of_a[i], *state.partners()) == Flow.ELSEWHERE]
    pairs = zip(i.tolist(), state.of_a[i].tolist(), strict=True)
    return i[np.array([f.a.log.keys[row] != f.b.log.keys[partner] for row, partner in pairs], bool)]


def _candidates(f: Features, state: State, open_a: Bool, open_b: Bool) -> tuple[Int64, Int64]:
    """Rows of one kind, in a place where both read partners, and no other such row does."""
    found = []
    for made_a, made_b in zip(f.a.producers, f.b.producers, strict=True):
        i, j = (np.flatnonzero(of & (made >= 0)) for of, made in ((open_a, made_a), (open_b, made_b)))
        partner = state.of_a[made_a[i]]
        i, partner = i[partner >= 0], partner[partner >= 0]
        kinds = np.int64(max(side.kind.max(initial=0) for side in (f.a, f.b)) + 2)
        (key_a, i), (key_b, j) = (
            _single(made * kinds + side.kind[rows] + 1, rows)
            for made, side, rows in ((partner, f.a, i), (made_b[j].astype(np.int64), f.b, j))
        )
        _, at_a, at_b = np.intersect1d(key_a, key_b, assume_unique=True, return_indices=True)
        found.append(i[at_a] * len(f.b) + j[at_b])
    i, j = np.divmod(distinct(np.concatenate(found)), len(f.b))
    known = f.a.kind[i] >= 0
    return i[known], j[known]


def _single(keys: Int64, rows: Int64) -> tuple[Int64, Int64]:
    """The keys that occur once, ascending, and their rows."""
    keys, first, count = np.unique(keys, return_index=True, return_counts=True)
    return keys[count == 1], rows[first[count == 1]]
