"""The first lines of the screen: run names, facts and counts, and the verdict where something is red."""

from __future__ import annotations

from matchers.comparison import Comparison
from numtui.session.session import Session
from numtui.text.lines import Line
from numtui.tui.widgets.lines import Lines
from numtui.views.banner import assuming, banner
from numtui.views.header import header

__all__ = ["Header"]


class Header(Lines):
    """Shows run names, facts and counts, the verdict, and the progress of running work."""

    _made: tuple[Comparison, tuple[object, ...], list[Line]] | None = None
    """The lines and their inputs: they summarise whole logs, and stay from key to key."""

    def show(self, session: Session, work: str = "") -> None:
        c, width, made = session.comparison, self.size.width, self._made
        assumed = session.listing.what_if
        inputs = (width, work, session.file.path, session.rules_off, assumed)
        if made is None or made[0] is not c or made[1] != inputs:
            verdict = banner(c, width) if assumed is None else assuming(assumed, width)
            made = self._made = (c, inputs, [*header(session, width, work), *([verdict] if verdict else [])])
        if self.size.height != len(made[2]):
            self.styles.height = len(made[2])
        self.paint(made[2])
