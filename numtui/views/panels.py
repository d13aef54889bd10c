"""Entries of the panels over the list: first causes, path to the cause, neighbours, places.

Pure text. An `Entry` is one choice, on one line or several; a panel (tui/screens/panel.py) shows a list of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from matchers.causes.consequences import Cause
from matchers.comparison import Comparison
from matchers.explain.first_difference import first_difference_note, first_difference_reasons
from matchers.explain.sentences import format_error
from matchers.single_run import explained
from matchers.status import Status
from numtui.query.flow import Hop, Neighbour
from numtui.query.grouping import RowGroup
from numtui.report.explanation import WITH_WAY, RowExplanation
from numtui.text.glyphs import GLYPHS, STYLES
from numtui.text.lines import Line, fit, width_of, wrap
from numtui.text.safe import safe_text
from numtui.text.short_names import shortened
from numtui.views.table import CAUSE, bar_of, number_of

__all__ = [
    "Entry",
    "cause_entries",
    "causes_title",
    "filter_entries",
    "group_entries",
    "neighbour_entries",
    "place_entries",
    "row_line",
    "uncompared_entries",
    "explanation_entries",
]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a panel; `row` is its row of the comparison, -1 where it cannot be chosen."""

    lines: tuple[Line, ...]
    row: int = -1


_WIDE = 110
"""Minimum width for an error bar."""


def row_line(c: Comparison, row: int, width: int, tag: str = "", aside: str = "") -> Line:
    """Format a row on one line: number, glyphs, keys, error, source line.

    Args:
        tag: short text in front.
        aside: text at the end, in place of the source line.
    """
    status = Status(int(c.status[row]))
    role = STYLES.get(status, "dim")
    number = str(row + 1).rjust(max(len(str(len(c))), 3))
    bar = 6 if width >= _WIDE else 0
    place = min(max(width // 4, 16), 44)
    room = width - width_of(tag) - len(number) - 6 - 9 - bar - place
    log, record = c.shown(row)
    aside = safe_text(aside or log.location_text(record), 200)
    cause = bool(c.cause[row])
    return [
        (f"{tag}{number} ", ""),
        (CAUSE + " " if cause else "  ", "cause"),
        (f"{GLYPHS[status]} ", role),
        (_keys(c, row, max(room, 8)) + " ", ""),
        (number_of(c, row).ljust(9) + (bar_of(c, row, bar - 1) + " " if bar else ""), role),
        (fit(aside, place, keep_end=True), "dim"),
    ]


def _keys(c: Comparison, row: int, width: int) -> str:
    """Return the key of a row; both where they differ."""
    found = [safe_text(log.keys[i], 400) for log, i in ((c.a, int(c.row_a[row])), (c.b, int(c.row_b[row]))) if i >= 0]
    left, *other = dict.fromkeys(found)
    if not other:
        return fit(shortened(left, width), width)
    room = width - 3
    take = min(width_of(left), max(room // 2, room - width_of(other[0])))
    return f"{shortened(left, take)} ⇄ {fit(shortened(other[0], room - take), room - take)}"


def causes_title(c: Comparison) -> str:
    """Return the number of first causes, with the number of starting rows (as in the header) where it is larger."""
    starts = c.consequences.starts
    rows = sum(map(len, starts))
    told = [f"{len(starts):,}"]
    if (followed := len(c.consequences.causes)) < len(starts):
        told[0] = f"the earliest {followed:,} of {len(starts):,}"
    if rows > len(starts):
        told.append(f"{rows:,} rows start them")
    further = f", {len(c.further_causes):,} further" if c.further_causes else ""
    return f"first causes ({', '.join(told)}){further}"


def cause_entries(c: Comparison, follows: Sequence[str], width: int) -> list[Entry]:
    """List the first causes, those that explain most first, and the first difference where it is apart from them.

    Args:
        follows: the consequences of each, in a sentence.
    """
    indent = " " * 6
    entries = []
    for number, (cause, sentence) in enumerate(zip(c.consequences.causes, follows, strict=True), 1):
        lines = [row_line(c, cause.rows[0], width, f" {number:>3}  ")]
        lines += [[(indent + text, "")] for text in wrap(sentence, width - len(indent) - 1)]
        if growth := _growth(c, cause):
            lines += [[(indent + text, "dim")] for text in wrap(growth, width - len(indent) - 1)]
        entries.append(Entry(tuple(lines), cause.rows[0]))
    for rows in c.further_causes:
        told = wrap(explained(c, rows[0]).headline, width - len(indent) - 1)
        lines = [row_line(c, rows[0], width, "   +  "), *([(indent + text, "")] for text in told)]
        entries.append(Entry(tuple(lines), rows[0]))
    found = c.first_difference
    if found is not None and not c.cause[found.row]:
        said = "; ".join((first_difference_note(c), *first_difference_reasons(c)))
        apart = [[(indent + text, "")] for text in wrap(said, width - len(indent) - 1)]
        entries.append(Entry((row_line(c, found.row, width, "      "), *apart), found.row))
    return entries


def _growth(c: Comparison, cause: Cause) -> str:
    """Draw the largest errors of each phase as a curve: `forward 2–31 ▃▄▄▅ 1e-02 → 4e-01`."""
    told = []
    for phase in dict.fromkeys(step.phase for step in cause.growth):
        steps = [step for step in cause.growth if step.phase is phase]
        placed = [step.place for step in steps if step.place]
        layers = "–".join(dict.fromkeys((*placed[:1], *placed[-1:])))
        sizes = dict.fromkeys(format_error(step.error, bool(c.bound[step.row])) for step in (steps[0], steps[-1]))
        each = -(-len(steps) // _CURVE)
        curve = "".join(
            _LEVELS[_level(max(step.error for step in steps[at : at + each]))] for at in range(0, len(steps), each)
        )
        told.append(" ".join(part for part in (phase.label, layers, curve, " → ".join(sizes)) if part))
    return "growth: " + " · ".join(told) if len(cause.growth) > 1 else ""


_LEVELS = "▁▂▃▄▅▆▇█"
_CURVE = 32
"""Maximum cells of a curve; with more layers, each cell shows the worst of several."""


def _level(error: float) -> int:
    """Return the height of an error in a curve: 0 at 1e-8, full at 1, linear in the exponent."""
    if error <= 0:
        return 0
    top = len(_LEVELS) - 1
    return top if math.isinf(error) else min(max(round((math.log10(error) + 8) / 8 * top), 0), top)


def explanation_entries(c: Comparison, told: RowExplanation, width: int) -> list[Entry]:
    """List the sentences by section, among them the hops of the path to the first cause, the row itself first."""
    entries = []
    for title, sentences in told.steps.items():
        entries.append(_heading(title))
        for sentence in sentences:
            lines = tuple([("   " + text, "")] for text in wrap(sentence.text, width - 4, "  "))
            entries.append(Entry(lines, sentence.row if sentence.row >= 0 else told.row))
        if title == WITH_WAY:
            entries += [Entry((row_line(c, hop.row, width, "   ", _read(c, hop)),), hop.row) for hop in told.hops]
    return entries


def _read(c: Comparison, hop: Hop) -> str:
    """Return the source line and the input that the next hop produced."""
    log, record = c.shown(hop.row)
    place = log.location_text(record)
    return place if hop.position < 0 else f"{place}  ↓ input {hop.position}"


def neighbour_entries(
    c: Comparison, row: int, before: Sequence[Neighbour], after: Sequence[Neighbour], width: int
) -> list[Entry]:
    """List the producers, the row itself, and its consumers."""

    def listed(found: Iterable[Neighbour], sign: str) -> list[Entry]:
        return [
            Entry((row_line(c, n.row, width, f"  {sign} {n.position:<3} {_sides(c, row, n.sides)} "),), n.row)
            for n in found
        ]

    entries = [_heading("input  producer"), *listed(before, "←")]
    if not before:
        entries.append(_said("no captured op: parameters, data, or uncaptured ops", width))
    entries += [_heading("the row"), Entry((row_line(c, row, width, " " * 11),), row), _heading("consumers, by input")]
    entries += listed(after, "→")
    if not after:
        entries.append(_said("no captured op", width))
    return entries


def _sides(c: Comparison, row: int, sides: str) -> str:
    """Return the run that has an edge, where the row is in both runs and only one has it."""
    both = c.row_a[row] >= 0 and c.row_b[row] >= 0
    return "  " if not both or sides == "ab" else f"{sides} "


def place_entries(
    c: Comparison, letters: dict[int, str], noted: Sequence[tuple[int, str]], jumps: Sequence[int], width: int
) -> list[Entry]:
    """List marks, notes and jump origins; empty sections have no heading."""
    entries: list[Entry] = []
    if letters:
        entries.append(_heading("marks"))
        entries += [Entry((row_line(c, row, width, f"  '{marks:<4} "),), row) for row, marks in sorted(letters.items())]
    if noted:
        entries.append(_heading("notes"))
        for row, text in noted:
            lines: list[Line] = [[(" " * 8 + part, "key")] for part in wrap(text, width - 9)]
            entries.append(Entry((row_line(c, row, width, " " * 8), *lines), row))
    if jumps:
        entries.append(_heading("jumps, latest first"))
        entries += [Entry((row_line(c, row, width, " " * 8),), row) for row in jumps]
    return entries


def _heading(text: str) -> Entry:
    return Entry(([(f" {text}", "title")],))


def _said(text: str, width: int) -> Entry:
    return Entry(tuple([(f"   {part}", "close")] for part in wrap(text, width - 4)))


_MAX_GROUPS = 300
"""Groups that are listed: more than anybody reads."""


def group_entries(groups: Sequence[RowGroup], width: int, *, single: bool) -> list[Entry]:
    """The lines of a panel of groups; `single`: of one log, whose column of errors holds magnitudes."""
    room = max(width - 36, 20)
    entries = []
    for group in groups[:_MAX_GROUPS]:
        role = "red" if group.red else ""
        error = ""
        if not math.isnan(group.error):
            error = f"{group.error:.3g}" if single else format_error(group.error, group.bound)
        name = safe_text(group.name, 400) if group.name else "(the logs do not say)"
        entries.append(
            Entry(
                (
                    [
                        (f"  {fit(name, room, keep_end=True)} ", role),
                        (f"{group.red:>6,} red ", role if group.red else "dim"),
                        (f"of {group.rows:>7,}  ", "dim"),
                        (fit(error, 10), role),
                    ],
                ),
                group.worst,
            )
        )
    if (more := len(groups) - _MAX_GROUPS) > 0:
        entries.append(Entry(([(f"  … and {more:,} groups with less in them: a filter first leaves fewer", "dim")],)))
    return entries


def uncompared_entries(c: Comparison, told: Sequence[tuple[int, str]], more: int, width: int) -> list[Entry]:
    """List rows that were not compared, each with its reason; `more`: how many are left out."""
    entries = []
    for row, reason in told:
        why: list[Line] = [[(f"        {text}", "dim")] for text in wrap(reason, width - 9)]
        entries.append(Entry((row_line(c, row, width, " "), *why), row))
    return [*entries, *([Entry(([(f"  … and {more:,} more", "dim")],))] if more else [])]


def filter_entries(saved: Mapping[str, str], width: int) -> list[Entry]:
    """The saved filters: name and query."""
    return [
        Entry(([(f"  {fit(name, 20)} ", "key"), (safe_text(text, max(width - 26, 10)), "")],), row)
        for row, (name, text) in enumerate(saved.items())
    ]
