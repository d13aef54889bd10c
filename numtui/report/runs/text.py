"""Text report on two runs: where the divergence began, and the classes of ranks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TextIO

from matchers.runs.diff.origins import Origin
from numtui.report.runs import words
from numtui.report.runs.model import RunsReport
from numtui.report.text_lines import BOLD, RED, Paint, list_lines, wrapped
from numtui.text.safe import safe_text, write_lines

__all__ = ["write_text"]

_MAX_ORIGINS = 6
_MAX_WAYS = 4
_MAX_CLASSES = 16


def write_text(report: RunsReport, out: TextIO, *, color: bool = False) -> None:
    """Write the report."""
    write_lines(_lines(report, Paint(color)), out)


def _lines(r: RunsReport, paint: Paint) -> Iterator[str]:
    c = r.comparison
    yield f"numtui: {words.runs_words(c)}"
    yield ""
    yield paint(RED if r.failures else BOLD, r.result)
    origins = c.traced.origins
    if origins:
        yield ""
        yield paint(BOLD, "Where it began" if c.red else "Where the first difference began")
    for number, origin in enumerate(origins[:_MAX_ORIGINS]):
        yield from _origin(r, number, origin)
    if len(origins) > _MAX_ORIGINS:
        yield f"  ... and {len(origins) - _MAX_ORIGINS:,} more places"
    yield ""
    yield paint(BOLD, "Ranks")
    yield from _classes(r)
    yield from list_lines(paint(BOLD, "Not compared, or not whole"), list(words.reasons(c)))
    yield from list_lines(paint(BOLD, "Notes"), list(words.notes(c)))
    for number, step in enumerate(r.next_steps):
        if number == 0:
            yield ""
        yield f"Next: {safe_text(shlex.join(step.command), 10_000)}"
        yield f"  ({step.why})"


def _origin(r: RunsReport, number: int, origin: Origin) -> Iterator[str]:
    c = r.comparison
    event = origin.event
    order = words.order_words(number, c.traced.origins)
    yield f"  {number + 1}. {words.began(c, origin)}" + (f"   ({order})" if order else "")
    yield f"     {words.event_place(event)} ({words.event_lines(event)})"
    yield from wrapped(event.text, "     ", "     ")
    ways = words.reached_words(origin)
    for way in ways[:_MAX_WAYS]:
        yield from wrapped(f"reached {way}", "     ", "       ")
    if len(ways) > _MAX_WAYS:
        yield f"     ... and in {len(ways) - _MAX_WAYS:,} more ways"


def _classes(r: RunsReport) -> Iterator[str]:
    c = r.comparison
    shown = c.classes[:_MAX_CLASSES]
    named = [(words.class_ranks(each), words.class_state(each), each) for each in shown]
    left = max((len(ranks) for ranks, _, _ in named), default=0)
    middle = max((len(state) for _, state, _ in named), default=0)
    for ranks, state, each in named:
        yield f"  {ranks:{left}}  {state:{middle}}  {words.class_words(c, each)}".rstrip()
    if len(c.classes) > _MAX_CLASSES:
        yield f"  ... and {len(c.classes) - _MAX_CLASSES:,} more classes"
