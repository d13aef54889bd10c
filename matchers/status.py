"""Row statuses and roles of a comparison."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["AGREE", "RED", "LabelledEnum", "Role", "Status"]


class LabelledEnum(IntEnum):
    """Constants with a name for reports, JSON, CSV and filters (`same-print`, `only-a`, `origin`, …)."""

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")


class Status(LabelledEnum):
    """Verdict of one row, worst last among paired rows that need attention; see docs/matching.md."""

    PENDING = 0
    EQUAL = 1
    SAME_PRINT = 2
    CLOSE = 3
    SHARDED = 4
    UNFINISHED = 5
    PARTIAL = 6
    NO_VALUES = 7
    NOT_JUDGED = 8
    RECOMPUTE = 9
    IGNORED = 10
    ONLY_A = 11
    ONLY_B = 12
    SHAPE = 13
    DIVERGED = 14
    NAN = 15

    @property
    def red(self) -> bool:
        return self >= Status.SHAPE


RED = tuple(s for s in Status if s.red)
AGREE = (Status.EQUAL, Status.SAME_PRINT, Status.CLOSE)
"""Statuses of rows that were compared and are not red."""


class Role(LabelledEnum):
    """Position of a red row in the data flow."""

    NONE = 0
    ORIGIN = 1
    RECEIVER = 2
    UNKNOWN = 3

    @property
    def word(self) -> str:
        """The name shown on screen and in reports: `first cause`, `consequence` or `unknown`."""
        return {Role.ORIGIN: "first cause", Role.RECEIVER: "consequence"}.get(self, self.label)
