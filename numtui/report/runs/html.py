"""HTML report on two runs: one page without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final, TextIO

from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.origins import Origin
from matchers.runs.diff.summary import Cell, RankSummary
from numtui.report.html.page import bullets, more, static_page
from numtui.report.html.summary import text
from numtui.report.runs.model import RunsReport
from numtui.report.runs.words import (
    began,
    class_ranks,
    class_state,
    class_words,
    event_lines,
    event_place,
    notes,
    order_words,
    reached_words,
    reasons,
    runs_words,
)
from numtui.text.glyphs import GLYPHS

__all__ = ["write"]

_MAX_ORIGINS: Final = 100
_MAX_CLASSES: Final = 500
_MAX_RANKS: Final = 256


def write(report: RunsReport, out: TextIO) -> None:
    """Write the page."""
    heading = runs_words(report.comparison)
    page = static_page(f"numtui: {heading}", heading, report.result, _body(report), red=bool(report.failures))
    out.writelines(f"{line}\n" for line in page)


def _body(r: RunsReport) -> Iterator[str]:
    c = r.comparison
    origins = c.traced.origins
    if origins:
        yield f"<h2>Where {'it' if c.red else 'the first difference'} began</h2>\n<ol>"
        yield from (_origin(r, number, origin) for number, origin in enumerate(origins[:_MAX_ORIGINS]))
        yield f"</ol>{more(len(origins) - _MAX_ORIGINS)}"
    yield "<h2>Ranks</h2>\n<table><tr><th>ranks</th><th>state</th><th></th></tr>"
    for each in c.classes[:_MAX_CLASSES]:
        state = class_state(each)
        red = ' class="red"' if state == "red" else ""
        ranks, told = escape(class_ranks(each)), escape(class_words(c, each))
        yield f"<tr><td>{ranks}</td><td{red}>{state}</td><td>{told}</td></tr>"
    yield f"</table>{more(len(c.classes) - _MAX_CLASSES)}"
    yield from _matrix(c)
    yield from bullets("Not compared, or not whole", list(reasons(c)))
    yield from bullets("Notes", list(notes(c)))


def _origin(r: RunsReport, number: int, origin: Origin) -> str:
    order = order_words(number, r.comparison.traced.origins)
    told = [f"<strong>{escape(began(r.comparison, origin))}</strong>" + (f" ({escape(order)})" if order else "")]
    told.append(f"<code>{escape(event_place(origin.event))}</code> <small>{event_lines(origin.event)}</small>")
    told.append(text(origin.event.text))
    told += [f"reached {escape(way)}" for way in reached_words(origin)]
    return f"<li>{'<br>'.join(told)}</li>"


def _matrix(c: RunComparison) -> Iterator[str]:
    """The step of each rank that was read, left to right."""
    read = [summary for summary in c.summaries.values() if summary.cells]
    if read:
        yield "<h2>Ranks × step</h2>\n<table>"
        yield from (_row(summary) for summary in read[:_MAX_RANKS])
        yield f"</table>{more(len(read) - _MAX_RANKS)}"


def _row(summary: RankSummary) -> str:
    return f"<tr><th>{summary.rank}</th><td><code>{''.join(map(_cell, summary.cells))}</code></td></tr>"


def _cell(cell: Cell) -> str:
    told = text(f"{cell.phase} {cell.place}: {cell.status}" + (f", {cell.red:,} red" if cell.red else ""))
    red = ' class="red"' if cell.worst.red else ""
    return f'<span title="{told}"{red}>{escape(GLYPHS[cell.worst])}</span>'
