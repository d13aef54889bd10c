"""JSON report on two runs: one object with everything (docs/schema/runs.schema.json)."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any, Final, TextIO

from matchers.runs.diff.classes import RankClass, common_place
from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.origins import Origin, Traced
from matchers.runs.diff.summary import Event, RankSummary
from numtui import __version__
from numtui.report.runs.model import RunsReport
from numtui.report.runs.words import notes

__all__ = ["VERSION", "rank_object", "write"]

VERSION: Final = 1
"""Version of the format. New fields keep it; a renamed or removed one changes it."""


def write(report: RunsReport, out: TextIO) -> None:
    """Write the report, in ASCII."""
    c = report.comparison
    told = {
        "version": VERSION,
        "numtui": __version__,
        "runs": [{"name": name, "path": path} for name, path in zip(c.names, report.runs, strict=True)],
        "result": report.result,
        "origins": _origins(c, c.causes),
        "differences": _origins(c, c.differences),
        "classes": [_class(each) for each in c.classes],
        "ranks": [rank_object(summary) for summary in c.summaries.values()],
        "missing": list(c.missing),
        "notes": list(notes(c)),
        "gate": {"fail_on": list(report.fail_on), "failures": [asdict(failure) for failure in report.failures]},
        "next": [step._asdict() for step in report.next_steps],
    }
    out.write(json.dumps(told, indent=1, allow_nan=False) + "\n")


def rank_object(summary: RankSummary) -> dict[str, Any]:
    """Return the comparison of a rank as JSON has it."""
    return {
        "rank": summary.rank,
        "outcome": summary.outcome.label,
        "why": summary.why,
        "logs": list(summary.paths),
        "operations": list(summary.records),
        "rows": summary.rows,
        "red": summary.red,
        "compared": summary.compared,
        "counts": dict(summary.counts),
        "causes": [_event(event) for event in summary.causes],
        "cause_count": summary.cause_count,
        "difference": None if summary.difference is None else _event(summary.difference),
        "step": [asdict(cell) for cell in summary.cells],
        "failures": [{"condition": condition, "text": text} for condition, text in summary.failures],
        "troubles": list(summary.troubles),
        "notes": [{"kind": kind, "text": text} for kind, text in summary.notes],
        "host": summary.host,
        "coordinates": dict(summary.coordinates),
    }


def _origins(c: RunComparison, traced: Traced) -> list[dict[str, Any]]:
    return [_origin(c, origin) for origin in traced.origins]


def _origin(c: RunComparison, origin: Origin) -> dict[str, Any]:
    return {
        "place": common_place(tuple(origin.events), c.summaries),
        "began": [{"rank": rank, **_event(event)} for rank, event in origin.events.items()],
        "reached": [
            {"rank": rank, **_event(at.event), "by": asdict(at.by), "from": list(at.senders)}
            for rank, at in origin.reached.items()
        ],
        "after": list(origin.after),
    }


def _event(event: Event) -> dict[str, Any]:
    told = asdict(event)
    del told["before"], told["received"]
    # JSON has neither NaN nor infinity: both are null
    return told | {"error": event.error if math.isfinite(event.error) else None}


def _class(each: RankClass) -> dict[str, Any]:
    return {"kind": each.kind.label, "ranks": list(each.ranks), "place": each.place, "origins": list(each.origins)}
