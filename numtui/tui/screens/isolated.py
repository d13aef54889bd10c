"""Screen of an isolation: its causes and the modules with errors of their own, over the details of the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from numtui.session.isolated import IsolatedCursor
from numtui.text.lines import Line
from numtui.tui.screens.overview import OverviewScreen, row_keys
from numtui.views.isolated import HELP, isolated_lines

__all__ = ["IsolatedScreen"]


class IsolatedScreen(OverviewScreen):
    """The causes and modules."""

    def __init__(self, cursor: IsolatedCursor) -> None:
        super().__init__(cursor, "isolate", HELP)
        self._cursor = cursor

    def lines(self, width: int, height: int) -> tuple[list[Line], list[int]]:
        return isolated_lines(self._cursor, width, height)

    def choose(self, item: int) -> None:
        self._cursor.go_to(item)

    def scroll(self, by: int) -> None:
        self._cursor.scroll(by)

    @property
    def keys(self) -> Mapping[str, Callable[[], None]]:
        return row_keys(self._cursor.go_to, self._cursor.at, len(self._cursor.items))
