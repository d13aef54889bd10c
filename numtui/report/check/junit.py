"""JUnit report on a checked run: the conditions, then a case per kind of checks."""

from __future__ import annotations

from typing import Final, TextIO

from matchers.runs.finding import Finding
from numtui.report.check.model import CheckReport
from numtui.report.check.words import CheckSummary, log_line, size, subjects, summaries, where
from numtui.report.junit_xml import MAX_TEXT, Case, gate_cases, write_suites
from numtui.report.options import CONDITIONS_OF_RUN
from numtui.text.safe import safe_text

__all__ = ["write"]

_MAX_FINDINGS: Final = 20
"""Findings listed of one kind of checks; the rest is counted."""


def write(report: CheckReport, out: TextIO) -> None:
    """Write the report."""
    suites = [
        ("gate", gate_cases(report.fail_on, report.failures, CONDITIONS_OF_RUN)),
        ("checks", [_case(report, each) for each in summaries(report.checked)]),
    ]
    write_suites(f"numtui check: {report.run.name}", suites, out)


def _case(r: CheckReport, each: CheckSummary) -> Case:
    findings = [finding for finding in r.checked.findings if finding.check is each.check]
    if findings and "finding" in r.fail_on:
        told = [_told(r, finding) for finding in findings[:_MAX_FINDINGS]]
        if len(findings) > _MAX_FINDINGS:
            told.append(f"… and {len(findings) - _MAX_FINDINGS:,} more")
        more = f" and {len(findings) - 1:,} more" if len(findings) > 1 else ""
        return Case(each.claim, safe_text(findings[0].text, MAX_TEXT - len(more)) + more, "\n".join(told))
    reasons = "; ".join(each.reasons) or "nothing to check"
    return Case(each.claim, skipped="" if each.made or findings else reasons)


def _told(r: CheckReport, finding: Finding) -> str:
    facts = [safe_text(finding.text, MAX_TEXT), subjects(finding), where(finding), size(finding)]
    facts += [log_line(r.run, place) for place in finding.places[:2]]
    facts += [safe_text(place.location, MAX_TEXT) for place in finding.places[:1]]
    return ", ".join(filter(None, (*facts, *(safe_text(note, MAX_TEXT) for note in finding.notes[:5]))))
