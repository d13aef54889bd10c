"""Lines of the screen of an isolation: causes, modules with errors of their own, and the details of the chosen one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from numtui.report.isolated import MEASURE, headings, missed, others, place, sentence, title
from numtui.report.isolation import Found
from numtui.session.isolated import IsolatedCursor
from numtui.text.lines import Line, fit, key_help, key_line, verdict_line, wrap_line
from numtui.text.safe import safe_text

__all__ = ["HELP", "isolated_lines"]

_MAX_TEXT = 400
_KEYS = (("↓↑", "move"), ("enter", "explorer"), ("q", "quit"), ("?", "help"), ("space", "scroll"))
"""Keys, the most important first."""

HELP: Sequence[Line] = [
    *key_help(
        {
            "↓ ↑  j k": "another cause or module",
            "g  G  home  end": "the first, the last",
            "space  b": "scroll the details down, up",
            "enter": "open the explorer on the last comparison, at the cause or the module's first red row",
            "ctrl+l": "redraw",
            "q": "quit",
        }
    ),
    [],
    [("  In the last comparison b was given what a kept behind each cause, so that only the causes are left.", "")],
    [(f"  {MEASURE}.", "")],
]


def isolated_lines(cursor: IsolatedCursor, width: int, height: int) -> tuple[list[Line], list[int]]:
    """Return the lines of the screen, and by line the item that a click chooses (-1: none)."""
    found = cursor.found
    lines: list[Line] = [verdict_line(safe_text(" ⇄ ".join(found.names), _MAX_TEXT), found.result, width)]
    items = [-1]
    listed, numbers = _listed(cursor, width)
    details = [part for line in _details(cursor) for part in wrap_line(line, width)]
    room = max(height - 3 - min(len(details), max(height // 3, 3)), 1)
    chosen = numbers.index(cursor.at) if cursor.at in numbers else 0
    start = min(max(chosen - room // 2, 0), max(len(listed) - room, 0))
    lines += listed[start : start + room]
    items += numbers[start : start + room]
    room = max(height - len(lines) - 2, 0)
    cursor.top = min(cursor.top, max(len(details) - room, 0))
    lines += [[], *details[cursor.top : cursor.top + room]]
    if len(details) > cursor.top + room > 0:
        lines[-1] = [("  more: space", "dim@space")]
    lines += [[] for _ in range(height - 1 - len(lines))]
    last: Line = [(f" {safe_text(cursor.message, 500)}", "red")] if cursor.message else key_line(_KEYS, width)
    lines = [*lines[: height - 1], last]
    return lines, [*items, *[-1] * len(lines)][: len(lines)]


def _listed(cursor: IsolatedCursor, width: int) -> tuple[list[Line], list[int]]:
    """Return the lines of the list, and their items."""
    causes = cursor.found.causes
    lines, numbers = [], []
    for number, cause in enumerate(causes):
        begin = f" {number + 1:>{len(str(len(causes)))}} "
        line = safe_text(cause.line, 60)
        name = fit(title(cause), max(width - len(begin) - len(line) - 3, 8))
        lines.append([(begin, "red"), (f"{name}  {line}", "chosen" if number == cursor.at else "")])
        numbers.append(number)
    if modules := [item for item in cursor.items if not isinstance(item, Found)]:
        rows = headings(modules)
        sizes = [max(len(row[k]) for row in rows) for k in range(1, 5)]
        room = min(max(len(row[0]) for row in rows), max(width - sum(sizes) - 11, 8))
        for number, row in enumerate(rows, len(causes) - 1):
            cells = [fit(row[0], room, keep_end=True), *(row[k + 1].rjust(sizes[k]) for k in range(4))]
            head = number < len(causes)
            role = "dim" if head else "chosen" if number == cursor.at else ""
            lines.append([("  ", ""), ("  ".join(cells), role)])
            numbers.append(-1 if head else number)
    return lines, numbers


def _details(cursor: IsolatedCursor) -> Iterator[Line]:
    found, item = cursor.found, cursor.item
    if isinstance(item, Found):
        yield [(f" {title(item)}", "cause")]
        yield [(f" {place(item)}", "")]
        yield [(f" {sentence(item)}", "")]
    elif item is not None:
        yield [(f" {safe_text(item.module, _MAX_TEXT)}", "cause")]
        yield [(f" {MEASURE}", "")]
    for told in filter(None, (found.open, missed(found))):
        yield [(f" {safe_text(told, _MAX_TEXT)}", "")]
    if left := others(found):
        yield [(f" {left}", "dim")]
