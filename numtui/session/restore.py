"""From a session to what is kept of it, and back: the next sitting over the same logs goes on where this one ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from matchers.comparison import Comparison
from numtui.query.query import QueryError
from numtui.query.view import Group, Order
from numtui.session.annotations import Annotations, Lost
from numtui.session.input_history import joined
from numtui.session.listing import Details, Listing
from numtui.session.rule_edits import record_pair_of
from numtui.session.store import SavedSession, anchor_of, record_pair_of_anchor, row_of_anchor

__all__ = ["find_again", "resume", "sitting_of", "written_meanwhile"]


_GONE = (-1, -1)
"""Where a record is that neither log has."""


def sitting_of(
    listing: Listing,
    rejected: Iterable[str] = (),
    typed: Mapping[str, tuple[str, ...]] | None = None,
) -> SavedSession:
    """What is to be kept. Takes milliseconds for every mark and note on a log of a million records."""
    c, annotations = listing.comparison, listing.annotations
    # Copies, because this may be another thread than the one in which a person writes.
    marks = {name: anchor_of(c, spot) for name, spot in dict(annotations.marks).items()}
    notes = {anchor_of(c, spot): text for spot, text in dict(annotations.notes).items()}
    return SavedSession(
        cursor=anchor_of(c, record_pair_of(c, listing.cursor)),
        query=listing.filter.query.text,
        hidden=tuple(group.label for group in Group if group not in listing.filter.groups),
        order=listing.order.label,
        folded=listing.folded,
        details=listing.details.label,
        filters=dict(listing.saved),
        marks={**annotations.lost.marks, **marks},
        notes={**annotations.lost.notes, **notes},
        rejected=tuple(sorted(rejected)),
        typed=typed or {},
    )


def written_meanwhile(kept: SavedSession, now: SavedSession) -> SavedSession:
    """What was kept, with what has been written since then while the logs were read."""
    return replace(
        kept,
        filters={**kept.filters, **now.filters},
        marks={**kept.marks, **now.marks},
        notes={**kept.notes, **now.notes},
        typed=joined(kept.typed, now.typed),
    )


def resume(listing: Listing, kept: SavedSession) -> str:
    """Go on from a sitting; what is as it was, in words, empty when nothing is worth saying.

    Where the person has begun already (moved, filtered, written) while the logs were read, that stands.
    """
    c, annotations = listing.comparison, listing.annotations
    kept = written_meanwhile(kept, sitting_of(listing))
    listing.saved = dict(kept.filters)
    _annotate(c, annotations, kept)
    if listing.details is Details.USUAL:
        listing.details = next((size for size in Details if size.label == kept.details), Details.USUAL)
    if listing.cursor > 0 or listing.filter:
        return ""
    told = []
    try:
        listing.set_query(kept.query)
    except QueryError:
        told.append(f"its filter is not understood: {kept.query}")
    for group in Group:
        if group.label in kept.hidden and group in listing.filter.groups:
            listing.toggle(group)
    order = next((order for order in Order if order.label == kept.order), Order.DISPATCH)
    if order is not listing.order:
        listing.sort(order)
    if kept.folded and not listing.folded:
        listing.toggle_fold()
    row = row_of_anchor(c, kept.cursor)
    if row > 0:
        listing.go(row)
        told.insert(0, f"at #{row + 1}")
    if listing.filter:
        told.append(f"{len(listing.view):,} of {len(c):,} rows listed, esc lists all")
    if annotations.notes:
        told.append(f"{len(annotations.notes)} note{'s' * (len(annotations.notes) != 1)}")
    return f"as the last session left it: {', '.join(told)}" if told else ""


def find_again(listing: Listing, kept: SavedSession) -> None:
    """The same logs have been read again, and may hold more or other records: the cursor, marks and notes go along."""
    c = listing.comparison
    _annotate(c, listing.annotations, kept)
    row = row_of_anchor(c, kept.cursor)
    if row >= 0 and row != listing.cursor:
        listing.go(row)


def _annotate(c: Comparison, annotations: Annotations, kept: SavedSession) -> None:
    # On the records they were written for, not on those of the row that shows them now: when other rules bring two
    # rows together, what stood on each of them stays.
    marks = {name: record_pair_of_anchor(c, anchor) for name, anchor in kept.marks.items()}
    notes = {anchor: record_pair_of_anchor(c, anchor) for anchor in kept.notes}
    annotations.marks = {name: spot for name, spot in marks.items() if spot != _GONE}
    annotations.notes = {spot: kept.notes[anchor] for anchor, spot in notes.items() if spot != _GONE}
    annotations.lost = Lost(
        {name: kept.marks[name] for name, spot in marks.items() if spot == _GONE},
        {anchor: kept.notes[anchor] for anchor, spot in notes.items() if spot == _GONE},
    )
