"""GitHub workflow annotations: an error at each first cause, in the file and line that dispatched it.

A workflow reads commands (`::error …::text`) from standard output, so text of a log is escaped by GitHub's rules; a
name cannot become a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TextIO

from numtui.report.model import Report
from numtui.report.parts import RowFacts
from numtui.text.safe import safe_text

__all__ = ["write"]

_MAX_ANNOTATIONS: Final = 10
"""GitHub shows ten errors a step."""
_PLACE: Final = re.compile(r"(.+):([1-9][0-9]*)")


def write(report: Report, out: TextIO) -> None:
    """Write the report: failures, then first causes."""
    out.writelines(f"{line}\n" for line in _lines(report))


def _lines(r: Report) -> Iterator[str]:
    level = "error" if r.failures else "notice"
    names = " <-> ".join(safe_text(name, 40) for name in r.options.names)
    told = "; ".join(f"{f.condition}: {f.text}" for f in r.failures[:_MAX_ANNOTATIONS]) or f"{r.extent} {r.result}"
    yield _command(level, {"title": f"numtui: {names}"}, told)
    rows = [row for row in r.cause_rows.tolist() if r.failing[row]][: _MAX_ANNOTATIONS - 1]
    for row in map(r.row, rows):
        yield _command("error", _place(row) | {"title": row.keys(str)}, f"{row.keys(str)}: {row.sentence}")
    if r.rules_note:
        yield _command("notice", {"title": "numtui: rules"}, r.rules_note)
    for note in r.notes:
        yield _command("warning", {"title": f"numtui: {note.weight}"}, note.text)


def _place(row: RowFacts) -> dict[str, str]:
    found = _PLACE.fullmatch(row.location)
    return {} if found is None else {"file": found[1], "line": found[2]}


def _command(name: str, properties: dict[str, str], text: str) -> str:
    told = ",".join(
        f"{key}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}" for key, value in properties.items()
    )
    return f"::{name} {told}::{_escaped(text)}"


def _escaped(text: str) -> str:
    return safe_text(text, 600).replace("%", "%25")
