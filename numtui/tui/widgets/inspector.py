"""Inspector of the row under the cursor; focused, it scrolls, and an input can be chosen and followed."""

from __future__ import annotations

from matchers.explain.sentences import Explanation
from numtui.session.session import Session
from numtui.text.counts import plural
from numtui.text.lines import Line
from numtui.tui.widgets.lines import Lines
from numtui.views.inspector import Inspection, inspect

__all__ = ["Inspector"]


class Inspector(Lines):
    """Details of one row; the first line separates it from the list."""

    active = False
    """True when it takes the movement keys. (Not Textual's focus, which comes with a delay.)"""
    chosen = -1
    """The chosen input, an index into those of the explanation; -1 for none."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._top = 0
        self._about: tuple[int, int, int, str] = (-1, -1, -1, "")
        self._laid_out = (-1, -1)
        """Width and chosen input of the cached lines."""
        self._told: Explanation | None = None
        self._inspection = Inspection()

    @property
    def position(self) -> int | None:
        """The 1-based position of the chosen input among the operation's inputs."""
        inputs = self._told.inputs if self._told is not None else ()
        return inputs[self.chosen].position + 1 if 0 <= self.chosen < len(inputs) else None

    def show(self, session: Session) -> None:
        """Show the row under the session's cursor."""
        note = session.listing.annotations.note(session.comparison, session.listing.cursor)
        said = f"{note}\n{session.replayed(session.listing.cursor)}"
        about = (id(session.comparison), session.listing.cursor, id(session.realignments), said)
        if about != self._about:
            if about[:2] != self._about[:2]:
                self._top, self.chosen = 0, -1
            self._about = about
            self._told = session.explain()
            self._laid_out = (-1, -1)
        if (wanted := (self.size.width, self.chosen)) != self._laid_out:
            self._laid_out = wanted
            self._inspection = inspect(session, self._told, self.size.width, self.chosen)
        self._draw()

    def enter(self, session: Session) -> None:
        """Take the focus and choose the first input."""
        self.active = True
        self.show(session)
        self.chosen = 0 if self._inspection.inputs else -1

    def leave(self) -> None:
        """Lose the focus."""
        self.active = False
        self.chosen = -1

    def move(self, session: Session, by: int) -> None:
        """Choose another input; scroll beyond the last one or without inputs."""
        self.show(session)  # of a burst of keys, none may have been drawn yet
        inputs = len(self._inspection.inputs)
        if 0 <= self.chosen + by < inputs:
            self.chosen += by
            self.show(session)
            at = self._inspection.inputs[self.chosen]
            if not self._top <= at < self._top + self.room:
                self._top = at - self.room + 1 if at >= self._top + self.room else at
        else:
            self._top += by
        self._draw()

    def choose(self, session: Session, item: int) -> None:
        """Choose an input."""
        self.chosen = item
        self.show(session)

    def scroll_lines(self, by: int) -> None:
        """Scroll down or up."""
        self._top += by
        self._draw()

    @property
    def room(self) -> int:
        """Number of text lines that fit."""
        return max(self.size.height - 1, 1)

    @property
    def wanted(self) -> int:
        """Number of lines that would show everything."""
        return len(self._inspection) + 1

    def _draw(self) -> None:
        count = len(self._inspection)
        self._top = min(max(self._top, 0), max(count - self.room, 0))
        below = count - self._top - self.room
        more = f" {plural(below, 'more line')}: enter " if below > 0 and not self.active else ""
        hint = " j k choose input · enter go to producer · esc back to list " if self.active else more
        width = self.size.width
        rule: Line = [
            ("─" * 3, "dim"),
            (hint, "key" if self.active else "dim@enter"),
            ("─" * max(width - 3 - len(hint), 0), "dim"),
        ]
        inputs = {line: k for k, line in enumerate(self._inspection.inputs)}
        items = [-1, *(inputs.get(line, -1) for line in range(self._top, self._top + self.room))]
        self.paint([rule, *self._inspection.lines(self._top, self._top + self.room)], items=items)
