"""GitHub workflow annotations: an error at each first cause, in the file and line that dispatched it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from numtui.report.model import Report
from numtui.report.workflow_commands import MAX_ANNOTATIONS, command, place
from numtui.text.safe import safe_text

__all__ = ["write"]


def write(report: Report, out: TextIO) -> None:
    """Write the report: failures, then first causes."""
    out.writelines(f"{line}\n" for line in _lines(report))


def _lines(r: Report) -> Iterator[str]:
    level = "error" if r.failures else "notice"
    names = " <-> ".join(safe_text(name, 40) for name in r.options.names)
    told = "; ".join(f"{f.condition}: {f.text}" for f in r.failures[:MAX_ANNOTATIONS]) or f"{r.extent} {r.result}"
    yield command(level, {"title": f"numtui: {names}"}, told)
    rows = [row for row in r.cause_rows.tolist() if r.failing[row]][: MAX_ANNOTATIONS - 1]
    for row in map(r.row, rows):
        yield command("error", place(row.location) | {"title": row.keys(str)}, f"{row.keys(str)}: {row.sentence}")
    if r.rules_note:
        yield command("notice", {"title": "numtui: rules"}, r.rules_note)
    for note in r.notes:
        yield command("warning", {"title": f"numtui: {note.weight}"}, note.text)
