"""What each action of the registry does on the main screen: `action_<id>`, one for every action.

The base of the explorer, so that the explorer itself is about drawing, threads and dialogs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from matchers.errors import UserError
from numtui.query.view import Group, Order
from numtui.session.export import copies_of
from numtui.session.jobs import Job
from numtui.session.listing import Details
from numtui.terminal.clipboard import copy_in_tmux
from numtui.tui.screens.arrange import SORTED
from numtui.tui.screens.pages import Pages

if TYPE_CHECKING:
    from numtui.session.export import Page
    from numtui.session.rule_edits import Edit

__all__ = ["Commands"]


class Commands(Pages):
    """The actions, on a screen that can draw a session and run its jobs."""

    _went_back = -1
    """The row that the last `ctrl+o` led to; while the cursor is still there, `tab` goes forward."""

    _rule = 0
    """Where one was in the list of rules."""

    @abstractmethod
    def start(self, job: Job | None) -> None:
        """Run a job in the background."""

    @abstractmethod
    def resize_inspector(self) -> None:
        """Give the inspector the height that suits its focus."""

    def _times(self) -> int:
        """The count that was typed, 1 without one."""
        return self.reader.count() or 1

    def _told(self, message: str) -> None:
        """Show what the session answered."""
        self.say(message) if message else self.draw()

    # -- move

    def _move(self, by: int) -> None:
        if self.inspector.active:
            self.inspector.move(self.session, by)
        else:
            self.session.listing.move(by)
            self.draw()

    def action_down(self) -> None:
        self._move(self._times())

    def action_up(self) -> None:
        self._move(-self._times())

    def _scroll(self, pages: float) -> None:
        if self.inspector.active:
            self.inspector.scroll_lines(round(pages * self.inspector.room))
        else:
            self.table.scroll_pages(self.session.listing, pages * self._times())
            self.draw()

    def action_half_page_down(self) -> None:
        self._scroll(0.5)

    def action_half_page_up(self) -> None:
        self._scroll(-0.5)

    def action_page_down(self) -> None:
        self._scroll(1)

    def action_page_up(self) -> None:
        self._scroll(-1)

    def _go_number(self, line: int) -> None:
        number = self.reader.count()
        if number is None:
            self.session.listing.go_line(line)
        else:
            self.session.listing.go(min(number, len(self.session.comparison)) - 1)
        self.draw()

    def action_top(self) -> None:
        self._go_number(0)

    def action_bottom(self) -> None:
        self._go_number(len(self.session.listing.view) - 1)

    def _align(self, where: float) -> None:
        self.table.align(self.session.listing, where)
        self.draw()

    def action_center(self) -> None:
        self._align(0.5)

    def action_line_to_top(self) -> None:
        self._align(0)

    def action_line_to_bottom(self) -> None:
        self._align(1)

    # -- find what is wrong

    def action_next_red(self) -> None:
        self._told(self.session.listing.next_red(self._times()))

    def action_previous_red(self) -> None:
        self._told(self.session.listing.next_red(-self._times()))

    def action_next_cause(self) -> None:
        self._told(self.session.listing.next_cause(self._times()))

    def action_previous_cause(self) -> None:
        self._told(self.session.listing.next_cause(-self._times()))

    def action_larger_error(self) -> None:
        self._told(self.session.listing.next_error(self._times()))

    def action_smaller_error(self) -> None:
        self._told(self.session.listing.next_error(-self._times()))

    def action_next_hit(self) -> None:
        self._told(self.session.listing.next_hit(self._times()))

    def action_previous_hit(self) -> None:
        self._told(self.session.listing.next_hit(-self._times()))

    # -- follow the data

    def action_inspect(self) -> None:
        """Into the inspector; there, to the producer of the chosen input."""
        if self.inspector.active:
            position = self.inspector.position
            if position is not None:
                self._told(self.session.listing.producer(position))
            self.action_switch(to_list=True)
        elif self.session.listing.unfold():
            self.draw()
        else:
            self.action_switch()

    def action_switch(self, to_list: bool = False) -> None:
        """Between list and inspector; right after going back, forward."""
        if self._went_back >= 0 and self._went_back == self.session.listing.cursor:
            self.action_forward()
            return
        if to_list or self.inspector.active:
            self.inspector.leave()
        else:
            self.inspector.enter(self.session)
        self.resize_inspector()
        self.draw()

    def _give_details(self, more: int) -> None:
        at = self.session.listing.details + more
        if at not in Details.__members__.values():
            self.say("the inspector is as large as it gets" if more > 0 else "the inspector is away: + brings it back")
            return
        self.session.listing.details = Details(at)
        if self.session.listing.details is Details.NONE and self.inspector.active:
            self.inspector.leave()
        self.resize_inspector()
        self.draw()

    def action_larger_inspector(self) -> None:
        self._give_details(1)

    def action_smaller_inspector(self) -> None:
        self._give_details(-1)

    def action_producer(self) -> None:
        self._told(self.session.listing.producer(self.reader.count()))

    def action_consumer(self) -> None:
        self._told(self.session.listing.consumer(self.reader.count()))

    def action_back(self) -> None:
        if self.session.listing.back():
            self._went_back = self.session.listing.cursor
            self.draw()
        else:
            self.say("this is where the jumps began")

    def action_forward(self) -> None:
        if self.session.listing.forward():
            self._went_back = self.session.listing.cursor
            self.draw()
        else:
            self._went_back = -1
            self.say("this is where the jumps ended")

    # -- choose what is listed

    def action_fold(self) -> None:
        if self.session.listing.order is not Order.DISPATCH:
            self.say("only in order of dispatch there are stretches to fold: S sorts")
            return
        self.session.listing.toggle_fold()
        self.draw()

    def _toggle(self, group: Group) -> None:
        self.session.listing.toggle(group)
        shown = "shown" if group in self.session.listing.filter.groups else "hidden"
        self.say(f"{group.label} rows are {shown} ({len(self.session.listing.view):,} lines)")

    def action_toggle_red(self) -> None:
        self._toggle(Group.RED)

    def action_toggle_close(self) -> None:
        self._toggle(Group.CLOSE)

    def action_toggle_equal(self) -> None:
        self._toggle(Group.EQUAL)

    def action_toggle_only_a(self) -> None:
        self._toggle(Group.ONLY_A)

    def action_toggle_only_b(self) -> None:
        self._toggle(Group.ONLY_B)

    def action_toggle_other(self) -> None:
        self._toggle(Group.OTHER)

    def action_reset(self) -> None:
        """Drop one thing that is pending, the newest first."""
        session = self.session
        if self.inspector.active:
            self.action_switch(to_list=True)
        elif self.reader.clear() or session.cancel():
            self.draw()
        elif session.mark is not None:
            session.mark = None
            self.say("the mark is gone")
        elif session.listing.search is not None:
            session.listing.search = None
            self.draw()
        elif session.listing.clear_filter():
            self.say(f"all {len(session.listing.view):,} rows are listed")
        elif session.listing.order is not Order.DISPATCH:
            session.listing.sort(Order.DISPATCH)
            self.say(f"sorted by {SORTED[Order.DISPATCH]}")
        elif session.listing.folded:
            self.action_fold()

    # -- change the pairing

    def _proposing(self, propose: Callable[[], str | None]) -> None:
        try:
            message = propose()
        except UserError as error:
            self.say(str(error), trouble=True)
            return
        self.start(self.session.preview_job())
        self._told(message or "")

    def _searching(self, key: str, what: str, search: Callable[[], tuple[Edit, ...]]) -> None:
        """Propose what has to be searched for in whole logs, when it has been found."""

        def work() -> tuple[Edit, ...] | UserError:
            try:
                return search()
            except UserError as error:
                return error

        def show(found: tuple[Edit, ...] | UserError) -> None:
            if isinstance(found, UserError):
                self.say(str(found), trouble=True)
            else:
                self.session.propose(key, found)
                self.start(self.session.preview_job())

        self.run_then_show(what, work, show)

    def action_mark(self) -> None:
        self._proposing(self.session.toggle_mark)

    def action_unpair(self) -> None:
        self._proposing(self.session.propose_unpair)

    def action_generalise(self) -> None:
        self._searching("t", "looking at the other layers", self.session.template_edits)

    def action_realign(self) -> None:
        self._searching("a", "looking for pairs made past each other", self.session.realign_edits)

    def action_ignore(self) -> None:
        self._proposing(self.session.propose_ignore)

    def action_undo(self) -> None:
        job, message = self.session.undo()
        self.say(message)
        self.start(job)

    def action_redo(self) -> None:
        job, message = self.session.redo()
        self.say(message)
        self.start(job)

    def action_rules(self) -> None:
        """The rules, to work on them."""
        from numtui.tui.screens.rules import RulesPanel

        def chosen(number: int | None) -> None:
            self._rule = panel.at
            if number is not None:
                self.filter_by(f"rule:{number}")

        self.session.cancel()
        panel = RulesPanel(self.session, self.start, self.action_save, say=self.say, at=self._rule)
        self.app.push_screen(panel, chosen)

    def action_suggestions(self) -> None:
        """The kinds of drift, and rules for them."""
        from numtui.tui.screens.suggestions import Suggestions

        if self.session.comparison.matching is None:
            self.say("the logs are being compared")
            return

        def chosen(row: int | None) -> None:
            if row is not None:
                self.go_to(row)

        self.app.push_screen(Suggestions(self.session, self.start, self.action_save), chosen)

    # -- save, ask, leave

    def action_save(self) -> None:
        if self.session.dirty:
            self.save()
        else:
            self.tell_saved()

    def tell_saved(self) -> None:
        """Say that there is nothing to save."""
        file = self.session.file
        self.say(
            "nothing to save: " + ("no rule was made" if file.raw is None else f"the rules are those of {file.path}")
        )

    def action_copy(self) -> None:
        """The key of the row; again, what else of it can be copied."""
        found = copies_of(self.session.comparison, self.session.listing.spot)
        if not found:
            return
        _, text = found[self.repeated % len(found)]
        more, _ = found[(self.repeated + 1) % len(found)]
        self.run_worker(lambda: self._copy(text), thread=True)
        self.say(f"copied {text}" + (f"   (again: {more})" if len(found) > 1 else ""))

    def _copy(self, text: str) -> None:
        """In a worker's thread: tmux is another program."""
        if not copy_in_tmux(text):
            self.app.call_from_thread(self.app.copy_to_clipboard, text)

    def action_copy_row(self) -> None:
        """The row under the cursor, for a discussion."""
        from numtui.session.export import row_of  # with the reports, which most sessions do not need

        row = row_of(self.session)
        if row:
            self.run_worker(lambda: self._copy(row), thread=True)
            self.say("copied the row as Markdown")

    def action_html(self) -> None:
        """Ask where to; a free name is proposed."""
        from numtui.session.export import free_path

        self.ask("page", "write an HTML page to: ", str(free_path()))

    def write_page(self, path: Path) -> None:
        """Write the page of what is on the screen; ask before a file is replaced."""
        if not path.exists():
            self._start_page(path)
            return
        from numtui.tui.screens.dialog import overwrite

        def answered(answer: str | None) -> None:
            if answer == "overwrite":
                self._start_page(path)
            elif answer == "elsewhere":
                self.action_html()

        self.app.push_screen(overwrite(str(path)), answered)

    def _start_page(self, path: Path) -> None:
        from numtui.session.export import page_of

        page = page_of(self.session)
        self.say(f"writing {path}")
        self.run_worker(lambda: self._write_page(page, path), thread=True)

    def _write_page(self, page: Page, path: Path) -> None:
        """In a worker's thread: only messages leave it."""
        try:
            page.write(path)
        except UserError as error:
            self.app.call_from_thread(self.say, str(error), trouble=True)
        else:
            self.app.call_from_thread(self.say, f"written: {path} ({path.stat().st_size / 1e6:.1f} MB)")

    def action_palette(self) -> None:
        from numtui.tui.screens.palette import Palette

        self.app.push_screen(Palette())

    def action_redraw(self) -> None:
        from numtui.tui.app import Numtui

        if isinstance(self.app, Numtui):
            self.app.redraw()

    def action_suspend(self) -> None:
        self.app.action_suspend_process()

    def action_quit(self) -> None:
        if not self.session.dirty:
            self.leave()
            return
        from numtui.tui.screens.dialog import quit_unsaved

        def answered(answer: str | None) -> None:
            if answer == "save":
                self.save(then=self.leave)
            elif answer == "discard":
                self.leave()

        self.app.push_screen(quit_unsaved(str(self.session.file.path)), answered)

    def action_search(self) -> None:
        self.begin_search()

    def action_keep(self) -> None:
        self.ask_query("keep", "& list only keys with: ")

    def action_filter(self) -> None:
        self.ask_query("filter", "filter: ", self.session.listing.filter.query.text)

    def action_command(self) -> None:
        names = [name for action in self.actions for name in (action.name, *action.command)]
        self.ask("command", ":", "", tuple(names))
