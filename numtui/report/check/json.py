"""JSON report on a checked run: one object with everything (docs/schema/check.schema.json)."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any, Final, TextIO

from matchers.runs.finding import Finding
from matchers.runs.run import Run
from numtui import __version__
from numtui.report.check.model import CheckReport
from numtui.report.check.words import CheckSummary, result, summaries

__all__ = ["VERSION", "finding_object", "write"]

VERSION: Final = 1
"""Version of the format. New fields keep it; a renamed or removed one changes it."""


def write(report: CheckReport, out: TextIO) -> None:
    """Write the report, in ASCII."""
    checked = report.checked
    told = {
        "version": VERSION,
        "numtui": __version__,
        "run": _run(report.run),
        "result": result(checked),
        "findings": [finding_object(report.run, finding) for finding in checked.findings],
        "checks": [_check(each) for each in summaries(checked)],
        "notes": list(checked.notes),
        "gate": {"fail_on": list(report.fail_on), "failures": [asdict(failure) for failure in report.failures]},
        "next": [step._asdict() for step in report.next_steps],
    }
    out.write(json.dumps(told, indent=1, allow_nan=False) + "\n")


def finding_object(run: Run, finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON has it."""
    told = asdict(finding) | {
        "check": finding.check.label,
        "stage": finding.stage.label,
        # JSON has neither NaN nor infinity: both are null
        "size": finding.size if math.isfinite(finding.size) else None,
    }
    told["places"] = [{"log": place.dump or run.paths.get(place.rank), **asdict(place)} for place in finding.places]
    return told


def _run(run: Run) -> dict[str, Any]:
    at = run.coordinates or {}
    return {
        "name": run.name,
        "step": run.step,
        "world_size": run.world_size,
        "mesh": dict(run.mesh or {}),
        "logs": [{"rank": r, "path": path, "coordinates": dict(at.get(r, {}))} for r, path in run.paths.items()],
        "missing": list(run.missing),
        "cut": [{"rank": rank, "why": why} for rank, why in (run.cut or {}).items()],
    }


def _check(each: CheckSummary) -> dict[str, Any]:
    return {
        "check": each.check.label,
        "holds": each.check.holds,
        "verdict": "finding" if each.findings else each.verdict,
        "findings": each.findings,
        "made": [{"many": made.many, "what": made.what} for made in each.made],
        "not_made": list(each.reasons),
    }
