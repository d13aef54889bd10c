"""What one sends on from the explorer: a page of what is on the screen, a row for a discussion. No screen here."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path

from matchers.atomic_write import atomic_writer
from matchers.comparison import Comparison
from matchers.errors import InputError
from numtui.query.view import Group
from numtui.report.html import View, write
from numtui.report.markdown import plain, row_markdown
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from numtui.session.rule_edits import RecordPair
from numtui.session.session import Session

__all__ = ["Page", "copies_of", "free_path", "page_of", "row_of"]

_NAME = "numtui"


@dataclass(frozen=True, slots=True)
class Page:
    """The HTML report of a moment; nothing that is done in the explorer afterwards changes it."""

    report: Report
    view: View

    def write(self, path: Path) -> None:
        """Write it, whole or not at all. Takes a second for a large log: not for the screen's own thread.

        Raises:
            InputError: it cannot be written there.
        """
        try:
            with atomic_writer(path) as out:
                write(self.report, out, self.view)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def page_of(session: Session) -> Page:
    """The page of what is on the screen: the same rules, filters, folds, search, notes, and row."""
    shown = session.listing.filter
    view = View(
        hidden=frozenset(Group) - shown.groups,
        query=shown.query.text,
        search="" if session.listing.search is None else session.listing.search.text,
        saved=session.listing.saved,
        folded=session.listing.folded,
        order=session.listing.order,
        cursor=session.listing.cursor,
        notes=tuple(session.listing.annotations.noted(session.comparison)),
    )
    return Page(_report(session), view)


def row_of(session: Session) -> str:
    """The row under the cursor as Markdown, with the note on it; empty where there is none."""
    if session.listing.cursor < 0:
        return ""
    note = session.listing.annotations.note(session.comparison, session.listing.cursor)
    return row_markdown(_report(session).row(session.listing.cursor)) + (f"\n{plain(note, 2000)}\n" if note else "")


def _report(session: Session) -> Report:
    # The rules that made what is shown; the file may not have them yet.
    rules_path = str(session.file.path) if session.comparison.rules.rules else None
    return Report(session.comparison, ReportOptions(names=session.names, rules_path=rules_path))


def free_path(folder: Path = Path()) -> Path:
    """A name that no file of the folder has: `numtui.html`, `numtui-2.html`, …"""
    names = (f"{_NAME}.html" if n == 1 else f"{_NAME}-{n}.html" for n in count(1))
    return next(folder / name for name in names if not (folder / name).exists())


def copies_of(c: Comparison, spot: RecordPair) -> list[tuple[str, str]]:
    """(what it is, the text) of the records of a and of b (-1: none), each text once; the key of a comes first."""
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
