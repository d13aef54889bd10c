"""Listed rows of a comparison, with cursor, filters, folds, search and jumps.

The session adds the rules; the widgets draw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from matchers.arrays import Bool, Int32, marked
from matchers.comparison import Comparison
from matchers.explain.first_difference import first_difference_note, first_difference_reasons
from matchers.explain.sentences import Explanation, InputFact
from matchers.ops.dataflow import consumers
from matchers.single_run import explained
from numtui.query.fields import keys_containing
from numtui.query.grouping import By
from numtui.query.query import Query, parse_query
from numtui.query.view import Filter, Order, StatusGroup, build_view, sorted_rows, step, step_error, with_error
from numtui.session.annotations import Annotations, row_of
from numtui.session.jumps import Jumps
from numtui.session.prepare import prepare
from numtui.session.rule_edits import RecordPair, record_pair_of
from numtui.session.what_if import WhatIf
from numtui.text.counts import plural

__all__ = ["Details", "Listing", "Search"]


class Details(IntEnum):
    """Size of the inspector."""

    NONE = 0
    USUAL = 1
    MOST = 2

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Search:
    """Filtered rows, in list order, with `text` in a key of either side."""

    text: str
    rows: Int32

    def place(self, row: int) -> int:
        """Return the number (1-based) of the hit on a row, 0 when it is none."""
        at = np.flatnonzero(self.rows == row)
        return int(at[0]) + 1 if len(at) else 0

    def finds(self, c: Comparison, row: int) -> bool:
        """Return True when a row is a hit, in constant time."""
        needle = self.text.lower().encode("utf-8", errors="surrogateescape")
        records = ((c.a, int(c.row_a[row])), (c.b, int(c.row_b[row])))
        return any(record >= 0 and needle in log.keys.raw(record).lower() for log, record in records)


class Listing:
    """Cursor in a comparison. Rows are rows of `comparison`; `cursor` is -1 only when nothing is listed."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self.cursor = 0 if len(comparison) else -1
        self.filter = Filter()
        self.folded = False
        self.fold_chosen: bool | None = None
        """Folding as the user last chose it; None where nobody has: folded where something is red."""
        self.order = Order.DISPATCH
        self.grouping = By.MODULE
        self.details = Details.USUAL
        self.merged = False
        """Names of both sides in one column, also where there is room for two."""
        self.saved: dict[str, str] = {}
        """Saved filter queries by name."""
        self.search: Search | None = None
        self.what_if: WhatIf | None = None
        """Rows that are assumed equal, until the verdicts change; None for none."""
        self.annotations = Annotations()
        self._jumps = Jumps()
        self._opened: Bool | None = None
        """bool[r]: rows listed despite filter and folds: unfolded, or a jump target."""
        self._queried: list[tuple[Comparison, Query, Bool]] = []
        self._sorted: tuple[Comparison, Order, Int32] | None = None
        self.view = build_view(comparison, self.filter)

    @property
    def spot(self) -> RecordPair:
        """Records under the cursor."""
        return record_pair_of(self.comparison, self.cursor)

    def row_of(self, spot: RecordPair) -> int:
        """Return the row of these records; -1 without one."""
        return row_of(self.comparison, spot)

    def explain(self) -> Explanation | None:
        """Return the explanation of the current row; None without a row."""
        if self.cursor < 0:
            return None
        told, note = explained(self.comparison, self.cursor), self.annotations.note(self.comparison, self.cursor)
        return replace(told, notes=(f"note: {note}", *told.notes)) if note else told

    def show_comparison(self, comparison: Comparison, *, reread: bool = False) -> None:
        """List another comparison of the same logs (or, after their heads, the whole); the cursor keeps its record.

        `reread`: the logs were reloaded, so the same number may be another record.
        """
        spot, on_fold = self.spot, self._on_fold
        if reread:
            self._opened = None
        self._carry_opened(comparison)
        self.comparison, self.what_if = comparison, None
        # Caches of another comparison would keep it in memory.
        self._queried = [entry for entry in self._queried if entry[0] is comparison]
        row = self.row_of(spot)
        self.cursor = row if row >= 0 else min(max(self.cursor, 0), len(comparison) - 1)
        self._rebuild(on_fold)
        if self.search is not None:
            self.search = self.hits(self.search.text)

    # -- what is listed

    @property
    def line(self) -> int:
        """View line under the cursor."""
        return self.view.line_of(self.cursor)

    @property
    def _on_fold(self) -> bool:
        return bool(len(self.view)) and bool(self.view.fold[self.line])

    def toggle(self, group: StatusGroup) -> None:
        """Show or hide a group of statuses."""
        self._set_filter(self.filter.toggled(group))

    def set_query(self, text: str) -> None:
        """List only the rows of a query.

        Raises:
            QueryError: a word is invalid.
        """
        self.list_only(parse_query(text, self.saved))

    def list_only(self, query: Query) -> None:
        """List only the rows of a parsed query."""
        self._set_filter(Filter(self.filter.groups, query))

    def wanted(self, query: Query, comparison: Comparison | None = None) -> Bool:
        """Return bool[r], the rows of a query, cached for `set_query`. Callable from any thread."""
        c, known = self.comparison if comparison is None else comparison, self._queried
        for of, asked, mask in known:
            if of is c and asked is query:
                return mask
        mask = query.mask(c)
        # The listed query, and one still typed.
        self._queried = [(c, query, mask), *known[:1]]
        return mask

    def prepare(self, comparison: Comparison) -> None:
        """Warm the caches of another comparison for the screen. Callable from any thread."""
        prepare(comparison)
        if self.filter.query:
            self.wanted(self.filter.query, comparison)
        self.ranked(self.order, comparison)

    def sort(self, order: Order) -> None:
        """Sort the rows; the cursor keeps its row."""
        self.order = order
        self._relist()

    def clear_filter(self) -> bool:
        """Show all rows; False when nothing was hidden."""
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

    def assume(self, found: WhatIf | None) -> None:
        """Show what is left if some rows were equal, and go to its first cause; None: nothing is assumed."""
        self.what_if = found if found is not None and found.assumed else None
        self._rebuild()
        if self.what_if is not None and self.what_if.next >= 0:
            self.go(self.what_if.next)

    @property
    def explained(self) -> Bool | None:
        """bool[r], what the rows that are assumed equal explain; None where none is."""
        return None if self.what_if is None else self.what_if.explained

    def toggle_fold(self) -> None:
        """Fold the stretches of equal rows and of regions, or unfold them; the choice is remembered."""
        self.fold_chosen = not self.folded
        self._fold(self.fold_chosen)

    def open_at_difference(self) -> None:
        """Put the cursor on the first cause, or else on the first red row, and fold the list around what differs.

        A cursor that has left the first row stays, and so does a fold that was chosen.
        """
        c = self.comparison
        differ = np.flatnonzero(c.cause if c.cause.any() else c.red)
        if not len(differ):
            return
        moved = self.cursor > 0 or bool(self.filter)
        if not moved:
            self.cursor = int(differ[0])
        if self.fold_chosen is None and not c.single:
            self._fold(True)
        if not moved:
            self._show(int(differ[0]))

    def _fold(self, folded: bool) -> None:
        self.folded, self._opened = folded, None
        self._rebuild()

    def unfold(self) -> bool:
        """Unfold the line under the cursor; False when it is not folded."""
        if not self._on_fold:
            return False
        self._open(self.view.folded(self.line))
        self._rebuild()
        return True

    def _rebuild(self, on_fold: bool = False) -> None:
        cursor = -1 if on_fold else self.cursor
        view = build_view(
            self.comparison,
            self.filter,
            folded=self.folded,
            cursor=cursor,
            opened=self._opened,
            order=self.order,
            queried=self.wanted(self.filter.query) if self.filter.query else None,
            ranked=self.ranked(self.order),
        )
        self.view = replace(view, explained=self.explained)
        self.cursor = self.view.row_at(self.line)

    def ranked(self, order: Order, comparison: Comparison | None = None) -> Int32 | None:
        """Return all rows in this order, cached for `sort`; None for dispatch order. Callable from any thread."""
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
        """Return the unfolded rows as rows of another comparison."""
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
        """Move by lines, up to either end."""
        self.cursor = self.view.row_at(self.line + by)

    def go_line(self, line: int) -> None:
        """Go to a line of the view."""
        self._leave("line")
        self.cursor = self.view.row_at(line)

    def go(self, row: int, kind: str = "") -> None:
        """Jump to a row; shows it if it is folded or filtered out."""
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
        """Record the origin of a jump."""
        self._jumps.leave(self.spot if self.cursor >= 0 else None, kind)

    def back(self) -> bool:
        """Go to the origin of the last jump."""
        return self._jump(self._jumps.back, self._jumps.forward)

    def forward(self) -> bool:
        return self._jump(self._jumps.forward, self._jumps.back)

    @property
    def jumps(self) -> list[int]:
        """Return the origin rows of jumps, newest first, without duplicates."""
        rows = (self.row_of(spot) for spot in reversed(self._jumps.back))
        return list(dict.fromkeys(row for row in rows if row >= 0))

    def mark_row(self, letter: str) -> str:
        """Mark the row under the cursor with a letter; return a message."""
        if self.cursor < 0:
            return "no row to mark"
        self.annotations.marks[letter] = self.spot
        return f"marked {letter}: '{letter} comes back here"

    def go_mark(self, letter: str) -> str:
        """Go to the row marked with a letter; return a message, empty on success."""
        if letter not in self.annotations.marks:
            known = " ".join(sorted(self.annotations.marks))
            return f"no mark {letter}; " + (f"marks: {known}" if known else "M and a letter mark a row")
        row = self.row_of(self.annotations.marks[letter])
        self.go(row)
        return "" if row >= 0 else f"the operation marked {letter} is not in these logs"

    def annotate(self, text: str) -> str:
        """Set or delete the note of the current row; return a message."""
        if self.cursor < 0:
            return "no row to annotate"
        had = self.annotations.note(self.comparison, self.cursor)
        self.annotations.set_note(self.comparison, self.cursor, self.spot, text)
        return "noted" if text else "note deleted" if had else ""

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
        """Go to the next (or previous) row that matters, wrapping; return a message, empty when plain.

        That is a red row, a first cause that is not red (only one run has it), or the first difference, whatever its
        size.
        """
        c = self.comparison
        stops = c.red | c.cause
        if (explained := self.explained) is not None:
            return self._step(stops & ~explained, by, "red", "red row that is left")
        besides = " or first cause" if np.any(c.cause & ~c.red) else ""
        return self._stop(stops, by, "red", f"red row{besides}" if c.red.any() or not besides else "first cause")

    def next_cause(self, by: int = 1) -> str:
        """Go to the next (or previous) first cause, or to the first difference."""
        if (assumed := self.what_if) is not None:
            left = marked([cause.rows[0] for cause in assumed.left], len(self.comparison))
            return self._step(left, by, "cause", "cause that is left")
        return self._stop(self.comparison.cause, by, "cause", "first cause")

    def first_difference(self) -> str:
        """Go to the first difference; return it in words."""
        found = self.comparison.first_difference
        if found is None:
            return "there is no first difference: no compared operation differs"
        self.go(found.row, "difference")
        return "; ".join((first_difference_note(self.comparison), *first_difference_reasons(self.comparison)))

    def _stop(self, stops: Bool, by: int, kind: str, noun: str) -> str:
        """Step among some rows of the comparison, and the first difference."""
        found = self.comparison.first_difference
        if found is None or stops[found.row]:
            return self._step(stops, by, kind, noun)
        none = not stops.any()
        stops = stops.copy()
        stops[found.row] = True
        told = self._step(stops, by, kind, "first difference" if none else noun)
        if self.cursor != found.row:
            return told
        note = first_difference_note(self.comparison)
        return f"{note}; there is no {noun}" if none else f"{told}: {note}" if told else note

    def _step(self, stops: Bool, by: int, kind: str, noun: str) -> str:
        rows = self.view.listed(np.flatnonzero(stops).astype(np.int32))
        row = step(self.view, rows, self.cursor, by)
        if row is not None:
            self.go(row, kind)
            return ""
        hidden = int(np.count_nonzero(stops)) - len(rows)
        if not len(rows):
            return f"every {noun} ({hidden:,}) is hidden by the filter" if hidden else f"there is no {noun}"
        besides = f" ({hidden:,} hidden by the filter)" if hidden else ""
        row = int(rows[0] if by > 0 else rows[-1])
        if row == self.cursor:
            return f"this is the only {noun}{besides}"
        self.go(row, kind)
        way, start = ("below", "from the top") if by > 0 else ("above", "from the bottom")
        return f"no {noun} {way}{besides}: {start}"

    def next_error(self, by: int = 1) -> str:
        """Go to the next larger (or smaller) error."""
        rows = with_error(self.view)
        row = step_error(self.comparison.error, rows, self.cursor, by)
        if row is None:
            if not len(rows):
                return "no row has an error" if not self.comparison.single else "the log has no values"
            return f"this is the {'largest' if by > 0 else 'smallest'} {'value' if self.comparison.single else 'error'}"
        self.go(row, "error")
        return ""

    def producer(self, which: int | None = None) -> str:
        """Go to the producer of an input (1-based); without a number, of the input that explains the row.

        That is a red producer or first cause on either side, else one that the other side does not have, else that of
        a differing input, else the first known, unless an input differs that no captured operation made. The headline
        of the row names the same one.
        """
        told = self.explain()
        if told is None or not told.inputs:
            return "no inputs logged for this operation"
        c = self.comparison
        known: list[tuple[InputFact, int, int]] = []
        for fact in told.inputs:
            for side, record, at in ((0, fact.producer_a, c.at_a), (1, fact.producer_b, c.at_b)):
                if record >= 0 and at[record] != self.cursor:
                    known.append((fact, side, int(at[record])))
        if which is not None:
            known = [k for k in known if k[0].position == which - 1]
            if not known:
                return f"input {which - 1} has no captured producer"
        if not known:
            return "no input has a captured producer: parameters, data or an uncaptured op"
        guilty = [k for k in known if c.red[k[2]] or c.cause[k[2]]]
        differing = [k for k in known if k[0].agrees is False]
        alone = [k for k in known if which is None and min(c.row_a[k[2]], c.row_b[k[2]]) < 0]
        made = {k[0].position for k in known}
        unmade = [str(fact.position) for fact in told.inputs if fact.agrees is False and fact.position not in made]
        if which is None and unmade and not (guilty or alone or differing):
            one = len(unmade) == 1
            differ = f"input{'' if one else 's'} {', '.join(unmade[:4])} differ{'s' if one else ''}"
            other = known[0][0].position
            return f"{differ}, and no captured operation made {'it' if one else 'them'}; {other + 1}p: input {other}"
        chosen, side, row = (guilty if c.red[self.cursor] and guilty else alone or differing or known)[0]
        # Name the side where the producers differ.
        other = any(k[0] is chosen and k[2] != row for k in known)
        self.go(row)
        return f"the producer of input {chosen.position}" + (f" in {'ab'[side]}" if other else "")

    def consumer(self, which: int | None = None) -> str:
        """Go to a consumer of the output: the given one (1-based), else the first."""
        side = 0 if self.spot[0] >= 0 else 1
        c = self.comparison
        flow = None if c.flow is None else (c.flow.a, c.flow.b)[side]
        found = consumers((c.a, c.b)[side], self.spot[side], flow) if self.cursor >= 0 else []
        if not found:
            return "the output has no captured consumer"
        number = 1 if which is None else which
        if number > len(found):
            return f"the output has {plural(len(found), 'consumer')}"
        record = found[number - 1]
        self.go(self.row_of((record, -1) if side == 0 else (-1, record)))
        return f"consumer {number} of {len(found)}" + (" (2c goes to the second)" if len(found) > number == 1 else "")

    # -- searching

    def go_to_hits(self, search: Search, origin: int) -> None:
        """Search incrementally: go to the first hit from row `origin` on, wrapping."""
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
        """Accept the search; record its origin as a jump."""
        here, self.cursor = self.cursor, origin
        self._leave("")
        self.cursor = here

    def end_search(self, origin: int, before: Search | None) -> None:
        """Cancel the search: return to its origin, with the previous search."""
        self.search = before
        self._show(origin)

    def next_hit(self, by: int = 1) -> str:
        """Go to the next (or previous) hit, wrapping."""
        if self.search is None:
            return "no search yet: / searches"
        rows = self.search.rows
        if not len(rows):
            return f"no key contains {self.search.text!r}"
        row = step(self.view, rows, self.cursor, by)
        self.go(int(rows[0] if by > 0 else rows[-1]) if row is None else row, "hit")
        place = f"{self.search.place(self.cursor):,}/{len(rows):,}"
        return "" if row is not None else f"around the {'end' if by > 0 else 'start'}: {place}"

    def hits(self, text: str) -> Search:
        """Return the hits of a text. Pure; callable from any thread."""
        found = (
            keys_containing(self.comparison, text) & self.view.passing if text else np.zeros(len(self.comparison), bool)
        )
        return Search(text, self.view.listed(np.flatnonzero(found).astype(np.int32)))
