"""The assignment of rows to each other: partners found so far, candidates, and the competition between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from matchers.arrays import Bool, Float64, Int64, stable_order
from matchers.logs.op_log import Phase
from matchers.ops.laws import by_law, collective, copies
from matchers.ops.shapes import numel
from matchers.pairing.evidence import Order
from matchers.pairing.features import Features, LogFeatures, in_both_runs, tolerance
from matchers.pairing.pairing import Method

__all__ = [
    "NEAREST",
    "UNPAIRED",
    "WINDOW",
    "State",
    "chances",
    "compete",
    "leftovers",
    "nearest_of_kind",
    "other_copies",
]

NEAREST = 5
"""Candidates of a row: this many of its kind on either side of its expected place."""
WINDOW = 600
"""Largest distance, in rows, of a candidate from the expected place."""
_REACH = 24
"""Largest distance, in rows, of a leftover row from the expected place."""
UNPAIRED = 0.0
"""Log odds that a row has no partner among its candidates."""


class State:
    """The pairs found so far, by row of a (and `of_b`, by row of b), with their runners-up."""

    def __init__(self, n_a: int, n_b: int) -> None:
        self.of_a = np.full(n_a, -1, np.int64)
        self.of_b = np.full(n_b, -1, np.int64)
        self.method = np.zeros(n_a, np.int8)
        self.confidence = np.zeros(n_a)
        self.runner_up = np.full(n_a, -1, np.int64)
        self.runner_up_score = np.zeros(n_a)
        # the last part of each other part of an operation of the other log, -1 elsewhere
        self.part_a = np.full(n_a, -1, np.int64)
        self.part_b = np.full(n_b, -1, np.int64)

    def free(self, rows: Int64) -> None:
        """Separate rows of a from their partners."""
        partners = self.of_a[rows]
        self.of_b[partners[partners >= 0]] = -1
        if (self.method[rows] == Method.PARTS).any():
            self.part_a[np.isin(self.part_a, rows)] = -1
            self.part_b[np.isin(self.part_b, partners)] = -1
        self.of_a[rows], self.method[rows], self.confidence[rows] = -1, Method.NONE, 0.0
        self.runner_up[rows], self.runner_up_score[rows] = -1, 0.0

    def copy(self) -> State:
        other = State(0, 0)
        for name, value in vars(self).items():
            setattr(other, name, value.copy())
        return other

    def pair(self, i: Int64, j: Int64, method: Method, confidence: Float64 | float) -> None:
        self.of_a[i], self.of_b[j] = j, i
        self.method[i], self.confidence[i] = method, confidence
        self.runner_up[i], self.runner_up_score[i] = -1, 0.0

    def pair_parts(self, rows: Sequence[int], whole: int, side: str, confidence: float) -> None:
        """Pair rows of one side (`a` or `b`), the parts, with one row of the other."""
        last = rows[-1]
        i, j = (last, whole) if side == "a" else (whole, last)
        self.pair(np.array([i]), np.array([j]), Method.PARTS, confidence)
        (self.part_a if side == "a" else self.part_b)[list(rows[:-1])] = last

    @property
    def free_a(self) -> Bool:
        """bool[n_a]: the row has no partner and is no part."""
        return np.asarray((self.of_a < 0) & (self.part_a < 0))

    @property
    def free_b(self) -> Bool:
        """bool[n_b]: the row has no partner and is no part."""
        return np.asarray((self.of_b < 0) & (self.part_b < 0))

    def partners(self) -> tuple[Int64, Int64]:
        """`of_a` and `of_b` as evidence: a part, or a whole, is a partner of no single row."""
        whole = np.flatnonzero(self.method == Method.PARTS)
        if not len(whole):
            return self.of_a, self.of_b
        of_a, of_b = self.of_a.copy(), self.of_b.copy()
        of_b[of_a[whole]], of_a[whole] = len(of_a), len(of_b)
        of_a[self.part_a >= 0], of_b[self.part_b >= 0] = len(of_b), len(of_a)
        return of_a, of_b


def nearest_of_kind(
    f: Features, rows_a: Int64, rows_b: Int64, order: Order, nearest: int = NEAREST, window: int = WINDOW
) -> tuple[Int64, Int64]:
    """Candidate pairs (i, j) of the given rows, which ascend: of one kind and near each other, i ascending."""
    span = np.int64(len(f.b) + 1)
    rows_b = rows_b[stable_order(f.b.kind[rows_b])]
    code_b = f.b.kind[rows_b] * span + rows_b
    if not len(rows_a) or not len(rows_b):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    expected = np.clip((order.before[rows_a] + order.after[rows_a]) // 2, 0, len(f.b) - 1)
    at = np.searchsorted(code_b, f.a.kind[rows_a] * span + expected)
    pick = at[:, None] + np.arange(-nearest, nearest)[None, :]
    inside = (pick >= 0) & (pick < len(rows_b))
    j = rows_b[np.clip(pick, 0, len(rows_b) - 1)]
    ok = inside & (f.b.kind[j] == f.a.kind[rows_a][:, None]) & (np.abs(j - expected[:, None]) <= window)
    i = np.broadcast_to(rows_a[:, None], j.shape)[ok]
    return i, j[ok]


def chances(state: State, i: Int64, j: Int64, score: Float64, alone: Float64 | float = UNPAIRED) -> Float64:
    """Probability of each candidate, against the others of both its rows and the chance that a row has no partner."""
    top = np.maximum(score.max(initial=0.0) - 600.0, 0.0)
    weight = np.exp(score - top)
    total_a = np.bincount(i, weight, len(state.of_a))
    total_b = np.bincount(j, weight, len(state.of_b))
    return weight / (total_a[i] + total_b[j] - weight + np.exp(alone - top))


def compete(state: State, i: Int64, j: Int64, score: Float64, least: Float64 | float) -> None:
    """Pair unpaired rows, best mutual candidates first, where the probability is at least `least`."""
    n_a, n_b = len(state.of_a), len(state.of_b)
    chance = chances(state, i, j, score)
    alive = np.flatnonzero((score > 0) & (chance >= least))
    while len(alive):
        ai, aj, s = i[alive], j[alive], score[alive]
        best_a, best_b = np.full(n_a, -np.inf), np.full(n_b, -np.inf)
        np.maximum.at(best_a, ai, s)
        np.maximum.at(best_b, aj, s)
        win = np.flatnonzero((s == best_a[ai]) & (s == best_b[aj]))
        # ties: the first candidate of a row, then of a column, wins
        _, first = np.unique(ai[win], return_index=True)
        win = win[first]
        _, first = np.unique(aj[win], return_index=True)
        win = win[np.sort(first)]
        if not len(win):
            break
        state.pair(ai[win], aj[win], Method.ALIGNED, chance[alive[win]])
        alive = alive[(state.of_a[ai] < 0) & (state.of_b[aj] < 0)]
    _runners_up(state, i, j, chance)


def _runners_up(state: State, i: Int64, j: Int64, chance: Float64) -> None:
    """The best other candidate of every row."""
    other = np.flatnonzero(state.of_a[i] != j)
    oi, chance = i[other], chance[other]
    best = np.full(len(state.of_a), -1.0)
    np.maximum.at(best, oi, chance)
    win = np.flatnonzero(chance == best[oi])
    rows = oi[win]
    state.runner_up[rows] = j[other[win]]
    state.runner_up_score[rows] = best[rows]


def _counterparts(f: Features, state: State) -> Int64:
    """The module of b that a module of a is, by id: for one that only a has, one that only b has, of most pairs."""
    found = np.append(np.arange(f.names.size), -1)
    alone = ~in_both_runs(f.a, f.b)
    i = np.flatnonzero(state.of_a >= 0)
    mine, theirs = f.a.module[i].astype(np.int64), f.b.module[state.of_a[i]].astype(np.int64)
    which = alone[mine] & alone[theirs]
    pairs, count = np.unique(np.stack((mine[which], theirs[which])), axis=1, return_counts=True)
    order = np.argsort(count, kind="stable")
    found[pairs[0, order]] = pairs[1, order]
    return found


def leftovers(f: Features, state: State, order: Order, rows_a: Int64, rows_b: Int64) -> tuple[Int64, Int64]:
    """Pairs (i, j) of the given unpaired rows of one op in one module that have a single possible partner each.

    Another shape, or a value that changed altogether, does not make it another operation, nor does another name of the
    module.
    """
    # collectives are bucketed differently from run to run, so neither name nor place identifies them
    rows_a, rows_b = (
        rows[~collective(side.log)[rows] & (side.kind[rows] >= 0)] for side, rows in ((f.a, rows_a), (f.b, rows_b))
    )
    if not len(rows_a) or not len(rows_b):
        return rows_a[:0], rows_b[:0]
    width, span = np.int64(f.names.size + 2), np.int64(len(f.b) + 1)
    name_a = ((f.a.op[rows_a] + 1) * len(Phase) + f.a.phase[rows_a]) * width + _counterparts(f, state)[
        f.a.module[rows_a]
    ]
    name_b = ((f.b.op[rows_b] + 1) * len(Phase) + f.b.phase[rows_b]) * width + f.b.module[rows_b]
    at = order.before[rows_a]
    by_name = np.argsort(name_b * span + rows_b)
    place = (name_b * span + rows_b)[by_name]
    low = np.searchsorted(place, name_a * span + np.clip(at - _REACH, 0, len(f.b)))
    high = np.searchsorted(place, name_a * span + np.clip(at + _REACH, 0, len(f.b)), side="right")
    single = np.flatnonzero(high - low == 1)
    i, j = rows_a[single], rows_b[by_name[low[single]]]
    wanted = np.bincount(j, minlength=len(f.b))
    # of several tensors at once: another number of them is another operation, but for lists of parameters
    many = (f.a.arity[i] == f.b.arity[j]) | (f.a.log.outputs.count[i] != 1) | (f.b.log.outputs.count[j] != 1)
    only = many & (wanted[j] == 1) & ~f.a.repeat[i] & ~f.b.repeat[j] & (f.a.batch[i] == f.b.batch[j])
    only &= ~other_copies(f, state, i, j)
    i, j = i[only], j[only]
    kept = _continued(f, state, i, j)
    return i[kept], j[kept]


def _continued(f: Features, state: State, i: Int64, j: Int64) -> Bool:
    """bool: of some candidates, ascending, those of one size, and those that read what partners made.

    What another form of a step computes has other sizes, too, but reads something else, or parts. A constant reads
    nothing: an operation of these must read it.
    """
    kept = np.ones(len(i), bool)
    size_a, size_b = (numel(side.log)[side.log.shape] for side in (f.a, f.b))
    other = np.flatnonzero(size_a[i] != size_b[j])
    # shards have other sizes than their wholes
    if not len(other) or any(collective(log).any() or not log.tells.makers for log in (f.a.log, f.b.log)):
        return kept
    partner = np.append(state.of_a, -1)
    partner[i] = j
    made_a, made_b = f.a.producers[:, i], f.b.producers[:, j]
    within = tolerance(f)
    with np.errstate(invalid="ignore"):
        part = np.abs(f.a.inputs[:, i] - f.b.inputs[:, j]) > within
        part &= (made_a >= 0) & (np.abs(f.a.stats[0, made_a] - f.b.stats[0, made_b]) <= within)
    constant: set[int] = set()
    for k in other.tolist():  # makers come first
        makers = made_a[made_a[:, k] >= 0, k].tolist()
        reads = np.where(made_a[:, k] >= 0, partner[made_a[:, k]], -2), np.where(made_b[:, k] >= 0, made_b[:, k], -2)
        if not np.array_equal(*reads) or part[:, k].any():
            kept[k], partner[i[k]] = False, -1
        elif constant.issuperset(makers) and f.a.arity[i[k]] == len(makers):
            constant.add(int(i[k]))
    for k in other[::-1].tolist() if constant else ():
        if int(i[k]) in constant:
            readers = np.flatnonzero((f.a.producers == i[k]).any(axis=0))
            readers = readers[~np.isin(readers, list(constant)) & (partner[readers] >= 0)]
            if (f.b.producers[:, partner[readers]] == j[k]).any():
                constant.remove(int(i[k]))
            else:
                kept[k], partner[i[k]] = False, -1
    return kept


def other_copies(f: Features, state: State, i: Int64, j: Int64) -> Bool:
    """bool: two records only hand on what two others made, each of which has another partner.

    Or one of them, where they hand on other sizes; or sizes of which none is a share of the other.
    """
    p, q = (side.producers[_handed_on(side, rows), rows] for side, rows in ((f.a, i), (f.b, j)))
    both = copies(f.a.log)[i] & copies(f.b.log)[j]
    size_a, size_b = (numel(side.log)[side.log.shape[rows]] for side, rows in ((f.a, i), (f.b, j)))
    paired_a, paired_b = state.of_a[p] >= 0, state.of_b[q] >= 0
    settled = np.where(np.abs(size_a - size_b) > 0, paired_a | paired_b, paired_a & paired_b)
    with np.errstate(invalid="ignore", divide="ignore"):
        no_share = np.maximum(size_a, size_b) % np.minimum(size_a, size_b) > 0  # not of unknown or empty ones
    return np.asarray(both & (no_share | ((p >= 0) & (q >= 0) & settled & (state.of_a[p] != q))))


def _handed_on(side: LogFeatures, rows: Int64) -> Int64:
    """int64: the place among the inputs of each row of the tensor that it hands on; of other rows 0."""
    return by_law(side.log, rows, lambda law: law.passes_on or 0).astype(np.int64)
