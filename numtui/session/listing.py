"""What is listed of a comparison, and where in it one is: cursor, filters, folds, search, jumps.

No screen and no rules here: the session adds the rules, the widgets draw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from matchers.arrays import Bool, Int32
from matchers.comparison import Comparison
from matchers.explain.sentences import Explanation, InputFact
from matchers.ops.dataflow import consumers
from matchers.single_run import explained
from numtui.query.fields import keys_containing
from numtui.query.grouping import By
from numtui.query.query import Query, parse_query
from numtui.query.view import Filter, Order, StatusGroup, build_view, sorted_rows, step, step_error, with_error
from numtui.session.annotations import Annotations, row_of
from numtui.session.jumps import Jumps
from numtui.session.rule_edits import RecordPair, record_pair_of

__all__ = ["Details", "Listing", "Search"]


class Details(IntEnum):
    """How much of the screen the inspector takes."""

    NONE = 0
    USUAL = 1
    MOST = 2

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Search:
    """Rows, as they are listed, whose key on either side contains `text`, among those that the filter lets through."""

    text: str
    rows: Int32

    def place(self, row: int) -> int:
        """The number (1-based) of the hit on a row, 0 when it is none."""
        at = np.flatnonzero(self.rows == row)
        return int(at[0]) + 1 if len(at) else 0

    def finds(self, c: Comparison, row: int) -> bool:
        """Whether a row is a hit, without looking through all of them."""
        needle = self.text.lower().encode("utf-8", errors="surrogateescape")
        records = ((c.a, int(c.row_a[row])), (c.b, int(c.row_b[row])))
        return any(record >= 0 and needle in log.keys.raw(record).lower() for log, record in records)


class Listing:
    """A cursor in a comparison. Rows are rows of `comparison`; `cursor` is -1 only when nothing is listed."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self.cursor = 0 if len(comparison) else -1
        self.filter = Filter()
        self.folded = False
        self.order = Order.DISPATCH
        self.grouping = By.MODULE
        self.details = Details.USUAL
        self.saved: dict[str, str] = {}
        """Filter queries by name."""
        self.search: Search | None = None
        self.annotations = Annotations()
        self._jumps = Jumps()
        self._opened: Bool | None = None
        """bool[r]: rows that are listed whatever the filter and the folds say: opened by hand, or gone to."""
        self._queried: list[tuple[Comparison, Query, Bool]] = []
        self._sorted: tuple[Comparison, Order, Int32] | None = None
        self.view = build_view(comparison, self.filter)

    @property
    def spot(self) -> RecordPair:
        """The records under the cursor."""
        return record_pair_of(self.comparison, self.cursor)

    def row_of(self, spot: RecordPair) -> int:
        """The row that shows these records now; -1 when none does."""
        return row_of(self.comparison, spot)

    def explain(self) -> Explanation | None:
        """What is known about the row under the cursor; None when there is no row."""
        if self.cursor < 0:
            return None
        told, note = explained(self.comparison, self.cursor), self.annotations.note(self.comparison, self.cursor)
        return replace(told, notes=(f"note: {note}", *told.notes)) if note else told

    def show_comparison(self, comparison: Comparison, *, reread: bool = False) -> None:
        """List another comparison of the same logs (or of all of them, after their heads); the cursor keeps its record.

        `reread`: the logs have been read again, so that the same number may be another record.
        """
        spot, on_fold = self.spot, self._on_fold
        if reread:
            self._opened = None
        self._carry_opened(comparison)
        self.comparison = comparison
        # What was computed for another one would only keep that in memory.
        self._queried = [entry for entry in self._queried if entry[0] is comparison]
        row = self.row_of(spot)
        self.cursor = row if row >= 0 else min(max(self.cursor, 0), len(comparison) - 1)
        self._rebuild(on_fold)
        if self.search is not None:
            self.search = self.hits(self.search.text)

    # -- what is listed

    @property
    def line(self) -> int:
        """The line of the view under the cursor."""
        return self.view.line_of(self.cursor)

    @property
    def _on_fold(self) -> bool:
        return bool(len(self.view)) and bool(self.view.fold[self.line])

    def toggle(self, group: StatusGroup) -> None:
        """Show or hide a group of statuses."""
        self._set_filter(self.filter.toggled(group))

    def set_query(self, text: str) -> None:
        """List only what the query wants.

        Raises:
            QueryError: a word that means nothing.
        """
        self.list_only(parse_query(text, self.saved))

    def list_only(self, query: Query) -> None:
        """List only what a query wants that has been parsed."""
        self._set_filter(Filter(self.filter.groups, query))

    def wanted(self, query: Query, comparison: Comparison | None = None) -> Bool:
        """bool[r]: the rows that a query wants; of the same query and comparison, only computed once.

        May be asked for in any thread, so that what takes long is there when `set_query` needs it.
        """
        c, known = self.comparison if comparison is None else comparison, self._queried
        for of, asked, mask in known:
            if of is c and asked is query:
                return mask
        mask = query.mask(c)
        # That of the list, and that of a query which is being typed.
        self._queried = [(c, query, mask), *known[:1]]
        return mask

    def prepare(self, comparison: Comparison) -> None:
        """Have another comparison find out what the screen will ask of it. Changes nothing; for any thread."""
        _ = comparison.comparability
        if self.filter.query:
            self.wanted(self.filter.query, comparison)
        self.ranked(self.order, comparison)

    def sort(self, order: Order) -> None:
        """List the rows in another order; the cursor keeps its row."""
        self.order = order
        self._relist()

    def clear_filter(self) -> bool:
        """List everything; False when nothing was hidden."""
        if not self.filter:
            return False
        self._set_filter(Filter())
        return True

    def _set_filter(self, wanted: Filter) -> None:
        self.filter = wanted
        self._relist()

    def _relist(self) -> None:
        self._opened = None
        self._rebuild()
        if self.search is not None:
            self.search = self.hits(self.search.text)

    def toggle_fold(self) -> None:
        """Fold the stretches of equal rows, or unfold them."""
        self.folded = not self.folded
        self._opened = None
        self._rebuild()

    def unfold(self) -> bool:
        """Open the folded line under the cursor; False when it is none."""
        if not self._on_fold:
            return False
        line = self.line
        end = self.view.row_at(line + 1) if line + 1 < len(self.view) else len(self.comparison)
        rows = np.arange(self.cursor, end, dtype=np.int32)
        self._open(rows[self.view.passing[rows]])
        self._rebuild()
        return True

    def _rebuild(self, on_fold: bool = False) -> None:
        cursor = -1 if on_fold else self.cursor
        self.view = build_view(
            self.comparison,
            self.filter,
            folded=self.folded,
            cursor=cursor,
            opened=self._opened,
            order=self.order,
            queried=self.wanted(self.filter.query) if self.filter.query else None,
            ranked=self.ranked(self.order),
        )
        self.cursor = self.view.row_at(self.line)

    def ranked(self, order: Order, comparison: Comparison | None = None) -> Int32 | None:
        """All rows as a list of this order has them, only computed once; None for order of dispatch.

        May be asked for in any thread, so that what takes long is there when `sort` needs it.
        """
        c, known = self.comparison if comparison is None else comparison, self._sorted
        if order is Order.DISPATCH:
            return None
        if known is None or known[0] is not c or known[1] is not order:
            known = self._sorted = (c, order, sorted_rows(c, order))
        return known[2]

    def _open(self, rows: Int32 | int) -> None:
        if self._opened is None:
            self._opened = np.zeros(len(self.comparison), bool)
        self._opened[rows] = True

    def _carry_opened(self, comparison: Comparison) -> None:
        """The rows that were opened, as rows of another comparison."""
        old, opened = self.comparison, self._opened
        self._opened = None
        if opened is None:
            return
        rows = np.flatnonzero(opened)
        a, b = old.row_a[rows], old.row_b[rows]
        self._opened = np.zeros(len(comparison), bool)
        self._opened[comparison.at_a[a[a >= 0]]] = True
        self._opened[comparison.at_b[b[(a < 0) & (b >= 0)]]] = True

    # -- moving

    def move(self, by: int) -> None:
        """Move by lines, as far as there are any."""
        self.cursor = self.view.row_at(self.line + by)

    def go_line(self, line: int) -> None:
        """To a line of the view."""
        self._leave("line")
        self.cursor = self.view.row_at(line)

    def go(self, row: int, kind: str = "") -> None:
        """To a row; a row that is folded away or filtered out is brought to light. Remembered as a jump."""
        if not 0 <= row < len(self.comparison):
            return
        self._leave(kind)
        self._show(row)

    def _show(self, row: int) -> None:
        line = self.view.line_of(row)
        plain = len(self.view) and self.view.row[line] == row and not self.view.fold[line]
        if not plain:
            if row >= 0:
                self._open(row)
            self.cursor = row
            self._rebuild()
        self.cursor = row

    def _leave(self, kind: str) -> None:
        """Remember where a jump starts."""
        self._jumps.leave(self.spot if self.cursor >= 0 else None, kind)

    def back(self) -> bool:
        """To where the last jump started."""
        return self._jump(self._jumps.back, self._jumps.forward)

    def forward(self) -> bool:
        return self._jump(self._jumps.forward, self._jumps.back)

    @property
    def jumps(self) -> list[int]:
        """The rows that jumps started from, the last one first, each once."""
        rows = (self.row_of(spot) for spot in reversed(self._jumps.back))
        return list(dict.fromkeys(row for row in rows if row >= 0))

    def mark_row(self, letter: str) -> str:
        """Mark the row under the cursor with a letter; in words."""
        if self.cursor < 0:
            return "there is no row to mark"
        self.annotations.marks[letter] = self.spot
        return f"marked {letter}: '{letter} comes back here"

    def go_mark(self, letter: str) -> str:
        """To the row that is marked with a letter; what happened, in words, where that is not plain."""
        if letter not in self.annotations.marks:
            known = " ".join(sorted(self.annotations.marks))
            return f"nothing is marked {letter}; " + (f"there are {known}" if known else "M and a letter mark a row")
        row = self.row_of(self.annotations.marks[letter])
        self.go(row)
        return "" if row >= 0 else f"the operation that was marked {letter} is not in these logs"

    def annotate(self, text: str) -> str:
        """Put a note on the row under the cursor, or take it away; in words."""
        if self.cursor < 0:
            return "there is no row to put a note on"
        had = self.annotations.note(self.comparison, self.cursor)
        self.annotations.set_note(self.comparison, self.cursor, self.spot, text)
        return "noted" if text else "the note is gone" if had else ""

    def _jump(self, source: list[RecordPair], target: list[RecordPair]) -> bool:
        self._jumps.kind = ""
        while source:
            row = self.row_of(source.pop())
            if row >= 0 and row != self.cursor:
                target.append(self.spot)
                self._show(row)
                return True
        return False

    def next_red(self, by: int = 1) -> str:
        """To the next (or previous) red row, around the end; what happened, in words, where that is not plain."""
        return self._step(self.view.reds, by, "red", "red row")

    def next_cause(self, by: int = 1) -> str:
        """To the next (or previous) first cause."""
        return self._step(self.view.causes, by, "cause", "first cause")

    def _step(self, rows: Int32, by: int, kind: str, noun: str) -> str:
        row = step(self.view, rows, self.cursor, by)
        if row is not None:
            self.go(row, kind)
            return ""
        c = self.comparison
        hidden = int(np.count_nonzero(c.red if kind == "red" else c.cause)) - len(rows)
        if not len(rows):
            return f"every {noun} ({hidden}) is hidden by the filter" if hidden else f"there is no {noun}"
        besides = f" ({hidden} hidden by the filter)" if hidden else ""
        row = int(rows[0] if by > 0 else rows[-1])
        if row == self.cursor:
            return f"this is the only {noun}{besides}"
        self.go(row, kind)
        way, start = ("below", "from the top") if by > 0 else ("above", "from the bottom")
        return f"no {noun} {way}{besides}: {start}"

    def next_error(self, by: int = 1) -> str:
        """To the next larger (or smaller) error."""
        rows = with_error(self.view)
        row = step_error(self.comparison.error, rows, self.cursor, by)
        if row is None:
            if not len(rows):
                return "no row has an error" if not self.comparison.single else "the log says no values"
            return f"this is the {'largest' if by > 0 else 'smallest'} {'value' if self.comparison.single else 'error'}"
        self.go(row, "error")
        return ""

    def producer(self, which: int | None = None) -> str:
        """To what produced an input: the first (1), the second, …; without a number, to the one that explains the row.

        That is a producer that is red or a first cause, on either side; else that of an input that differs; else the
        first known. The headline of the row names the same one.
        """
        told = self.explain()
        if told is None or not told.inputs:
            return "nothing is recorded about the inputs of this operation"
        c = self.comparison
        known: list[tuple[InputFact, int, int]] = []
        for fact in told.inputs:
            for side, record, at in ((0, fact.producer_a, c.at_a), (1, fact.producer_b, c.at_b)):
                if record >= 0 and at[record] != self.cursor:
                    known.append((fact, side, int(at[record])))
        if which is not None:
            known = [k for k in known if k[0].position == which - 1]
            if not known:
                return f"no captured operation is known to have produced input {which - 1}"
        if not known:
            return (
                "no captured operation is known to have produced an input: parameters, data or something not captured"
            )
        guilty = [k for k in known if c.red[k[2]] or c.cause[k[2]]]
        differing = [k for k in known if k[0].agrees is False]
        chosen, side, row = (guilty if c.red[self.cursor] and guilty else differing or known)[0]
        # Where the two sides have other producers, it matters whose this is.
        other = any(k[0] is chosen and k[2] != row for k in known)
        self.go(row)
        return f"the producer of input {chosen.position}" + (f" in {'ab'[side]}" if other else "")

    def consumer(self, which: int | None = None) -> str:
        """To the operation that reads the output: the given one (1-based), else the first."""
        side = 0 if self.spot[0] >= 0 else 1
        c = self.comparison
        flow = None if c.flow is None else (c.flow.a, c.flow.b)[side]
        found = consumers((c.a, c.b)[side], self.spot[side], flow) if self.cursor >= 0 else []
        if not found:
            return "no captured operation is known to consume the output"
        number = 1 if which is None else which
        if number > len(found):
            return f"the output has {len(found)} consumer{'s' * (len(found) > 1)}"
        record = found[number - 1]
        self.go(self.row_of((record, -1) if side == 0 else (-1, record)))
        return f"consumer {number} of {len(found)}" + (" (2c goes to the second)" if len(found) > number == 1 else "")

    # -- searching

    def go_to_hits(self, search: Search, origin: int) -> None:
        """Search as the person types: the cursor goes to the first hit from row `origin` on, around the end."""
        self.search = search
        rows = search.rows
        if search.place(origin):
            self._show(origin)
        elif len(rows):
            row = step(self.view, rows, origin, 1)
            self._show(int(rows[0]) if row is None else row)
        else:
            self._show(origin)

    def accept_search(self, origin: int) -> None:
        """The search stays; where it started is a jump to come back to."""
        here, self.cursor = self.cursor, origin
        self._leave("")
        self.cursor = here

    def end_search(self, origin: int, before: Search | None) -> None:
        """As if it had not been searched: back to the row it started from, with the search of before."""
        self.search = before
        self._show(origin)

    def next_hit(self, by: int = 1) -> str:
        """To the next (or previous) hit, around the end."""
        if self.search is None:
            return "nothing has been searched for: / searches"
        rows = self.search.rows
        if not len(rows):
            return f"no key contains {self.search.text!r}"
        row = step(self.view, rows, self.cursor, by)
        self.go(int(rows[0] if by > 0 else rows[-1]) if row is None else row, "hit")
        place = f"{self.search.place(self.cursor)}/{len(rows)}"
        return "" if row is not None else f"around the {'end' if by > 0 else 'start'}: {place}"

    def hits(self, text: str) -> Search:
        """The rows to find. Changes nothing, so that any thread may ask."""
        found = (
            keys_containing(self.comparison, text) & self.view.passing if text else np.zeros(len(self.comparison), bool)
        )
        return Search(text, self.view.listed(np.flatnonzero(found).astype(np.int32)))
