"""Lines of styled text, cut and padded to terminal cells.

A line is a list of pieces, each a text and a role (`red`, `dim`, …) that app.tcss styles. Imports nothing slow: the
first screen is drawn with it.

A role may end in a target of the mouse: keys to press, `key@z t`, or what else the widget knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment

from numtui.text.pieces import Line, Piece
from numtui.text.safe import safe_text

__all__ = [
    "Line",
    "Piece",
    "first_key",
    "fit",
    "fit_line",
    "key_help",
    "key_line",
    "line_width",
    "side_titles",
    "target_at",
    "verdict_line",
    "width_of",
    "window",
    "wrap",
    "wrap_line",
]


def width_of(text: str) -> int:
    """Return the number of terminal cells of a text."""
    return len(text) if text.isascii() else cell_len(text)


def line_width(line: Iterable[Piece]) -> int:
    """Return the number of terminal cells of a line."""
    return sum(width_of(text) for text, _ in line)


def fit(text: str, width: int, *, keep_end: bool = False) -> str:
    """Fit a text to exactly `width` cells: pad on the right, or cut with an ellipsis at the end (or the start)."""
    have = width_of(text)
    if have <= width:
        return text + " " * (width - have)
    if width <= 1:
        return "…" * width
    if not keep_end:
        return set_cell_size(text, width - 1) + "…"
    tail = text[-(width - 1) :]
    while width_of(tail) > width - 1:
        tail = tail[1:]
    return "…" + tail + " " * (width - 1 - width_of(tail))


def verdict_line(subject: str, verdict: str, width: int) -> Line:
    """Return what a screen is about and its verdict, which comes first where only one of them has room."""
    text = f" {subject}: {verdict}"
    return [(text if width_of(text) <= width else f" {verdict} · {subject}", "title")]


def fit_line(line: Line, width: int) -> Line:
    """Fit a line to exactly `width` cells."""
    out: Line = []
    left = width
    for text, role in line:
        if left <= 0:
            break
        need = width_of(text)
        out.append((text if need <= left else fit(text, left), role))
        left -= min(need, left)
    if left > 0:
        out.append((" " * left, ""))
    return out


def window(line: Line, width: int, back: int = 0) -> Line:
    """Cut a line that is wider than `width` cells: keep its end, or what lies up to `back` cells before that.

    An ellipsis stands for each cut part, in the role of what it hides.
    """
    have = line_width(line)
    if have <= width:
        return line
    start = max(have - width - back, 0)
    end = start + max(width, 0)
    first, last = start + (start > 0), end - (end < have)
    shown: Line = []
    hidden = ["", ""]
    at = 0
    for text, role in line:
        cells = width_of(text)
        low, high = max(first - at, 0), min(last - at, cells)
        hidden = [hidden[0] or role * (low > 0), hidden[1] or role * (high < cells)]
        if low < high:
            # Half of a wide character becomes a blank.
            shown.append((Segment(text).split_cells(high)[0].split_cells(low)[1].text, role))
        at += cells
    return fit_line([("…", hidden[0])] * (start > 0) + shown + [("…", hidden[1])] * (end < have), width)


def first_key(label: str) -> str:
    """Return the first of alternative keys: `→` of `→ ←`."""
    return label.partition(" ")[0]


def target_at(line: Line, x: int) -> str:
    """Return the target of the piece at a cell; empty without one."""
    for text, role in line:
        if (x := x - width_of(text)) < 0:
            return role.partition("@")[2]
    return ""


def side_titles(names: tuple[str, str], limit: int) -> tuple[str, str]:
    """Return the headings of the two sides: `a: eager`, so that sentences can say "a"."""
    a, b = names
    return safe_text(a if a == "a" else f"a: {a}", limit), safe_text(b if b == "b" else f"b: {b}", limit)


def key_line(keys: tuple[tuple[str, str], ...], width: int) -> Line:
    """Return as many keys as fit, each with its description."""
    line: Line = []
    for key, does in keys:
        more = [(f" {key} ", f"key@{first_key(key)}"), (f"{does} ", f"dim@{first_key(key)}")]
        if line_width((*line, *more)) <= width:
            line += more
    return line


def key_help(keys: Mapping[str, str]) -> list[Line]:
    """Return a line of help for each key."""
    return [[(f"  {fit(key, 16)}", "key"), (f" {does}", "")] for key, does in keys.items()]


MAX_TEXT = 2000
"""Characters shown of one sentence: a key of a hostile log can be any length."""


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap a sentence to lines of `width` cells; a name that has no room in a line is broken behind `/`, `.` or `_`."""
    width = max(width, 8)
    lines, start = [""], 0
    for word in _WORDS.findall(safe_text(text, MAX_TEXT)):
        if word.isspace():
            lines[-1] += word * (len(lines[-1]) > start)
            continue
        for part in (word,) if width_of(word) <= width - len(indent) else _broken(word, width - len(indent)):
            if width_of(lines[-1]) + width_of(part) > width:
                lines[-1:] = [lines[-1].rstrip(), indent]
                start = len(indent)
            lines[-1] += part
    return [line.rstrip() for line in lines]


def _broken(word: str, width: int, signs: str = "/._") -> Iterator[str]:
    """Break a word behind the first of the signs that is in it, its parts behind the next, and at last anywhere."""
    if width_of(word) <= width:
        yield word
    elif signs:
        for part in re.findall(f"[^{signs[0]}]*{re.escape(signs[0])}+|[^{signs[0]}]+", word):
            yield from _broken(part, width, signs[1:])
    else:
        head = next(word[:n] for n in range(min(width, len(word)), 0, -1) if n == 1 or width_of(word[:n]) <= width)
        yield head
        yield from _broken(word[len(head) :], width, "")


_WORDS = re.compile(r"\s+|\S+")


def wrap_line(line: Line, width: int) -> list[Line]:
    """Wrap a line to `width` cells: its last piece is broken, with a hanging indent."""
    if not line or line_width(line) <= width:
        return [line]
    *head, (text, role) = line
    start = line_width(head)
    indent = start + len(text) - len(text.lstrip())
    first, *rest = wrap(text.strip(), max(width - indent - 1, 20))
    return [[*head, (" " * (indent - start) + first, role)], *([(" " * indent + part, role)] for part in rest)]
