"""Cursor in the matrix of runs and steps, without a screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from matchers.weights.compare import Divergence, StepSummary
from matchers.weights.matrix import Matrix
from numtui.inputs import OpenRequest
from numtui.report.weights_words import logs_of_step

__all__ = ["ParameterDifference", "WeightsCursor"]


@dataclass(frozen=True, slots=True)
class ParameterDifference:
    """Differences of one parameter after one step, the first part first."""

    parameter: str
    parts: tuple[Divergence, ...]


class WeightsCursor:
    """A cell of the matrix, and its differences. The earliest different cell is chosen at the start.

    Attributes:
        row: index into `matrix.runs`.
        column: index into `matrix.steps`.
        top: the first listed parameter.
        message: what the last key has to say.
    """

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.row = self.column = self.top = 0
        self.message = ""
        self._listed: dict[tuple[int, int], list[ParameterDifference]] = {}
        self.go_to_first()

    @property
    def run(self) -> int:
        """The run of the cell."""
        return self.matrix.runs[self.row]

    @property
    def step(self) -> int:
        """The step of the cell."""
        return self.matrix.steps[self.column]

    @property
    def cell(self) -> StepSummary | None:
        """The cell; None if the step is not in both logs."""
        return self.matrix.cells[self.run].get(self.step)

    @cached_property
    def _columns(self) -> dict[int, int]:
        return {step: column for column, step in enumerate(self.matrix.steps)}

    def go_to_first(self) -> None:
        """Choose the earliest different cell."""
        if self.matrix.first is not None:
            run, first = self.matrix.first
            self.go_to(self.matrix.runs.index(run), self._columns[first.step])

    def go_to_first_of_run(self) -> None:
        """Choose the first different cell of this run."""
        comparison = self.matrix.comparisons[self.run]
        if comparison is not None and comparison.first is not None:
            self.go_to(self.row, self._columns[comparison.first.step])
        else:
            self.message = f"{self.matrix.names[self.run]} has no difference"

    def go_to(self, row: int, column: int) -> None:
        """Choose a cell, the nearest one if there is none."""
        self.row = min(max(row, 0), len(self.matrix.runs) - 1)
        self.column = min(max(column, 0), len(self.matrix.steps) - 1)
        self.top = 0

    def scroll(self, by: int) -> None:
        """Scroll the listed parameters."""
        self.top = min(max(self.top + by, 0), max(len(self.listed) - 1, 0))

    @property
    def listed(self) -> Sequence[ParameterDifference]:
        """The parameters that differ in this cell, the first one first."""
        at = (self.run, self.step)
        if at not in self._listed:
            parts: dict[str, list[Divergence]] = {}
            for found in self.matrix.differences(*at):
                parts.setdefault(found.parameter, []).append(found)
            self._listed = {at: [ParameterDifference(name, tuple(of)) for name, of in parts.items()]}
        return self._listed[at]

    def opening(self, request: OpenRequest) -> OpenRequest | None:
        """Return the request for the logs of operations of this step, of the reference and of this run.

        None, and a message, unless both exist.
        """
        logs = logs_of_step(self.matrix, self.run, self.step)
        if logs is None:
            step = self.step
            self.message = f"step {step} has no operation logs in both folders: numtui capture --steps {step}"
            return None
        return replace(request, path_a=logs[0], path_b=logs[1], name_b=self.matrix.names[self.run])
