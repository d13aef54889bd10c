"""Summary of the two runs: header, breadcrumb, and the page about the logs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath

import numpy as np

from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.run_info import Severity
from matchers.status import Status
from numtui.query.source_line import source_lines, split_location
from numtui.query.view import Order, StatusGroup
from numtui.session.jobs import RulesEffect
from numtui.session.listing import Listing
from numtui.session.session import Session
from numtui.text.glyphs import GLYPHS
from numtui.text.lines import Line, fit, width_of
from numtui.text.safe import safe_text
from numtui.views.table import short_dtype

__all__ = ["all_agree", "breadcrumb", "header", "incomplete", "info", "join", "rule_trouble", "rules_effect"]

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
    need = sum(width_of(text) for text, _ in right)
    room = max(width - need - 1, 0)
    out: Line = []
    for text, role in left:
        if (have := width_of(text)) > room:
            out.append((text[: max(room - 1, 0)] + "…" if room else "", role))
            room = 0
            break
        out.append((text, role))
        room -= have
    return [*out, (" " * (room + 1), ""), *right]


def header(session: Session, width: int, work: str = "") -> Line:
    """Return run names, shared facts and counts; until there are counts, `work` takes their place."""
    a, b = (safe_text(n, 30) for n in session.names)
    single = session.comparison.single
    left: Line = [(" numtui ", "title"), (f" {a}" if single else f" {a} ⇄ {b}", "title")]
    facts = list(_facts(session))
    right: Line = [(f"{work} ", "key")] if work else []
    rules, in_short, role = _rules(session)
    taken = len(rules) + 3 if rules else 0
    if not work or single or session.comparison.counts[Status.PENDING] == 0:
        room = width - sum(width_of(text) for text, _ in (*left, *right)) - 3 - taken
        right = [
            *_counts(session, room, room - sum(len(fact) + 3 for fact in facts)),
            *([("  ", ""), *right] if right else []),
        ]
    if rules:  # they must not act unseen: where they have no room, their short form stands before the counts
        if sum(width_of(text) for text, _ in (*left, *right)) + taken < width:
            left.append((f" · {rules}", role))
        else:
            right = [(f"{in_short}  ", role), *right]
    used = sum(width_of(text) for text, _ in (*left, *right))
    for fact in facts:
        if used + len(fact) + 4 > width:
            break
        left.append((f" · {fact}", "dim"))
        used += len(fact) + 3
    return join(left, right, width)


def _rules(session: Session) -> tuple[str, str, str]:
    """Return the rule file and its effect in this comparison, the same in short, and a role; empty without rules.

    A rule is in force if it is enabled and matches something.
    """
    c = session.comparison
    if c.single or c.counts[Status.PENDING] or not (session.rules.rules or session.file.raw is not None):
        return "", "", ""
    name = f"{safe_text(session.file.path.name, 40)} · " if session.file.raw is not None else ""
    if session.rules_off:
        return f"rules: {name}off (T)", "rules off", "red"
    number = sum(used.matched > 0 for used in c.usage)
    role = "dim" if session.rules_named or not name else "close"
    return f"rules: {name}{number:,} of {len(c.usage):,} in force", f"rules {number:,}/{len(c.usage):,}", role


def _facts(session: Session) -> Iterator[str]:
    """Yield comparability, then rank, step, dtype and seed, shared or differing."""
    c = session.comparison
    if not c.counts[Status.PENDING] and not c.single:
        side = c.coverage.larger
        if side.compared < side.operations or not side.operations:
            yield f"{side.compared:,} of {side.operations:,} compared (I)"
    if not c.counts[Status.PENDING] and c.comparability.grave:
        yield "not comparable (!)" if c.comparability.severity == Severity.FATAL else "compare with care (!)"
    if copies := sum(found.stays for found in c.recompute_mismatches):
        yield f"{copies:,} recompute mismatch{'es' * (copies != 1)} (o)"
    logs = [log for _, log in c.logs]
    for name in ("rank", "step"):
        one, *others = (_of_path(log.path, name) for log in logs)
        other = others[0] if others else one
        if one is not None and one == other:
            yield f"{name} {one}"
        elif one is not None and other is not None:
            yield f"{name} {one} ⇄ {other}"
    dtypes = [_main_dtype(log) for log in logs]
    if dtypes[0] and dtypes[0] == dtypes[-1]:
        yield dtypes[0]
    elif all(dtypes):
        # Stated once here, so that rows need not be red for it.
        yield f"{dtypes[0]} ⇄ {dtypes[1]}" + (", judged at the coarser ε" if c.policy else "")
    if c.expectation.preset is not None:
        yield f"expect {c.expectation.preset.value}"
    elif c.expectation.rtol is not None:
        yield f"rtol {c.expectation.rtol:g}"
    if c.expectation.noise is not None:
        yield "noise measured"
    seeds = [log.header.run.get("seed") for log in logs]
    if seeds[0] is not None and seeds[0] == seeds[-1]:
        yield safe_text(f"seed {seeds[0]}", 24)
    unread = c.a.problem_count + c.b.problem_count
    if unread:
        yield f"{unread:,} unreadable spot{'s' * (unread != 1)} (I)"


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
    told = [f"{n:,} rule{'s' * (n != 1)} of {file} {one if n == 1 else more}" for n, one, more in counted if n]
    return f"{', '.join(told)}: r shows {'it' if sum(n for n, _, _ in counted) == 1 else 'them'}" if told else ""


def rules_effect(session: Session, effect: RulesEffect) -> str:
    """Return how many verdicts the rules of the file change."""
    file = safe_text(session.file.path.name, 60)
    file = file if session.rules_named else f"{file}, found in this folder,"
    if not effect.changed:
        return f"{file} changes no verdict"
    change = effect.more_red
    red = f"{abs(change):,} {'more' if change > 0 else 'fewer'} red" if change else "as many red"
    return f"{file} changes {effect.changed:,} verdict{'s' * (effect.changed != 1)} ({red}): T turns its rules off"


def _of_path(path: str, name: str) -> str | None:
    found = re.search(rf"(?:^|/){name}_(\d+)", PurePath(path).as_posix())
    return found[1] if found else None


def _main_dtype(log: OpLog) -> str:
    """Return the most common output dtype."""
    known = log.dtype[log.dtype >= 0]
    return short_dtype(log.dtypes[int(np.bincount(known).argmax())]) if len(known) else ""


_SELDOM = (
    Status.NO_VALUES,
    Status.NOT_JUDGED,
    Status.RECOMPUTE,
    Status.UNFINISHED,
    Status.PARTIAL,
    Status.SHARDED,
    Status.IGNORED,
)
"""Statuses neither red nor good nor of one side only, shown where there are any."""


def _counts(session: Session, width: int, spare: int) -> Line:
    """Count the rows of each kind in `width` cells, `spare` of which nothing else needs.

    Zeros of the usual kinds are shown too. On a narrow screen the glyphs of the rows replace words, so that the counts
    still add up.
    """
    c = session.comparison
    n = c.counts
    reds, causes = sum(n[s] for s in Status if s.red), int(np.count_nonzero(c.cause))
    red = " red" + (f" ({n[Status.NAN]:,} nan)" if n[Status.NAN] else "")
    equal = n[Status.EQUAL] + n[Status.SAME_PRINT]
    if c.single:
        broken = [
            ("●", causes, "cause", " first NaN or Inf", ""),
            (GLYPHS[Status.NAN], reds, "red", " with NaN or Inf", ""),
        ]
        return [(f"{glyph} {count:,}{word}  ", role if count else "dim") for glyph, count, role, word, _ in broken]
    seldom = [(GLYPHS[s], n[s], "dim", f" {s.label}", "") for s in _SELDOM if n[s]]
    pieces: list[tuple[str, int, str, str, str]] = [
        ("●", causes, "cause", " first cause" + "s" * (causes != 1), " cause" + "s" * (causes != 1)),
        (GLYPHS[Status.DIVERGED], reds, "red", red, red),
        (GLYPHS[Status.CLOSE], n[Status.CLOSE], "close", " close", ""),
        (GLYPHS[Status.SAME_PRINT], equal, "", " equal", ""),
        (GLYPHS[Status.ONLY_A], n[Status.ONLY_A], "alone", "", ""),
        (GLYPHS[Status.ONLY_B], n[Status.ONLY_B], "alone", "", ""),
        *seldom,
    ]

    def written(words: int) -> Line:
        """Write all words (0), those without the first and the last `seldom` (1), or the fewest (2)."""
        long = (range(len(pieces)), range(1, len(pieces) - len(seldom)), range(0))[words]
        out: Line = []
        for i, (glyph, count, role, word, short) in enumerate(pieces):
            gap = "  " if i < len(pieces) - 1 else " "
            out.append((f"{glyph} {count:,}{word if i in long else short}{gap}", role if count else "dim"))
        return out

    for words, room in ((0, spare), (1, width)):
        out = written(words)
        if sum(width_of(text) for text, _ in out) <= room:
            return out
    return written(2)


def breadcrumb(listing: Listing, width: int) -> Line:
    """Return module, source line and phase of the cursor, filters, and its place among the red rows.

    On a narrow screen the module path loses its start, then the source line goes.
    """
    c, row = listing.comparison, listing.cursor
    module, phase = "", ""
    if row >= 0:
        log, record = (c.a, int(c.row_a[row])) if c.row_a[row] >= 0 else (c.b, int(c.row_b[row]))
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
    elif listing.folded:
        right.append(("folded  ", "dim"))
    if phase:
        right.append((f"{phase}  ", "dim"))
    if width >= _WIDE and (found := c.first_difference) is not None and found.row == row:
        right.append(("first difference  ", "close"))
    reds = listing.view.reds
    if len(reds):
        at = np.flatnonzero(reds == row)
        place = f"{int(at[0]) + 1:,}" if len(at) else "–"
        right.append((f"red {place}/{len(reds):,} ", "red" if place != "–" else "dim"))
    room = width - sum(width_of(text) for text, _ in right) - 1
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


def _extent(c: Comparison) -> list[Line]:
    """Return how much was compared, and the parts that were not."""
    from numtui.report.evidence_basis import extent

    lines: list[Line] = [[("compared", "title")]]
    lines += [[(safe_text(f"   {extent(c)}", _MAX_SENTENCE), "" if c.coverage.enough else "red")]]
    lines += [[(safe_text(f"   not compared: {part} {part.why}", 300), "close")] for part in c.coverage.parts]
    return [*lines, [("", "")]]


def info(session: Session) -> list[Line]:
    """Return how much was compared, then path, size, header and problems of each log."""
    c = session.comparison
    lines = [] if c.single or c.counts[Status.PENDING] else _extent(c)
    for (side, log), name in zip(c.logs, session.names, strict=False):
        lines.append([(f"{side}  {safe_text(name, 60)}", "title")])
        lines.append([(f"   {safe_text(log.path, 300)}", "")])
        declared = log.header.declared
        told = "" if declared is None or declared == len(log) else f", the header declares {declared:,}"
        role = "" if not told else "close"
        lines.append([(f"   {len(log):,} operations{told}", role)])
        if log.complete is not None:
            said = "   complete" if log.complete else "   cut off: the capture did not finish"
            said += f": {safe_text(log.header.incomplete, 300)}" if log.header.incomplete else ""
            lines.append([(said, "" if log.complete else "red")])
        excluded = ", ".join(log.header.excluded) if log.header.excluded else "not logged"
        lines.append([(f"   excluded operations: {safe_text(excluded, 600)}", "")])
        if log.header.format is not None:
            lines.append([(f"   format: {safe_text(log.header.format, 100)}", "")])
        if log.header.run:
            lines.append([("   run:", "")])
            lines.extend([(f"     {text}", "")] for text in _run(log.header.run))
        if log.header.lines:
            lines.append([("   raw header:", "dim")])
            lines.extend([(f"     {safe_text(text, 300)}", "dim")] for text in log.header.lines)
        if log.problem_count:
            lines.append([(f"   {log.problem_count:,} unreadable spots; the rest was read:", "close")])
            for problem in log.problems[:_MAX_PROBLEMS]:
                text = f"     {log.path}:{problem.line}: {problem.message}"
                lines.append([(safe_text(text, 300), "")])
            if (more := log.problem_count - min(len(log.problems), _MAX_PROBLEMS)) > 0:
                lines.append([(f"     … and {more:,} more", "dim")])
        lines.append([("", "")])
    return lines


def _run(run: Mapping[str, object], indent: str = "") -> Iterator[str]:
    for key, value in run.items():
        if isinstance(value, Mapping):
            yield f"{indent}{safe_text(str(key), 60)}:"
            yield from _run(value, indent + "  ")
        else:
            yield f"{indent}{safe_text(str(key), 60)}: {safe_text(str(value), 240)}"
