"""The row that a sentence is about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matchers.arrays import Int64
from matchers.comparison import Comparison
from matchers.explain.facts import InputFact
from matchers.ops.dataflow import fed_by
from matchers.status import Role, Status
from matchers.verdict.reason import Reason

__all__ = ["Subject", "key_of"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A row of a comparison, with its inputs."""

    c: Comparison
    row: int
    inputs: tuple[InputFact, ...]

    @property
    def status(self) -> Status:
        return Status(self.c.status[self.row])

    @property
    def reason(self) -> Reason:
        return Reason(self.c.reason[self.row])

    @property
    def role(self) -> Role:
        return Role(self.c.role[self.row])

    @property
    def pair(self) -> int:
        return int(self.c.pair[self.row])

    @property
    def red(self) -> bool:
        return bool(self.c.red[self.row])

    @property
    def is_cause(self) -> bool:
        return bool(self.c.cause[self.row])

    @property
    def is_further(self) -> bool:
        """A cause downstream of a first one."""
        return any(self.row in rows for rows in self.c.further_causes)

    @property
    def records(self) -> tuple[int, int]:
        """The record of a and that of b, -1 for none."""
        return int(self.c.row_a[self.row]), int(self.c.row_b[self.row])

    @property
    def side(self) -> str:
        """The run that alone has an unpaired operation."""
        return "a" if self.c.row_a[self.row] >= 0 else "b"

    @property
    def readers(self) -> Int64:
        """int64: the rows that read the result, directly or (of two logs) over unpaired ones; ascending."""
        c = self.c
        found = fed_by(c.edges, np.arange(len(c)) == self.row, (c.pair < 0) & (not c.single))
        return np.flatnonzero(found)


def key_of(c: Comparison, row: int, side: str = "a") -> str:
    """The key of a row's operation in a run, or in the other where only that has it."""
    log, records = c.side(side)
    return str(log.keys[int(records[row])]) if records[row] >= 0 else key_of(c, row, "b" if side == "a" else "a")
