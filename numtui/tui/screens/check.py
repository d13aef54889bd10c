"""Screen of a checked run: its findings over the details of the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from numtui.session.findings import FindingsCursor
from numtui.text.lines import Line
from numtui.tui.screens.overview import OverviewScreen, row_keys
from numtui.tui.screens.pager import Pager
from numtui.views.check import HELP, checks_lines, findings_lines, last_top

__all__ = ["CheckScreen"]


class CheckScreen(OverviewScreen):
    """The findings."""

    def __init__(self, cursor: FindingsCursor) -> None:
        super().__init__(cursor, "check", HELP)
        self._cursor = cursor

    def lines(self, width: int, height: int) -> tuple[list[Line], list[int]]:
        self._cursor.top = min(self._cursor.top, last_top(self._cursor, width, height))
        return findings_lines(self._cursor, width, height)

    def choose(self, item: int) -> None:
        self._cursor.go_to(item)

    def scroll(self, by: int) -> None:
        self._cursor.scroll(by)

    @property
    def keys(self) -> Mapping[str, Callable[[], None]]:
        cursor = self._cursor
        return {**row_keys(cursor.go_to, cursor.at, len(cursor.checked.findings)), "c": self._show_checks}

    def _show_checks(self) -> None:
        self.app.push_screen(Pager("checks", checks_lines(self._cursor.checked), "c"))
