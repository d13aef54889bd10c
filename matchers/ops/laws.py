"""The laws of a log's operations, as columns."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from types import FunctionType
from typing import cast

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int32, Int64
from matchers.laws.law import Bucket, Form, Kind, Law
from matchers.laws.register import law
from matchers.logs.op_log import OpLog, once_per_log

__all__ = [
    "additions",
    "by_law",
    "collective",
    "communicating",
    "copies",
    "drawing",
    "filling",
    "functional",
    "in_place",
    "law_of",
    "on_lists",
    "positions",
    "receiving",
    "result_limit",
    "rows_named",
    "rows_where",
]


def law_of(log: OpLog, row: int) -> Law:
    """The law of a row's operation."""
    return law(log.op_name(row))


def rows_where(log: OpLog, holds: Callable[[Law], bool], rows: Int64 | Int32 | int | None = None) -> Bool:
    """bool[n]: something holds of the law of the row's operation; bool[k] of some rows.

    Args:
        holds: a function without a closure: the answers are kept by its code.
    """
    function = cast("FunctionType", holds)
    assert function.__closure__ is None, "the code alone has to tell the question"
    known, asked = log.ops.answers, (function.__module__, function.__code__)
    if (found := known.get(asked)) is None:
        found = known[asked] = np.array([*(holds(law(name)) for name in log.ops), False], bool)
    return found.take(log.op if rows is None else log.op[rows])


def by_law(log: OpLog, rows: Int64, value: Callable[[Law], float]) -> Float64:
    """float64[k]: a number that the laws of some rows' operations give."""
    return np.asarray(np.array([value(law(name)) for name in (*log.ops, "")], np.float64)[log.op[rows]])


def positions(log: OpLog, value: Callable[[Law], int | None]) -> Int64:
    """int64[n]: a position that the law of the row's operation names; -1 for none."""
    found = [-1 if (at := value(law(name))) is None else at for name in (*log.ops, "")]
    return np.asarray(np.array(found, np.int64)[log.op])


def result_limit(log: OpLog) -> Int64:
    """int64[n]: outputs from this number on are no results, but memory for a backward pass alone."""
    limit = positions(log, lambda law: law.results)
    return np.where(limit < 0, np.iinfo(np.int64).max, limit)


def rows_named(log: OpLog, names: AbstractSet[str]) -> Bool:
    """bool[n]: the row is one of these operations, whose names a log or a user gave."""
    return np.asarray(np.array([*(name in names for name in log.ops), False], bool)[log.op])


def in_place(log: OpLog) -> Bool:
    """bool[n]: the row returns the tensor that it changes."""
    return rows_where(log, lambda law: law.in_place)


def functional(name: str) -> str:
    """The name of an operation without whether it writes in place: `add` for `add_`."""
    of = law(name)
    return name.removesuffix("_") if of.in_place and of.collective is None else name


def additions(log: OpLog) -> Bool:
    """bool[n]: the row adds two tensors."""
    return rows_where(log, lambda law: law.form is Form.ADD and not law.on_lists)


def copies(log: OpLog) -> Bool:
    """bool[n]: the row hands on what it reads: a view, a split, a clone, a cast. None of them can make an error."""
    return rows_where(log, lambda law: law.copies)


def drawing(log: OpLog) -> Bool:
    """bool[n]: the row draws random numbers."""
    return rows_where(log, lambda law: law.random)


@once_per_log
def on_lists(log: OpLog) -> NDArray[np.bool_]:
    """bool[n]: the row is an operation on lists of tensors, an optimizer's as a rule."""
    return rows_where(log, lambda law: law.on_lists)


@once_per_log
def collective(log: OpLog) -> NDArray[np.bool_]:
    """bool[n]: the row starts, performs or awaits a collective."""
    return rows_where(log, lambda law: law.communicates)


@once_per_log
def communicating(log: OpLog) -> NDArray[np.bool_]:
    """bool[n]: the row belongs to a communication: a collective, the copy into its buffer, a handle of its result."""
    return rows_where(log, lambda law: law.communicates or law.bucket in (Bucket.GATHERED, Bucket.HANDLE))


def receiving(log: OpLog) -> Bool:
    """bool[n]: the row receives a message of one other rank."""
    return rows_where(log, lambda law: law.kind is Kind.RECEIVE)


def filling(log: OpLog) -> Bool:
    """bool[n]: the row fills a flat buffer that a collective sends, which has a row or a part for each rank."""
    return rows_where(log, lambda law: law.bucket in (Bucket.FILLED, Bucket.GATHERED))
