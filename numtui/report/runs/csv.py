"""CSV report on two runs: a line per rank. Fields need no quoting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TextIO

from matchers.runs.diff.summary import Event, RankSummary
from numtui.report.csv import field
from numtui.report.runs.model import RunsReport

__all__ = ["COLUMNS", "write"]

COLUMNS: Final = (
    "rank", "outcome", "class", "origins", "operations_a", "operations_b", "rows", "red", "causes",
    "first", "status", "error", "phase", "location", "line_a", "line_b", "coordinates", "host", "log_a", "log_b",
)  # fmt: skip


def write(report: RunsReport, out: TextIO) -> None:
    """Write the ranks."""
    out.write(",".join(COLUMNS) + "\n")
    classes = {rank: (n, each) for n, each in enumerate(report.comparison.classes) for rank in each.ranks}
    for rank, summary in report.comparison.summaries.items():
        number, each = classes[rank]
        origins = " ".join(map(str, each.origins))
        out.write(",".join((str(rank), summary.outcome.label, str(number), origins, *_fields(summary))) + "\n")


def _fields(s: RankSummary) -> Iterator[str]:
    yield from map(str, (*s.records, s.rows, s.red, s.cause_count))
    yield from _event(next(iter(s.causes), s.difference))
    yield field(" ".join(f"{name}={at}" for name, at in s.coordinates.items()))
    yield from map(field, (s.host, *s.paths))


def _event(event: Event | None) -> tuple[str, ...]:
    if event is None:
        return "", "", "nan", "", "", "0", "0"
    told = (field(text) for text in (event.key, event.status, f"{event.error:.6g}", event.phase, event.location))
    return *told, str(event.line_a), str(event.line_b)
