"""Write a report on a checked run in any form; each has its own module, imported on demand."""

from __future__ import annotations

from importlib import import_module
from typing import TextIO

from numtui.report.check.model import CheckReport

__all__ = ["write"]


def write(report: CheckReport, out: TextIO, form: str, *, color: bool = False) -> None:
    """Write a report in one of `numtui.report.options.FORMATS`.

    Args:
        color: use ANSI colours (the text report only).
    """
    if form == "text":
        from numtui.report.check.text import write_text

        write_text(report, out, color=color)
    else:
        # The module has the name of the form.
        import_module(f"numtui.report.check.{form}").write(report, out)
