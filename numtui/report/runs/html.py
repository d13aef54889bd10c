"""HTML report on two runs: one page without scripts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Final, TextIO

from matchers.runs.diff.origins import Origin
from matchers.runs.diff.summary import Outcome
from numtui.report.html.page import bullets, link, more, static_page
from numtui.report.html.summary import text
from numtui.report.runs import words
from numtui.report.runs.matrix import NOT_READ, Row, Stretch, layer_of, legend, rows_of, sign_of, stretches
from numtui.report.runs.model import RunsReport

__all__ = ["write"]

_MAX_ORIGINS: Final = 100
_MAX_CLASSES: Final = 500
_MAX_RANKS: Final = 256


def write(report: RunsReport, out: TextIO) -> None:
    """Write the page."""
    heading = words.runs_words(report.comparison)
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
        state = words.class_state(each)
        red = ' class="red"' if state == "red" else ""
        ranks, told = escape(words.class_ranks(each)), escape(words.class_words(c, each))
        yield f"<tr><td>{ranks}</td><td{red}>{state}</td><td>{told}</td></tr>"
    yield f"</table>{more(len(c.classes) - _MAX_CLASSES)}"
    yield from _matrix(r)
    yield from _pages(r)
    yield from bullets("Not compared, or not whole", list(words.reasons(c)))
    yield from bullets("Notes", list(words.notes(c)))


def _origin(r: RunsReport, number: int, origin: Origin) -> str:
    order = words.order_words(number, r.comparison.traced.origins)
    told = [f"<strong>{escape(words.began(r.comparison, origin))}</strong>" + (f" ({escape(order)})" if order else "")]
    told.append(
        f"<code>{escape(words.event_place(origin.event))}</code> <small>{words.event_lines(origin.event)}</small>"
    )
    told.append(text(origin.event.text))
    told += [f"reached {escape(way)}" for way in words.reached_words(origin)]
    return f"<li>{'<br>'.join(told)}</li>"


def _matrix(r: RunsReport) -> Iterator[str]:
    """The step of each rank that was read, left to right: a column for each stretch that any rank has."""
    c = r.comparison
    columns = stretches(c.summaries.values())
    rows = rows_of(c, columns, folded=False)
    if not columns:
        return
    yield '<h2>Ranks × step</h2>\n<table class="matrix">'
    phases = ((phase, len(list(of))) for phase, of in groupby(columns, key=lambda stretch: stretch[0]))
    heads = "".join(f'<th colspan="{n}">{text(phase, 20)}</th>' for phase, n in phases)
    yield f"<tr><th></th>{heads}</tr>"
    yield f"<tr><th></th>{''.join(f'<th>{text(layer_of(place), 9)}</th>' for _, place in columns)}</tr>"
    yield from (_row(r, row, columns) for row in rows[:_MAX_RANKS])
    yield f"</table>{more(len(rows) - _MAX_RANKS)}\n<p><small>{escape(legend())}</small></p>"


def _pages(r: RunsReport) -> Iterator[str]:
    """Yield links to the pages of ranks with every row, or the commands that write them."""
    if r.pages:
        links = "".join(f"<li>{link(name, f'rank {rank}')}</li>" for rank, name in r.pages.items())
        yield f"<h2>Every row of one rank</h2>\n<ul>{links}</ul>"
        return
    commands = (("numtui", "diff", *r.runs, "--rank", str(n), *r.criteria, "-o", f"rank_{n}.html") for n in r.typical)
    yield from bullets("Every row of one rank", [shlex.join(command) for command in commands])


def _row(r: RunsReport, row: Row, columns: Sequence[Stretch]) -> str:
    summary = r.comparison.summaries[row.ranks[0]]
    where = " ".join(f"{name}={n}" for name, n in row.coordinates.items())
    page, told = r.pages.get(summary.rank), f"{summary.rank} {where}"
    head = f"<tr><th>{link(page, told) if page is not None else text(told, 60)}</th>"
    if not summary.read:
        told = f"{NOT_READ} {summary.outcome.label}" + (f": {summary.why}" if summary.why else "")
        return f'{head}<td colspan="{len(columns)}">{text(told)}</td></tr>'
    equal = summary.outcome == Outcome.EQUAL
    return f"{head}{''.join(_cell(row, at, stretch, equal) for at, stretch in enumerate(columns))}</tr>"


def _cell(row: Row, at: int, stretch: Stretch, equal: bool) -> str:
    sign, role = sign_of(row, range(at, at + 1), equal=equal)
    told = " ".join(filter(None, stretch))
    if (cell := row.cells.get(at)) is not None:
        told += f": {cell.status}" + (f", {cell.red:,} red" if cell.red else "")
    red = ' class="red"' if role in ("red", "cause") else ""
    return f'<td title="{text(told)}"{red}>{escape(sign)}</td>'
