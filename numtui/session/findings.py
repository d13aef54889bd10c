"""Cursor in the findings of a checked run, without a screen."""

from __future__ import annotations

from dataclasses import replace

from matchers.runs.finding import CheckedRun, Finding
from numtui.inputs import OpenRequest
from numtui.report.check.model import places_to_open

__all__ = ["FindingsCursor"]


class FindingsCursor:
    """A finding, the first one at the start.

    Attributes:
        at: index into the findings.
        top: lines of its details that are scrolled away.
        message: what the last key has to say.
    """

    def __init__(self, checked: CheckedRun) -> None:
        self.checked = checked
        self.at = self.top = 0
        self.message = ""

    @property
    def finding(self) -> Finding | None:
        """The finding under the cursor; None if there is none."""
        return self.checked.findings[self.at] if self.checked.findings else None

    def go_to(self, at: int) -> None:
        """Choose a finding, the nearest one if there is none."""
        self.at = min(max(at, 0), max(len(self.checked.findings) - 1, 0))
        self.top = 0

    def scroll(self, by: int) -> None:
        """Scroll the details."""
        self.top = max(self.top + by, 0)

    def opening(self, request: OpenRequest) -> OpenRequest | None:
        """Return the request for the logs of the finding's first two places, or of its one, at the record of the first.

        None, and a message, where no log has a place of it.
        """
        finding = self.finding
        places = () if finding is None else places_to_open(self.checked.run, finding)
        if not places:
            self.message = "there is no finding to open" if finding is None else "no log has a place of this finding"
            return None
        a, b = (*places, None)[:2]
        assert a is not None
        paths = self.checked.run.paths
        return replace(
            request,
            path_a=paths[a.rank],
            path_b="" if b is None else paths[b.rank],
            name_a=f"rank {a.rank}",
            name_b="" if b is None else f"rank {b.rank}",
            row=a.row,
        )
