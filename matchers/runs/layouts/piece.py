"""A part of the joined log of several ranks."""

from __future__ import annotations

from typing import NamedTuple

from matchers.arrays import Int64
from matchers.logs.op_log import OpLog

__all__ = ["Piece"]


class Piece(NamedTuple):
    """Some records of a log, and the micro-batch that they are; -1 for none. `source` is the number of its rank."""

    log: OpLog
    rows: Int64
    batch: int
    source: int
