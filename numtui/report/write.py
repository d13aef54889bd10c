"""Write a report in any format; each has its own module, imported on demand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, TextIO

from numtui.report.options import FORMATS

if TYPE_CHECKING:
    from numtui.report.model import Report

__all__ = ["write"]


def write(report: Report, out: TextIO, form: str, *, color: bool = False) -> None:
    """Write a report in one of `FORMATS`.

    Args:
        color: use ANSI colours (the text report only).
    """
    if form not in FORMATS:
        raise ValueError(f"no such format: {form}")
    if form == "text":
        from numtui.report.text import write_text

        write_text(report, out, color=color)
    else:
        # The module has the name of the format.
        import_module(f"numtui.report.{form}").write(report, out)
