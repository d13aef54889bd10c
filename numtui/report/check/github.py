"""GitHub workflow annotations on a checked run: an error at the source line of each finding."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TextIO

from matchers.runs.finding import Finding
from numtui.report.check.model import CheckReport
from numtui.report.check.words import size, subjects, where
from numtui.report.workflow_commands import MAX_ANNOTATIONS, command, place
from numtui.text.safe import safe_text

__all__ = ["write"]


def write(report: CheckReport, out: TextIO) -> None:
    """Write the report: failures, findings, what was not checked."""
    out.writelines(f"{line}\n" for line in _lines(report))


def _lines(r: CheckReport) -> Iterator[str]:
    title = f"numtui check: {safe_text(r.run.name, 80)}"
    told = "; ".join(f"{f.condition}: {f.text}" for f in r.failures[:MAX_ANNOTATIONS])
    yield command("error" if r.failures else "notice", {"title": title}, told or r.title)
    level = "error" if "finding" in r.fail_on else "warning"
    for finding in r.checked.findings[: MAX_ANNOTATIONS - 1]:
        yield command(level, _place(finding) | {"title": subjects(finding)}, _told(finding))
    for reason in islice(r.not_checked, MAX_ANNOTATIONS):
        yield command("warning", {"title": f"{title}: not checked"}, reason)


def _place(finding: Finding) -> dict[str, str]:
    return place(finding.places[0].location) if finding.places else {}


def _told(finding: Finding) -> str:
    return ", ".join(filter(None, (safe_text(finding.text, 400), where(finding), size(finding))))
