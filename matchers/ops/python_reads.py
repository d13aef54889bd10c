"""Numbers that Python read from the results of operations; untrusted, as all of a log."""

from __future__ import annotations

from typing import NamedTuple

from matchers.logs.op_log import OpLog
from matchers.ops.json_values import number, parsed

__all__ = ["NumberRead", "read_before", "reads_of"]


class NumberRead(NamedTuple):
    """A number that Python read: its value, the place, `model.py:31`, and the record whose result it is of."""

    value: float
    place: str
    of: int


def reads_of(log: OpLog, record: int) -> list[NumberRead]:
    """The numbers that Python read from the result of a record."""
    told = parsed(log.texts("Read").raw(record))
    pairs = (each for each in told if isinstance(each, list) and len(each) == 2) if isinstance(told, list) else ()
    return [NumberRead(_number(value), place, record) for value, place in pairs if isinstance(place, str)]


def _number(value: object) -> float:
    return float(value) if isinstance(value, bool) else number(value)


def read_before(log: OpLog, row: int, value: float) -> NumberRead | None:
    """The last read of a number from a result before a record; None for none."""
    rows = [int(record) for record in log.texts("Read").rows if record < row]
    reads = (read for record in reversed(rows) for read in reads_of(log, record))
    return next((read for read in reads if read.value == value), None)
