"""Twins: operations of different names, or with results in different layouts, that return the same numbers.

Two implementations of one model compute x² by `pow` or by `mul`, mask scores by `add` or by `masked_fill`. Such
operations are of different kinds, so they would never compete for each other; worse, each would compete for operations
of its own kind that compute something else.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Float64, Int64, distinct, marked, one_of, stable_order
from matchers.joins import first_equal
from matchers.logs.op_log import Phase
from matchers.ops.laws import collective, copies
from matchers.ops.shapes import numel
from matchers.pairing.anchors import ranked_join
from matchers.pairing.assignment import State
from matchers.pairing.features import SAME, Features, LogFeatures, in_both_runs, more_often, tolerance
from matchers.pairing.pairing import Method

__all__ = ["found_elsewhere", "surplus", "twins"]


def surplus(f: Features, free_a: Bool, free_b: Bool) -> tuple[Bool, Bool]:
    """The free rows of kinds that their own run has more often than the other.

    The others have their partners among themselves. Without collectives: what one returns the other run may have
    computed itself, but that is no step of the same program.
    """
    rows_a, rows_b = np.flatnonzero(free_a), np.flatnonzero(free_b)
    out = np.zeros(len(free_a), bool), np.zeros(len(free_b), bool)
    out[0][rows_a], out[1][rows_b] = more_often(f.a.kind[rows_a], f.b.kind[rows_b])
    return out[0] & ~collective(f.a.log), out[1] & ~collective(f.b.log)


def twins(f: Features, free_a: Bool, free_b: Bool) -> tuple[Int64, Int64]:
    """Free rows of different kinds with the same numbers, where no row of their own kind has these numbers.

    One of the two is of a kind that one run has more often than the other. They are not in two modules that both runs
    have: a sum in one layer is no concatenation in the layer before.
    """
    odd_a, odd_b = surplus(f, free_a, free_b)
    rows_a, rows_b = (
        np.flatnonzero(free & (side.kind >= 0) & ~collective(side.log)) for side, free in ((f.a, free_a), (f.b, free_b))
    )
    none = rows_a[:0], rows_b[:0]
    if not (len(rows_a) and len(rows_b) and (odd_a.any() or odd_b.any())):
        return none
    of_a = np.arange(len(rows_a) + len(rows_b)) < len(rows_a)
    odd = np.concatenate((odd_a[rows_a], odd_b[rows_b]))

    def both(name: str) -> Int64:
        return np.concatenate((getattr(f.a, name)[rows_a], getattr(f.b, name)[rows_b]))

    sizes, of_shape = np.unique(np.concatenate((numel(f.a.log), numel(f.b.log))), return_inverse=True)
    of_shape_a, of_shape_b = np.split(of_shape, [len(numel(f.a.log))])
    size = np.concatenate((of_shape_a[f.a.log.shape[rows_a]], of_shape_b[f.b.log.shape[rows_b]]))
    numbers = np.concatenate((_numbers(f.a, rows_a), _numbers(f.b, rows_b)), axis=1)
    place = size * len(Phase) + both("phase")
    known = ~np.isnan(numbers).any(axis=0) & (numbers[0] > -300.0) & (sizes > 1)[size]
    at = np.flatnonzero(known & np.isin(place, place[odd & known]))
    alike = _alike(place[at], numbers[:, at], of_a[at], tolerance(f))
    at, alike = at[alike >= 0], alike[alike >= 0]

    rows, kind, op = (of[at] for of in (np.concatenate((rows_a, rows_b)), both("kind"), both("op")))
    of_a = of_a[at]
    found_a, found_b = [rows_a[:0]], [rows_b[:0]]
    alone = ~_shared(alike * (int(kind.max(initial=0)) + 1) + kind, of_a)
    in_both = in_both_runs(f.a, f.b)
    copied = np.concatenate((copies(f.a.log)[rows_a], copies(f.b.log)[rows_b]))[at]
    for key in (alike * (int(op.max(initial=0)) + 2) + op + 1, alike):
        if key is alike:
            alone &= ~_copied_of(alike * 2 + of_a, copied, alone)
        left, right = np.flatnonzero(alone & of_a), np.flatnonzero(alone & ~of_a)
        if not len(left) or not len(right):
            break
        i, j = ranked_join(key[left].astype(np.uint64), key[right].astype(np.uint64))
        i, j = left[i], right[j]
        if key is alike:
            # several operations with one result are told apart by their names only; and where each run has an op that
            # the other never uses, a rule says that the two are one (drift/unpaired_ops.py)
            keep = ~_several_ops(alike[alone], op[alone], of_a[alone])[alike[i]]
            keep &= np.isin(op[i], f.b.op) | np.isin(op[j], f.a.op)
            i, j = i[keep], j[keep]
        module_a, module_b = f.a.module[rows[i]], f.b.module[rows[j]]
        apart = (module_a != module_b) & in_both[module_a] & in_both[module_b]
        i, j = i[~apart], j[~apart]
        alone[i], alone[j] = False, False
        found_a.append(rows[i])
        found_b.append(rows[j])
    i, j = np.concatenate(found_a), np.concatenate(found_b)
    return i, j


@np.errstate(invalid="ignore")
def found_elsewhere(f: Features, state: State) -> tuple[Int64, Int64]:
    """Rows of one kind with the same numbers, which no other row without a partner of its numbers has.

    A gradient of three terms: one run adds the first two first, the other the last two. By names and order, the sum of
    all is a partner of a partial sum. A row that reads what its partner reads has no other partner, nor has one that
    works on a parameter: the first updates of two biases have one norm.
    """
    free_a, free_b = state.free_a, state.free_b
    rows = np.flatnonzero(one_of(state.method, (Method.ALIGNED, Method.RELAXED)))
    for x, y in ((f.a.stats, f.b.stats), (f.a.inputs, f.b.inputs)):
        rows = rows[(np.abs(x[:, rows] - y[:, state.of_a[rows]]) > SAME).any(axis=0)]
    free_a[rows], free_b[state.of_a[rows]] = True, True
    found = []
    for side, free in ((f.a, free_a), (f.b, free_b)):
        size = numel(side.log)[side.log.shape]
        free &= (side.kind >= 0) & side.telling & (size > 1) & ~collective(side.log)
        found.append(np.flatnonzero(free & ~marked(side.log.texts("Parameter").rows, len(side))))
    numbers = np.concatenate([_numbers(side, at) for side, at in zip((f.a, f.b), found, strict=True)], axis=1)
    kind = np.concatenate([side.kind[at] for side, at in zip((f.a, f.b), found, strict=True)])
    known = np.flatnonzero(~np.isnan(numbers).any(axis=0))
    left = known < len(found[0])
    alike = _alike(kind[known], numbers[:, known], left, SAME)
    at = np.flatnonzero(alike >= 0)
    of_row, left, alike = np.concatenate(found)[known[at]], left[at], alike[at]
    i, j = ranked_join(alike[left].astype(np.uint64), alike[~left].astype(np.uint64), most=1)
    return of_row[left][i], of_row[~left][j]


def _numbers(side: LogFeatures, rows: Int64) -> Float64:
    """float64[3, m]: logarithms of L1, L2, and of the largest magnitude, whose sign the last digit tells."""
    l1, l2, low, high = side.stats[:, rows].astype(np.float64)
    return np.stack((l1, l2, np.where(low > high, low + 1000.0, high)))


def _alike(place: Int64, numbers: Float64, of_a: Bool, tolerance: float) -> Int64:
    """Number rows so that those with the same numbers at one place have one number; -1 if only one run has them."""
    out = np.full(len(place), -1, np.int64)
    at, group = np.arange(len(place)), place
    for row in numbers:
        order = np.argsort(row[at])
        order = order[stable_order(group[order])]
        at, group = at[order], group[order]
        new = (group[1:] != group[:-1]) | (np.diff(row[at]) > tolerance)
        group = np.cumsum(np.append(False, new)[: len(at)])
        mine, theirs = (np.bincount(group[side], minlength=len(at)) for side in (of_a[at], ~of_a[at]))
        both = ((mine > 0) & (theirs > 0))[group]
        at, group = at[both], group[both]
    out[at] = group
    return out


def _shared(key: Int64, of_a: Bool) -> Bool:
    """bool: rows whose key occurs on both sides."""
    return (first_equal(key, key[of_a]) >= 0) & (first_equal(key, key[~of_a]) >= 0)


def _copied_of(value: Int64, copied: Bool, alone: Bool) -> Bool:
    """bool: copies of a value whose maker is alone, too: it has the same numbers."""
    makes = np.zeros(int(value.max(initial=-1)) + 1, bool)
    makes[value[alone & ~copied]] = True
    return copied & makes[value]


def _several_ops(alike: Int64, op: Int64, of_a: Bool) -> Bool:
    """Bool by number of `alike`: on one side the rows have more than one op."""
    out = np.zeros(int(alike.max()) + 1, bool)
    for side in (of_a, ~of_a):
        width = int(op.max()) + 2
        pairs = distinct(alike[side] * width + op[side] + 1) // width
        out |= np.bincount(pairs, minlength=len(out)) > 1
    return out
