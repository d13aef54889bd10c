"""Markdown report on two runs, for a GitHub issue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TextIO

from matchers.runs.diff.origins import Origin
from numtui import __version__
from numtui.report.markdown import bullets, code, more, plain
from numtui.report.runs import words
from numtui.report.runs.model import RunsReport
from numtui.text.safe import write_lines

__all__ = ["write"]

_MAX_ORIGINS: Final = 30
_MAX_WAYS: Final = 10
_MAX_CLASSES: Final = 100


def write(report: RunsReport, out: TextIO) -> None:
    """Write the report."""
    write_lines(_lines(report), out)


def _lines(r: RunsReport) -> Iterator[str]:
    c = r.comparison
    yield f"## {plain(words.runs_words(c))}"
    yield ""
    yield f"**{plain(r.result)}**"
    origins = c.traced.origins
    for number, origin in enumerate(origins[:_MAX_ORIGINS]):
        yield ""
        yield "  \n".join(_origin(r, number, origin))
    yield from more(len(origins) - _MAX_ORIGINS)
    yield ""
    yield "| ranks | state | |"
    yield "| --- | --- | --- |"
    for each in c.classes[:_MAX_CLASSES]:
        yield f"| {plain(words.class_ranks(each))} | {words.class_state(each)} | {plain(words.class_words(c, each))} |"
    yield from more(len(c.classes) - _MAX_CLASSES)
    yield from bullets("Not compared, or not whole", list(words.reasons(c)))
    yield from bullets("Notes", list(words.notes(c)))
    yield ""
    yield f"numtui {__version__}"


def _origin(r: RunsReport, number: int, origin: Origin) -> Iterator[str]:
    indent = " " * len(f"{number + 1}. ")
    order = words.order_words(number, r.comparison.traced.origins)
    yield f"{number + 1}. **{plain(words.began(r.comparison, origin))}**" + (f" ({order})" if order else "")
    yield f"{indent}{code(words.event_place(origin.event))} ({words.event_lines(origin.event)})"
    yield f"{indent}{plain(origin.event.text)}"
    ways = words.reached_words(origin)
    yield from (f"{indent}reached {plain(way)}" for way in ways[:_MAX_WAYS])
    if len(ways) > _MAX_WAYS:
        yield f"{indent}… and in {len(ways) - _MAX_WAYS:,} more ways"
