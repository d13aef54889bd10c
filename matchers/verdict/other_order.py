"""Weights that one run keeps in another order: a port that rotates pairs of neighbours has its queries' rows anew.

The numbers of such a weight are the same, and so are those of what is computed of it until something takes the two
orders for granted: they are judged by norms, extremes and means alone. What follows tells whether the orders fit.
"""

from __future__ import annotations

import math

import numpy as np

from matchers.arrays import Bool, Int64, marked
from matchers.logs.columns import repeated
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase, is_mark
from matchers.ops.arguments import tensors_read
from matchers.ops.dataflow import WHOLE, downstream, sources
from matchers.ops.module_path import canonical
from matchers.ops.shapes import dimensions, numel
from matchers.verdict.tolerance import RESOLUTION

__all__ = ["of_reordered_weights"]


def of_reordered_weights(a: OpLog, b: OpLog, i: Int64, j: Int64, among: Bool) -> Bool:
    """bool[p], of some pairs, those that read such a weight, make its gradient, update it, or read what these make.

    A batch in another order is none: a weight is read beside what is made, and is made by no record. Nor is the weight
    of a module that has the same name in both runs: there the order is a difference.
    """
    found, k = np.zeros(len(i), bool), np.flatnonzero(among)
    flow_a, flow_b = sources(a), sources(b)
    of, place = repeated(k, np.minimum(flow_a.count[i[k]], flow_b.count[j[k]]))
    if not len(of):
        return found
    made_a, made_b = flow_a.at(i[of], place, -1), flow_b.at(j[of], place, -1)
    one, other = a.input_digests.at(i[of], place, NO_DIGEST), b.input_digests.at(j[of], place, NO_DIGEST)
    x, y = a.inputs.at(i[of], place), b.inputs.at(j[of], place)
    with np.errstate(invalid="ignore"):
        weights = (made_a < 0) & (made_b < 0) & (one != other) & ~is_mark(one) & ~is_mark(other)
        weights &= (x > 0) & (np.abs(x - y) <= RESOLUTION * x)
    beside = np.bincount(of, made_a >= 0, len(i)) > 0
    updates = (a.phase[i] == Phase.OPTIMIZER) & (b.phase[j] == Phase.OPTIMIZER)
    elements = np.zeros(len(i), np.int64)
    for n in np.flatnonzero(weights & (beside | updates)[of]).tolist():
        if canonical(a.module_name(int(i[of[n]]))) == canonical(b.module_name(int(j[of[n]]))):
            continue
        for dtype, shape in tensors_read(a, int(i[of[n]]))[place[n] : place[n] + 1]:
            if not dtype.startswith(WHOLE):
                found[of[n]], elements[of[n]] = True, math.prod(dimensions(shape))
    if not found.any():
        return found
    # the gradient and the states of a weight have its module and its size
    later = among & (a.phase[i] != Phase.FORWARD)
    size = np.where(found, elements, numel(a)[a.shape[i]]) * np.int64(len(a.modules) + 1) + a.module[i]
    found |= later & np.isin(size, size[found])
    # over operations of one run alone, too
    sides = [(flow, rows, ~marked(rows, len(log))) for flow, rows, log in ((flow_a, i, a), (flow_b, j, b))]
    while True:
        reads = among & ~found
        for flow, rows, alone in sides:
            start = marked(rows[found], len(alone))
            carries = downstream(flow, start, alone | start)
            reads &= marked(flow.row[(flow.value >= 0) & carries[flow.value]], len(alone))[rows]
        if not reads.any():
            return found
        found |= reads
