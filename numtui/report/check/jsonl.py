"""JSON Lines report on a checked run: an object per finding, as in JSON."""

from __future__ import annotations

import json
from typing import TextIO

from numtui.report.check.json import finding_object
from numtui.report.check.model import CheckReport

__all__ = ["write"]


def write(report: CheckReport, out: TextIO) -> None:
    """Write the findings, in ASCII."""
    objects = (finding_object(report.run, finding) for finding in report.checked.findings)
    out.writelines(json.dumps(each, separators=(",", ":"), allow_nan=False) + "\n" for each in objects)
