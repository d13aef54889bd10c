"""Screen of weights: a matrix of runs and steps, and what differs in its chosen cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from numtui.session.weights import WeightsCursor
from numtui.text.lines import Line
from numtui.tui.screens.overview import OverviewScreen
from numtui.views.weights import HELP, weights_lines

__all__ = ["WeightsScreen"]


class WeightsScreen(OverviewScreen):
    """The matrix over the differences of its chosen cell."""

    def __init__(self, cursor: WeightsCursor) -> None:
        super().__init__(cursor, "weights", HELP)
        self._cursor = cursor

    def lines(self, width: int, height: int) -> tuple[list[Line], list[int]]:
        return weights_lines(self._cursor, width, height)

    def choose(self, item: int) -> None:
        self._cursor.go_to(item, self._cursor.column)

    def scroll(self, by: int) -> None:
        self._cursor.scroll(by)

    @property
    def keys(self) -> Mapping[str, Callable[[], None]]:
        cursor = self._cursor
        row, column, last = cursor.row, cursor.column, len(cursor.matrix.steps) - 1
        cells = {
            "left": (row, column - 1), "h": (row, column - 1), "right": (row, column + 1), "l": (row, column + 1),
            "up": (row - 1, column), "k": (row - 1, column), "down": (row + 1, column), "j": (row + 1, column),
            "home": (row, 0), "end": (row, last),
        }  # fmt: skip
        moves = {key: partial(cursor.go_to, *cell) for key, cell in cells.items()}
        return {**moves, "g": cursor.go_to_first, "f": cursor.go_to_first_of_run}
