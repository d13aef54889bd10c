"""HTML report on a checked run: one page without scripts, in the look of the page of a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final, TextIO

from matchers.runs.finding import Finding
from numtui.report.check.model import CheckReport
from numtui.report.check.words import log_line, result, run_words, size, subjects, summaries, where
from numtui.report.html.page import bullets, more, static_page
from numtui.report.html.summary import text
from numtui.text.safe import safe_text

__all__ = ["write"]

_MAX_FINDINGS: Final = 500


def write(report: CheckReport, out: TextIO) -> None:
    """Write the page."""
    checked = report.checked
    red = bool(checked.findings) or checked.nothing
    title = safe_text(f"numtui check: {report.title}")
    page = static_page(title, run_words(report.run), result(checked), _body(report), red=red)
    out.writelines(f"{line}\n" for line in page)


def _body(r: CheckReport) -> Iterator[str]:
    findings = r.checked.findings
    if findings:
        yield "<h2>Findings</h2>\n<ol>"
        yield from (_finding(r, finding) for finding in findings[:_MAX_FINDINGS])
        yield f"</ol>{more(len(findings) - _MAX_FINDINGS)}"
    yield "<h2>Checks</h2>\n<table><tr><th>check</th><th>result</th><th>made on</th></tr>"
    for each in summaries(r.checked):
        red = ' class="red"' if each.findings else ""
        yield f"<tr><td>{text(each.claim)}</td><td{red}>{each.verdict}</td><td>{escape(each.extent)}</td></tr>"
    yield "</table>"
    yield from bullets("Not checked", r.not_checked)
    yield from bullets("Notes", r.checked.notes)


def _finding(r: CheckReport, finding: Finding) -> str:
    told = [f"<strong>{text(finding.text)}</strong>", f"<code>{escape(subjects(finding))}</code>"]
    told.append(escape(", ".join(filter(None, (where(finding), size(finding))))))
    for place in finding.places[:2]:
        key, line, location = text(place.key), escape(log_line(r.run, place)), text(place.location)
        told.append(f"rank {place.rank}: <code>{key}</code> {location}<br><small>{line}</small>")
    told += map(text, finding.notes)
    return f"<li>{'<br>'.join(told)}</li>"
