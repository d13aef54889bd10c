"""Group rows by module, source line or operation: row count, red count, worst row.

Counted over whole columns; a million rows take milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.comparison import Comparison
from matchers.logs.columns import Strings
from matchers.logs.op_log import OpLog
from matchers.ops.module_path import template
from numtui.query.query import exactly

__all__ = ["By", "RowGroup", "grouped"]


class By(IntEnum):
    """Criterion for grouping rows."""

    MODULE = 0
    LAYERS = 1
    LINE = 2
    OP = 3

    @property
    def label(self) -> str:
        return ("module", "module over all layers", "source line", "operation")[self]

    @property
    def next(self) -> By:
        return By((self + 1) % len(By))


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A group of rows.

    Attributes:
        name: common value of its rows, empty where it is not in the logs.
        query: the query word that selects these rows; empty where there is none.
        rows, red: how many.
        worst: the red row with the largest error, else the row with the largest error, else the first.
        error: of that row, NaN where it has none; `bound` marks a lower bound.
    """

    name: str
    query: str
    rows: int
    red: int
    worst: int
    error: float
    bound: bool


def _over_layers(module: str) -> str:
    """Return `layers.#.attention` for `layers.3.attention`."""
    return template(module).pattern.replace("{}", "#")


_TABLES: dict[By, tuple[Callable[[OpLog], Strings], Callable[[OpLog], Int64], Callable[[str], str], str]] = {
    By.MODULE: (lambda log: log.modules, lambda log: log.module, str, "module"),
    By.LAYERS: (lambda log: log.modules, lambda log: log.module, _over_layers, "module"),
    By.LINE: (lambda log: log.locations, lambda log: log.location, str, "at"),
    By.OP: (lambda log: log.ops, lambda log: log.op, str, "op"),
}


def grouped(c: Comparison, passing: Bool, by: By) -> list[RowGroup]:
    """Group the passing rows: groups with most red rows first, then by largest error.

    A row belongs to the group of its record in a, or in b where only b has one.
    """
    table, index, shown, field = _TABLES[by]
    number: dict[str, int] = {}
    label = np.full(len(c), -1, np.int64)
    for log, at in ((c.b, c.row_b), (c.a, c.row_a)):  # a last, because its name counts
        # The last entry serves index -1: not in the log.
        of = np.array([number.setdefault(shown(name), len(number)) for name in table(log)] + [-1], np.int64)
        has = at >= 0
        label[has] = of[index(log)[at[has]]]
    rows = np.flatnonzero(passing)
    mine = label[rows] + 1
    size = len(number) + 1
    count = np.bincount(mine, minlength=size)
    red = np.bincount(mine, weights=c.red[rows], minlength=size).astype(np.int64)
    worst = _worst(c, rows, mine, size)
    error = np.where(worst >= 0, c.error[np.maximum(worst, 0)], np.nan)
    names = ["", *number]
    order = np.lexsort((worst, -np.nan_to_num(error, nan=-1.0, posinf=np.finfo(float).max), -red))
    return [
        RowGroup(
            names[k],
            exactly(field, names[k]) if names[k] else "",
            int(count[k]),
            int(red[k]),
            int(worst[k]),
            float(error[k]),
            bool(c.bound[worst[k]]),
        )
        for k in order.tolist()
        if count[k]
    ]


def _worst(c: Comparison, rows: Int64, mine: Int64, size: int) -> Int64:
    """Return the worst row of each group, -1 for groups without rows."""
    key = np.nan_to_num(c.error[rows], nan=-1.0, posinf=np.finfo(float).max)
    # The last of a group wins: red before others, large before small, early before late.
    order = np.lexsort((-rows, key, c.red[rows], mine))
    worst = np.full(size, -1, np.int64)
    worst[mine[order]] = rows[order]
    return worst
