"""Text pages over the main screen: the help, and what is known of the logs, the row and the session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from textual import events

from matchers.errors import UserError
from matchers.status import Status
from numtui.query.commits import commits
from numtui.query.view import uncompared
from numtui.text.lines import Line
from numtui.text.safe import safe_text
from numtui.tui.screens.pager import Pager, help_lines
from numtui.tui.screens.panels import open_uncompared
from numtui.tui.screens.screen import MainScreen
from numtui.views.commits import commit_lines
from numtui.views.raw_record import raw_lines
from numtui.views.run_summary import comparability, info

__all__ = ["open_commits", "open_comparability", "open_help", "open_info", "open_messages", "open_raw"]


@dataclass(frozen=True, slots=True)
class _Page:
    """A page: the id of the action that opens it, the name on its tab, and its text; `slow`: made in a thread."""

    id: str
    name: str
    lines: Callable[[], list[Line]]
    slow: bool = False


class Information(Pager):
    """Pages of text behind tabs, whose names stand at the top."""

    def __init__(self, explorer: MainScreen, pages: Sequence[_Page], shown: str) -> None:
        super().__init__("", ())
        self._opened_by_any = {key for a in explorer.actions if a.id in (shown, "info") for key in a.keys}
        self._explorer = explorer
        self._pages = pages
        self._at = 0
        self._go_to(next(n for n, page in enumerate(pages) if page.id == shown))

    def _go_to(self, at: int) -> None:
        """Turn to a page; a slow one says so until it is read."""
        self._at = at % len(self._pages)
        page, self._top, self._hit = self._pages[self._at], 0, -1
        if not page.slow:
            self._lines = page.lines()
            return
        self._lines = [[(" reading …", "dim")]]
        self._explorer.background.run(page.lines, partial(self._read, self._at), group="page", exclusive=True)

    def _read(self, at: int, lines: list[Line]) -> None:
        if at == self._at:
            self._lines = lines
            if self.is_mounted and self.is_current:  # it may be closed by now
                self.draw()

    @property
    def _leads_on(self) -> bool:
        """True on a page that says how much was compared, where some rows were not."""
        page = self._pages[self._at].id
        return page in ("comparability", "info") and len(uncompared(self._explorer.session.comparison)) > 0

    def heading(self) -> Line:
        """Return the tabs, the chosen one in brackets."""
        tabs: Line = []
        for n, page in enumerate(self._pages):
            label = f"{n + 1} {page.name}"
            tabs.append((f"[{label}]", "title") if n == self._at else (f" {label} ", "key"))
        rows = "enter: rows not compared · " if self._leads_on else ""
        return [*tabs, (f"  {rows}tab next · q close", "dim")]

    def pressed(self, event: events.Key) -> None:
        """Turn to another page, or read this one."""
        turns = {"tab": 1, "right": 1, "shift+tab": -1, "left": -1}
        if self.typing:
            super().pressed(event)
        elif self._opened_by_any & {event.key, event.character}:
            self.dismiss()
        elif event.key == "enter" and self._leads_on:
            self.dismiss()
            open_uncompared(self._explorer)
        elif event.key in turns:
            self._go_to(self._at + turns[event.key])
            self.draw()
        elif event.key.isdigit() and 0 < int(event.key) <= len(self._pages):
            self._go_to(int(event.key) - 1)
            self.draw()
        else:
            super().pressed(event)


def open_info(explorer: MainScreen) -> None:
    """Open the page that matters most: comparability where the runs can hardly be compared, else the logs."""
    c = explorer.session.comparison
    grave = not c.single and not c.counts[Status.PENDING] and c.comparability.grave
    _open(explorer, "comparability" if grave else "info")


def open_comparability(explorer: MainScreen) -> None:
    """Open the properties that differ between the two runs."""
    _open(explorer, "comparability")


def open_commits(explorer: MainScreen) -> None:
    """Open the commits between the two runs that touch the row's code."""
    _open(explorer, "commits")


def open_raw(explorer: MainScreen) -> None:
    """Open the row's records, read from the logs again."""
    _open(explorer, "raw")


def open_messages(explorer: MainScreen) -> None:
    """Open the messages of this session."""
    _open(explorer, "messages")


def _open(explorer: MainScreen, shown: str) -> None:
    session = explorer.session
    c, row = session.comparison, session.listing.cursor
    pages = [
        _Page("info", "log" if c.single else "logs", lambda: info(session)),
        _Page("raw", f"row {row + 1}" if row >= 0 else "row", lambda: raw_lines(c, row), slow=True),
        _Page("messages", "messages", explorer.messages.lines),
    ]
    if not c.single:
        pages.insert(0, _Page("comparability", "comparability", lambda: comparability(c)))
        pages.append(_Page("commits", "commits", lambda: _commits(explorer), slow=True))
    explorer.app.push_screen(Information(explorer, pages, shown))


def _commits(explorer: MainScreen) -> list[Line]:
    c, row = explorer.session.comparison, explorer.session.listing.cursor
    try:
        return commit_lines(commits(c, row, (Path.cwd(), *explorer.sources)))
    except (OSError, UserError) as error:
        return [[(f" {safe_text(str(error), 300)}", "dim")]]


def open_help(explorer: MainScreen) -> None:
    """Open the help."""
    explorer.app.push_screen(Pager("numtui", help_lines(explorer.offered), "?"))
