"""The first line of the screen: run names, facts and counts."""

from __future__ import annotations

from matchers.comparison import Comparison
from numtui.session.session import Session
from numtui.text.lines import Line
from numtui.tui.widgets.lines import Lines
from numtui.views.run_summary import header

__all__ = ["Header"]


class Header(Lines):
    """Shows run names, facts and counts, and the progress of running work."""

    _made: tuple[Comparison, tuple[object, ...], Line] | None = None
    """The line and its inputs: it summarises whole logs, and stays from key to key."""

    def show(self, session: Session, work: str = "") -> None:
        c, width, made = session.comparison, self.size.width, self._made
        inputs = (width, work, session.file.path, session.rules_off)
        if made is None or made[0] is not c or made[1] != inputs:
            made = self._made = (c, inputs, header(session, width, work))
        self.paint([made[2]])
