"""Panels over the list: first causes, upstream path, data flow, marks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from matchers.errors import UserError
from matchers.explain.first_difference import first_difference_note
from matchers.single_run import explained
from matchers.status import Status
from numtui.query.flow import consuming, producing
from numtui.query.source_code import Excerpt, excerpts
from numtui.query.view import uncompared
from numtui.report.explanation import RowExplanation, explain_row
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from numtui.session.what_if import WhatIf, what_if
from numtui.text.counts import plural
from numtui.text.glyphs import WORDS
from numtui.tui.screens.panel import Panel, Picked
from numtui.tui.screens.screen import MainScreen
from numtui.views.drift import drift_entries, drift_title
from numtui.views.panels import (
    cause_entries,
    causes_title,
    explanation_entries,
    neighbour_entries,
    place_entries,
    uncompared_entries,
)
from numtui.views.source_code import code_entries

__all__ = [
    "assume_equal",
    "go_to",
    "open_causes",
    "open_code",
    "open_drift",
    "open_neighbours",
    "open_places",
    "open_plot",
    "open_explanation",
    "open_uncompared",
]


def go_to(explorer: MainScreen, row: int | None) -> None:
    """Jump to the chosen row; None does nothing."""
    if row is not None:
        explorer.session.listing.go(row)
        explorer.draw()


def _goes_there(explorer: MainScreen) -> Callable[[Picked | None], None]:
    return lambda choice: go_to(explorer, None if choice is None else choice.row)


# -- upstream and downstream


def open_causes(explorer: MainScreen) -> None:
    """Open the first causes; enter goes to one, `f` lists its downstream rows."""
    c, names = explorer.session.comparison, explorer.session.names
    if not c.cause.any():
        note = first_difference_note(c)
        said = "no red rows, so no first cause" if not c.red.any() else "no first cause found"
        explorer.say(f"{said}; {note[0].lower()}{note[1:]} (d)" if note else said)
        return

    def work() -> list[str]:
        causes = c.consequences.causes
        return [facts.follows for facts in Report(c, ReportOptions(names=names)).causes(len(causes))]

    explorer.background.run_then_show("following each first cause downstream", work, partial(_show_causes, explorer))


def _show_causes(explorer: MainScreen, follows: list[str]) -> None:
    c = explorer.session.comparison
    at = int(c.consequences.cause_of[explorer.session.listing.cursor])

    def picked(choice: Picked | None) -> None:
        if choice is None:
            return
        go_to(explorer, choice.row)
        if choice.key == "f" and choice.number < len(follows):
            explorer.prompt.filter_by(f"cause:{choice.number + 1}")

    panel = Panel(
        causes_title(c),
        partial(cause_entries, c, follows),
        keys={"f": "list its downstream rows"},
        opened_by="C",
        row=c.consequences.causes[at].rows[0] if at >= 0 else -1,
    )
    explorer.app.push_screen(panel, picked)


def open_plot(explorer: MainScreen) -> None:
    """Open the plot of the error over depth."""
    from numtui.tui.screens.plot import PlotScreen

    if not len(explorer.session.comparison):
        explorer.say("the logs contain no operations")
        return

    def show(plot: PlotScreen) -> None:
        explorer.app.push_screen(plot, partial(go_to, explorer))

    plot = PlotScreen(explorer.session.listing)
    explorer.background.run_then_show("drawing", partial(plot.prepared, explorer.app.size), show)


def open_explanation(explorer: MainScreen) -> None:
    """Open the explanation of the current row's verdict; its first cause is chosen at first."""
    c, row = explorer.session.comparison, explorer.session.listing.cursor
    if row >= 0:
        show = partial(_show_explanation, explorer)
        explorer.background.run_then_show("explaining", partial(explain_row, c, row), show)


def _show_explanation(explorer: MainScreen, told: RowExplanation) -> None:
    c, steps = explorer.session.comparison, len(told.hops) - 1
    word = WORDS[Status(int(c.status[told.row]))]
    back = f" {plural(steps, 'step')} back to {'its' if c.red[told.row] else 'a'} first cause" if steps > 0 else ""
    panel = Panel(
        f"why {word}?{back}" if word else "what is known",
        partial(explanation_entries, c, told),
        opened_by="w",
        row=-1 if told.way is None else told.way.cause,
    )
    explorer.app.push_screen(panel, _goes_there(explorer))


def assume_equal(explorer: MainScreen) -> None:
    """Assume the current row to be equal, with its cause, and go to the next cause; again takes it back."""
    listing = explorer.session.listing

    def show(found: WhatIf | str) -> None:
        if isinstance(found, WhatIf):
            back = f"row {listing.cursor + 1:,} is assumed equal: W there takes it back"
            listing.assume(found)
            found = back if found.assumed else found.told
        explorer.say(found)

    work = partial(what_if, listing.comparison, listing.what_if, listing.cursor)
    explorer.background.run_then_show("looking for other causes", work, show)


def open_code(explorer: MainScreen) -> None:
    """Open the source code around the row's line."""
    c, row = explorer.session.comparison, explorer.session.listing.cursor

    def work() -> list[Excerpt] | str:
        try:
            return excerpts(c, row, (Path.cwd(), *explorer.sources))
        except (OSError, UserError) as error:
            return str(error)

    def show(found: list[Excerpt] | str) -> None:
        if isinstance(found, str):
            explorer.say(found, trouble=True)
        else:
            explorer.app.push_screen(Panel("source", partial(code_entries, found), opened_by="K"))

    if row >= 0:
        explorer.background.run_then_show("looking for the source", work, show)


_MAX_UNCOMPARED = 200
"""Rows without comparison that are listed: a filter by status finds more."""


def open_uncompared(explorer: MainScreen) -> None:
    """Open the rows that were not compared, each with its reason; enter goes to one."""
    c = explorer.session.comparison
    rows = uncompared(c)

    def work() -> list[tuple[int, str]]:
        return [(row, explained(c, row).headline) for row in rows[:_MAX_UNCOMPARED].tolist()]

    def show(told: list[tuple[int, str]]) -> None:
        entries = partial(uncompared_entries, c, told, len(rows) - len(told))
        title = f"{plural(len(rows), 'row')} not compared"
        explorer.app.push_screen(Panel(title, entries, opened_by="I"), _goes_there(explorer))

    explorer.background.run_then_show("looking at what was not compared", work, show)


# -- around the row


def open_neighbours(explorer: MainScreen) -> None:
    """Open the producers and consumers of the row in both runs."""
    c, row = explorer.session.comparison, explorer.session.listing.cursor
    if row >= 0:
        entries = partial(neighbour_entries, c, row, producing(c, row), consuming(c, row))
        panel = Panel("data flow around this row", entries, opened_by="P")
        explorer.app.push_screen(panel, _goes_there(explorer))


def open_drift(explorer: MainScreen) -> None:
    """Open the name differences of the row and the rows that explain them."""
    c, row = explorer.session.comparison, explorer.session.listing.cursor
    if row >= 0:
        panel = Panel(drift_title(c, row), partial(drift_entries, c, row), opened_by="D")
        explorer.app.push_screen(panel, _goes_there(explorer))


def open_places(explorer: MainScreen) -> None:
    """Open the marks, notes and origins of jumps."""
    listing = explorer.session.listing
    c, places = listing.comparison, listing.annotations
    letters, noted, jumps = places.letters(c), places.noted(c), listing.jumps
    if not (letters or noted or jumps):
        explorer.say('no marks (Ma), notes (") or jumps yet')
        return
    entries = partial(place_entries, c, letters, noted, jumps)
    explorer.app.push_screen(Panel("marks, notes and jumps", entries, opened_by="J"), _goes_there(explorer))
