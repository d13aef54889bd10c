"""Write a report in any form; each has its own module in the room of the report, imported on demand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, TextIO

from numtui.report.options import FORMATS

if TYPE_CHECKING:
    from numtui.report.check.model import CheckReport
    from numtui.report.gate import GatedRows
    from numtui.report.runs.model import RunsReport

__all__ = ["write"]


def write(report: GatedRows | CheckReport | RunsReport, out: TextIO, form: str, *, color: bool = False) -> None:
    """Write a report in one of `FORMATS`.

    Args:
        color: use ANSI colours (the text report only).
    """
    if form not in FORMATS:
        raise ValueError(f"no such format: {form}")
    room = type(report).__module__.rpartition(".")[0]
    # the module has the name of the format
    module = import_module(f"{room}.{form}")
    if form == "text":
        module.write_text(report, out, color=color)
    else:
        module.write(report, out)
