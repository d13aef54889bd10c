"""Markdown report on a checked run, for a GitHub issue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TextIO

from matchers.runs.finding import Finding
from numtui import __version__
from numtui.report.check.model import CheckReport
from numtui.report.check.words import log_line, size, subjects, summaries, where
from numtui.report.markdown import bullets, code, more, plain
from numtui.text.safe import write_lines

__all__ = ["write"]

_MAX_FINDINGS: Final = 50
_MAX_NOTES: Final = 5


def write(report: CheckReport, out: TextIO) -> None:
    """Write the report."""
    write_lines(_lines(report), out)


def _lines(r: CheckReport) -> Iterator[str]:
    yield f"## {plain(r.title)}"
    findings = r.checked.findings
    for number, finding in enumerate(findings[:_MAX_FINDINGS], 1):
        yield ""
        yield "  \n".join(_finding(r, number, finding))
    yield from more(len(findings) - _MAX_FINDINGS)
    yield ""
    yield "| check | result | made on |"
    yield "| --- | --- | --- |"
    for each in summaries(r.checked):
        result = f"**{each.verdict}**" if each.findings else each.verdict
        yield f"| {plain(each.claim)} | {result} | {plain(each.extent)} |"
    yield from bullets("Not checked", r.not_checked)
    yield from bullets("Notes", r.checked.notes)
    yield ""
    yield f"numtui {__version__}"


def _finding(r: CheckReport, number: int, finding: Finding) -> Iterator[str]:
    indent = " " * len(f"{number}. ")
    yield f"{number}. **{plain(finding.text)}**"
    yield f"{indent}{code(subjects(finding))}, {', '.join(filter(None, (plain(where(finding)), size(finding))))}"
    for place in finding.places[:2]:
        location = f", {code(place.location)}" if place.location else ""
        yield f"{indent}{code(log_line(r.run, place), 500)}{location}"
    yield from (f"{indent}{plain(note)}" for note in finding.notes[:_MAX_NOTES])
