"""Text report on a checked run: the findings, what held, what was not checked."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TextIO

from matchers.runs.finding import Finding
from numtui.report.check.model import CheckReport
from numtui.report.check.words import log_line, size, subjects, summaries, where
from numtui.report.text_lines import BOLD, RED, Paint, list_lines, wrapped
from numtui.text.safe import safe_text, write_lines

__all__ = ["write_text"]

_MAX_FINDINGS = 10
_MAX_NOTES = 3
"""Notes of a finding."""
_MAX_NEXT = 3
_MAX_LOCATION = 200


def write_text(report: CheckReport, out: TextIO, *, color: bool = False) -> None:
    """Write the report."""
    write_lines(_lines(report, Paint(color)), out)


def _lines(r: CheckReport, paint: Paint) -> Iterator[str]:
    yield paint(BOLD, r.title)
    findings = r.checked.findings
    for number, finding in enumerate(findings[:_MAX_FINDINGS], 1):
        yield ""
        yield from (paint(RED, line) for line in wrapped(f"{number}. {finding.text}", "", "   "))
        yield from _finding(r, finding)
    if len(findings) > _MAX_FINDINGS:
        yield ""
        yield f"... and {len(findings) - _MAX_FINDINGS:,} more"
    made = [each for each in summaries(r.checked) if each.made or each.findings]
    width = max((len(each.verdict) for each in made), default=0)
    checked = [f"{each.verdict:{width}}  {each.sentence}" for each in made]
    for heading, sentences, indent in (
        ("Checked", checked, width + 2),
        ("Not checked", r.not_checked, 2),
        ("Notes", r.checked.notes, 2),
    ):
        yield from list_lines(paint(BOLD, heading), sentences, indent)
    for number, step in enumerate(r.next_steps[:_MAX_NEXT]):
        if number == 0:
            yield ""
        yield f"Next: {safe_text(shlex.join(step.command), 10_000)}"
        yield f"  ({step.why})"


def _finding(r: CheckReport, finding: Finding) -> Iterator[str]:
    yield f"   {subjects(finding)}"
    yield "   " + ", ".join(filter(None, (where(finding), size(finding))))
    for place in finding.places[:1]:
        location = f"   {safe_text(place.location, _MAX_LOCATION)}" if place.location else ""
        yield f"   {log_line(r.run, place)}{location}"
    for note in finding.notes[:_MAX_NOTES]:
        yield from wrapped(note, "   ", "   ")
