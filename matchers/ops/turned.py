"""Weights that a run stores transposed: what it computes of them is a transposed tensor.

The gradient of a weight is the product of what the layer read in the forward pass and the gradient of what it returned.
Which of the two comes first tells the layout: (out, in) of `linear`, or (in, out) of a plain product.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.laws.law import Form
from matchers.logs.op_log import OpLog, Phase, once_per_log
from matchers.ops.laws import rows_where
from matchers.ops.shapes import dimensions

__all__ = ["turned", "turned_products"]


@once_per_log
def turned_products(log: OpLog) -> Int64:
    """The gradients of weights in the layout (in, out): what was read in the forward pass is their first factor."""
    matrices = np.array([len(dimensions(text)) == 2 for text in log.shapes] + [False])[log.shape]
    products = rows_where(log, lambda law: law.form is Form.PRODUCT) & matrices
    rows = np.flatnonzero(products & (log.phase == Phase.BACKWARD) & (log.producers.count == 2))
    first, second = (log.producers.value[log.producers.start[rows] + k] for k in range(2))
    forward = (log.phase == Phase.FORWARD) | log.recompute
    rows, first, second = (column[(first >= 0) & (second >= 0)] for column in (rows, first, second))
    return rows[forward[first] & ~forward[second]]


@once_per_log
def turned(log: OpLog) -> Bool:
    """bool[n]: such gradients, and what the optimizer computes of them and of their weights, element by element."""
    found = np.zeros(len(log), bool)
    products = turned_products(log)
    found[products] = True
    if not len(products):
        return found
    place = log.module * (len(log.shapes) + 1) + log.shape
    found |= (log.phase == Phase.OPTIMIZER) & np.isin(place, place[products])
    maker, reader = log.producers.value, log.producers.row
    follows = (maker >= 0) & (log.shape[maker] == log.shape[reader]) & (log.phase[reader] != Phase.FORWARD)
    maker, reader = maker[follows], reader[follows]
    while len(more := reader[found[maker] & ~found[reader]]):
        found[more] = True
    return found
