"""Text pages over the main screen: help, messages, log facts, raw records."""

from __future__ import annotations

from functools import partial

from numtui.text.lines import Line
from numtui.tui.screens.pager import Pager, help_lines
from numtui.tui.screens.screen import MainScreen
from numtui.views.raw_record import raw_lines
from numtui.views.run_summary import info

__all__ = ["open_help", "open_info", "open_messages", "open_raw"]


def open_info(explorer: MainScreen) -> None:
    """Open the facts in the logs' headers."""
    explorer.app.push_screen(Pager("The two logs", info(explorer.session), "I"))


def open_raw(explorer: MainScreen) -> None:
    """Open the row's records, read from the logs again."""
    c, row = explorer.session.comparison, explorer.session.listing.cursor
    if row < 0:
        return

    def show(lines: list[Line]) -> None:
        explorer.app.push_screen(Pager(f"Row {row + 1} as logged", lines, "L"))

    explorer.background.run_then_show("reading the logs", partial(raw_lines, c, row), show)


def open_messages(explorer: MainScreen) -> None:
    """Open the messages of this session."""
    if explorer.messages:
        explorer.app.push_screen(Pager("Messages, newest first", explorer.messages.lines(), "@"))
    else:
        explorer.say("no messages yet", passing=True)


def open_help(explorer: MainScreen) -> None:
    """Open the help."""
    explorer.app.push_screen(Pager("numtui", help_lines(explorer.offered), "?"))
