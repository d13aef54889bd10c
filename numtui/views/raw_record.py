"""The raw log records of a row, verbatim. Pure text."""

from __future__ import annotations

from matchers.comparison import Comparison
from matchers.errors import LogError
from matchers.logs.raw_record import raw_record
from numtui.text.counts import plural
from numtui.text.lines import Line
from numtui.text.safe import safe_text

__all__ = ["raw_lines"]

_MAX_RECORDS = 8
"""Records shown of a group, per side."""

_MAX_TEXT = 4000
"""Characters shown of a line."""


def raw_lines(c: Comparison, row: int) -> list[Line]:
    """Return the records of both sides under their `path:line`; `≠` marks differing lines.

    Reads the logs: not for the screen's own thread.
    """
    if row < 0:
        return [[(" no row is listed", "dim")]]
    members = c.members(row)
    records = [
        (side, log, record) for (side, log), of in zip(c.logs, members, strict=False) for record in of[:_MAX_RECORDS]
    ]
    texts: list[tuple[str, ...] | LogError] = []
    for _, log, record in records:
        try:
            texts.append(raw_record(log, record))
        except LogError as error:
            texts.append(error)
    # Only a plain pair is compared line by line; the lines of a group, or of several ranks, have no partner.
    plain = len(records) == 2 and all(members) and not any(log.members for _, log in c.logs)
    pair = [_fields(text) for text in texts if isinstance(text, tuple)] if plain else []
    out: list[Line] = []
    for (side, log, record), text in zip(records, texts, strict=True):
        if isinstance(text, LogError):
            out += [[(f" {side}  {safe_text(str(text), _MAX_TEXT)}", "red")], []]
            continue
        merged = f"merged of the logs of {plural(len(log.members), 'rank')}"
        where = merged if log.members else f"{safe_text(log.path, _MAX_TEXT)}:{int(log.line[record])}"
        out.append([(f" {side}  {where}", "title")])
        for line in text:
            differs = len(pair) == 2 and len({fields.get(_name(line)) for fields in pair}) > 1
            out.append([(f" {'≠' if differs else ' '} ", "red"), (safe_text(line, _MAX_TEXT), "")])
        out.append([])
    for (side, _), of in zip(c.logs, members, strict=False):
        if len(of) > _MAX_RECORDS:
            out.append([(f" {side}  … and {plural(len(of) - _MAX_RECORDS, 'more record')} of this group", "dim")])
    return out


def _fields(lines: tuple[str, ...]) -> dict[str, str]:
    return {_name(line): line for line in lines}


def _name(line: str) -> str:
    """Return the field of a line; the line of the key has none and counts as the same field on both sides."""
    return "" if line.startswith("[") else line.partition(":")[0]
