"""The matching: find the partner in b of each operation of a.

1. Rows whose digests (or, in logs without digests, printed values), inputs included, occur once on each side and are
   equal become partners.
2. All others compete (assignment.py): every unpaired row of a meets the nearest unpaired rows of b of its kind (op,
   shape, phase) around its expected place. The weight of each agreement is learned from the sure pairs (evidence.py),
   candidates compete for each other, and the winners become evidence for the next round, in which neighbours and
   producers that are partners count as well.
3. A leftover row with a single possible partner in its gap is paired; the rest stays unpaired.

Module names and the counters in keys only ever count as evidence, because they drift.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matchers.arrays import Bool, Float64, Int64, columns, distinct, stable_order
from matchers.pairing.anchors import (
    expected_order,
    near_others,
    same_copies,
    same_names,
    same_reads,
    same_results,
    same_values,
)
from matchers.pairing.assignment import NEAREST, UNPAIRED, WINDOW, State, chances, compete, leftovers, nearest_of_kind
from matchers.pairing.crossed import uncross
from matchers.pairing.detours import detours
from matchers.pairing.evidence import (
    Lesson,
    Observed,
    Order,
    StructureEvidence,
    ValueBins,
    ValueEvidence,
    observe,
    value_bins,
)
from matchers.pairing.features import Features, LogFeatures
from matchers.pairing.pairing import SURE, Method
from matchers.pairing.parts import find_parts
from matchers.pairing.twins import found_elsewhere, surplus, twins

__all__ = ["LEFTOVER", "Alignment", "Weights", "align", "expected"]

_TURNS = 2
"""Rounds of learning."""
_PASSES = ((2, 32, 0.98), (NEAREST, WINDOW, 0.5), (NEAREST, WINDOW, 0.0))
"""(candidates on either side, largest distance, least probability): the clear ones first, then the others."""
LEFTOVER = 0.5
"""Confidence of a pair of leftovers: same name and place, but nothing else agrees."""
_RESULT = 0.99
"""Confidence of rows with bitwise equal results and different inputs."""
_COPY = 0.99
"""Confidence of recomputed rows that repeat partners."""
_READ = 0.98
"""Confidence of collectives that read the same tensor."""
_TWIN = 0.95
"""Confidence of operations of different names or layouts with the same numbers."""
_PARTS, _FITTING = 0.95, 0.8
"""Confidence of an operation and its parts: whose norms add up, and which only fit in shape, place, and what they read.
"""
_BLIND = 0.6
"""Least probability of a pair whose numbers cannot be compared: names and order alone drift."""
_CLEAR = 0.97
"""Probability from which a candidate wins by one kind of evidence alone."""
_SAMPLE, _STRETCH = 4_096, 256
"""Largest number of unpaired rows that the weights are learned on, and how many of them in a row."""
_LESSON = 2_000
"""Largest number of pairs in one lesson."""
_AT_ONCE = 1 << 17
"""Candidates that are scored at once."""
_MIN_LESSON = 200
"""Least number of pairs to learn from; below it, less certain ones are added."""
_SEVERAL = 8
"""Distance up to which rows of one kind count as a group, whose order may have drifted."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the evidence that two rows agree, learned for these two logs."""

    values: ValueEvidence
    structure: StructureEvidence

    def score(self, seen: Observed) -> Float64:
        """Log odds that each candidate is right, before candidates compete."""
        return self.values.score(seen) + self.structure.score(seen)


@columns
class Alignment:
    """The automatic matching: partners, expected places, and the weights that chose the partners (None where all rows
    were paired by their values).
    """

    state: State
    order: Order
    weights: Weights | None


def align(f: Features) -> Alignment:
    """Pair the rows of two logs one to one."""
    state = State(len(f.a), len(f.b))
    i, j = same_values(f)
    state.pair(i, j, Method.EXACT, 1.0)
    i, j = same_results(f, state.free_a, state.free_b)
    state.pair(i, j, Method.VALUES, _RESULT)
    order = expected(f, state)
    for phases in (True,) if f.a.log.tells.awaited and f.b.log.tells.awaited else (True, False):
        i, j = same_reads(f, phases)
        # among thousands of tensors two have one norm by chance
        near = order.distance(i, j) <= WINDOW
        free = near & (state.of_a[i] < 0) & (state.of_b[j] < 0)
        state.pair(i[free], j[free], Method.VALUES, _READ)
    i, j = twins(f, state.free_a, state.free_b)
    near = order.distance(i, j) <= WINDOW
    state.pair(i[near], j[near], Method.VALUES, _TWIN)
    parts = []
    if all(more.any() for more in surplus(f, state.free_a, state.free_b)):
        parts = find_parts(f, (state.free_a, state.free_b), order, same=True)
    for group in parts:
        state.pair_parts(group.rows, group.whole, group.side, _PARTS)
    if not (state.free_a.any() and state.free_b.any()):
        return Alignment(state, order, None)
    weights = _learn(f, state, order)
    copies = (f.a.original >= 0).any() and (f.b.original >= 0).any()
    for turn, (nearest, window, least) in enumerate(_PASSES):
        if turn == 1:  # after the clear ones; the few found later move nothing
            i, j = same_copies(f, state.of_a, state.of_b)
            state.pair(i, j, Method.DATAFLOW, _COPY)
            order = expected(f, state)
        rows_a, rows_b = np.flatnonzero(state.free_a), np.flatnonzero(state.free_b)
        if turn == 0 and copies:  # originals come first: they are the best evidence about their copies
            rows_a, rows_b = rows_a[f.a.original[rows_a] < 0], rows_b[f.b.original[rows_b] < 0]
        i, j = nearest_of_kind(f, rows_a, rows_b, order, nearest, window)
        score, blind = _weighed(f, state, order, weights, i, j)
        compete(state, i, j, score, np.where(blind, max(least, _BLIND), least))
    uncross(f, state, weights.values)
    i, j = found_elsewhere(f, state)
    near = order.distance(i, j) <= WINDOW
    i, j = i[near], j[near]
    state.free(np.concatenate((i, state.of_b[j[state.of_b[j] >= 0]])))
    state.pair(i, j, Method.VALUES, _TWIN)
    apart = detours(f, state)
    alone_a, alone_b = state.free_a, state.free_b
    order = expected(f, state)
    more_parts = find_parts(f, (alone_a, alone_b), order, parts)
    for group in more_parts:
        state.pair_parts(group.rows, group.whole, group.side, _FITTING)
    alone_a, alone_b = state.free_a, state.free_b
    state.free(apart)
    if more_parts or len(apart):
        order = expected(f, state)
    i, j = leftovers(f, state, order, np.flatnonzero(alone_a), np.flatnonzero(alone_b))
    state.pair(i, j, Method.RELAXED, LEFTOVER)
    return Alignment(state, order, weights)


def _weighed(f: Features, state: State, order: Order, weights: Weights, i: Int64, j: Int64) -> tuple[Float64, Bool]:
    """(score, no number of the two can be compared) of candidates; in slices, to save memory."""
    score, blind = np.zeros(len(i)), np.zeros(len(i), bool)
    partners = state.partners()
    for start in range(0, len(i), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        seen = observe(f, i[part], j[part], order, *partners)
        score[part], blind[part] = weights.score(seen), seen.without_values
    return score, blind


def _learn(f: Features, found: State, order: Order) -> Weights:
    """Learn the weights of evidence on a sample of the unpaired rows, by turns.

    Pairs that are clear by their numbers alone teach the weights of names and order, and pairs that are clear by names
    and order teach the weights of numbers. In this way neither kind of evidence confirms its own mistakes.
    """
    state = found
    rows = _Rows(f.a), _Rows(f.b)
    seeds = by_names = _named_seeds(f, found)
    i, j = nearest_of_kind(f, _sample(found), np.flatnonzero(found.free_b), order)
    for _ in range(_TURNS):
        seen = observe(f, i, j, order, *state.partners())
        values = ValueEvidence(*_plain_lesson(f, *rows, *by_names))
        value_score = values.score(seen)
        # repeated layers have much the same numbers: only near rows compete
        near = np.flatnonzero(seen.is_near)
        by_values = _clear_winners(found, i[near], j[near], value_score[near], -np.inf)
        if len(by_values[0]) < _MIN_LESSON:
            sure = np.flatnonzero((state.of_a >= 0) & (state.confidence >= SURE))
            by_values = _joined(by_values, (sure, state.of_a[sure]), by_names)
        structure = StructureEvidence(_lesson(f, order, state, *by_values))
        structure_score = structure.score(seen)
        by_names = _clear_winners(found, i, j, structure_score)
        if len(by_names[0]) < _MIN_LESSON:
            by_names = _joined(by_names, seeds)
        state = found.copy()
        compete(state, i, j, value_score + structure_score, 0.0)
    return Weights(values, structure)


def _sample(state: State) -> Int64:
    """Unpaired rows of a to learn from: all of a small log, stretches from all over a large one."""
    free = np.flatnonzero(state.free_a)
    if len(free) <= _SAMPLE:
        return free
    stretches = _SAMPLE // _STRETCH
    starts = np.linspace(0, len(free) - _STRETCH, stretches).astype(np.int64)
    return distinct(free[(starts[:, None] + np.arange(_STRETCH)).ravel()])


def expected(f: Features, state: State) -> Order:
    """Expected places of rows, by the pairs found so far and by names that occur equally often on both sides."""
    paired = np.flatnonzero(state.of_a >= 0)
    (i, j), (named_i, named_j) = _agreeing(paired, state.of_a[paired]), _named_seeds(f, state)
    i, j = np.concatenate((i, named_i)), np.concatenate((j, named_j))
    return expected_order(f, *_agreeing(i, j))


def _named_seeds(f: Features, state: State) -> tuple[Int64, Int64]:
    """Unpaired rows whose names occur equally often on both sides and whose order agrees with their neighbours'."""
    return _agreeing(*same_names(f, state.free_a, state.free_b))


def _agreeing(i: Int64, j: Int64) -> tuple[Int64, Int64]:
    """The pairs that agree with their neighbours about the order, by their rows of a."""
    order = np.argsort(i, kind="stable")
    i, j = i[order], j[order]
    keep = near_others(i, j)
    return i[keep], j[keep]


class _Rows:
    """Rows of a log with another one of their kind close by, whose order may have drifted."""

    def __init__(self, side: LogFeatures) -> None:
        order = stable_order(side.kind)
        close = (np.diff(side.kind[order]) == 0) & (np.diff(order) <= _SEVERAL)
        self.one, self.next = order[:-1][close], order[1:][close]
        self.alone = np.ones(len(side), bool)
        self.alone[self.one], self.alone[self.next] = False, False


def _plain_lesson(f: Features, a: _Rows, b: _Rows, i: Int64, j: Int64) -> tuple[ValueBins, ValueBins]:
    """Distances between the numbers of partners, and between those of an operation and the next of its kind.

    The pairs are chosen by names and order. Order may have drifted, so groups of one kind teach nothing about the
    distance of partners.
    """
    partner = np.full(len(f.a), -1, np.int64)
    partner[i] = j
    one, other = np.concatenate((a.one, a.next)), partner[np.concatenate((a.next, a.one))]
    one, other = _thinned(one[other >= 0], other[other >= 0])
    alone = a.alone[i] & b.alone[j]
    if np.count_nonzero(alone) >= _MIN_LESSON:
        i, j = i[alone], j[alone]
    return value_bins(f.a, f.b, *_thinned(i, j)), value_bins(f.a, f.b, one, other)


def _thinned(i: Int64, j: Int64) -> tuple[Int64, Int64]:
    """At most `_LESSON` of the pairs, evenly spaced."""
    if len(i) <= _LESSON:
        return i, j
    pick = np.linspace(0, len(i) - 1, _LESSON).astype(np.int64)
    return i[pick], j[pick]


def _lesson(f: Features, order: Order, state: State, i: Int64, j: Int64) -> Lesson:
    """Observations of surely right pairs, and of the other candidates of the same rows."""
    i, j = _thinned(i, j)
    partner = np.full(len(f.a), -1, np.int64)
    partner[i] = j
    ci, cj = nearest_of_kind(f, np.sort(i), np.arange(len(f.b)), order)
    wrong = partner[ci] != cj
    partners = state.partners()
    return Lesson(observe(f, i, j, order, *partners), observe(f, ci[wrong], cj[wrong], order, *partners))


def _joined(*pairs: tuple[Int64, Int64]) -> tuple[Int64, Int64]:
    """Several lists of pairs in one; where they disagree on a row the first list wins."""
    i = np.concatenate([p for p, _ in pairs])
    j = np.concatenate([q for _, q in pairs])
    _, first = np.unique(i, return_index=True)
    return i[first], j[first]


def _clear_winners(state: State, i: Int64, j: Int64, score: Float64, alone: float = UNPAIRED) -> tuple[Int64, Int64]:
    """Candidates that win clearly by one kind of evidence alone."""
    clear = (chances(state, i, j, score, alone) >= _CLEAR) & (score > UNPAIRED)
    return i[clear], j[clear]
