"""Table of operations: both runs side by side, a line per row.

Only lines on the screen are formatted, so a million rows cost as much as a hundred. The widget keeps its own window
over the view instead of a virtual canvas: no scroll bar, no animation, and it knows exactly which lines differ.
"""

from __future__ import annotations

from numtui.query.view import View
from numtui.session.listing import Listing
from numtui.session.session import Session
from numtui.text.lines import Line, fit_line
from numtui.tui.widgets.lines import Lines
from numtui.views.table import LEFT, RIGHT, Columns, RowWriter, map_pieces, usual_key

__all__ = ["Table"]


class Table(Lines):
    """Shows the rows of a session's view around its cursor, under a heading."""

    top = 0
    """First line of the view on the screen."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._writer: RowWriter | None = None
        self._laid_out = (-1, False)
        """Width and merged names for which `_writer` was made."""
        self._back = 0
        """Cells by which cut names are scrolled towards their start."""

    @property
    def rows(self) -> int:
        """Number of lines of the view that fit."""
        return max(self.size.height - 1, 1)

    def scroll_pages(self, listing: Listing, pages: float) -> None:
        """Move window and cursor by some screens, keeping two lines of overlap."""
        by = round(pages * self.rows)
        if abs(pages) >= 1:
            by -= 2 * (1 if by > 0 else -1)
        last = max(len(listing.view) - self.rows, 0)
        self.top = min(max(self.top + by, 0), last)
        listing.move(by)

    def scroll_names(self, listing: Listing, steps: int) -> str:
        """Scroll the cut names on the screen towards their start (back with negative steps); return a message."""
        writer = self._writer
        if writer is None:
            return ""
        shown = slice(self.top, self.top + self.rows)
        view = listing.view
        most = max((writer.hidden(int(row)) for row in view.row[shown][view.fold[shown] == 0]), default=0)
        if most <= 0:
            return "no name on the screen is cut"
        if steps < 0 and not self._back:
            return "the names show their ends"
        if steps > 0 and self._back >= most:
            return "the names show their starts"
        self._back = min(max(min(self._back, most) + steps * max(writer.columns.name // 2, 1), 0), most)
        return ""

    def scroll_lines(self, listing: Listing, by: int) -> None:
        """Move the window by lines; the cursor stays on its line while that is in the window."""
        self.top = min(max(self.top + by, 0), max(len(listing.view) - self.rows, 0))
        listing.move(min(max(listing.line, self.top), self.top + self.rows - 1) - listing.line)

    def align(self, listing: Listing, where: float) -> None:
        """Scroll the cursor's line to a height of the window: 0 top, 0.5 middle, 1 bottom."""
        self.top = listing.line - round(where * (self.rows - 1))

    def show(self, session: Session) -> None:
        """Show the session's view: the window follows the cursor, and moves only when it must."""
        view, line = session.listing.view, session.listing.line
        rows = self.rows
        if not self.top <= line < self.top + rows:
            near = min(abs(line - self.top), abs(line - self.top - rows + 1)) <= 3
            # A step over the edge scrolls by as much; a jump shows the context of its target.
            if near:
                self.top = line if line < self.top else line - rows + 1
            else:
                self.top = line - rows // 3
        self.top = min(max(self.top, 0), max(len(view) - rows, 0))
        lines = self._lines(session)
        items = [-1, *range(self.top, min(self.top + rows, len(view)))]
        self.paint(
            lines, reverse=line - self.top + 1 if len(view) else -1, bar=(LEFT, self.size.width - RIGHT), items=items
        )

    def _lines(self, session: Session) -> list[Line]:
        view, c = session.listing.view, session.comparison
        if not self.size.width:
            return []
        writer = self._writer_for(session)
        lines: list[Line] = [writer.heading(session.names, session.listing.order)]
        if not len(view):
            lines.append([("   no row matches: esc drops the filters" if len(c) else "   the logs are empty", "dim")])
            return lines
        marked = session.listing.row_of(session.mark) if session.mark is not None else -1
        tags = {row: '"' for row, _ in session.listing.annotations.noted(c)} | {
            row: letters[-1] for row, letters in session.listing.annotations.letters(c).items()
        }
        search, explained = session.listing.search, session.listing.explained
        for y in range(min(self.rows, len(view) - self.top)):
            line = self.top + y
            row = int(view.row[line])
            if view.fold[line]:
                lines.append(writer.fold(view, line))
            else:
                hit = "/" if search is not None and search.text and search.finds(c, row) else " "
                grey = explained is not None and bool(explained[row])
                kept = " " if session.kept is None else session.kept.sign(c, row)
                lines.append(writer.row(row, row == marked, tags.get(row, hit), explained=grey, kept=kept))
        if len(view) > self.rows:  # else all of it is seen
            room = self.size.width - RIGHT
            edge = map_pieces(view, self.rows, *self._window(view))
            lines[1:] = [[*fit_line(line, room), *piece] for line, piece in zip(lines[1:], edge, strict=True)]
        return lines

    def _window(self, view: View) -> tuple[int, int]:
        """Return the first and last line of the map for the rows on the screen."""
        rows, n = self.rows, len(view)
        first = self.top * rows // n
        return first, max(first, ((self.top + rows) * rows - 1) // n)

    def _writer_for(self, session: Session) -> RowWriter:
        c = session.comparison
        wanted = self.size.width, session.listing.merged
        if self._writer is None or self._writer.comparison is not c or self._laid_out != wanted:
            self._laid_out = wanted
            columns = Columns.of(wanted[0], len(c), usual_key(c.a, c.b), single=c.single, merged=wanted[1])
            self._writer = RowWriter(c, columns)
        self._writer.back = self._back
        return self._writer
