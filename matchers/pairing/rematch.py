"""Apply rules and renames to the automatic alignment, and match the neighbourhood again.

The alignment is computed once. Only the rows around a changed pair compete again, so a rule takes effect at once in
logs of any size; and since the result is a function of the alignment and the set of rules, the order in which rules
were made does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from matchers.arrays import Bool, Int64, columns, distinct, marked, one_of
from matchers.pairing.align import LEFTOVER, Alignment
from matchers.pairing.assignment import State, compete, leftovers, nearest_of_kind
from matchers.pairing.evidence import observe
from matchers.pairing.features import Features
from matchers.pairing.pairing import Method

__all__ = ["ForcedPair", "Repaired", "apply_rules", "realigned"]

_REACH, _LEAST_REACH = 48, 4
"""Rows rematched on either side of a forced pair: the maximum for a single pair, and the minimum for very many."""
_ROWS = 1_500
"""Total rows rematched on either side because of one rule, as far as `_LEAST_REACH` allows."""


@dataclass(frozen=True, slots=True)
class ForcedPair:
    """Rows of a and rows of b that a rule declares to be one operation.

    `among`: number of pairs that the rule makes. One of many is less informative about its neighbours, since the others
    are near, so fewer rows are rematched.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    method: Method
    among: int = 1

    @property
    def reach(self) -> int:
        """Number of rows rematched on either side."""
        return max(min(_ROWS // self.among, _REACH), _LEAST_REACH)


@columns
class Repaired:
    """The alignment after the rules about single operations.

    Attributes:
        by_itself: bool[forced], the rule is redundant: the pair, and all others, would be the same and as certain
            without it, because its printed values are equal.
        idle: bool[apart], the rule is redundant: the alignment pairs the two otherwise, and they never were candidates.
    """

    state: State
    by_itself: Bool
    idle: Bool


def apply_rules(
    f: Features, auto: Alignment, forced: Sequence[ForcedPair], apart: Sequence[tuple[int, int]]
) -> Repaired:
    """The alignment with the forced pairs made, the forbidden ones cut, and the rows around them rematched."""
    state = auto.state.copy()
    if not forced and not apart:
        return Repaired(state, np.zeros(0, bool), np.zeros(0, bool))
    named_a = _reach(len(f.a), [(pair.a, pair) for pair in forced]) > 0
    named_b = _reach(len(f.b), [(pair.b, pair) for pair in forced]) > 0
    # a rule that confirms a pair leaves its neighbours unchanged
    anew = [pair for pair in forced if len(pair.a) > 1 or len(pair.b) > 1 or state.of_a[pair.a[0]] != pair.b[0]]
    again_a, again_b = _neighbourhood(
        state,
        _reach(len(f.a), [(pair.a, pair) for pair in anew]),
        _reach(len(f.b), [(pair.b, pair) for pair in anew]),
    )
    cut = [i for i, j in apart if state.of_a[i] == j]
    again_a[cut], again_b[state.of_a[cut]] = True, True
    by_itself = _by_itself(state, forced)
    idle = np.array([state.of_a[i] != j and f.a.lead[i] < 0 and f.b.lead[j] < 0 for i, j in apart], bool)

    paired = np.flatnonzero(state.of_a >= 0)
    partner = state.of_a[paired]
    loose = (again_a[paired] | again_b[partner]) & (state.method[paired] != Method.EXACT)
    # rows that a rule names lose their previous partners, even exact ones; a part takes its group along
    named_a[state.part_a[named_a & (state.part_a >= 0)]] = True
    named_b[state.part_b[named_b & (state.part_b >= 0)]] = True
    state.free(distinct(np.append(paired[loose | named_a[paired] | named_b[partner]], np.array(cut, np.int64))))
    for pair in forced:
        state.pair(np.array([pair.a[-1]]), np.array([pair.b[-1]]), pair.method, 1.0)

    free_a = np.flatnonzero(state.free_a & again_a & ~named_a)
    free_b = np.flatnonzero(state.free_b & ~named_b)
    if auto.weights is not None:
        i, j = _allowed(*nearest_of_kind(f, free_a, free_b, auto.order), apart, idle)
        if len(i):
            seen = observe(f, i, j, auto.order, *state.partners())
            compete(state, i, j, auto.weights.score(seen), 0.0)
    free_a, free_b = free_a[state.of_a[free_a] < 0], free_b[state.of_b[free_b] < 0]
    i, j = _allowed(*leftovers(f, state, auto.order, free_a, free_b), apart, idle)
    state.pair(i, j, Method.RELAXED, LEFTOVER)
    return Repaired(state, by_itself, idle)


def _by_itself(auto: State, forced: Sequence[ForcedPair]) -> Bool:
    """bool[forced], see `Repaired`. Groups always need their rule, and so do pairs that were only likely."""
    out = np.zeros(len(forced), bool)
    single = np.array([k for k, pair in enumerate(forced) if len(pair.a) == 1 and len(pair.b) == 1], np.int64)
    if len(single):
        i, j = np.array([(forced[k].a[0], forced[k].b[0]) for k in single.tolist()], np.int64).T
        out[single] = (auto.of_a[i] == j) & (auto.method[i] == Method.EXACT)
    return out


def _reach(size: int, named: Sequence[tuple[tuple[int, ...], ForcedPair]]) -> Int64:
    """int64[size], the reach of each row that a pair names, 0 for others."""
    out = np.zeros(size, np.int64)
    for rows, pair in named:
        out[list(rows)] = pair.reach
    return out


def _neighbourhood(state: State, reach_a: Int64, reach_b: Int64) -> tuple[Bool, Bool]:
    """The rows within reach of the named rows, and of their previous partners."""
    touched_a, touched_b = reach_a.copy(), reach_b.copy()
    for of, reach, touched in ((state.of_a, reach_a, touched_b), (state.of_b, reach_b, touched_a)):
        named = np.flatnonzero((reach > 0) & (of >= 0))
        touched[of[named]] = np.maximum(touched[of[named]], reach[named])
    return _within(touched_a), _within(touched_b)


def _within(reach: Int64) -> Bool:
    mark = np.zeros(len(reach) + 1, np.int64)
    at = np.flatnonzero(reach)
    np.add.at(mark, np.maximum(at - reach[at], 0), 1)
    np.add.at(mark, np.minimum(at + reach[at] + 1, len(reach)), -1)
    return np.cumsum(mark)[:-1] > 0


def _allowed(i: Int64, j: Int64, apart: Sequence[tuple[int, int]], idle: Bool) -> tuple[Int64, Int64]:
    """The candidates without forbidden pairs; clears `idle` for the rules that are needed here."""
    if not apart or not len(i):
        return i, j
    span = np.int64(max(int(j.max()), *(b for _, b in apart)) + 1)
    candidate, kept_apart = i * span + j, np.array([a * span + b for a, b in apart], np.int64)
    idle &= ~np.isin(kept_apart, candidate)
    keep = ~np.isin(candidate, kept_apart)
    return i[keep], j[keep]


_WORD = 4.0
"""Log odds added if the renamed modules match, subtracted otherwise."""


def realigned(f: Features, auto: Alignment, renamed: Bool) -> Alignment:
    """Update the alignment for renamed modules.

    Args:
        f: the features with the new names.
        auto: the alignment under the old names.
        renamed: bool[n_a], the rows whose module is renamed.
    """
    state = auto.state.copy()
    # rows of b under the new names
    called = marked(f.a.module[renamed], f.names.size + 1)
    wanted = called[f.b.module]
    paired = np.flatnonzero(state.of_a >= 0)
    guessed = one_of(state.method[paired], (Method.ALIGNED, Method.RELAXED))
    again = guessed & (renamed[paired] | wanted[state.of_a[paired]])
    touched = renamed.copy()
    touched[paired[again]] = True
    state.free(paired[again])

    rows_a, rows_b = np.flatnonzero(touched & state.free_a), np.flatnonzero(state.free_b)
    if auto.weights is not None:
        i, j = nearest_of_kind(f, rows_a, rows_b, auto.order)
        if len(i):
            score = auto.weights.score(observe(f, i, j, auto.order, *state.partners()))
            word = np.where(f.a.module[i] == f.b.module[j], _WORD, -_WORD)
            compete(state, i, j, score + np.where(renamed[i], word, 0.0), 0.0)
    i, j = leftovers(f, state, auto.order, rows_a[state.of_a[rows_a] < 0], rows_b[state.of_b[rows_b] < 0])
    state.pair(i, j, Method.RELAXED, LEFTOVER)
    return Alignment(state, auto.order, auto.weights)
