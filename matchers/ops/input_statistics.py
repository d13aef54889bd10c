"""Extremes, means and checksums of what operations read, in logs of tools that record them beside norms.

They show what a norm does not, a sign above all; that they are equal proves no more than equal numbers do.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Float64, Int64
from matchers.logs.input_statistics import FIELD, PER_INPUT, unpacked
from matchers.logs.op_log import OpLog

__all__ = ["alike", "statistics_apart", "statistics_read", "tell_statistics"]


def tell_statistics(a: OpLog, b: OpLog) -> bool:
    """True if both logs tell such numbers of inputs."""
    return bool(a.texts(FIELD) and b.texts(FIELD))


def statistics_read(log: OpLog, row: int, place: int) -> Float64:
    """float64[4] of an input of a record: Min, Max, Mean, checksum; NaN where the log tells none."""
    return unpacked(log.texts(FIELD).raw(row), place)


def statistics_apart(a: OpLog, b: OpLog, i: Int64, j: Int64, place: Int64) -> tuple[Float64, Bool]:
    """Compare inputs of the records i[k] and j[k].

    Returns:
        float64[k], the largest difference of extremes and means, relative to the largest magnitude: a lower bound of
            that of the tensors. 0 where a log tells none.
        bool[k], the checksums are known and differ.
    """
    error, other = np.zeros(len(place)), np.zeros(len(place), bool)
    if not tell_statistics(a, b):
        return error, other
    read = (
        np.array([statistics_read(log, *at) for at in zip(rows.tolist(), place.tolist(), strict=True)])
        for log, rows in ((a, i), (b, j))
    )
    x, y = (of.reshape(-1, PER_INPUT) for of in read)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        size = np.fmax(np.abs(x[:, :2]), np.abs(y[:, :2])).max(axis=1)
        error = np.fmax.reduce(np.abs(x[:, :3] - y[:, :3]) / size[:, None], axis=1)
        other = np.abs(x[:, 3] - y[:, 3]) > 0
    return np.nan_to_num(error, nan=0.0, posinf=np.inf), np.asarray(other)


def alike(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """bool[k]: no such number of an input differs between the records i[k] and j[k]."""
    if not tell_statistics(a, b):
        return np.ones(len(i), bool)
    texts_a, texts_b = a.texts(FIELD), b.texts(FIELD)
    told = [(texts_a.raw(x), texts_b.raw(y)) for x, y in zip(i.tolist(), j.tolist(), strict=True)]
    return np.array([x == y or not (x and y) for x, y in told], bool)
