"""Passes before the first micro-batch that compute nothing which is used, such as one that finds out shapes."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, distinct
from matchers.logs.op_log import OpLog, Phase, once_per_log
from matchers.ops.batch_numbers import micro_batch_numbers
from matchers.ops.dataflow import sources
from matchers.ops.laws import communicating

__all__ = ["unused_passes"]


@once_per_log
def unused_passes(log: OpLog) -> Bool:
    """bool[n]: records of the first passes, as long as nothing reads a result of theirs but they themselves.

    A pass over memory to which nothing was written tells shapes and nothing else. What is sent, or added to a gradient,
    is read.
    """
    # equal bits, such as those of a table that each pass reads, are no sign where the log names makers
    flow = log.producers if log.tells.makers else sources(log)
    number = np.where(log.phase == Phase.PREPARE, -1, micro_batch_numbers(log))
    known = flow.value >= 0
    maker, reader = flow.value[known], flow.row[known]
    # what it tells other ranks of shapes is not repeated
    kind = log.module.astype(np.int64) * len(log.ops) + log.op
    repeated = np.isin(kind, kind[number == number.max(initial=0)])
    outside = (number[maker] != number[reader]) | communicating(log)[reader] | log.updates[reader]
    passes, used = distinct(number[number >= 0]), distinct(number[maker[outside & repeated[maker]]])
    unused = np.logical_and.accumulate(~np.isin(passes, used))
    return np.isin(number, passes[unused]) if not unused.all() else np.zeros(len(log), bool)
