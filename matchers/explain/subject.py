"""The row that a sentence is about."""

from __future__ import annotations

from dataclasses import dataclass

from matchers.comparison import Comparison
from matchers.explain.facts import InputFact
from matchers.logs.op_log import OpLog
from matchers.status import Role, Status
from matchers.verdict.reason import Reason

__all__ = ["Subject"]


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
    def is_cause(self) -> bool:
        return bool(self.c.cause[self.row])

    @property
    def records(self) -> tuple[int, int]:
        """The record of a and that of b, -1 for none."""
        return int(self.c.row_a[self.row]), int(self.c.row_b[self.row])

    @property
    def log_and_record(self) -> tuple[OpLog, int]:
        """The record of a where there is one, else that of b."""
        i, j = self.records
        return (self.c.a, i) if i >= 0 else (self.c.b, j)
