"""Format rows of a comparison as lines: glyphs, numbers, columns. Pure text, no terminal.

Text of a log in a piece is already safe, and is never read as markup.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from matchers.arrays import Int64
from matchers.comparison import Comparison
from matchers.explain.sentences import format_eps, format_error, row_epsilon
from matchers.logs.op_log import OpLog
from matchers.ops.nonfinite import broken_kind
from matchers.pairing.pairing import Method
from matchers.status import Status
from numtui.query.view import Order, Severity, View
from numtui.text.glyphs import GLYPHS, STYLES
from numtui.text.lines import Line, Piece, fit, fit_line, side_titles, width_of
from numtui.text.safe import safe_text

__all__ = [
    "CAUSE",
    "FIRST",
    "Columns",
    "RowWriter",
    "bar_of",
    "error_bar",
    "map_pieces",
    "number_of",
    "short_dtype",
    "usual_key",
]

CAUSE = "●"
FIRST = "○"
"""Sign of the first difference, where it is no first cause."""

MAP_GLYPHS: dict[Severity, Piece] = {
    Severity.NOTHING: (" ", ""),
    Severity.OTHER: ("▏", "dim"),
    Severity.ALONE: ("▎", "alone"),
    Severity.CLOSE: ("▌", "close"),
    Severity.RED: ("█", "red"),
    Severity.CAUSE: ("●", "cause"),
}

_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}

_BAR = " ▏▎▍▌▋▊▉█"
_ERRORS = (-8.0, 0.0)
"""Exponents of ten of the errors of an empty and a full bar."""
_MAGNITUDES = (-4.0, 5.0)
"""The same for the values of a single run; one beyond float16 fills the bar."""


def error_bar(error: float, width: int, span: tuple[float, float] = _ERRORS) -> str:
    """Draw a bar of at most `width` cells: empty and full at the ends of `span`, linear in the exponent."""
    least, most = span
    if width <= 0 or math.isnan(error) or error <= 0:
        return " " * max(width, 0)
    exponent = most if math.isinf(error) else math.log10(error)
    eighths = round(8 * width * min(max((exponent - least) / (most - least), 0), 1))
    return ("█" * (eighths // 8) + _BAR[eighths % 8].strip()).ljust(width)


def number_of(c: Comparison, row: int) -> str:
    """Return the error of a row, or its largest value in a single run; empty where it has none."""
    error = float(c.error[row])
    if math.isnan(error):
        return ""
    if not c.single:
        return format_error(error, bool(c.bound[row]))
    return broken_kind(c.a, int(c.row_a[row])) if math.isinf(error) else f"{error:.3g}"


def bar_of(c: Comparison, row: int, width: int) -> str:
    """Draw the number of a row as a bar."""
    return error_bar(float(c.error[row]), width, _MAGNITUDES if c.single else _ERRORS)


def short_dtype(dtype: str) -> str:
    """Return `f32` for `float32`."""
    stem = dtype.rstrip("0123456789")
    return _SHORT[stem] + dtype[len(stem) :] if stem in _SHORT else safe_text(dtype, 16)


_LEFT = 3
"""Cells of the map, the window marker and the cause marker."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Widths of the columns; 0 hides one. `b` is 0 when both keys share the column `a`."""

    number: int
    a: int
    via: int
    b: int
    error: int
    bar: int
    units: int
    shape: int

    @property
    def cursor(self) -> tuple[int, int]:
        """Cells of the cursor: from the number to the end of the column `a`."""
        return _LEFT, _LEFT + self.number + 1 + 2 + self.a - 1

    @classmethod
    def of(cls, width: int, rows: int, key_a: int, key_b: int, *, single: bool = False) -> Columns:
        """Choose the columns that fit in `width`; `key_a`, `key_b` are the usual key lengths of the sides.

        Each side has its own column only when most keys fit: two keys cut where they differ say less than a whole one
        with the other behind it where it differs.
        """
        # One more than the digits, so that the cause marker stands apart.
        number = max(len(str(rows)), 3) + 1
        error, units = 9, 6
        via = 12 if width >= 100 and not single else 0
        bar = 6 if width >= 110 else 0
        shape = min(max(width // 8, 16), 28) if width >= 120 else 0
        # number and glyph are each followed by a blank
        left = width - _LEFT - (number + 1) - 2 - error - units - via - bar - shape
        spare = left - (key_a + 1) - (key_b + 1)
        if width >= 120 and spare >= 0 and not single:
            return cls(number, key_a + 1 + spare // 2, via, key_b + 1 + spare - spare // 2, error, bar, units, shape)
        return cls(number, max(left, 8), via, 0, error, bar, units, shape)


class RowWriter:
    """Formats the rows of one comparison; whole-log columns are computed once and cached."""

    def __init__(self, comparison: Comparison, columns: Columns) -> None:
        self.comparison = comparison
        self.columns = columns

    @cached_property
    def _group_sizes(self) -> tuple[Int64, Int64]:
        """Number of members of each pair on either side."""
        p = self.comparison.pairing
        a, b = (np.bincount(of[of >= 0], minlength=len(p)) for of in (p.of_a, p.of_b))
        return a, b

    def heading(self, names: tuple[str, str], order: Order = Order.DISPATCH) -> Line:
        """Return the heading of the columns; the sort column is marked."""
        w = self.columns
        via = "via ▲" if order is Order.CONFIDENCE else "via"
        error, units = ("largest", "") if self.comparison.single else ("error", "ε")
        error += " ▼" if order is Order.ERROR else ""
        a, b = side_titles(names, 40)
        head = "   " + "#".rjust(w.number) + "   "
        if w.b:
            head += fit(a, w.a) + fit(via, w.via) + fit(b, w.b)
        else:
            shared = names[0] if self.comparison.single else f"{a} ⇄ {b} where it differs"
            head += fit(shared, w.a) + (fit(via, w.via) if w.via else "")
        head += fit(error, w.error + w.bar) + fit(units, w.units) + fit("shape", w.shape)
        return [(head, "dim")]

    def fold(self, count: int, map_piece: Piece, window: str, width: int) -> Line:
        """Return the line of a folded stretch."""
        pad = " " * (self.columns.number + 2)
        return fit_line([map_piece, (f"{window} {pad}… {count:,} equal …", "dim")], width)

    def row(self, row: int, map_piece: Piece, window: str, marked: bool, tag: str = " ") -> Line:
        """Format one row; `tag` is the sign of a mark or note, for rows that are no first cause or difference."""
        c, w = self.comparison, self.columns
        status = Status(int(c.status[row]))
        role = STYLES.get(status, "dim")
        cause = bool(c.cause[row])
        number = str(row + 1).rjust(w.number)
        glyph = "m" if marked else GLYPHS[status]
        found = c.first_difference
        sign = CAUSE if cause else FIRST if found is not None and found.row == row else tag
        line: Line = [map_piece, (window + sign, "cause" if cause else "close" if sign == FIRST else "")]
        line.append((f"{number} ", "dim" if role == "dim" else ""))
        line.append((f"{glyph} ", "cause" if marked else role))
        text_role = "dim" if role == "dim" else "alone" if role == "alone" else ""
        error = float(c.error[row])
        a, b = int(c.row_a[row]), int(c.row_b[row])
        if w.b:
            left, right = self._sides(row, status)
            middle = fit(left, w.a - 1, keep_end=True) + " " + fit(self._via(row), w.via)
            line.append((middle + fit(right, w.b - 1, keep_end=True) + " ", text_role))
        else:
            line.append(
                (self._shared(row, status, w.a - 1) + " " + (fit(self._via(row), w.via) if w.via else ""), text_role)
            )
        # The heading says ε, and unknown values need no dash on every other line.
        units = "" if c.single else format_eps(error, row_epsilon(c, row)).removesuffix(" ε").replace(",", "")
        measured = number_of(c, row).ljust(w.error) + (bar_of(c, row, w.bar - 1) + " " if w.bar else "")
        line.append((measured + units.rjust(w.units - 1) + " ", role))
        if w.shape:
            line.append((fit(self._shape(a, b, w.shape), w.shape), text_role))
        return line

    def _sides(self, row: int, status: Status) -> tuple[str, str]:
        """Return the texts of the columns a and b."""
        c = self.comparison
        left, right = self._key("a", row), self._key("b", row)
        if int(c.row_a[row]) >= 0 and int(c.row_b[row]) >= 0:
            return left, right
        alone = "—"
        if status == Status.RECOMPUTE:
            alone = f"(recompute of {self._original(row)})" if c.original[row] >= 0 else "(recompute)"
        return (left, alone) if left else (alone, right)

    def _original(self, row: int) -> str:
        c = self.comparison
        original = int(c.original[row])
        side = "a" if c.row_a[row] >= 0 else "b"
        return f"#{original + 1} {self._key(side, original) or self._key('b' if side == 'a' else 'a', original)}"

    def _shared(self, row: int, status: Status, width: int) -> str:
        """Return both keys for one column: that of b only where it differs, without a repeated module."""
        left, right = self._sides(row, status)
        if left == right:
            return fit(left, width, keep_end=True)
        if int(self.comparison.row_a[row]) < 0:
            left, right = right, ("" if left == "—" else left)
        elif right == "—":
            right = ""
        if not right:
            return fit(left, width, keep_end=True)
        module, slash, _ = left.rpartition("/")
        if slash and right.startswith(module + slash):
            right = right[len(module) + 1 :]
        room = width - 3
        if width_of(left) + width_of(right) <= room:
            return fit(f"{left} ⇄ {right}", width)
        # The shorter one stays whole when it takes less than half.
        half = room // 2
        need_left, need_right = width_of(left), width_of(right)
        take_left = min(need_left, max(half, room - need_right))
        take_right = min(need_right, room - take_left)
        pair = f"{fit(left, take_left, keep_end=True)} ⇄ {fit(right, take_right, keep_end=True)}"
        return fit(pair, width)

    def _key(self, side: str, row: int) -> str:
        c = self.comparison
        log, at = c.side(side)
        record = int(at[row])
        if record < 0:
            return ""
        text = safe_text(log.keys[record], 400)
        pair = int(c.pair[row])
        if pair >= 0 and c.pairing.grouped[pair]:
            more = int(self._group_sizes[0 if side == "a" else 1][pair]) - 1
            if more > 0:
                text += f" +{more:,}"
        return text

    def _via(self, row: int) -> str:
        p = self.comparison.pairing
        pair = int(self.comparison.pair[row])
        if pair < 0:
            return ""
        method, confidence = Method(int(p.method[pair])).label, float(p.confidence[pair])
        # Rounding must not hide a doubt.
        return method if confidence >= 0.995 else f"{method}·{confidence:.2f}".replace("·0.", "·.")

    def _shape(self, a: int, b: int, width: int) -> str:
        """Return `[4,8] f32`, or `[4,8]≠[8,4] f32` or `[4,8] f32≠bf16` where the sides differ.

        A shared dtype that does not fit is left out, not cut.
        """
        c = self.comparison
        typed = [_typed(log, record) for log, record in ((c.a, a), (c.b, b)) if record >= 0]
        shapes, dtypes = (list(dict.fromkeys(texts)) for texts in zip(*typed, strict=True))
        shape, dtype = "≠".join(shapes), "≠".join(dtypes)
        whole = f"{shape} {dtype}".strip()
        return shape if len(dtypes) == 1 and shape and width_of(whole) > width else whole


def _typed(log: OpLog, record: int) -> tuple[str, str]:
    shape = safe_text(log.shape_text(record), 60).replace(", ", ",")
    return shape, short_dtype(log.dtype_text(record))


def usual_key(log: OpLog) -> int:
    """Return the 95th percentile of the key lengths of a log, in bytes."""
    return int(np.percentile(np.diff(log.keys.start), 95)) - 1 if len(log) else 0


def map_pieces(view: View, height: int) -> list[Piece]:
    """Return the map on the left edge: per line of the screen the glyph of the worst row of its stretch."""
    return [MAP_GLYPHS[Severity(int(s))] for s in view.map(height)]
