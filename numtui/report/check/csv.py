"""CSV report on a checked run: a line per finding, with the places that it is about. Fields need no quoting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TextIO

from matchers.runs.finding import Finding, Place
from matchers.runs.run import Run
from numtui.report.check.model import CheckReport
from numtui.report.csv import field

__all__ = ["COLUMNS", "write"]

COLUMNS: Final = (
    "finding", "check", "text", "subject", "more", "ranks", "group", "dimension", "size",
    "log", "line", "key", "location", "other_log", "other_line", "other_key",
)  # fmt: skip


def write(report: CheckReport, out: TextIO) -> None:
    """Write the findings."""
    out.write(",".join(COLUMNS) + "\n")
    out.writelines(
        ",".join((str(number), *_fields(report.run, finding))) + "\n"
        for number, finding in enumerate(report.checked.findings, 1)
    )


def _fields(run: Run, finding: Finding) -> Iterator[str]:
    yield from (finding.check.label, field(finding.text), field(finding.subject), str(len(finding.more)))
    yield from (_listed(finding.ranks), _listed(finding.group), field(finding.dimension), f"{finding.size:.6g}")
    first, other = (*finding.places[:2], None, None)[:2]
    yield from _place(run, first)
    yield "" if first is None else field(first.location)
    yield from _place(run, other)


def _place(run: Run, place: Place | None) -> tuple[str, str, str]:
    if place is None:
        return "", "-1", ""
    return field(place.dump or run.paths.get(place.rank, "")), str(place.line), field(place.key)


def _listed(ranks: Iterable[int]) -> str:
    return " ".join(map(str, ranks))
