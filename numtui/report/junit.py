"""JUnit XML report, for the page of a CI server.

A case per operation would be ninety thousand; a case per module of each phase stays readable. The gate (a case per
condition) and the first causes come first, so that the page opens with the reason of a failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TextIO

import numpy as np

from matchers.logs.op_log import Phase
from matchers.status import Status
from numtui.report.junit_xml import MAX_TEXT, Case, gate_cases, write_suites
from numtui.report.model import Report
from numtui.report.options import CONDITIONS
from numtui.report.parts import RowFacts
from numtui.text.counts import plural
from numtui.text.safe import safe_text

__all__ = ["write"]

_MAX_CAUSES: Final = 20
_MAX_ROWS: Final = 5
"""Rows listed in the failure of one module; the rest is counted."""

_NOT_JUDGED: Final = (
    Status.PENDING,
    Status.SHARDED,
    Status.UNFINISHED,
    Status.PARTIAL,
    Status.NO_VALUES,
    Status.NOT_JUDGED,
    Status.RECOMPUTE,
    Status.IGNORED,
)


def write(report: Report, out: TextIO) -> None:
    """Write the report."""
    suites = [
        ("gate", gate_cases(report.options.fail_on, report.failures, CONDITIONS)),
        ("first causes", _causes(report)),
        *_modules(report),
    ]
    properties = {"rules": report.rules_note} if report.rules_note else {}
    write_suites(f"numtui: {' <-> '.join(report.options.names)}", suites, out, properties)


def _causes(r: Report) -> list[Case]:
    """Return a case per first cause, those that explain most first; the rows of one source line are one cause."""
    causes = r.comparison.consequences.starts
    failing = [rows for starts in causes if (rows := [row for row in starts if r.failing[row]])]
    cases = [_cause(r, rows) for rows in failing[:_MAX_CAUSES]]
    if len(failing) > _MAX_CAUSES:
        more = f"{plural(len(failing) - _MAX_CAUSES, 'more first cause')}"
        cases.append(Case(more, more, "the other report formats list all of them"))
    return cases


def _cause(r: Report, rows: list[int]) -> Case:
    first = r.row(rows[0])
    details = [_told(first), *(_told(r.row(row, explained=False)) for row in rows[1:_MAX_ROWS])]
    if len(rows) > _MAX_ROWS:
        details.append(f"… and {len(rows) - _MAX_ROWS:,} more")
    many = f" and {plural(len(rows) - 1, 'more row')} at the same place" if len(rows) > 1 else ""
    return Case(safe_text(first.keys(str), MAX_TEXT) + many, first.sentence, "\n".join(details))


def _modules(r: Report) -> Iterator[tuple[str, list[Case]]]:
    """Yield a suite per phase, with a case per module in the order of first dispatch."""
    c = r.comparison
    has_a = c.row_a >= 0
    names = list(dict.fromkeys([*c.a.modules, *c.b.modules, ""]))
    number = {name: at for at, name in enumerate(names)}
    of_a, of_b = (np.array([*(number[name] for name in log.modules), number[""]])[log.module] for log in (c.a, c.b))
    module = np.where(has_a, np.append(of_a, 0)[c.row_a], np.append(of_b, 0)[c.row_b])
    phase = np.where(has_a, np.append(c.a.phase, 0)[c.row_a], np.append(c.b.phase, 0)[c.row_b])
    judged = ~np.isin(c.status, _NOT_JUDGED)
    for p in Phase:
        rows = np.flatnonzero(phase == p)
        order = rows[np.argsort(module[rows], kind="stable")]
        groups = np.split(order, np.flatnonzero(np.diff(module[order])) + 1) if len(order) else []
        groups.sort(key=lambda group: int(group[0]))
        yield p.label, [_module(r, names[int(module[group[0]])], group, judged) for group in groups]


def _module(
    r: Report,
    name: str,
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
    judged: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> Case:
    name = name or "<none>"
    failing = rows[r.failing[rows]]
    if len(failing) == 0:
        return (
            Case(name) if judged[rows].any() else Case(name, skipped=f"none of {plural(len(rows), 'row')} was judged")
        )
    causes = failing[r.comparison.cause[failing]]
    kind = plural(len(causes), "first cause") if len(causes) else "no first cause among them"
    shown = list(dict.fromkeys([*causes.tolist(), *failing.tolist()]))[:_MAX_ROWS]
    told = [_told(r.row(row, explained=bool(r.comparison.cause[row]))) for row in shown]
    if len(failing) > len(shown):
        told.append(f"… and {len(failing) - len(shown):,} more")
    return Case(name, f"{len(failing):,} of {plural(len(rows), 'row')}: {kind}", "\n".join(told))


def _told(row: RowFacts) -> str:
    facts = [row.status.label, *([f"error {row.error}"] if row.error else []), row.shape, row.dtype, row.location]
    lines = [f"{side} line {line}" for side, line in (("a", row.line_a), ("b", row.line_b)) if line]
    text = f"{row.keys(str)}: {', '.join(filter(None, [*facts, *lines]))}"
    return safe_text(f"{text}: {row.sentence}" if row.sentence else text, 3 * MAX_TEXT)
