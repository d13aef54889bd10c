"""Export from the explorer: the current view as an HTML page, a row as Markdown, texts to copy. No screen here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from matchers.comparison import Comparison
from matchers.errors import InputError
from matchers.files.atomic_write import atomic_writer
from numtui.query.view import StatusGroup
from numtui.report.html import View, write
from numtui.report.markdown import plain, row_markdown
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from numtui.session.rule_edits import RecordPair
from numtui.session.session import Session

__all__ = ["HtmlPage", "copies_of", "free_path", "page_of", "row_of"]

_NAME = "numtui"


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """Snapshot of the explorer's view for the HTML report; later changes do not affect it."""

    report: Report
    view: View

    def write(self, path: Path) -> int:
        """Write the page atomically; return its size. Takes a second for a large log: not for the screen's own thread.

        Raises:
            InputError: the file cannot be written.
        """
        try:
            with atomic_writer(path) as out:
                write(self.report, out, self.view)
                return out.tell() if out.seekable() else 0
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def page_of(session: Session) -> HtmlPage:
    """Return the page of the current view: the same rules, filters, folds, search, notes, and row."""
    shown = session.listing.filter
    view = View(
        hidden=frozenset(StatusGroup) - shown.groups,
        query=shown.query.text,
        search="" if session.listing.search is None else session.listing.search.text,
        saved=session.listing.saved,
        folded=session.listing.folded,
        order=session.listing.order,
        cursor=session.listing.cursor,
        notes=tuple(session.listing.annotations.noted(session.comparison)),
    )
    return HtmlPage(_report(session), view)


def row_of(session: Session) -> str:
    """Return the row under the cursor as Markdown, with its note; empty without a row."""
    if session.listing.cursor < 0:
        return ""
    note = session.listing.annotations.note(session.comparison, session.listing.cursor)
    return row_markdown(_report(session).row(session.listing.cursor)) + (f"\n{plain(note, 2000)}\n" if note else "")


def _report(session: Session) -> Report:
    # The rules of the shown comparison; the file may lack them.
    rules_path = str(session.file.path) if session.comparison.rules.rules else None
    found = None if session.rules_named or session.file.raw is None else str(session.file.path)
    return Report(session.comparison, ReportOptions(names=session.names, rules_path=rules_path, rules_found=found))


def free_path(folder: Path = Path()) -> Path:
    """Return an unused file name of the folder: `numtui.html`, `numtui-2.html`, …"""
    names = (f"{_NAME}.html" if n == 1 else f"{_NAME}-{n}.html" for n in count(1))
    return next(folder / name for name in names if not os.path.lexists(folder / name))


def copies_of(c: Comparison, spot: RecordPair) -> list[tuple[str, str]]:
    """Return (description, text) of what can be copied of two records (-1: none), each text once, a's key first."""
    sides = [(side, log, record) for (side, log), record in zip(c.logs, spot, strict=False) if record >= 0]
    found: dict[str, str] = {}
    for what, texts in (
        ("key", [(side, log.keys[record]) for side, log, record in sides]),
        ("source line", [(side, log.location_text(record)) for side, log, record in sides]),
    ):
        alike = len({text for _, text in texts}) < len(sides) or len(sides) == 1
        for side, text in texts:
            if text:
                found.setdefault(text, f"the {what}" if alike else f"{side}'s {what}")
    return [(what, text) for text, what in found.items()]
