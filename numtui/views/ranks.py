"""Lines of the overview of ranks: classes, matrix of ranks and stretches of the step, details of the cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from matchers.runs.diff.classes import Kind, RankClass
from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.summary import Event, Outcome, RankSummary
from matchers.status import Status
from numtui.report.runs import words
from numtui.report.runs.matrix import NOT_READ, Row, layer_of, legend, sign_of
from numtui.session.ranks import RanksCursor
from numtui.text.counts import plural
from numtui.text.glyphs import GLYPHS, STYLES, WORDS
from numtui.text.lines import (
    Line,
    fit,
    fit_line,
    key_help,
    key_line,
    line_width,
    verdict_line,
    width_of,
    wrap,
    wrap_line,
)
from numtui.text.ranks import ranges, ranks_words
from numtui.text.safe import safe_text

__all__ = ["HELP", "last_top", "next_column", "ranks_lines"]

_MAX_TEXT = 400
_MAX_NAME = 60
_MAX_LABEL = 38
_MAX_RANKS = 24
"""Characters of a list of ranks; longer ones are in the details."""
_ROOMY = 20
"""Lines of a terminal that leave some blank."""

_KEYS = (
    ("↓↑", "rank"),
    ("←→", "step"),
    ("enter", "explorer"),
    ("o", "origin"),
    ("q", "quit"),
    ("?", "help"),
    ("n", "next red"),
    ("tab", "class"),
    ("f", "fold"),
    ("space", "scroll"),
)
"""Keys, the most important first."""

HELP: Sequence[Line] = [
    *key_help(
        {
            "↓ ↑  j k": "another rank",
            "← →  h l": "another stretch of the step",
            "g  G  home  end": "first, last rank",
            "n  N": "next, previous red rank",
            "tab  shift+tab": "next, previous class of ranks",
            "o": "where the divergence of this rank began; again, where the next one did",
            "f": "join ranks that look alike in one row, or list all",
            "space  b": "scroll the details down, up",
            "enter": "open the explorer on this rank, at this stretch; there } and { change the rank",
            "ctrl+l": "redraw",
            "q": "quit",
        }
    ),
    [],
    [("  A class is the ranks that the same divergence reached. The matrix has a column per stretch of", "")],
    [("  the step: a phase and a layer. Where the terminal is narrow, a sign stands for several of them.", "")],
    [],
    *([(f"  {text}", "")] for text in wrap(f"{legend()}  blank: this rank has nothing there", 76)),
]


def ranks_lines(cursor: RanksCursor, width: int, height: int) -> tuple[list[Line], list[int]]:
    """Return the lines of the screen, and by line the rank that a click chooses (-1: none)."""
    classes, rows, room = _shares(cursor, height)
    label = _label_width(cursor, rows, width)
    groups = _groups(cursor, width - label)
    step = 2 if 2 * len(groups) < width - label else 1
    names = " ⇄ ".join(words.short_name(name) for name in cursor.runs.names)
    lines: list[Line] = [verdict_line(names, words.result(cursor.runs), width)]
    items = [-1]
    for at in classes:
        lines.append(_class_line(cursor, at))
        items.append(cursor.runs.classes[at].ranks[0])
    if height > _ROOMY:
        lines.append(_more(len(cursor.runs.classes) - len(classes), "class", "classes", "tab"))
    lines += [_cell_line(cursor), _phases(cursor, label, groups, step)]
    if height > _ROOMY:
        lines.append(_layers(cursor, label, groups, step))
    items += [-1] * (len(lines) - len(items))
    matrix = len(lines)
    for at in rows:
        lines.append(_row_line(cursor, at, label, groups, step))
        items.append(cursor.rows[at].ranks[0])
    if height > _ROOMY:
        lines.append(_more(len(cursor.rows) - len(rows), "row", "rows", "j") or _legend(lines[matrix:]))
    details = _details(cursor, width)
    shown = details[cursor.top : cursor.top + room]
    if len(details) > cursor.top + room > 0 and shown:
        shown[-1:] = [[("  more: space", "dim@space")]]
    lines += shown
    lines += [[] for _ in range(height - 1 - len(lines))]
    last: Line = [(f" {safe_text(cursor.message, 500)}", "")] if cursor.message else key_line(_KEYS, width)
    lines = [line if line_width(line) <= width else fit_line(line, width) for line in (*lines[: height - 1], last)]
    return lines[-height:], [*items, *[-1] * len(lines)][: len(lines)]


def _more(number: int, one: str, many: str, key: str) -> Line:
    """Return how many more there are than are listed; a blank line for none."""
    return [(f"  {plural(number, f'more {one}', f'more {many}')}: {key}", f"dim@{key}")] if number else []


def last_top(cursor: RanksCursor, width: int, height: int) -> int:
    """Return how many lines of the details can be scrolled away."""
    return max(len(_details(cursor, width)) - max(_shares(cursor, height)[2], 1), 0)


def next_column(cursor: RanksCursor, width: int, height: int, by: int) -> int:
    """Return the worst column, on the rank, of the next cell of the matrix, or of the previous one."""
    groups = _groups(cursor, width - _label_width(cursor, _shares(cursor, height)[1], width))
    at = next((n for n, columns in enumerate(groups) if cursor.column in columns), 0) + by
    if not 0 <= at < len(groups):
        return cursor.column
    cells = cursor.row.cells
    return max(
        groups[at], key=lambda column: (column in cursor.row.began, cells[column].worst if column in cells else -1)
    )


def _shares(cursor: RanksCursor, height: int) -> tuple[range, range, int]:
    """Return the listed classes and rows, around the cursor, and the number of lines of the details."""
    room = height - (7 if height > _ROOMY else 4)
    classes = _around(cursor.class_at, len(cursor.runs.classes), max(room // 4, 1))
    rows = _around(cursor.at, len(cursor.rows), max(room - len(classes) - max(room // 3, 3), 1))
    return classes, rows, max(room - len(classes) - len(rows), 0)


def _around(at: int, number: int, room: int) -> range:
    shown = min(number, room)
    start = min(max(at - shown // 2, 0), number - shown)
    return range(start, start + shown)


# -- title and classes


_SIGNS: Final = {
    Kind.RED: (GLYPHS[Status.DIVERGED], "red"),
    Kind.NOT_COMPARED: (NOT_READ, "alone"),
    Kind.CLOSE: (GLYPHS[Status.CLOSE], "close"),
    Kind.EQUAL: (GLYPHS[Status.EQUAL], "dim"),
}


def _class_line(cursor: RanksCursor, at: int) -> Line:
    each = cursor.runs.classes[at]
    glyph, role = _SIGNS[each.kind]
    place = f"  {safe_text(each.place, _MAX_NAME)}" if each.place else ""
    return [
        (f" {glyph} ", role),
        (f"{_ranks(each.ranks, _MAX_RANKS)}{place}", "title" if at == cursor.class_at else ""),
        (f"  {' · '.join(filter(None, _class_facts(cursor.runs, each)))}", ""),
    ]


def _class_facts(runs: RunComparison, each: RankClass) -> Iterator[str]:
    """Yield operation, number of red rows, and the way on which it came."""
    if not each.origins:
        yield ": ".join(filter(None, (words.class_state(each), words.class_words(runs, each))))
        return
    origin = runs.traced.origins[each.origins[0]]
    yield f"{words.short_name(origin.event.key)}" + (
        f", {words.short_name(origin.event.location)}" if origin.event.location else ""
    )
    red = [runs.summaries[rank].red for rank in each.ranks]
    if any(red):
        spread = f"{min(red):,}–{max(red):,}" if min(red) != max(red) else f"{red[0]:,}"
        yield f"{spread} red {'row' if max(red) == 1 else 'rows'}"
    here = [rank for rank in each.ranks if rank in origin.events]
    ways = dict.fromkeys(
        words.short_name(origin.reached[rank].by.does) for rank in each.ranks if rank in origin.reached
    )
    if here and len(here) < len(runs.summaries):
        yield f"began on {ranks_words(here)}"
    if ways:
        more = f" and {plural(len(ways) - 1, 'other way')}" if len(ways) > 1 else ""
        yield f"reached through {next(iter(ways))}{more}"
    if len(each.origins) > 1:
        yield plural(len(each.origins), "origin")


# -- matrix


def _groups(cursor: RanksCursor, room: int) -> tuple[range, ...]:
    """Return the columns that share a cell of the matrix where there is no room for all."""
    number = len(cursor.columns)
    cells = min(number, max(room - 1, 1))
    return tuple(range(at * number // cells, (at + 1) * number // cells) for at in range(cells))


def _label(row: Row) -> str:
    where = " ".join(f"{safe_text(name, 12)}={n}" for name, n in row.coordinates.items())
    return f" {_ranks(row.ranks, _MAX_RANKS)}  {where}".rstrip()


def _ranks(ranks: Sequence[int], limit: int) -> str:
    """Return `ranks 0–3, 8`; of ranks that take more characters, how many they are."""
    text = ranks_words(ranks)
    return text if len(text) <= limit else f"{len(ranks):,} ranks ({ranks[0]}, …)"


def _label_width(cursor: RanksCursor, rows: range, width: int) -> int:
    longest = max(width_of(_label(cursor.rows[at])) for at in rows)
    return min(longest + 2, _MAX_LABEL, max(width // 2, 1))


def _cell_line(cursor: RanksCursor) -> Line:
    """Return the phase and the layer of the cell under the cursor, and what is there."""
    if not cursor.columns:
        return []
    phase, place = (safe_text(text, _MAX_NAME) for text in cursor.columns[cursor.column])
    line: Line = [(f" {phase} · {place or 'outside modules'}", "title")]
    if cursor.column in cursor.row.began and cursor.event is not None:
        sign, role = sign_of(cursor.row, range(cursor.column, cursor.column + 1), equal=False)
        line.append((f"  {sign} began here", role))
    if (cell := cursor.cell) is not None:
        red = f", {plural(cell.red, 'red row')}" if cell.red else ""
        status = cell.worst
        line.append((f"  {GLYPHS[status]} {WORDS[status] or status.label}{red}", STYLES.get(status, "dim")))
    elif cursor.summary.outcome == Outcome.COMPARED:
        line.append((f"  rank {cursor.rank} has no such operation", "dim"))
    return line


def _phases(cursor: RanksCursor, label: int, groups: Sequence[range], step: int) -> Line:
    """Return the name of each phase over its columns, as much of it as there is room for."""
    text = ""
    for phase, columns in groupby(cursor.columns[group[0]][0] for group in groups):
        room = step * len(list(columns))
        text += fit(safe_text(phase, 20)[: max(room - 1, 1)], room)
    return [(" " * label + text, "dim")]


def _legend(rows: Sequence[Line]) -> Line:
    """Return the meaning of the signs in some rows of the matrix."""
    return [(f" {legend({sign for row in rows for sign, _ in row[1:]})}", "dim")]


def _layers(cursor: RanksCursor, label: int, groups: Sequence[range], step: int) -> Line:
    """Return the numbers of the layers over their columns, as many as have room."""
    text = " " * label
    for at, columns in enumerate(groups):
        number = layer_of(cursor.columns[columns[0]][1])
        before = label + at * step
        if number and (before >= len(text) + (len(text) > label) or before == label):
            text = text.ljust(before) + number
    return [(text, "dim")]


def _row_line(cursor: RanksCursor, at: int, label: int, groups: Sequence[range], step: int) -> Line:
    row, here = cursor.rows[at], at == cursor.at
    text = fit(_label(row), label - 1) + " "
    line: Line = [(f"▸{text[1:]}", "title") if here else (text, "")]
    summary = cursor.runs.summaries[row.ranks[0]]
    if not summary.read:
        return [*line, (f"{NOT_READ} {_why(summary)}", "alone")]
    if not groups:
        return [*line, (f"{GLYPHS[Status.EQUAL]} equal", "dim")]
    for columns in groups:
        chosen = here and cursor.column in columns
        glyph, role = sign_of(row, columns, equal=summary.outcome == Outcome.EQUAL)
        line += [(glyph, "chosen" if chosen else role), (" " * (step - 1), "")]
    return line


# -- details


def _details(cursor: RanksCursor, width: int) -> list[Line]:
    return [part for text, role in _facts(cursor) for part in wrap_line([(f" {text}", role)], width)]


def _facts(cursor: RanksCursor) -> Iterator[tuple[str, str]]:
    """Yield sentences on the rank with their roles: the event of the cell, else the first one of the rank."""
    summary = cursor.summary
    yield _about(summary), "title"
    if len(cursor.row.ranks) > 1:
        yield f"the row has {len(cursor.row.ranks):,} ranks alike: {ranges(cursor.row.ranks)} (f lists them)", "dim"
    if not summary.read:
        yield _why(summary), "alone"
    elif summary.outcome == Outcome.EQUAL:
        yield f"all {plural(summary.rows, 'record')} equal by the digests at the end of both logs", ""
    elif not cursor.events:
        yield "no difference", ""
    event = cursor.event or next(iter(cursor.events), None)
    if event is not None:
        yield from _event_facts(cursor, event)
    if (number := max(summary.cause_count, len(summary.causes)) - 1) > 0:
        yield f"{plural(number, 'other first cause')} on this rank", "dim"
    yield from ((safe_text(text, _MAX_TEXT), "close") for text in summary.troubles)
    yield from ((safe_text(text, _MAX_TEXT), "") for _, text in summary.notes)
    for name, path in zip(cursor.runs.names, summary.paths, strict=True):
        if path:
            yield f"{safe_text(name, _MAX_NAME)}: {safe_text(path, _MAX_TEXT)}", "dim"


def _about(summary: RankSummary) -> str:
    """Return `rank 2 · dp=1 tp=0 · node n7 · 12 of 312 rows red`."""
    where = " ".join(f"{safe_text(name, 20)}={n}" for name, n in summary.coordinates.items())
    host = f"node {safe_text(summary.host, 40)}" if summary.host else ""
    red = f"{summary.red:,} of {plural(summary.rows, 'row')} red" if summary.read else ""
    return " · ".join(filter(None, (f"rank {summary.rank}", where, host, red)))


def _why(summary: RankSummary) -> str:
    return safe_text(f"{summary.outcome.label}: {summary.why}" if summary.why else summary.outcome.label, _MAX_TEXT)


def _event_facts(cursor: RanksCursor, event: Event) -> Iterator[tuple[str, str]]:
    yield safe_text(event.text, _MAX_TEXT), "cause"
    yield " · ".join(filter(None, (words.event_place(event), words.event_lines(event)))), ""
    if event.red:
        yield f"explains {plural(event.red, 'red row')} of this rank", ""
    yield from ((text, "") for text in _ways(cursor, event))


def _ways(cursor: RanksCursor, event: Event) -> Iterator[str]:
    """Yield where an event came from, or to which ranks it went."""
    origins = cursor.runs.traced.origins
    for number, origin in enumerate(origins):
        reached = origin.reached.get(cursor.rank)
        if reached is not None and reached.event is event:
            senders = f", from {ranks_words(reached.senders)}" if reached.senders else ""
            yield f"came through {words.by_words(reached.by)}{senders}; began on {words.began(cursor.runs, origin)}:"
            yield f"  {words.event_place(origin.event)}  (o goes there)"
        if origin.events.get(cursor.rank) is event:
            order = words.order_words(number, origins)
            yield f"began on {words.began(cursor.runs, origin)}" + (f" ({order})" if order else "")
            yield from (f"reached {way}" for way in words.reached_words(origin))
