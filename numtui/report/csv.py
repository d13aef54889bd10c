r"""CSV report: one line per row of the comparison, for spreadsheets, Python's csv and numpy.

A field never contains a comma, a quote, a line end or `#`, so that readers without quoting (`numpy.genfromtxt`) work
too; such characters of a log become `\xNN`. So does a first character that would make a spreadsheet read a formula.
docs/reports.md is the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Int64
from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog, Phase
from matchers.pairing.pairing import Method
from matchers.status import Role, Status
from matchers.verdict.reason import Reason
from numtui.report.gate import GatedRows
from numtui.report.jsonl import ERROR

__all__ = ["COLUMNS", "field", "write"]

COLUMNS: Final = (
    "row", "a", "b", "a_key", "b_key", "status", "red", "first_cause", "role", "method", "confidence", "error",
    "error_is_bound", "tolerance", "phase", "location", "shape_a", "shape_b", "dtype_a", "dtype_b", "line_a", "line_b",
    "reason",
)  # fmt: skip

_CHUNK: Final = 4096
_FORMULA: Final = frozenset("=+-@'")
"""First characters that make a spreadsheet read a cell as a formula."""


def write(report: GatedRows, out: TextIO) -> None:
    """Write every row."""
    out.write(",".join(COLUMNS) + "\n")
    c = report.comparison
    for start in range(0, len(c), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(c)))
        out.writelines(",".join(line) + "\n" for line in zip(*_columns(c, rows), strict=True))


def field(text: str) -> str:
    r"""Escape text of a log as a field: ASCII, with `\xNN`, `\uNNNN` or `\UNNNNNNNN` for special characters."""
    safe = text.translate(_ESCAPED)
    if safe[:1] in _FORMULA or safe[:1] == " ":
        safe = _escape(safe[0]) + safe[1:]
    return safe[:-1] + _escape(" ") if safe.endswith(" ") else safe


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _Escaped(dict[int, str]):
    """Table for `str.translate`, filled with characters as they occur."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        plain = " " <= character <= "~" and character not in '\\,"#'
        self[code] = character if plain else _escape(character)
        return self[code]


_ESCAPED: Final = _Escaped()


def _columns(c: Comparison, rows: Int64) -> Iterator[Iterable[str]]:
    """Return the columns of some rows as text, in the order of `COLUMNS`."""
    a, b = c.row_a[rows], c.row_b[rows]
    yield map(str, rows.tolist())
    yield map(str, a.tolist())
    yield map(str, b.tolist())
    yield from _keys(c, rows)
    yield _labels([s.label for s in Status], c.status[rows])
    yield _flags(c.red[rows])
    yield _flags(c.cause[rows])
    yield _labels(["", *(r.label for r in Role if r)], c.role[rows])
    pair = c.pair[rows]
    yield _labels(["", *(m.label for m in Method if m)], np.append(c.pairing.method, np.int8(Method.NONE))[pair])
    yield (f"{x:.3f}" for x in np.append(c.pairing.confidence.astype(np.float64), np.nan)[pair].tolist())
    yield map(ERROR.__mod__, c.error[rows].tolist())
    yield _flags(c.bound[rows])
    yield map(repr, c.tolerance[rows].tolist())
    yield _labels([p.label for p in Phase], np.where(a >= 0, _of(c.a.phase, a), _of(c.b.phase, b)))
    places = (_labels(list(map(field, log.locations)), _of(log.location, r)) for log, r in ((c.a, a), (c.b, b)))
    yield (x if has else y for has, x, y in zip((a >= 0).tolist(), *places, strict=True))
    for table, column in (("shapes", "shape"), ("dtypes", "dtype")):
        for log, records in ((c.a, a), (c.b, b)):
            texts = [field(_shape(text) if column == "shape" else text) for text in getattr(log, table)]
            yield _labels(texts, _of(getattr(log, column), records))
    for log, records in ((c.a, a), (c.b, b)):
        yield map(str, _of(log.line, records).tolist())
    yield _labels([reason.label for reason in Reason], c.reason[rows])


def _keys(c: Comparison, rows: Int64) -> tuple[Iterable[str], Iterable[str]]:
    """Return the keys of both sides; those of a group joined by ` + `."""
    members = [c.members(row) for row in rows.tolist()]
    return _joined(c.a, (a for a, _ in members)), _joined(c.b, (b for _, b in members))


def _joined(log: OpLog, members: Iterable[tuple[int, ...]]) -> Iterator[str]:
    return (" + ".join(field(log.keys[record]) for record in records) for records in members)


def _of(column: NDArray[Any], records: Int64) -> NDArray[Any]:
    """Take a column of a log for some of its records, -1 where there is no record."""
    return np.append(column.astype(np.int64), -1)[records]


def _labels(texts: list[str], codes: NDArray[Any]) -> Iterable[str]:
    """Return codes as text; -1 is empty."""
    return map([*texts, ""].__getitem__, codes.tolist())


def _flags(mask: Bool) -> Iterable[str]:
    return ("1" if x else "0" for x in mask.tolist())


def _shape(text: str) -> str:
    """Return `256x768` for `[256, 768]`, `scalar` for `[]`."""
    return "scalar" if text == "[]" else text.strip("[]").replace(", ", "x")
