"""Annotations of rows: letter marks and notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from matchers.comparison import Comparison
from numtui.session.rule_edits import RecordPair
from numtui.session.store import Anchor

__all__ = ["Annotations", "Lost", "row_of"]


def row_of(c: Comparison, spot: RecordPair) -> int:
    """Return the row of these records; -1 without one."""
    for record, at in ((spot[0], c.at_a), (spot[1], c.at_b)):
        if 0 <= record < len(at):
            return int(at[record])
    return -1


@dataclass(frozen=True)
class Lost:
    """Marks and notes on rows missing from these logs, kept for later."""

    marks: Mapping[str, Anchor] = field(default_factory=dict)
    notes: Mapping[Anchor, str] = field(default_factory=dict)


@dataclass
class Annotations:
    """Marks by letter, notes by record pair: a note stays in place when rules change the rows."""

    marks: dict[str, RecordPair] = field(default_factory=dict)
    notes: dict[RecordPair, str] = field(default_factory=dict)
    lost: Lost = field(default_factory=Lost)

    def note(self, c: Comparison, row: int) -> str:
        """Return the note on a row, empty without one; several that rules brought together are joined."""
        return "; ".join(text for noted, text in self.noted(c) if noted == row)

    def set_note(self, c: Comparison, row: int, spot: RecordPair, text: str) -> None:
        """Replace the note on a row; an empty text deletes it."""
        self.notes = {of: old for of, old in self.notes.items() if row_of(c, of) != row}
        if text:
            self.notes[spot] = text

    def noted(self, c: Comparison) -> list[tuple[int, str]]:
        """Return the rows with a note, in dispatch order, and their notes."""
        return sorted((row, text) for spot, text in self.notes.items() if (row := row_of(c, spot)) >= 0)

    def letters(self, c: Comparison) -> dict[int, str]:
        """Return the letters of the marked rows."""
        found: dict[int, str] = {}
        for letter, spot in sorted(self.marks.items()):
            if (row := row_of(c, spot)) >= 0:
                found[row] = found.get(row, "") + letter
        return found
