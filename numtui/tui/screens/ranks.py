"""Screen of all ranks of two runs: classes, matrix of ranks and stretches of the step, details of a cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from numtui.session.ranks import RanksCursor
from numtui.text.lines import Line
from numtui.tui.screens.overview import OverviewScreen, row_keys
from numtui.views.ranks import HELP, last_top, next_column, ranks_lines

__all__ = ["RanksScreen"]


class RanksScreen(OverviewScreen):
    """The ranks."""

    def __init__(self, cursor: RanksCursor) -> None:
        super().__init__(cursor, "ranks", HELP)
        self._cursor = cursor

    def lines(self, width: int, height: int) -> tuple[list[Line], list[int]]:
        self._cursor.top = min(self._cursor.top, last_top(self._cursor, width, height))
        return ranks_lines(self._cursor, width, height)

    def choose(self, item: int) -> None:
        self._cursor.go_to_rank(item)

    def scroll(self, by: int) -> None:
        self._cursor.scroll(by)

    @property
    def keys(self) -> Mapping[str, Callable[[], None]]:
        cursor = self._cursor
        return {
            **row_keys(cursor.go_to_row, cursor.at, len(cursor.rows)),
            **dict.fromkeys(("right", "l"), partial(self._go_to_next_column, 1)),
            **dict.fromkeys(("left", "h"), partial(self._go_to_next_column, -1)),
            "n": partial(cursor.next_red, 1),
            "N": partial(cursor.next_red, -1),
            "tab": partial(cursor.go_to_class, cursor.class_at + 1),
            "shift+tab": partial(cursor.go_to_class, cursor.class_at - 1),
            "o": cursor.next_origin,
            "f": cursor.toggle_fold,
        }

    def _go_to_next_column(self, by: int) -> None:
        self._cursor.go_to_column(next_column(self._cursor, *self.size, by))
