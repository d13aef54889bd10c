"""The commits that touch the code of a row, as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from numtui.query.commits import Touched
from numtui.text.counts import plural
from numtui.text.lines import Line
from numtui.text.safe import safe_text

__all__ = ["commit_lines"]


def commit_lines(found: Sequence[Touched]) -> list[Line]:
    """Return a heading for each part of the code, and a line for each commit that touches it."""
    lines: list[Line] = []
    for touched in found:
        many = (
            plural(len(touched.commits), "commit touches", "commits touch") if touched.commits else "no commit touches"
        )
        lines += [[(f" {many} {touched.what}", "title")]]
        for each in touched.commits:
            about = f"{each.day}  {safe_text(each.author, 24)}  "
            lines.append([(f"   {each.revision[:12]}  ", "key"), (about, "dim"), (safe_text(each.subject, 200), "")])
        lines.append([])
    return lines
