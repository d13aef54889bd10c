"""Write a report on two runs in any form; each has its own module, imported on demand."""

from __future__ import annotations

from importlib import import_module
from typing import TextIO

from numtui.report.runs.model import RunsReport

__all__ = ["write"]


def write(report: RunsReport, out: TextIO, form: str, *, color: bool = False) -> None:
    """Write a report in one of `numtui.report.options.FORMATS`.

    Args:
        color: use ANSI colours (the text report only).
    """
    if form == "text":
        from numtui.report.runs.text import write_text

        write_text(report, out, color=color)
    else:
        # The module has the name of the form.
        import_module(f"numtui.report.runs.{form}").write(report, out)
