"""Summary of the two runs: breadcrumb, messages about rules and coverage, and the page about the logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from matchers.comparison import Comparison
from matchers.explain.step_numbers import step_numbers
from matchers.logs.op_log import OpLog, Phase
from matchers.logs.reader_library import notice
from matchers.logs.tells import IMPORTED
from matchers.ops.run_info import Severity
from matchers.status import Status
from numtui.query.source_line import source_lines, split_location
from numtui.query.view import Order, StatusGroup
from numtui.session.jobs import RulesEffect
from numtui.session.listing import Listing
from numtui.session.session import Session
from numtui.text.counts import plural
from numtui.text.lines import MAX_TEXT, Line, fit, line_width, width_of
from numtui.text.safe import safe_text

__all__ = ["all_agree", "breadcrumb", "comparability", "incomplete", "info", "join", "rule_trouble", "rules_effect"]

_MIN_MODULE_PATH = 12
"""Cells that a source line leaves to the module path."""
_WIDE = 100
"""Minimum width to name the first difference, whose sign stands before its row anyway."""
_MAX_LOCATION = 60
"""Characters shown of a source line."""
_MAX_PROBLEMS = 200
"""Problems of a log listed; the rest is counted."""
_MAX_SENTENCE = 600


def join(left: Line, right: Line, width: int) -> Line:
    """Join two lines, the right one at the right edge; the left one is cut to fit."""
    room = max(width - line_width(right) - 1, 0)
    out: Line = []
    for text, role in left:
        if (have := width_of(text)) > room:
            out.append((text[: max(room - 1, 0)] + "…" if room else "", role))
            room = 0
            break
        out.append((text, role))
        room -= have
    return [*out, (" " * (room + 1), ""), *right]


def incomplete(log: OpLog) -> bool:
    """True when operations are missing at the end of a log; False while it is still being read."""
    return log.complete is False and not log.partial


def rule_trouble(session: Session) -> str:
    """Count the rules that are broken, match nothing, or are in doubt; empty when there are none."""
    c = session.comparison
    usage = [used for used in c.usage if used.problem] if c.rules == session.rules else []
    idle = sum(not used.matched for used in usage)
    counted = (
        (len(session.rules.problems), "is broken", "are broken"),
        (idle, "matches nothing", "match nothing"),
        (len(usage) - idle, "is in doubt", "are in doubt"),
    )
    file = safe_text(session.file.path.name, 60)
    told = [f"{plural(n, 'rule')} of {file} {one if n == 1 else more}" for n, one, more in counted if n]
    return f"{', '.join(told)}: r shows {'it' if sum(n for n, _, _ in counted) == 1 else 'them'}" if told else ""


def rules_effect(session: Session, effect: RulesEffect) -> str:
    """Return how many verdicts the rules of the file change."""
    file = safe_text(session.file.path.name, 60)
    file = file if session.rules_named else f"{file}, found in this folder,"
    if not effect.changed:
        return f"{file} changes no verdict"
    change = effect.more_red
    red = f"{abs(change):,} {'more' if change > 0 else 'fewer'} red" if change else "as many red"
    return f"{file} changes {plural(effect.changed, 'verdict')} ({red}): T turns its rules off"


def breadcrumb(listing: Listing, width: int) -> Line:
    """Return module, source line and phase of the cursor, filters, and its place among the red rows.

    On a narrow screen the module path loses its start, then the source line goes.
    """
    c, row = listing.comparison, listing.cursor
    module, phase = "", ""
    if row >= 0:
        log, record = c.shown(row)
        path = safe_text(log.module_name(record), 200)
        module = " " + path.replace(".", " › ")
        phase = Phase(int(log.phase[record])).label if 0 <= log.phase[record] < len(Phase) else ""
    right: Line = []
    hidden = [g.label for g in StatusGroup if g not in listing.filter.groups]
    if hidden:
        right.append((f"hidden: {', '.join(hidden)}  ", "close"))
    if listing.filter.query:
        right.append((f"filter: {safe_text(listing.filter.query.text, 40)}  ", "close"))
    if listing.order is not Order.DISPATCH:
        right.append((f"by {listing.order.label}  ", "close"))
    if phase:
        right.append((f"{phase}  ", "dim"))
    if width >= _WIDE and (found := c.first_difference) is not None and found.row == row:
        right.append(("first difference  ", "close"))
    reds = listing.view.reds
    if len(reds):
        at = np.flatnonzero(reds == row)
        place = f"{int(at[0]) + 1:,}" if len(at) else "–"
        right.append((f"red {place}/{len(reds):,} ", "red" if place != "–" else "dim"))
    room = width - line_width(right) - 1
    place = _source(listing)
    if place and room - width_of(place) - 3 < min(width_of(module), _MIN_MODULE_PATH):
        place = ""
    room -= width_of(place) + 3 if place else 0
    path = fit(module, min(width_of(module), max(room, 0)), keep_end=True)
    return join([(path, ""), (f"   {place}" if place else "", "key")], right, width)


def _source(listing: Listing) -> str:
    """Return `model.py:12`, or `model.py:12 ⇄ 14` where the sides differ; empty where it is not logged."""
    lines = source_lines(listing.comparison, listing.cursor)
    if len(lines) < 2:
        return safe_text(lines[0], _MAX_LOCATION) if lines else ""
    (file_a, line_a), (file_b, line_b) = map(split_location, lines)
    other = line_b if file_a == file_b else f"{file_b}:{line_b}"
    return safe_text(f"{file_a}:{line_a} ⇄ {other}", _MAX_LOCATION)


def all_agree(c: Comparison) -> str:
    """Return the verdict for two runs without a red row, with keys that show more."""
    from numtui.report.evidence_basis import agreement, extent  # with the reports, which the first screen does not need

    if not c.coverage.enough:
        return f"{safe_text(agreement(c), _MAX_SENTENCE)} I shows what was compared"
    on = "d goes to the first difference" if c.first_difference is not None else "s shows renamed ops"
    told = safe_text(f"{extent(c)} {agreement(c)}", _MAX_SENTENCE)  # may name a module
    return f"{told} {on}; B counts by module; I shows the log headers"


_WEIGHTS = {Severity.FATAL: ("not comparable", "red"), Severity.SUSPICIOUS: ("with care", "close")}


def comparability(c: Comparison) -> list[Line]:
    """Return how much was compared, and the differences between the two runs, gravest first."""
    if c.counts[Status.PENDING]:
        return [[(" the logs are being compared", "dim")]]
    lines = [*_extent(c), [("can the two runs be compared?", "title")]]
    label = max(len(text) for text, _ in _WEIGHTS.values()) + 3
    for note in c.comparability.notes:
        text, role = _WEIGHTS.get(note.severity, ("noted", "dim"))
        lines.append([(f"   {text:<{label}}", role), (safe_text(note.text, MAX_TEXT), "")])
    if not c.comparability.notes:
        lines.append([("   no known obstacle to comparing these runs", "")])
    return lines


def _extent(c: Comparison) -> list[Line]:
    """Return how much was compared, the parts that were not, and the loss of both runs."""
    from numtui.report.evidence_basis import extent

    lines: list[Line] = [[("compared", "title")]]
    lines += [[(safe_text(f"   {extent(c)}", _MAX_SENTENCE), "" if c.coverage.enough else "red")]]
    lines += [[(safe_text(f"   not compared: {part} {part.why}", 300), "close")] for part in c.coverage.parts]
    lines += [[(f"   {told}", "")] for told in step_numbers(c)]
    return [*lines, [("", "")]]


def info(session: Session) -> list[Line]:
    """Return how much was compared, then path, size, header and problems of each log, and the reader."""
    c = session.comparison
    lines = [] if c.single or c.counts[Status.PENDING] else _extent(c)
    for (side, log), name in zip(c.logs, session.names, strict=False):
        lines.append([(f"{side}  {safe_text(name, 60)}", "title")])
        lines.append([(f"   {safe_text(log.path, 300)}", "")])
        declared = log.header.declared
        told = "" if declared is None or declared == len(log) else f", the header declares {declared:,}"
        role = "" if not told else "close"
        lines.append([(f"   {plural(len(log), 'operation')}{told}", role)])
        if log.complete is not None:
            said = "   complete" if log.complete else "   cut off: the capture did not finish"
            said += f": {safe_text(log.header.incomplete, 300)}" if log.header.incomplete else ""
            lines.append([(said, "" if log.complete else "red")])
        excluded = ", ".join(log.header.excluded) if log.header.excluded else "not logged"
        lines.append([(f"   excluded operations: {safe_text(excluded, 600)}", "")])
        if log.header.format is not None:
            lines.append([(f"   format: {safe_text(log.header.format, 100)}", "")])
        if log.header.tool in IMPORTED:
            lines.append([(f"   {log.tells.numbers} are compared, which miss {log.tells.misses}", "")])
            lines.append([("   completeness unknown: the format has no end mark", "")])
        if log.header.run:
            lines.append([("   run:", "")])
            lines.extend([(f"     {text}", "")] for text in _run(log.header.run))
        if log.header.lines:
            lines.append([("   raw header:", "dim")])
            lines.extend([(f"     {safe_text(text, 300)}", "dim")] for text in log.header.lines)
        if log.problem_count:
            lines.append([(f"   {plural(log.problem_count, 'unreadable spot')}; the rest was read:", "close")])
            for problem in log.problems[:_MAX_PROBLEMS]:
                text = f"     {log.path}:{problem.line}: {problem.message}"
                lines.append([(safe_text(text, 300), "")])
            if (more := log.problem_count - min(len(log.problems), _MAX_PROBLEMS)) > 0:
                lines.append([(f"     … and {more:,} more", "dim")])
        lines.append([("", "")])
    slow = notice()
    lines.append([(safe_text(slow, 300), "close") if slow else ("logs are read by the compiled reader", "")])
    return lines


def _run(run: Mapping[str, object], indent: str = "") -> Iterator[str]:
    for key, value in run.items():
        if key == "start_sketches":  # numbers for the comparison
            continue
        if isinstance(value, Mapping):
            yield f"{indent}{safe_text(str(key), 60)}:"
            yield from _run(value, indent + "  ")
        else:
            yield f"{indent}{safe_text(str(key), 60)}: {safe_text(str(value), 240)}"
