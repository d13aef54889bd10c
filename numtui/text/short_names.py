"""Operation names cut in the middle: the layer stays, and the end, so that no two look alike."""

from __future__ import annotations

import re
from typing import Final

from numtui.text.lines import Line, width_of, window
from numtui.text.names import MAX_KEY_LENGTH
from numtui.text.safe import safe_text

__all__ = ["cut_middle", "shortened"]

_OPERATION: Final = re.compile(r"/op_\d+_|/")
_SEPARATOR: Final = re.compile("[./]")


def shortened(key: str, width: int) -> str:
    """Fit a key to `width` cells: `layers.2…wqkv/op_0_mm`."""
    return "".join(text for text, _ in cut_middle([(safe_text(key, MAX_KEY_LENGTH), "")], width))


def cut_middle(line: Line, width: int) -> Line:
    """Fit a key to `width` cells; an ellipsis stands for each part left out, in the role of where it begins.

    The first two parts (`layers.2`) stay, and as many of the last as have room: `layers.2…wqkv/op_0_mm`. Of an
    operation that is itself too long its number and end stay: `layers.2…/op_0_…ention_for_cpu`.
    """
    text = "".join(part for part, _ in line)
    if width_of(text) <= width:
        return line
    kept = _kept(text, width) if text.isascii() else None
    if kept is None:
        return window(line, width)
    out, hidden = _sliced(line, *kept[0]), kept[0][1]
    for start, end in kept[1:]:
        out += [("…", role) for _, role in _sliced(line, hidden, start)[:1]] + _sliced(line, start, end)
        hidden = end
    return out


def _kept(key: str, width: int) -> tuple[tuple[int, int], ...] | None:
    """Return the stretches of a key that stay; None where only its end has room."""
    ends = [found.start() for found in _SEPARATOR.finditer(key)]
    operation = key.rfind("/")
    head = max((end for end in ends[:2] if end <= operation), default=0)
    if not head:
        return None
    # A dot where the rest begins is left out, a slash says that an operation follows.
    starts = (end + (key[end] == ".") for end in ends if end >= head)
    tail = next((start for start in starts if len(key) - start <= width - head - 1), None)
    if tail is not None:
        return (0, head), (tail, len(key))
    number = _OPERATION.match(key, operation)
    room = width - head - 1 - (head < operation) - (number.end() - operation if number is not None else 0)
    return ((0, head), number.span(), (len(key) - room, len(key))) if number is not None and room >= _LEAST else None


_LEAST: Final = 4
"""Cells of the end of an operation's name that say something."""


def _sliced(line: Line, start: int, end: int) -> Line:
    """Return the characters from `start` to `end` (exclusive) of a line."""
    out: Line = []
    for text, role in line:
        if max(start, 0) < min(end, len(text)):
            out.append((text[max(start, 0) : end], role))
        start, end = start - len(text), end - len(text)
    return out
