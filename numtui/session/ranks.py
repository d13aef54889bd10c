"""Cursor in the matrix of ranks and stretches of the step, without a screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.summary import Cell, Event, RankSummary
from numtui.inputs import OpenRequest
from numtui.report.runs.matrix import Row, in_mesh_order, rows_of, stretches
from numtui.session.kept import KeptComparisons

__all__ = ["RanksCursor"]

_FOLDED = 16
"""More ranks than this are folded at the start."""


class _Rows:
    """The rows, and the index of that of each rank."""

    def __init__(self, rows: tuple[Row, ...]) -> None:
        self.all = rows
        self.of = {rank: at for at, row in enumerate(rows) for rank in row.ranks}


class RanksCursor:
    """A rank, and a stretch of the step. Where the divergence began is chosen at the start.

    Attributes:
        runs: all ranks.
        noise: third log of a rank, with the expected noise; None for none.
        rank: its number.
        column: index into `columns`.
        folded: ranks that look alike are one row.
        top: lines of the details that are scrolled away.
        message: what the last key has to say.
        kept: comparisons of the ranks that were looked at last.
    """

    def __init__(self, runs: RunComparison, noise: Callable[[int], str | None] = lambda _: None) -> None:
        self.runs = runs
        self.noise = noise
        self.columns = stretches(runs.summaries.values())
        self.rank = min(runs.summaries)
        self.column = self.top = 0
        self.folded = len(runs.summaries) > _FOLDED
        self.message = ""
        self.kept = KeptComparisons()
        if runs.traced.origins:
            self._go_to_origin(0)
            self.message = ""
        elif runs.classes:
            self.go_to_rank(runs.classes[0].ranks[0])

    # -- rows

    @cached_property
    def _of_each(self) -> _Rows:
        return _Rows(rows_of(self.runs, self.columns, folded=False))

    @cached_property
    def _of_alike(self) -> _Rows:
        return _Rows(rows_of(self.runs, self.columns, folded=True))

    @property
    def _rows(self) -> _Rows:
        return self._of_alike if self.folded else self._of_each

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the matrix."""
        return self._rows.all

    @property
    def row(self) -> Row:
        """The row that has the rank."""
        return self.rows[self.at]

    @property
    def at(self) -> int:
        """Index of the row that has the rank."""
        return self._rows.of[self.rank]

    @cached_property
    def _class_of(self) -> Mapping[int, int]:
        return {rank: at for at, each in enumerate(self.runs.classes) for rank in each.ranks}

    @property
    def class_at(self) -> int:
        """The class of the rank."""
        return self._class_of[self.rank]

    # -- what is under the cursor

    @property
    def summary(self) -> RankSummary:
        """The rank."""
        return self.runs.summaries[self.rank]

    @property
    def cell(self) -> Cell | None:
        """The stretch on the rank; None where it has no such operations, or was not read."""
        wanted = self.columns[self.column] if self.columns else None
        return next((cell for cell in self.summary.cells if cell.stretch == wanted), None)

    @property
    def events(self) -> tuple[Event, ...]:
        """The first causes of the rank; where nothing is red, its first difference."""
        summary = self.summary
        return summary.causes or (() if summary.difference is None else (summary.difference,))

    @property
    def event(self) -> Event | None:
        """The first event in the cell; None without one."""
        cell = self.cell
        return next((event for event in self.events if cell is not None and event.stretch == cell.stretch), None)

    # -- moves

    def go_to_rank(self, rank: int) -> None:
        """Choose a rank."""
        self.rank, self.top = rank, 0

    def go_to_row(self, at: int) -> None:
        """Choose the first rank of a row, the nearest one if there is none."""
        self.go_to_rank(self.rows[min(max(at, 0), len(self.rows) - 1)].ranks[0])

    def go_to_column(self, at: int) -> None:
        """Choose a stretch, the nearest one if there is none."""
        self.column, self.top = min(max(at, 0), max(len(self.columns) - 1, 0)), 0

    def scroll(self, by: int) -> None:
        """Scroll the details."""
        self.top = max(self.top + by, 0)

    def toggle_fold(self) -> None:
        """Join ranks that look alike, or list them one by one."""
        self.folded, self.top = not self.folded, 0

    def go_to_class(self, at: int) -> None:
        """Choose the first rank of a class; after the last class comes the first."""
        self.go_to_rank(self.runs.classes[at % len(self.runs.classes)].ranks[0])

    def next_red(self, by: int) -> None:
        """Choose the next row of red ranks, or the previous one; where no rank is red, of ranks that differ."""
        differ = self.runs.red or tuple(self.runs.differences.behind)
        rows = sorted({self._rows.of[rank] for rank in differ})
        rows = [row for row in rows if (row > self.at if by > 0 else row < self.at)]
        if rows:
            self.go_to_row(rows[0 if by > 0 else -1])
        else:
            kind = "red rank" if self.runs.red else "rank that differs"
            self.message = f"no {kind} {'below' if by > 0 else 'above'}"

    def next_origin(self) -> None:
        """Choose where the divergence of the rank began; from there, where the next one did."""
        origins = self.runs.traced.origins
        behind = self.runs.traced.behind.get(self.rank, ())
        here = [
            n
            for n, origin in enumerate(origins)
            if (event := origin.events.get(self.rank)) is not None and self._column_of(event) == self.column
        ]
        if not origins:
            self.message = "nothing differs"
        elif len(here) == len(origins) == 1:
            self.message = "it began here"
        elif here:
            self._go_to_origin((here[0] + 1) % len(origins))
        else:
            self._go_to_origin(behind[0] if behind else 0)

    def _go_to_origin(self, n: int) -> None:
        origins = self.runs.traced.origins
        self.go_to_rank(min(origins[n].events))
        self.go_to_column(self._column_of(origins[n].event))
        if len(origins) > 1:
            self.message = f"origin {n + 1} of {len(origins)}"

    def _column_of(self, event: Event) -> int:
        """Return the column of an event; 0 where the summaries lack it."""
        return self.columns.index(event.stretch) if event.stretch in self.columns else 0

    # -- the explorer

    def opening(self, request: OpenRequest) -> OpenRequest | None:
        """Return the request for the logs of the rank at the cell's first event, else where its worst status begins.

        None, and a message, where there is no log.
        """
        found = self.request_for(request, self.rank)
        if found is None:
            return None
        place = next((place for place in (self.event, self.cell, *self.events) if place is not None), None)
        line = place.line_b if isinstance(place, Event) and not place.line_a else 0
        return replace(found, row=None if place is None else place.record, line_b=line or None)

    def request_for(self, request: OpenRequest, rank: int) -> OpenRequest | None:
        """Return the request for the logs of a rank, or for its only one; None, and a message, without any."""
        summary = self.runs.summaries[rank]
        found = [(path, name) for path, name in zip(summary.paths, self.runs.names, strict=True) if path]
        if not found:
            self.message = f"rank {rank}: {summary.why or 'no log'}"
            return None
        (path_a, name_a), (path_b, name_b) = (*found, ("", ""))[:2]
        noise = self.noise(rank) if path_b else None
        return replace(
            request,
            path_a=path_a,
            path_b=path_b,
            name_a=name_a,
            name_b=name_b,
            noise_path=noise,
            row=None,
            line_b=None,
        )

    def beside(self, by: int) -> int | None:
        """Return a later rank that was compared, or an earlier one; None, and a message, where there is none."""
        ranks = in_mesh_order(self.runs)
        at = ranks.index(self.rank)
        beside = ranks[at + 1 :] if by > 0 else ranks[:at][::-1]
        compared = [rank for rank in beside if self.runs.summaries[rank].read]
        if not compared:
            self.message = f"no {'later' if by > 0 else 'earlier'} rank was compared"
            return None
        return compared[min(abs(by), len(compared)) - 1]
