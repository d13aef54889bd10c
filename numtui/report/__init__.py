"""Reports: the same comparison as on the screen, written to a stream.

`write` is the one way in; each format has a module of its own, imported when it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from matchers.comparison import Comparison

__all__ = ["FORMATS", "ReportOptions", "write"]

FORMATS = ("text", "jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """How a report is written.

    Attributes:
        names: what the sides are called.
        paths: the two logs as they can be opened again, None where they cannot (standard input).
        rules_path: the file that the rules came from, None without one.
        color: use ANSI colours (the text report only).
    """

    names: tuple[str, str] = ("a", "b")
    paths: tuple[str, str] | None = None
    rules_path: str | None = None
    color: bool = False


def write(comparison: Comparison, out: TextIO, form: str, options: ReportOptions) -> None:
    """Write a report in one of `FORMATS`."""
    if form == "jsonl":
        from numtui.report.jsonl import write_jsonl

        write_jsonl(comparison, out)
    elif form == "text":
        from numtui.report.model import Report
        from numtui.report.text import write_text

        write_text(Report(comparison, options), out)
    else:
        raise ValueError(f"no such format: {form}")
