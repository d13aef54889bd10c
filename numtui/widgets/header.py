"""The first line: whose runs these are, and what became of the comparison."""

from __future__ import annotations

from numtui.session import Session
from numtui.summary import header
from numtui.widgets.lines import Lines

__all__ = ["Header"]


class Header(Lines):
    """Names, facts and counts; the progress of the work while there is any."""

    def show(self, session: Session, work: str = "") -> None:
        self.paint([header(session, self.size.width, work)])
