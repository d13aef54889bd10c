"""Records by the names of their operations: additions, norms, operations on lists."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

import numpy as np

from matchers.arrays import Bool
from matchers.logs.op_log import OpLog, once_per_log

__all__ = ["ADDITIONS", "NORMS", "additions", "in_place", "on_lists", "rows_named", "rows_where"]

ADDITIONS = frozenset({"add", "add_"})
NORMS = frozenset({"linalg_vector_norm"})
"""Euclidean norms of whole tensors, if the result is a scalar."""

_ON_LISTS = ("_foreach_", "_fused_", "_amp_foreach_")


def rows_named(log: OpLog, names: AbstractSet[str]) -> Bool:
    """bool[n]: the row is one of these ops."""
    rows = np.zeros(len(log), bool)
    for op, name in enumerate(log.ops):
        if name in names:
            rows |= log.op == op
    return rows


def rows_where(log: OpLog, holds: Callable[[str], bool]) -> Bool:
    """bool[n]: something holds of the name of the row's op."""
    return np.asarray(np.array([*map(holds, log.ops), False], bool)[log.op])


def in_place(log: OpLog) -> Bool:
    """bool[n]: the row changes an input, as its name says."""
    return rows_where(log, lambda name: name.endswith("_"))


def additions(log: OpLog) -> Bool:
    """bool[n]: the row adds two tensors."""
    return rows_named(log, ADDITIONS)


@once_per_log
def on_lists(log: OpLog) -> Bool:
    """bool[n]: the row is an operation on lists of tensors, an optimizer's."""
    return rows_where(log, lambda name: name.startswith(_ON_LISTS))
