"""The row and the view of a comparison, found again in that of another rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from matchers.comparison import Comparison
from numtui.session.restore import sitting_of
from numtui.session.rule_edits import record_pair_of
from numtui.session.session import Session
from numtui.session.store import NOWHERE, SavedSession, anchor_of, row_of_anchor

__all__ = ["LeftRow"]

_LOOKED_AT = 200
"""Rows before it that are looked for where the row itself is missing."""


@dataclass(frozen=True, slots=True)
class LeftRow:
    """The row under the cursor, and the view: filter, order, folds, sizes.

    Attributes:
        comparison: of the rank that was left.
        row: of it; -1 for none.
        view: without anything that belongs to that rank alone.
    """

    comparison: Comparison
    row: int
    view: SavedSession

    @classmethod
    def of(cls, session: Session) -> LeftRow:
        """Take it from a session that is left."""
        listing = session.listing
        view = replace(sitting_of(listing, (), session.typed.lines), cursor=NOWHERE, marks={}, notes={})
        return cls(listing.comparison, listing.cursor, view)

    def resume(self, session: Session) -> str:
        """Continue with this row and view on another rank; return what is to be said of it.

        Marks and notes are those of that rank.
        """
        known = SavedSession() if session.store is None else session.store.known
        view, c = self.view, session.comparison
        session.resume(
            replace(
                view,
                filters={**known.filters, **view.filters},
                marks=known.marks,
                notes=known.notes,
                rejected=known.rejected,
            )
        )
        if self.row < 0:
            return ""
        for back, row in enumerate(self._rows_before()):
            found = row_of_anchor(c, anchor_of(self.comparison, record_pair_of(self.comparison, row)))
            if found >= 0:
                session.listing.go(found)
                return "same operation" if not back else "nearest operation: this rank lacks the one you came from"
        session.listing.go(self.row * len(c) // len(self.comparison))
        return "same share of the step: this rank has other operations"

    def _rows_before(self) -> Iterator[int]:
        yield from range(self.row, max(self.row - _LOOKED_AT, -1), -1)
