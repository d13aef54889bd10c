"""GitHub workflow annotations on two runs: an error at the source line where each divergence began."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TextIO

from numtui.report.runs.model import RunsReport
from numtui.report.runs.words import began, event_place, reached_words, reasons, runs_words
from numtui.report.workflow_commands import MAX_ANNOTATIONS, command, place
from numtui.text.safe import safe_text

__all__ = ["write"]


def write(report: RunsReport, out: TextIO) -> None:
    """Write the report: failures, where it began, what was not compared."""
    out.writelines(f"{line}\n" for line in _lines(report))


def _lines(r: RunsReport) -> Iterator[str]:
    c = r.comparison
    title = f"numtui diff: {runs_words(c)}"
    told = "; ".join(f"{f.condition}: {f.text}" for f in r.failures[:MAX_ANNOTATIONS])
    yield command("error" if r.failures else "notice", {"title": title}, told or r.result)
    level = "error" if "diverged" in r.fail_on and c.red else "warning"
    for origin in c.traced.origins[: MAX_ANNOTATIONS - 1]:
        ways = "; ".join(f"reached {way}" for way in reached_words(origin)[:2])
        text = ", ".join(filter(None, (began(c, origin), safe_text(origin.event.text, 400), ways)))
        yield command(level, place(origin.event.location) | {"title": event_place(origin.event)}, text)
    for reason in islice(reasons(c), MAX_ANNOTATIONS):
        yield command("warning", {"title": f"{title}: not compared"}, reason)
