"""What a person puts on rows, to find them again: marks with a letter, and notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from matchers.comparison import Comparison
from numtui.session.rule_edits import RecordPair
from numtui.session.store import Anchor

__all__ = ["Annotations", "Lost", "row_of"]


def row_of(c: Comparison, spot: RecordPair) -> int:
    """The row that shows these records now; -1 when none does."""
    for record, at in ((spot[0], c.at_a), (spot[1], c.at_b)):
        if 0 <= record < len(at):
            return int(at[record])
    return -1


@dataclass(frozen=True)
class Lost:
    """Marks and notes on rows that these logs do not have (any more): kept all the same."""

    marks: Mapping[str, Anchor] = field(default_factory=dict)
    notes: Mapping[Anchor, str] = field(default_factory=dict)


@dataclass
class Annotations:
    """Marks by their letter, notes by the records they are on: a note stays where it is when rules change the rows."""

    marks: dict[str, RecordPair] = field(default_factory=dict)
    notes: dict[RecordPair, str] = field(default_factory=dict)
    lost: Lost = field(default_factory=Lost)

    def note(self, c: Comparison, row: int) -> str:
        """The note on a row, empty where there is none; all of them, where rules have brought several together."""
        return "; ".join(text for noted, text in self.noted(c) if noted == row)

    def set_note(self, c: Comparison, row: int, spot: RecordPair, text: str) -> None:
        """Put a note on a row in place of the one that it has; an empty one takes that away."""
        self.notes = {of: old for of, old in self.notes.items() if row_of(c, of) != row}
        if text:
            self.notes[spot] = text

    def noted(self, c: Comparison) -> list[tuple[int, str]]:
        """The rows with a note, in the order of the step, and their notes."""
        return sorted((row, text) for spot, text in self.notes.items() if (row := row_of(c, spot)) >= 0)

    def letters(self, c: Comparison) -> dict[int, str]:
        """The letters of the marked rows."""
        found: dict[int, str] = {}
        for letter, spot in sorted(self.marks.items()):
            if (row := row_of(c, spot)) >= 0:
                found[row] = found.get(row, "") + letter
        return found
