"""JUnit report on two runs: the conditions, then a case per class of ranks."""

from __future__ import annotations

from typing import Final, TextIO

from matchers.runs.diff.classes import Kind, RankClass
from numtui.report.junit_xml import MAX_TEXT, Case, gate_cases, write_suites
from numtui.report.options import CONDITIONS
from numtui.report.runs.model import RunsReport
from numtui.report.runs.words import began, class_ranks, class_words, event_place
from numtui.text.safe import safe_text

__all__ = ["write"]

_MAX_CLASSES: Final = 200


def write(report: RunsReport, out: TextIO) -> None:
    """Write the report."""
    cases = [_case(report, each) for each in report.comparison.classes[:_MAX_CLASSES]]
    a, b = report.comparison.names
    suites = [("gate", gate_cases(report.fail_on, report.failures, CONDITIONS)), ("ranks", cases)]
    write_suites(f"numtui diff: {a} <-> {b}", suites, out)


def _case(r: RunsReport, each: RankClass) -> Case:
    name, told = class_ranks(each), class_words(r.comparison, each)
    if each.kind == Kind.NOT_COMPARED:
        return Case(name, told, told) if "incomplete" in r.fail_on else Case(name, skipped=told)
    if each.kind != Kind.RED or "diverged" not in r.fail_on:
        return Case(name)
    origins = [r.comparison.causes.origins[k] for k in each.origins]
    details = [
        f"{began(r.comparison, o)}: {event_place(o.event)}: {safe_text(o.event.text, MAX_TEXT)}" for o in origins
    ]
    return Case(name, f"{told}: {details[0]}"[:MAX_TEXT] if details else told, "\n".join(details))
