"""Excerpts of source code as entries of a panel. Pure text."""

from __future__ import annotations

from collections.abc import Sequence

from numtui.query.source_code import Excerpt
from numtui.text.lines import Line, fit_line
from numtui.text.safe import safe_text
from numtui.views.panels import Entry

__all__ = ["code_entries"]

_MAX_TEXT = 400
_HERE = "▸"
"""Sign of the lines of the statement that a log names, for screens without colours."""


def code_entries(found: Sequence[Excerpt], width: int) -> list[Entry]:
    """Return the lines of each excerpt under its place, with the call or the statement marked."""
    return [Entry(tuple(fit_line(line, width) for line in _lines(excerpt))) for excerpt in found]


def _lines(excerpt: Excerpt) -> list[Line]:
    version = f"at commit {excerpt.version[:12]}" if excerpt.version else "as the file is now"
    told = version if excerpt.lines else f"{version}: it has no such line"
    lines: list[Line] = [[(f" {excerpt.sides}  {safe_text(excerpt.place, 200)}", "title"), (f"  {told}", "dim")]]
    marked = {at: (start, end) for at, start, end in excerpt.marked}
    number = len(str(excerpt.first + len(excerpt.lines)))
    indent = min((len(text) - len(text.lstrip()) for text in excerpt.lines if text.strip()), default=0)
    for at, text in enumerate(excerpt.lines):
        start, end = marked.get(at, (indent, indent))
        line: Line = [(f" {_HERE if at in marked else ' '} {excerpt.first + at:>{number}}  ", "dim")]
        line += [(_shown(text[indent:start]), ""), (_shown(text[start:end]), "cause"), (_shown(text[end:]), "")]
        lines.append(line)
    return lines


def _shown(text: str) -> str:
    return safe_text(text.expandtabs(4), _MAX_TEXT)
