"""JSON Lines report on two runs: an object per rank, as in JSON."""

from __future__ import annotations

import json
from typing import TextIO

from numtui.report.runs.json import rank_object
from numtui.report.runs.model import RunsReport

__all__ = ["write"]


def write(report: RunsReport, out: TextIO) -> None:
    """Write the ranks, in ASCII."""
    objects = (rank_object(summary) for summary in report.comparison.summaries.values())
    out.writelines(json.dumps(each, separators=(",", ":"), allow_nan=False) + "\n" for each in objects)
