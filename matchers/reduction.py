"""How many terms an operation sums for each element of its result, as far as the log tells."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Float64
from matchers.logs.op_log import OpLog
from matchers.shapes import dimensions, numel

__all__ = ["reduction_length"]

_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "linear": 0}
"""Matrix products by the position of their first factor, (…, M, K)."""

_SUMS = frozenset({"sum", "mean", "nansum", "logsumexp", "linalg_vector_norm", "norm", "var", "std", "prod"})


def reduction_length(log: OpLog) -> Float64:
    """float64[n]: terms of each sum, by the sizes of the result and of what named producers made; 1 where that is not
    known, and for operations that sum nothing.
    """
    position = np.array([_PRODUCTS.get(name, 0 if name in _SUMS else -1) for name in log.ops] + [-1])[log.op]
    product = np.array([name in _PRODUCTS for name in log.ops] + [False])[log.op]
    known = (position >= 0) & (log.producers.count == log.inputs.count) & (log.inputs.count > position)
    rows = np.flatnonzero(known)
    out = np.ones(len(log))
    if not len(rows):
        return out
    maker = log.producers.value[log.producers.start[rows] + position[rows]]
    rows, maker = rows[maker >= 0], maker[maker >= 0]
    # a view has as many elements as what it is of; a slice has another norm
    same = log.outputs.first(maker) == log.inputs.value[log.inputs.start[rows] + position[rows]]
    rows, maker = rows[same], maker[same]
    size = numel(log)
    last = np.array([*(float((dimensions(text) or (1,))[-1]) for text in log.shapes), 1.0])
    result = size[log.shape[rows]] / np.where(product[rows], last[log.shape[rows]], 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        length = size[log.shape[maker]] / result
    out[rows] = np.where(np.isfinite(length) & (length > 1), length, 1.0)
    return out
