"""Reports of one row's explanation: text for people, JSON (docs/schema/explain.schema.json) for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final, TextIO

from matchers.comparison import Comparison
from matchers.explain.subject import key_of
from matchers.status import Status
from numtui import __version__
from numtui.report.explanation import WITH_WAY, RowExplanation, named
from numtui.report.text_lines import BOLD, Paint, wrapped
from numtui.text.safe import safe_text, write_lines

__all__ = ["VERSION", "write_json", "write_text"]

VERSION: Final = 1
"""Version of the format. New fields keep it; a renamed or removed one changes it."""
_FIRST_HOPS, _LAST_HOPS = 4, 3
"""Rows of a way back that the text names."""


def write_text(c: Comparison, told: RowExplanation, out: TextIO, *, color: bool = False) -> None:
    """Write the sentences by section, and the way back with its middle left out."""
    write_lines(_lines(c, told, Paint(color)), out)


def _lines(c: Comparison, told: RowExplanation, paint: Paint) -> Iterator[str]:
    yield paint(BOLD, f"row {told.row + 1:,} of {len(c):,}: {safe_text(key_of(c, told.row), 400)}")
    for title, sentences in told.steps.items():
        yield ""
        yield paint(BOLD, title)
        for sentence in sentences:
            yield from wrapped(sentence.text, "  ", "    ", longest=2_000)
        for k, hop in enumerate(told.hops if title == WITH_WAY else ()):
            left_out = range(_FIRST_HOPS, len(told.hops) - _LAST_HOPS)
            if k not in left_out:
                read = f", by its input {hop.position}" if hop.position >= 0 else ""
                yield from wrapped(f"{named(c, hop.row, sized=True)}{read}", "    ", "      ")
            elif k == left_out[0]:
                yield f"    … {len(left_out):,} more"


def write_json(c: Comparison, told: RowExplanation, out: TextIO) -> None:
    """Write one object, in ASCII; rows are numbered from 0, as in the other reports for programs."""
    steps = [
        {"title": title, "sentences": [{"text": text, "row": None if row < 0 else row} for text, row in sentences]}
        for title, sentences in told.steps.items()
    ]
    way = None if told.way is None else asdict(told.way) | {"arrives": told.way.arrives}
    report: dict[str, Any] = {"version": VERSION, "numtui": __version__, "row": told.row, "key": key_of(c, told.row)}
    report |= {"status": Status(c.status[told.row]).label, "steps": steps, "way": way}
    out.write(json.dumps(report, indent=1, allow_nan=False) + "\n")
