"""The user's word, and what follows from it: pairs made and cut by rules, and their neighbourhood matched again.

Rules are applied to the automatic alignment, which is computed once. Only the rows around a rule compete again, so a
rule takes effect at once however large the logs are; and because the result is a function of the alignment and of all
rules, it does not depend on the order in which the rules were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matchers.align import Alignment, State, compete, nearest_of_kind
from matchers.evidence import observe
from matchers.features import Features
from matchers.pairing import Method

__all__ = ["ForcedPair", "apply_rules"]

Int = NDArray[np.int64]

_REACH = 48
"""Rows on either side of a forced pair that are matched again."""


@dataclass(frozen=True, slots=True)
class ForcedPair:
    """Rows of a and rows of b that a rule declares to be one operation."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    method: Method


def apply_rules(
    f: Features, auto: Alignment, forced: Sequence[ForcedPair], apart: Sequence[tuple[int, int]]
) -> State:
    """The alignment with the forced pairs in, the pairs that are apart cut, and the rows around them matched again."""
    state = auto.state.copy()
    if not forced and not apart:
        return state
    held_a, held_b = np.zeros(len(f.a), bool), np.zeros(len(f.b), bool)
    again_a, again_b = np.zeros(len(f.a), bool), np.zeros(len(f.b), bool)
    for pair in forced:
        for i in pair.a:
            held_a[i] = True
            _free_around(state, again_a, again_b, i, int(state.of_a[i]))
        for j in pair.b:
            held_b[j] = True
            _free_around(state, again_a, again_b, int(state.of_b[j]), j)
    for i, j in apart:
        if state.of_a[i] == j:
            again_a[i] = again_b[j] = True
    # what a rule holds is not up for matching; exact pairs around it stay unless a rule took one of the two
    kept = (state.of_a >= 0) & (state.method == Method.EXACT)
    again_a &= ~kept
    again_b[state.of_a[kept]] = False
    for i, j in apart:
        if state.of_a[i] == j:
            again_a[i] = again_b[j] = True
    loose_a = np.flatnonzero(again_a | held_a)
    loose_b = np.flatnonzero(again_b | held_b)
    partners = state.of_b[loose_b]
    state.free(np.unique(np.concatenate((loose_a, partners[partners >= 0]))))
    for pair in forced:
        i, j = np.array([pair.a[-1]]), np.array([pair.b[-1]])
        state.pair(i, j, pair.method, 1.0)

    blocked = set(apart)
    free_a = np.flatnonzero((state.of_a < 0) & ~held_a & _touched(again_a, held_a))
    free_b = (state.of_b < 0) & ~held_b
    if auto.weights is not None and len(free_a) and free_b.any():
        order = auto.order
        i, j = nearest_of_kind(f, free_a, np.flatnonzero(free_b), order)
        if blocked:
            allowed = np.array([pair not in blocked for pair in zip(i.tolist(), j.tolist(), strict=True)], bool)
            i, j = i[allowed], j[allowed]
        if len(i):
            seen = observe(f, i, j, order, state.of_a, state.of_b)
            compete(state, i, j, auto.weights.score(seen), 0.0)
    return state


def _touched(again: NDArray[np.bool_], held: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The rows within reach of a rule."""
    mark = np.zeros(len(again) + 1, np.int64)
    rows = np.flatnonzero(again | held)
    np.add.at(mark, np.maximum(rows - _REACH, 0), 1)
    np.add.at(mark, np.minimum(rows + _REACH + 1, len(again)), -1)
    return np.asarray(np.cumsum(mark)[:-1] > 0)


def _free_around(state: State, again_a: NDArray[np.bool_], again_b: NDArray[np.bool_], i: int, j: int) -> None:
    """Marks the rows around both ends of what a rule changes."""
    for again, row in ((again_a, i), (again_b, j)):
        if row >= 0:
            again[max(row - _REACH, 0) : row + _REACH + 1] = True
