"""Two operation names beside each other: the parts that differ, for the screen and the HTML report."""

from __future__ import annotations

import re
from typing import Final

from numtui.text.pieces import Line, Piece
from numtui.text.safe import safe_text

__all__ = ["MAX_KEY_LENGTH", "marked_keys", "shared_module", "without"]

_PARTS: Final = re.compile(r"[./_]|[^./_]+")
_SIGNS: Final = "./_"
MAX_KEY_LENGTH: Final = 400
"""Characters shown of a key; a hostile log can have longer ones."""


def marked_keys(a: str, b: str) -> tuple[Line, Line]:
    """Split two keys into pieces; those missing in the other key get the role `drift`."""
    a, b = safe_text(a, MAX_KEY_LENGTH), safe_text(b, MAX_KEY_LENGTH)
    if a == b:
        return [(a, "")], [(b, "")]
    from rapidfuzz.distance import Indel  # here: saves the first screen 10 ms

    parts = _PARTS.findall(a), _PARTS.findall(b)
    lines: tuple[list[Piece], list[Piece]] = [], []
    for step in Indel.opcodes(*parts):
        role = "" if step.tag == "equal" else "drift"
        ends = (step.src_start, step.src_end), (step.dest_start, step.dest_end)
        for line, part, (start, end) in zip(lines, parts, ends, strict=True):
            if start < end:
                line.append(("".join(part[start:end]), role))
    return _joined(lines[0]), _joined(lines[1])


def _joined(line: Line) -> Line:
    """Join marked parts with the one sign between them: `wait_tensor` is one name."""
    joined: Line = []
    for i, (text, role) in enumerate(line):
        between = 0 < i < len(line) - 1 and text in _SIGNS and line[i - 1][1] == line[i + 1][1] == "drift"
        role = "drift" if between else role
        if joined and joined[-1][1] == role:
            text = joined.pop()[0] + text
        joined.append((text, role))
    return joined


def shared_module(left: Line, right: Line) -> int:
    """Return the length of the module with its slash that two names begin with; 0 for different ones."""
    a, b = ("".join(text for text, _ in line) for line in (left, right))
    module, slash, _ = a.rpartition("/")
    return len(module) + 1 if slash and b.startswith(module + slash) else 0


def without(line: Line, count: int) -> Line:
    """Return a line without its first characters."""
    rest: Line = []
    for text, role in line:
        rest += [(text[count:], role)] * (count < len(text))
        count = max(count - len(text), 0)
    return rest
