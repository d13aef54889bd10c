"""The panels over the list: first causes, the way back to one, the data flow, marked rows, what cannot be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from textual import events, on
from textual.message import Message

from matchers.comparison import Comparison
from numtui.query.flow import Way, consuming, producing, way_back
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from numtui.tui.screens.panel import Panel, Picked
from numtui.tui.screens.prompt import Asking
from numtui.tui.textual_shims import pass_on
from numtui.views.drift import drift_entries, drift_title
from numtui.views.panels import cause_entries, causes_title, neighbour_entries, note_entries, place_entries, way_entries

__all__ = ["Overviews"]

T = TypeVar("T")


class Overviews(Asking):
    """A screen that can open the panels."""

    _ahead: list[events.Key] | None = None
    """Keys that were typed while a panel is being prepared: they are for the panel. None: none is."""
    _learning = 0

    @dataclass
    class Learned(Message):
        """What a panel shows has been found out."""

        serial: int
        about: Comparison
        show: Callable[[], None]

    def run_then_show(self, what: str, work: Callable[[], T], show: Callable[[T], None]) -> None:
        """Find something out in a thread, then show it; what is typed meanwhile is for what is shown."""
        self._learning += 1
        serial, about = self._learning, self.session.comparison
        self._ahead = []
        self.say(f"{what} …  (esc gives up)", passing=True)

        def run() -> None:
            found = work()
            self.post_message(self.Learned(serial, about, lambda: show(found)))

        self.run_worker(run, thread=True, group="learn", exclusive=True)

    def typed_ahead(self, event: events.Key) -> bool:
        """Keep a key for the panel that is being prepared; False when none is."""
        if self._ahead is None:
            return False
        if event.key in ("escape", "ctrl+c"):
            self.stop_learning()
        else:
            self._ahead.append(events.Key(event.key, event.character))
        return True

    def stop_learning(self) -> None:
        """Nobody wants to know any more: what is found is dropped."""
        self._learning += 1
        self._ahead = None

    @on(Learned)
    def _learned(self, event: Learned) -> None:
        if event.serial != self._learning:
            return
        ahead, self._ahead = self._ahead or [], None
        self.say("")
        if event.about is not self.session.comparison:
            # Rules or logs have changed meanwhile: rows are others.
            return
        event.show()
        for key in ahead:
            pass_on(self.app, key)

    # -- what follows from what

    def action_causes(self) -> None:
        """The first causes; enter goes to one, `f` lists what follows from it."""
        c, names = self.session.comparison, self.session.names
        if not c.cause.any():
            self.say("nothing is red, so there is no first cause" if not c.red.any() else "no first cause is known")
            return

        def work() -> list[str]:
            causes = c.consequences.causes
            return [facts.follows for facts in Report(c, ReportOptions(names=names)).causes(len(causes))]

        self.run_then_show("following what comes of each first cause", work, self._show_causes)

    def _show_causes(self, follows: list[str]) -> None:
        c = self.session.comparison
        at = int(c.consequences.cause_of[self.session.listing.cursor])

        def picked(choice: Picked | None) -> None:
            if choice is None:
                return
            self.go_to(choice.row)
            if choice.key == "f":
                self.filter_by(f"cause:{choice.number + 1}")

        panel = Panel(
            causes_title(c),
            partial(cause_entries, c, follows),
            keys={"f": "lists only what follows from it"},
            opened_by="C",
            row=c.consequences.causes[at].rows[0] if at >= 0 else -1,
        )
        self.app.push_screen(panel, picked)

    def action_plot(self) -> None:
        """The error over depth."""
        from numtui.tui.screens.plot import PlotScreen

        if not len(self.session.comparison):
            self.say("the logs hold no operation")
            return

        def chosen(row: int | None) -> None:
            if row is not None:
                self.go_to(row)

        def show(plot: PlotScreen) -> None:
            self.app.push_screen(plot, chosen)

        plot = PlotScreen(self.session.listing)
        self.run_then_show("drawing", partial(plot.prepared, self.app.size), show)

    def action_why(self) -> None:
        """The way from the row under the cursor back to its first cause."""
        c, row = self.session.comparison, self.session.listing.cursor
        if row < 0:
            return
        if c.cause[row]:
            self.say("this row is a first cause: no red row explains it")
        elif not c.red[row]:
            self.say("this row is not red")
        else:
            self.run_then_show("looking for the way back", partial(way_back, c, row), self._show_way)

    def _show_way(self, way: Way) -> None:
        count = len(way.hops) - 1
        title = f"why is this red? {count} step{'s' * (count != 1)} back to its first cause"
        panel = Panel(
            title if way.arrives else "why is this red?",
            partial(way_entries, self.session.comparison, way),
            opened_by="w",
            row=way.cause,
        )
        self.app.push_screen(panel, self._picked)

    # -- around the row

    def action_neighbours(self) -> None:
        """What the row reads and what reads it, in both runs."""
        c, row = self.session.comparison, self.session.listing.cursor
        if row < 0:
            return
        entries = partial(neighbour_entries, c, row, producing(c, row), consuming(c, row))
        self.app.push_screen(Panel("data flow around this row", entries, opened_by="P"), self._picked)

    def action_drift(self) -> None:
        """How the names of the row differ, and which rows explain it."""
        c, row = self.session.comparison, self.session.listing.cursor
        if row >= 0:
            entries = partial(drift_entries, c, row)
            self.app.push_screen(Panel(drift_title(c, row), entries, opened_by="D"), self._picked)

    def action_places(self) -> None:
        """Marks, notes, and where jumps started."""
        session = self.session
        c, places = session.comparison, session.listing.annotations
        letters, noted, jumps = places.letters(c), places.noted(c), session.listing.jumps
        if not (letters or noted or jumps):
            self.say('no row is marked (Ma) or has a note ("), and nothing was jumped from')
            return
        entries = partial(place_entries, c, letters, noted, jumps)
        self.app.push_screen(Panel("marks, notes and jumps", entries, opened_by="J"), self._picked)

    def _picked(self, choice: Picked | None) -> None:
        if choice is not None:
            self.go_to(choice.row)

    def go_to(self, row: int) -> None:
        """Jump to a row that was chosen."""
        self.session.listing.go(row)
        self.draw()

    def action_mark_letter(self) -> None:
        """Mark the row with the letter that was typed; without one, wait for it."""
        if letter := self.reader.letter:
            self.say(self.session.listing.mark_row(letter))
        else:
            self.reader.await_letter("mark_letter")
            self.say("a letter marks this row")

    def action_go_mark(self) -> None:
        """To the row with the letter that was typed; without one, wait for it."""
        if letter := self.reader.letter:
            self.say(self.session.listing.go_mark(letter))
        else:
            self.reader.await_letter("go_mark")
            self.say("the letter of the mark to go to")

    def action_note(self) -> None:
        """A note on the row, to be typed."""
        session = self.session
        if session.listing.cursor >= 0:
            self.ask("note", "note: ", session.listing.annotations.note(session.comparison, session.listing.cursor))

    def action_comparability(self) -> None:
        """What the two runs do not have in common."""
        c = self.session.comparison
        if not c.comparability.notes:
            self.say("nothing is known that stands against comparing these two runs")
            return
        self.app.push_screen(Panel("can the two runs be compared?", partial(note_entries, c), opened_by="!"))
