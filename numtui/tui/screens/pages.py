"""Pages of text over the explorer: the help, what was said, what the logs say about themselves and about a row."""

from __future__ import annotations

from functools import partial

from numtui.text.lines import Line
from numtui.tui.screens.arrange import Finding
from numtui.tui.screens.pager import Pager, help_lines
from numtui.views.raw_record import raw_lines
from numtui.views.run_summary import info

__all__ = ["Pages"]


class Pages(Finding):
    """A screen that can open the pages."""

    def action_info(self) -> None:
        self.app.push_screen(Pager("The two logs", info(self.session), "I"))

    def action_raw(self) -> None:
        """The records of the row, read from the logs again."""
        c, row = self.session.comparison, self.session.listing.cursor
        if row < 0:
            return

        def show(lines: list[Line]) -> None:
            self.app.push_screen(Pager(f"Row {row + 1} as it stands in the logs", lines, "L"))

        self.run_then_show("reading the logs", partial(raw_lines, c, row), show)

    def action_messages(self) -> None:
        """What was said, to be read again."""
        if self.messages:
            self.app.push_screen(Pager("What was said, the last first", self.messages.lines(), "@"))
        else:
            self.say("nothing has been said yet", passing=True)

    def action_help(self) -> None:
        self.app.push_screen(Pager("numtui", help_lines(self.actions), "?"))
