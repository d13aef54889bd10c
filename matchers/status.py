"""Row statuses and roles of a comparison."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["RED", "Role", "Status"]


class Status(IntEnum):
    """Verdict of one row, worst last among paired rows that need attention; see docs/matching.md."""

    PENDING = 0
    EQUAL = 1
    SAME_PRINT = 2
    CLOSE = 3
    SHARDED = 4
    UNFINISHED = 5
    PARTIAL = 6
    RECOMPUTE = 7
    IGNORED = 8
    ONLY_A = 9
    ONLY_B = 10
    SHAPE = 11
    DIVERGED = 12
    NAN = 13

    @property
    def label(self) -> str:
        """The name used in reports and in JSON Lines (`same-print`, `only-a`, …)."""
        return self.name.lower().replace("_", "-")

    @property
    def red(self) -> bool:
        return self >= Status.SHAPE


RED = tuple(s for s in Status if s.red)


class Role(IntEnum):
    """Position of a red row in the data flow."""

    NONE = 0
    ORIGIN = 1
    RECEIVER = 2
    UNKNOWN = 3

    @property
    def label(self) -> str:
        """The name used in JSON, CSV and filters (`origin`, `receiver`, `unknown`)."""
        return self.name.lower()

    @property
    def word(self) -> str:
        """The name shown on screen and in reports: `first cause`, `consequence` or `unknown`."""
        return {Role.ORIGIN: "first cause", Role.RECEIVER: "consequence"}.get(self, self.label)
