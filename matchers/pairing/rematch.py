"""The user's word, and what follows from it: pairs made and cut by rules, and their neighbourhood matched again.

Rules are applied to the automatic alignment, which is computed once. Only the rows around a pair that a rule changes
compete again, so a rule takes effect at once however large the logs are; and because the result is a function of the
alignment and of all rules, it does not depend on the order in which the rules were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.pairing.align import LEFTOVER, Alignment
from matchers.pairing.assignment import State, compete, leftovers, nearest_of_kind
from matchers.pairing.evidence import observe
from matchers.pairing.features import Features
from matchers.pairing.pairing import Method

__all__ = ["ForcedPair", "Repaired", "apply_rules", "realigned"]


_REACH, _LEAST_REACH = 48, 4
"""Rows on either side of a forced pair that are matched again, for one pair and for one of very many."""
_ROWS = 1_500
"""Rows on either side that are matched again because of one rule, as far as `_LEAST_REACH` allows."""


@dataclass(frozen=True, slots=True)
class ForcedPair:
    """Rows of a and rows of b that a rule declares to be one operation.

    `among`: how many pairs the rule makes. One of many says less about its neighbours than a single one, because the
    others are near: fewer of them are matched again.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    method: Method
    among: int = 1

    @property
    def reach(self) -> int:
        """Rows on either side that are matched again."""
        return max(min(_ROWS // self.among, _REACH), _LEAST_REACH)


@dataclass(frozen=True, slots=True)
class Repaired:
    """What the rules about single operations make of the alignment.

    Attributes:
        by_itself: bool[forced], the pair would be the same and as sure without its rule, and so would all others: its
            values are equal to the digit.
        idle: bool[apart], the two would be no pair without the rule, and all others would be the same: the alignment
            has another pair, and the two were never candidates.
    """

    state: State
    by_itself: Bool
    idle: Bool


def apply_rules(
    f: Features, auto: Alignment, forced: Sequence[ForcedPair], apart: Sequence[tuple[int, int]]
) -> Repaired:
    """The alignment with the forced pairs in, the pairs that are apart cut, and the rows around them matched again."""
    state = auto.state.copy()
    if not forced and not apart:
        return Repaired(state, np.zeros(0, bool), np.zeros(0, bool))
    named_a = _mask(len(f.a), [row for pair in forced for row in pair.a])
    named_b = _mask(len(f.b), [row for pair in forced for row in pair.b])
    # a rule that says what is so already gives nobody near it a reason to think again
    anew = [pair for pair in forced if len(pair.a) > 1 or len(pair.b) > 1 or state.of_a[pair.a[0]] != pair.b[0]]
    again_a, again_b = _neighbourhood(
        state,
        _reach(len(f.a), [(row, pair.reach) for pair in anew for row in pair.a]),
        _reach(len(f.b), [(row, pair.reach) for pair in anew for row in pair.b]),
    )
    cut = [i for i, j in apart if state.of_a[i] == j]
    again_a[cut], again_b[state.of_a[cut]] = True, True
    by_itself = _by_itself(state, forced)
    idle = np.array([state.of_a[i] != j and f.a.lead[i] < 0 and f.b.lead[j] < 0 for i, j in apart], bool)

    paired = np.flatnonzero(state.of_a >= 0)
    partner = state.of_a[paired]
    loose = (again_a[paired] | again_b[partner]) & (state.method[paired] != Method.EXACT)
    # what a rule names is parted from whatever it had, exact or not
    state.free(np.union1d(paired[loose | named_a[paired] | named_b[partner]], np.array(cut, np.int64)))
    for pair in forced:
        state.pair(np.array([pair.a[-1]]), np.array([pair.b[-1]]), pair.method, 1.0)

    free_a = np.flatnonzero((state.of_a < 0) & again_a & ~named_a)
    free_b = np.flatnonzero((state.of_b < 0) & ~named_b)
    if auto.weights is not None:
        i, j = _allowed(*nearest_of_kind(f, free_a, free_b, auto.order), apart, idle)
        if len(i):
            seen = observe(f, i, j, auto.order, state.of_a, state.of_b)
            compete(state, i, j, auto.weights.score(seen), 0.0)
    free_a, free_b = free_a[state.of_a[free_a] < 0], free_b[state.of_b[free_b] < 0]
    i, j = _allowed(*leftovers(f, auto.order, free_a, free_b), apart, idle)
    state.pair(i, j, Method.RELAXED, LEFTOVER)
    return Repaired(state, by_itself, idle)


def _by_itself(auto: State, forced: Sequence[ForcedPair]) -> Bool:
    """bool[forced], see `Repaired`. Groups are the rule's own; and a rule makes a guess a certainty."""
    out = np.zeros(len(forced), bool)
    single = np.array([k for k, pair in enumerate(forced) if len(pair.a) == 1 and len(pair.b) == 1], np.int64)
    if len(single):
        i, j = np.array([(forced[k].a[0], forced[k].b[0]) for k in single.tolist()], np.int64).T
        out[single] = (auto.of_a[i] == j) & (auto.method[i] == Method.EXACT)
    return out


def _mask(size: int, rows: list[int]) -> Bool:
    out = np.zeros(size, bool)
    out[rows] = True
    return out


def _reach(size: int, reaches: list[tuple[int, int]]) -> Int64:
    """int64[size], the reach of each row, 0 for rows of no pair."""
    out = np.zeros(size, np.int64)
    for row, reach in reaches:
        out[row] = reach
    return out


def _neighbourhood(state: State, reach_a: Int64, reach_b: Int64) -> tuple[Bool, Bool]:
    """The rows within reach of what the rules name, and of the partners that it had."""
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
    """The candidates without those that a rule keeps apart; clears `idle` for the rules that are needed here."""
    if not apart or not len(i):
        return i, j
    span = np.int64(max(int(j.max()), *(b for _, b in apart)) + 1)
    candidate, kept_apart = i * span + j, np.array([a * span + b for a, b in apart], np.int64)
    idle &= ~np.isin(kept_apart, candidate)
    keep = ~np.isin(candidate, kept_apart)
    return i[keep], j[keep]


_WORD = 4.0
"""Log odds that a module's new name speaks with, for the module of that name and against all others."""


def realigned(f: Features, auto: Alignment, renamed: Bool) -> Alignment:
    """The alignment of the logs as they are, for features under new names.

    Args:
        f: the features with the new names.
        auto: the alignment without them.
        renamed: bool[n_a], the rows of a whose module is called something else.
    """
    state = auto.state.copy()
    # where the new names are in b
    called = np.zeros(f.names.size + 1, bool)
    called[f.a.module[renamed]] = True
    wanted = called[f.b.module]
    paired = np.flatnonzero(state.of_a >= 0)
    guessed = np.isin(state.method[paired], (Method.ALIGNED, Method.RELAXED))
    again = guessed & (renamed[paired] | wanted[state.of_a[paired]])
    touched = renamed.copy()
    touched[paired[again]] = True
    state.free(paired[again])

    rows_a, rows_b = np.flatnonzero(touched & (state.of_a < 0)), np.flatnonzero(state.of_b < 0)
    if auto.weights is not None:
        i, j = nearest_of_kind(f, rows_a, rows_b, auto.order)
        if len(i):
            score = auto.weights.score(observe(f, i, j, auto.order, state.of_a, state.of_b))
            word = np.where(f.a.module[i] == f.b.module[j], _WORD, -_WORD)
            compete(state, i, j, score + np.where(renamed[i], word, 0.0), 0.0)
    i, j = leftovers(f, auto.order, rows_a[state.of_a[rows_a] < 0], rows_b[state.of_b[rows_b] < 0])
    state.pair(i, j, Method.RELAXED, LEFTOVER)
    return Alignment(state, auto.order, auto.weights)
