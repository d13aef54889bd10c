"""Save and restore the state of a session, so that the next one on the same logs continues where it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from matchers.comparison import Comparison
from numtui.query.query import QueryError
from numtui.query.view import Order, StatusGroup
from numtui.session.annotations import Annotations, Lost
from numtui.session.input_history import joined
from numtui.session.listing import Details, Listing
from numtui.session.rule_edits import record_pair_of
from numtui.session.store import SavedSession, anchor_of, record_pair_of_anchor, row_of_anchor
from numtui.text.counts import plural

__all__ = ["find_again", "resume", "sitting_of", "written_meanwhile"]

_GONE = (-1, -1)
"""Place of a record that is in neither log."""


def sitting_of(
    listing: Listing,
    rejected: Iterable[str] = (),
    typed: Mapping[str, tuple[str, ...]] | None = None,
) -> SavedSession:
    """Return the state to save. Takes milliseconds per mark and note on a log of a million records."""
    c, annotations = listing.comparison, listing.annotations
    # Copies, because this may run in another thread than the edits.
    marks = {name: anchor_of(c, spot) for name, spot in dict(annotations.marks).items()}
    notes = {anchor_of(c, spot): text for spot, text in dict(annotations.notes).items()}
    return SavedSession(
        cursor=anchor_of(c, record_pair_of(c, listing.cursor)),
        query=listing.filter.query.text,
        hidden=tuple(group.label for group in StatusGroup if group not in listing.filter.groups),
        order=listing.order.label,
        fold_chosen=listing.fold_chosen,
        details=listing.details.label,
        merged=listing.merged,
        filters=dict(listing.saved),
        marks={**annotations.lost.marks, **marks},
        notes={**annotations.lost.notes, **notes},
        rejected=tuple(sorted(rejected)),
        typed=typed or {},
    )


def written_meanwhile(kept: SavedSession, now: SavedSession) -> SavedSession:
    """Merge the saved state with the marks and notes made while the logs were read."""
    return replace(
        kept,
        filters={**kept.filters, **now.filters},
        marks={**kept.marks, **now.marks},
        notes={**kept.notes, **now.notes},
        typed=joined(kept.typed, now.typed),
    )


def resume(listing: Listing, kept: SavedSession) -> str:
    """Restore a saved session; return a message about what was restored, empty for nothing.

    Changes made while the logs were read (moves, filters, notes) take precedence.
    """
    c, annotations = listing.comparison, listing.annotations
    kept = written_meanwhile(kept, sitting_of(listing))
    listing.saved = dict(kept.filters)
    _annotate(c, annotations, kept)
    if listing.details is Details.USUAL:
        listing.details = next((size for size in Details if size.label == kept.details), Details.USUAL)
    listing.merged = listing.merged or kept.merged
    if listing.cursor > 0 or listing.filter:
        return ""
    told = []
    try:
        listing.set_query(kept.query)
    except QueryError:
        told.append(f"invalid filter: {kept.query}")
    for group in StatusGroup:
        if group.label in kept.hidden and group in listing.filter.groups:
            listing.toggle(group)
    order = next((order for order in Order if order.label == kept.order), Order.DISPATCH)
    if order is not listing.order:
        listing.sort(order)
    if kept.fold_chosen is not None and kept.fold_chosen != listing.fold_chosen:
        listing.folded = not kept.fold_chosen
        listing.toggle_fold()
    row = row_of_anchor(c, kept.cursor)
    if row > 0:
        listing.go(row)
        told.insert(0, f"at #{row + 1}")
    if listing.filter:
        told.append(f"{len(listing.view):,} of {plural(len(c), 'row')} listed, esc lists all")
    if annotations.notes:
        told.append(plural(len(annotations.notes), "note"))
    return f"last session restored: {', '.join(told)}" if told else ""


def find_again(listing: Listing, kept: SavedSession) -> None:
    """Move cursor, marks and notes to the reloaded logs, which may have more or other records."""
    c = listing.comparison
    _annotate(c, listing.annotations, kept)
    row = row_of_anchor(c, kept.cursor)
    if row >= 0 and row != listing.cursor:
        listing.go(row)


def _annotate(c: Comparison, annotations: Annotations, kept: SavedSession) -> None:
    # On the records they were written for, not on those of their current row: when other rules merge two rows, the
    # annotations of both stay.
    marks = {name: record_pair_of_anchor(c, anchor) for name, anchor in kept.marks.items()}
    notes = {anchor: record_pair_of_anchor(c, anchor) for anchor in kept.notes}
    annotations.marks = {name: spot for name, spot in marks.items() if spot != _GONE}
    annotations.notes = {spot: kept.notes[anchor] for anchor, spot in notes.items() if spot != _GONE}
    annotations.lost = Lost(
        {name: kept.marks[name] for name, spot in marks.items() if spot == _GONE},
        {anchor: kept.notes[anchor] for anchor, spot in notes.items() if spot == _GONE},
    )
