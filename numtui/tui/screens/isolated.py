"""Screen of an isolation: its causes and the modules with errors of their own, over the details of the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from numtui.session.isolated import IsolatedCursor
from numtui.text.lines import Line
from numtui.tui.screens.overview import OverviewScreen
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
        at, last = self._cursor.at, len(self._cursor.items) - 1
        rows = {"down": at + 1, "j": at + 1, "up": at - 1, "k": at - 1, "home": 0, "g": 0, "end": last, "G": last}
        return {key: partial(self._cursor.go_to, row) for key, row in rows.items()}
