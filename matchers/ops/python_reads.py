"""Numbers that Python read from the results of operations; untrusted, as all of a log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from matchers.logs.op_log import OpLog, once_per_log
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
    reads = _by_number(log).get(value, ())
    before = bisect_left(reads, row, key=attrgetter("of"))
    return reads[before - 1] if before else None


@once_per_log
def _by_number(log: OpLog) -> Mapping[float, Sequence[NumberRead]]:
    """The reads of each number, in the order of the records; of each record the first."""
    found: dict[float, list[NumberRead]] = {}
    for record in sorted(log.texts("Read").rows.tolist()):
        for read in reads_of(log, record):
            reads = found.setdefault(read.value, [])
            if not reads or reads[-1].of != record:
                reads.append(read)
    return found
