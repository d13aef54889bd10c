"""The line above the footer: a proposed change and its effect, else the last message, else the search."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from matchers.status import Status
from numtui.session.jobs import Proposal
from numtui.session.listing import Listing
from numtui.session.session import Session
from numtui.text.line_editor import LineEditor
from numtui.text.lines import Line, line_width, width_of, wrap
from numtui.text.safe import safe_text
from numtui.tui.widgets.lines import Lines
from numtui.views.run_summary import incomplete, join

__all__ = ["StatusLine", "editor_line"]

_MAX_LINES = 4
"""Maximum lines of a message."""


class StatusLine(Lines):
    """One line of text; a long message takes more, because its end is its reason."""

    def show(
        self,
        session: Session,
        message: str = "",
        trouble: bool = False,
        typed: str = "",
        warning: str = "",
    ) -> None:
        """Show the most important text first: proposal, message, warning, search; mark, unsaved rules."""
        width = self.size.width
        right: Line = [(f"{typed} ", "key")] if typed else _state(session)
        if session.proposal is not None:
            left = _proposal(session.proposal)
            left += [(f"   {safe_text(message, 600)}", "red")] * (trouble and bool(message))
        elif message or warning:
            told = ((message, "red" if trouble else ""), (warning, "close"))
            left = [(f" {safe_text(text, 600)} ", role) for text, role in told if text]
        else:
            left = _search(session.listing)
        if (message or warning or session.proposal is not None) and line_width(left) + line_width(right) >= width > 8:
            lines: list[Line] = [[(f" {text}", role)] for part, role in left for text in wrap(part.strip(), width - 2)]
            if line_width(lines[-1]) + line_width(right) < width:
                lines[-1] = join(lines[-1], right, width)
            self._say(lines)
        else:
            self._say([join(left, right, width)])

    def show_editor(self, editor: LineEditor) -> None:
        """Show the prompt being typed, with its result so far."""
        line = editor_line(editor)
        role = "red" if editor.wrong is not None else "key"
        room = self.size.width - line_width(line) - 2
        if editor.refused and width_of(editor.told) > room:
            told = wrap(editor.told, self.size.width - 2)[: _MAX_LINES - 1]
            self._say([*([(f" {text}", role)] for text in told), line])
        else:
            # While typing, the list above must not move with every letter.
            self._say([join(line, [(f"{safe_text(editor.told, max(room, 8))} ", role)], self.size.width)])

    def _say(self, lines: Sequence[Line]) -> None:
        shown = list(lines[:_MAX_LINES])
        if self.size.height != len(shown):
            self.styles.height = len(shown)
        self.paint(shown)


def editor_line(editor: LineEditor) -> Line:
    """Return the typed line with the cursor, its invalid range in red."""
    text = editor.text + " "
    start, end = editor.wrong if editor.wrong is not None else (len(text), len(text))
    cuts = sorted({0, editor.at, editor.at + 1, min(start, len(text)), min(end, len(text)), len(text)})
    pieces = [
        (safe_text(text[i:j]), "chosen" if i == editor.at else "red" if start <= i < end else "")
        for i, j in pairwise(cuts)
    ]
    return [(f" {editor.sign}", "key"), *pieces]


def _proposal(p: Proposal) -> Line:
    effect = p.effect.sentence() if p.effect is not None else "…"
    again = "   more red: enter again applies it" if p.asked else ""
    title = safe_text(p.edit.title, 400)
    if p.effect is not None and (cuts := p.effect.cuts_besides(p.edit.title)):
        title += f" · {safe_text(cuts)}"
    return [(f" {effect}", "red" if p.worse else "good"), (f"   {title}", ""), (again, "red")]


def _search(listing: Listing) -> Line:
    if listing.search is None:
        return []
    text, rows = listing.search.text, listing.search.rows
    if not len(rows):
        return [(f" /{safe_text(text, 60)}  no hit", "")]
    at = listing.search.place(listing.cursor)
    place = f"{at:,}" if at else "–"
    return [(f" /{safe_text(text, 60)}  {place}/{len(rows):,}", ""), ("  ; next  , previous", "dim")]


def _state(session: Session) -> Line:
    out: Line = []
    if session.journal is not None and session.journal.problem:
        out.append((f"{safe_text(session.journal.problem, 60)}  ", "red"))
    if session.store is not None and session.store.problem:
        out.append((f"{safe_text(session.store.problem, 60)}  ", "red"))
    if session.outdated:
        out.append((" logs changed: R reloads ", "close"))
    if session.mark is not None:
        out.append((f"mark at #{session.listing.row_of(session.mark) + 1}  ", "cause"))
    if session.dirty:
        out.append(("rules not saved ", "close"))
    c = session.comparison
    if not c.single and not c.counts[Status.PENDING] and c.coverage.parts:
        out.append((f" {safe_text(str(c.coverage.parts[0]), 50)} not compared: I ", "close"))
    for side, log in c.logs:
        if incomplete(log):
            out.append((f" {side} cut off: I ", "close"))
        elif not len(log) and not log.partial:
            out.append((f" {side} empty: I ", "close"))
    return out
