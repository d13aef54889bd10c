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
from matchers.regions.find import Kind
from matchers.status import Status
from numtui.query.view import FOLD_WORDS, Order, View
from numtui.text.glyphs import GLYPHS, STYLES, WITHOUT_ERROR
from numtui.text.lines import Line, fit, fit_line, line_width, side_titles, width_of, window
from numtui.text.names import MAX_KEY_LENGTH, marked_keys, shared_module, without
from numtui.text.safe import safe_text
from numtui.text.short_names import cut_middle

__all__ = [
    "CAUSE",
    "FIRST",
    "LEFT",
    "Columns",
    "SIDE_BY_SIDE",
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
EXPLAINED = "×"
"""Glyph of a red row that what is assumed equal explains."""
OTHER_ARGUMENTS = "≠"
"""Sign of a row whose sides were given other arguments, where it is neither."""

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
    error = _error(c, row)
    if math.isnan(error):
        return ""
    if not c.single:
        return format_error(error, bool(c.bound[row]))
    return broken_kind(c.a, int(c.row_a[row])) if math.isinf(error) else f"{error:.3g}"


def bar_of(c: Comparison, row: int, width: int) -> str:
    """Draw the number of a row as a bar."""
    return error_bar(_error(c, row), width, _MAGNITUDES if c.single else _ERRORS)


def _error(c: Comparison, row: int) -> float:
    """The error of a row; NaN where it says nothing."""
    return math.nan if Status(int(c.status[row])) in WITHOUT_ERROR and not c.single else float(c.error[row])


def short_dtype(dtype: str) -> str:
    """Return `f32` for `float32`."""
    stem = dtype.rstrip("0123456789")
    return _SHORT[stem] + dtype[len(stem) :] if stem in _SHORT else safe_text(dtype, 16)


SIDE_BY_SIDE = 120
"""Minimum width for a column of names per side."""

LEFT = 1
"""Cells of the sign before a row: first cause, note, mark."""

RIGHT = 2
"""Cells of the map at the right edge: the lines on the screen, and where red is."""

_ENOUGH = 46
"""Cells of a name beyond which other columns come first: a module of a layer and its operation."""

_SAME: Line = [('"', "dim")]
"""Stands in the column b for a name that is equal to that of a."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Widths of the columns; 0 hides one. `b` is 0 when both names share the column `a`."""

    number: int
    a: int
    b: int
    via: int
    error: int
    bar: int
    units: int
    shape: int

    @property
    def name(self) -> int:
        """Cells of a name: as many in either column, so that two long names are cut at the same place."""
        return (self.b or self.a) - 1

    @classmethod
    def of(cls, width: int, rows: int, usual: int, *, single: bool = False, merged: bool = False) -> Columns:
        """Choose the columns that fit in `width`.

        Args:
            usual: the usual length of a name.
            merged: one column for the names of both sides, also where there is room for two.
        """
        # One more than the digits, so that the cause marker stands apart.
        number = max(len(str(rows)), 3) + 1
        error, units = 9, 6 if width >= 64 else 0
        bar = 6 if width >= 110 else 0
        # number and glyph are each followed by a blank
        left = width - LEFT - RIGHT - (number + 1) - 2 - error - units - bar
        shape = min(max(width // 8, 16), 28)
        if single or merged or width < SIDE_BY_SIDE:
            via = _VIA if width >= 100 and not single else 0
            shape = shape if width >= 120 else 0
            return cls(number, max(left - via - shape, 8), 0, via, error, bar, units, shape)
        # The inspector has what does not fit beside the names.
        spare = left - 2 * (min(usual, _ENOUGH) + 2)
        via = _VIA if spare >= _VIA else _DOUBT
        shape = shape if spare >= via + shape else 0
        left -= via + shape
        b = (left - 1) // 2
        return cls(number, left - b, b, via, error, bar, units, shape)


_VIA = 12
_DOUBT = 6
"""Cells for the method of a pair and its confidence, and for the confidence alone."""


class RowWriter:
    """Formats the rows of one comparison; whole-log columns are computed once and cached."""

    def __init__(self, comparison: Comparison, columns: Columns, back: int = 0) -> None:
        self.comparison = comparison
        self.columns = columns
        self.back = back
        """Cells by which cut names are scrolled towards their start."""

    @cached_property
    def _group_sizes(self) -> tuple[Int64, Int64]:
        """Number of members of each pair on either side."""
        p = self.comparison.pairing
        a, b = (np.bincount(of[of >= 0], minlength=len(p)) for of in (p.of_a, p.of_b))
        return a, b

    def heading(self, names: tuple[str, str], order: Order = Order.DISPATCH) -> Line:
        """Return the heading of the columns; the sort column is marked. The targets are names of orders."""
        w = self.columns
        via = ("via" if w.via == _VIA else "conf") + " ▲" * (order is Order.CONFIDENCE)
        error, units = ("largest", "") if self.comparison.single else ("error", "ε")
        error += " ▼" if order is Order.ERROR else ""
        a, b = side_titles(names, 40)
        if not w.b:
            a = names[0] if self.comparison.single else f"{a} ⇄ {b}"
            differs = " where it differs"
            a += differs if not self.comparison.single and width_of(a + differs) < w.a else ""
        return [
            (" " + "#".rjust(w.number) + "   ", "dim@dispatch"),
            (fit(a, w.a - 1) + " " + fit(b, w.b), "dim"),
            (fit(via, w.via), "dim@confidence"),
            (fit(error, w.error + w.bar) + fit(units, w.units), "dim@error"),
            (fit("shape", w.shape), "dim"),
        ]

    def fold(self, view: View, line: int) -> Line:
        """Return a line that stands for a folded stretch."""
        return [(f" {' ' * (self.columns.number + 3)}… {self._folded(view, line)} …", "dim")]

    def _folded(self, view: View, line: int) -> str:
        """Say what the rows of a folded stretch are."""
        stretch = int(view.stretch[line])
        if not stretch:
            return f"{view.fold[line]:,} equal"
        c, rows = self.comparison, view.folded(line)
        a, b = (np.count_nonzero(side[rows] >= 0) for side in (c.row_a, c.row_b))
        return f"{a:,} in a, {b:,} in b: {FOLD_WORDS[Kind(c.regions.kind[stretch - 1])]}"

    def row(self, row: int, marked: bool, tag: str = " ", *, explained: bool = False, kept: str = " ") -> Line:
        """Format one row; `tag` is the sign of a mark or note, for rows that are no first cause or difference.

        `explained`: what is assumed equal explains the row. `kept`: the sign of a kept or replayed operation.
        """
        c, w = self.comparison, self.columns
        status = Status(int(c.status[row]))
        role = "dim" if explained else STYLES.get(status, "dim")
        cause = bool(c.cause[row])
        number = str(row + 1).rjust(w.number)
        glyph = "m" if marked else EXPLAINED if explained else GLYPHS[status]
        found = c.first_difference
        sign = CAUSE if cause else FIRST if found is not None and found.row == row else tag
        if sign == " " and c.asked_otherwise[row]:
            sign = OTHER_ARGUMENTS
        line: Line = [(sign, "dim" if explained else "cause" if cause else "close" if sign == FIRST else "")]
        line.append((f"{number}{kept}", "dim" if role == "dim" else ""))
        line.append((f"{glyph} ", "cause" if marked else role))
        text_role = "dim" if role == "dim" else "alone" if role == "alone" else ""
        error = _error(c, row)
        a, b = int(c.row_a[row]), int(c.row_b[row])
        names = self._beside(row, status) if w.b else self._merged(row, status)
        line += [(text, own or text_role) for text, own in names]
        line.append((fit(self._via(row), w.via), text_role))
        # The heading says ε, and unknown values need no dash on every other line.
        units = "" if c.single else format_eps(error, row_epsilon(c, row)).removesuffix(" ε").replace(",", "")
        measured = number_of(c, row).ljust(w.error) + (bar_of(c, row, w.bar - 1) + " " if w.bar else "")
        line.append((measured + (units.rjust(w.units - 1) + " " if w.units else ""), role))
        if w.shape:
            line.append((fit(self._shape(a, b, w.shape), w.shape), text_role))
        return line

    def hidden(self, row: int) -> int:
        """Return the cells that are cut of a row's names, the larger number of its two."""
        return max(line_width(line) - room for line, room in self._rooms(row, Status(int(self.comparison.status[row]))))

    def _beside(self, row: int, status: Status) -> Line:
        """Return the columns a and b; a name that b has too may use the column of b."""
        left, right = self._cut(row, status)
        w = self.columns
        if right == _SAME and line_width(left) > w.name:
            return fit_line([*left, (" ", ""), *right], w.a + w.b)
        return [*fit_line(left, w.a), *fit_line(right, w.b)]

    def _merged(self, row: int, status: Status) -> Line:
        """Return both names for one column."""
        line: Line = []
        for name in self._cut(row, status):
            line += [(" ⇄ ", "")] * bool(line) + name
        return fit_line(line, self.columns.a)

    def _cut(self, row: int, status: Status) -> list[Line]:
        """Return the names of a row, cut in the middle; scrolled, or else without what differs, both at one place."""
        rooms = self._rooms(row, status)
        if not self.back:
            cut = [cut_middle(name, room) for name, room in rooms]
            if all(_marks(short) == _marks(name) for short, (name, _) in zip(cut, rooms, strict=True)):
                return cut
        back = max(self.back, *(_to_mark(name, room) for name, room in rooms))
        return [window(name, room, back) for name, room in rooms]

    def _rooms(self, row: int, status: Status) -> list[tuple[Line, int]]:
        """Return the names of a row as the columns show them, each with the cells that it has."""
        c, room = self.comparison, self.columns.name
        has_a, has_b = int(c.row_a[row]) >= 0, int(c.row_b[row]) >= 0
        left, right = self._names(row)
        missing: Line = []
        if not (has_a and has_b) and status == Status.RECOMPUTE:
            missing = [(f"(recompute of {self._original(row)})" if c.original[row] >= 0 else "(recompute)", "")]
        if self.columns.b:
            if has_a and has_b and left == right:
                return [(left, self.columns.a + self.columns.b - 3), (_SAME, room)]
            gap = missing or [("—", "dim")]
            return [(left if has_a else gap, room), (right if has_b else gap, room)]
        if not (has_a and has_b):
            left, right = left if has_a else right, missing
        elif left == right:
            right = []
        if not right:
            return [(left, room)]
        right = without(right, shared_module(left, right))
        room -= 3
        need_left, need_right = line_width(left), line_width(right)
        if need_left + need_right <= room:
            return [(left, need_left), (right, need_right)]
        if left[-1] == right[-1] and not right[-1][1]:
            # Both end alike: the room is for what differs.
            right = [*right[:-1], ("…", "")]
            need_right = line_width(right)
        # The shorter one stays whole when it takes less than half.
        take_left = min(need_left, max(room // 2, room - need_right))
        return [(left, take_left), (right, min(need_right, room - take_left))]

    def _names(self, row: int) -> tuple[Line, Line]:
        """Return the names of a row, of b only what a says otherwise marked; empty where a side has none."""
        c = self.comparison
        i, j = int(c.row_a[row]), int(c.row_b[row])
        a, b = c.a.keys[i] if i >= 0 else "", c.b.keys[j] if j >= 0 else ""
        if i >= 0 and j >= 0:
            left, right = marked_keys(a, b)
        else:
            left, right = ([(safe_text(key, MAX_KEY_LENGTH), "")] for key in (a, b))
        pair = int(c.pair[row])
        if pair >= 0 and c.pairing.grouped[pair]:
            for side, line in enumerate((left, right)):
                more = int(self._group_sizes[side][pair]) - 1
                if more > 0:
                    line.append((f" +{more:,}", ""))
        return left, right

    def _original(self, row: int) -> str:
        c = self.comparison
        original = int(c.original[row])
        sides = [(c.a, int(c.row_a[original])), (c.b, int(c.row_b[original]))]
        if c.row_a[row] < 0:
            sides.reverse()
        log, record = next((side for side in sides if side[1] >= 0), sides[0])
        return f"#{original + 1} {safe_text(log.keys[record], MAX_KEY_LENGTH) if record >= 0 else ''}"

    def _via(self, row: int) -> str:
        p = self.comparison.pairing
        pair = int(self.comparison.pair[row])
        if pair < 0 or not self.columns.via:
            return ""
        method, confidence = Method(int(p.method[pair])).label, float(p.confidence[pair])
        # Rounding must not hide a doubt.
        doubt = "" if confidence >= 0.995 else f"{confidence:.2f}".lstrip("0")
        return doubt if self.columns.via < _VIA else f"{method}·{doubt}" if doubt else method

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


def _marks(line: Line) -> str:
    return "".join(text for text, role in line if role == "drift" and text != "…")


def _to_mark(line: Line, room: int) -> int:
    """Return the cells by which to scroll the end of a name so that its last marked part is seen."""
    after = 0
    for text, role in reversed(line):
        after += width_of(text)
        if role == "drift":
            return max(after + 1 - room, 0)
    return 0


def _typed(log: OpLog, record: int) -> tuple[str, str]:
    shape = safe_text(log.shape_text(record), 60).replace(", ", ",")
    return shape, short_dtype(log.dtype_text(record))


def usual_key(*logs: OpLog) -> int:
    """Return the largest 95th percentile of the key lengths of some logs, in bytes."""
    return max((int(np.percentile(np.diff(log.keys.start), 95)) - 1 for log in logs if len(log)), default=0)


def map_pieces(view: View, height: int, first: int, last: int) -> list[Line]:
    """Return the map of the run, per line of the screen: the lines that the screen shows, and where red is.

    Its targets are `map` and the line, for clicks.

    Args:
        first, last: first and last line of the map for the rows on the screen.
    """
    return [
        [("┃" if first <= y <= last else " ", ""), ("█", f"red@map {y}") if red else ("│", f"dim@map {y}")]
        for y, red in enumerate(view.map(height).tolist())
    ]
