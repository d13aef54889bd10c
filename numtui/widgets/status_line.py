"""The line above the footer: a proposed change and what it would do, else what was last said, else the search."""

from __future__ import annotations

from numtui.line_editor import LineEditor
from numtui.session import Proposal, Session
from numtui.summary import join
from numtui.terminal import safe_text
from numtui.text import Line
from numtui.widgets.lines import Lines

__all__ = ["StatusLine"]


class StatusLine(Lines):
    """One line of words."""

    def show(self, session: Session, message: str = "", trouble: bool = False, typed: str = "") -> None:
        """What matters most comes first: a proposal, a message, the mark, unsaved rules."""
        right: Line = [(f"{typed} ", "key")] if typed else _state(session)
        if session.proposal is not None:
            left = _proposal(session.proposal)
        elif message:
            left = [(f" {safe_text(message, 600)}", "red" if trouble else "")]
        else:
            left = _search(session)
        self.paint([join(left, right, self.size.width)])

    def show_editor(self, editor: LineEditor) -> None:
        """The line that is being typed, and what it has found so far."""
        self.paint([join(_editor(editor), [(f"{editor.told} ", "key")], self.size.width)])


def _editor(editor: LineEditor) -> Line:
    text = editor.text
    under = text[editor.at : editor.at + 1] or " "
    return [
        (f" {editor.sign}", "key"),
        (safe_text(text[: editor.at]), ""),
        (safe_text(under), "chosen"),
        (safe_text(text[editor.at + 1 :]), ""),
    ]


def _proposal(p: Proposal) -> Line:
    effect = p.effect.sentence() if p.effect is not None else "…"
    return [(f" {effect}", "good"), (f"   {safe_text(p.edit.title, 400)}", "")]


def _search(session: Session) -> Line:
    if session.search is None:
        return []
    text, rows = session.search.text, session.search.rows
    place = session.search.place(session.cursor)
    return [(f" /{safe_text(text, 60)}  {place or '–'}/{len(rows)}", ""), ("  ; next  , previous", "dim")]


def _state(session: Session) -> Line:
    out: Line = []
    if session.journal is not None and session.journal.problem:
        out.append((f"{safe_text(session.journal.problem, 60)}  ", "red"))
    if session.mark is not None:
        out.append((f"mark at #{session.row_of(session.mark) + 1}  ", "cause"))
    if session.dirty:
        out.append(("rules not saved ", "close"))
    return out
