"""Actions of the main screen: `by_id` maps each registered action to a callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from matchers.errors import UserError
from numtui.actions import Action
from numtui.query.view import Order, StatusGroup
from numtui.session.jobs import Job
from numtui.session.listing import Details
from numtui.session.rule_edits import Edit
from numtui.text.counts import plural
from numtui.tui.screens import arrange, pages, panels
from numtui.tui.screens.jobs import Jobs
from numtui.tui.screens.saving import Saving
from numtui.tui.screens.screen import MainScreen
from numtui.tui.screens.source_editor import open_source
from numtui.tui.screens.watch_files import FileWatcher
from numtui.views.table import SIDE_BY_SIDE

__all__ = ["Actions"]


class Actions:
    """Actions of the keys, the palette and the `:` commands."""

    def __init__(self, screen: MainScreen, jobs: Jobs, saving: Saving, files: FileWatcher) -> None:
        self._screen = screen
        self._session = screen.session
        self._listing = screen.session.listing
        self._jobs = jobs
        self._saving = saving
        self._files = files
        self._ran = ""
        self._repeated = 0
        """Consecutive earlier runs of the current action."""
        self._went_back = -1
        """Target row of the last `ctrl+o`; while the cursor is on it, `tab` goes forward."""
        self._rule = 0
        """Last cursor position in the rules panel."""
        self.by_id: Mapping[str, Callable[[], None]] = self._over_the_list() | self._about_the_list() | self._besides()

    def _over_the_list(self) -> dict[str, Callable[[], None]]:
        """Movements and jumps."""
        listing, screen, told = self._listing, self._screen, self._told
        return {
            "down": lambda: self._move(1),
            "up": lambda: self._move(-1),
            "half_page_down": lambda: self._scroll(0.5),
            "half_page_up": lambda: self._scroll(-0.5),
            "page_down": lambda: self._scroll(1),
            "page_up": lambda: self._scroll(-1),
            "top": lambda: self._go_number(0),
            "bottom": lambda: self._go_number(len(listing.view) - 1),
            "names_left": lambda: self._scroll_names(1),
            "names_right": lambda: self._scroll_names(-1),
            "center": lambda: self._align(0.5),
            "line_to_top": lambda: self._align(0),
            "line_to_bottom": lambda: self._align(1),
            "next_red": lambda: told(listing.next_red(self._times())),
            "previous_red": lambda: told(listing.next_red(-self._times())),
            "next_cause": lambda: told(listing.next_cause(self._times())),
            "previous_cause": lambda: told(listing.next_cause(-self._times())),
            "first_difference": lambda: told(listing.first_difference()),
            "larger_error": lambda: told(listing.next_error(self._times())),
            "smaller_error": lambda: told(listing.next_error(-self._times())),
            "search": screen.prompt.ask_search,
            "next_hit": lambda: told(listing.next_hit(self._times())),
            "previous_hit": lambda: told(listing.next_hit(-self._times())),
            "inspect": self._inspect,
            "switch": self._switch,
            "producer": lambda: told(listing.producer(screen.reader.count())),
            "consumer": lambda: told(listing.consumer(screen.reader.count())),
            "back": self._back,
            "forward": self._forward,
            "mark_letter": lambda: self._with_letter("mark_letter", listing.mark_row, "type a letter to mark this row"),
            "next_rank": lambda: self._go_to_rank(1),
            "previous_rank": lambda: self._go_to_rank(-1),
            "go_mark": lambda: self._with_letter("go_mark", listing.go_mark, "type the letter of a mark"),
        }

    def _about_the_list(self) -> dict[str, Callable[[], None]]:
        """Panels, filters, listed rows."""
        screen = self._screen
        return {
            "plot": lambda: panels.open_plot(screen),
            "causes": lambda: panels.open_causes(screen),
            "why": lambda: panels.open_explanation(screen),
            "code": lambda: panels.open_code(screen),
            "assume": lambda: panels.assume_equal(screen),
            "elements": screen.replays.open_elements,
            "replay": screen.replays.replay,
            "neighbours": lambda: panels.open_neighbours(screen),
            "drift": lambda: panels.open_drift(screen),
            "places": lambda: panels.open_places(screen),
            "comparability": lambda: pages.open_comparability(screen),
            "note": self._note,
            "keep": lambda: screen.prompt.ask_query("keep", "keep only keys with: "),
            "filter": lambda: screen.prompt.ask_query("filter", "filter: ", self._listing.filter.query.text),
            "filters": lambda: arrange.open_filters(screen),
            "group": lambda: arrange.open_groups(screen),
            "sort": lambda: arrange.sort_next(screen),
            "toggle_red": lambda: self._toggle(StatusGroup.RED),
            "toggle_close": lambda: self._toggle(StatusGroup.CLOSE),
            "toggle_equal": lambda: self._toggle(StatusGroup.EQUAL),
            "toggle_only_a": lambda: self._toggle(StatusGroup.ONLY_A),
            "toggle_only_b": lambda: self._toggle(StatusGroup.ONLY_B),
            "toggle_other": lambda: self._toggle(StatusGroup.OTHER),
            "larger_inspector": lambda: self._give_details(1),
            "smaller_inspector": lambda: self._give_details(-1),
            "columns": self._columns,
            "fold": self._fold,
            "reset": self._reset,
        }

    def _besides(self) -> dict[str, Callable[[], None]]:
        """Rules, files, the program."""
        session, screen = self._session, self._screen
        return {
            "suggestions": self._open_suggestions,
            "mark": lambda: self._propose(session.toggle_mark),
            "unpair": lambda: self._propose(session.propose_unpair),
            "ignore": lambda: self._propose(session.propose_ignore),
            "generalise": lambda: self._search("t", "checking the other layers", session.template_edits),
            "realign": lambda: self._search("a", "searching for mispaired runs", session.realign_edits),
            "undo": lambda: self._travel(session.undo),
            "redo": lambda: self._travel(session.redo),
            "rules": self._open_rules,
            "toggle_rules": lambda: self._travel(session.toggle_rules),
            "save": self._saving.save_changes,
            "edit": lambda: open_source(screen),
            "copy": self._copy_key,
            "copy_row": self._copy_row,
            "html": self._ask_page,
            "reload": self._files.reload,
            "follow": self._files.follow,
            "raw": lambda: pages.open_raw(screen),
            "commits": lambda: pages.open_commits(screen),
            "info": lambda: pages.open_info(screen),
            "messages": lambda: pages.open_messages(screen),
            "help": lambda: pages.open_help(screen),
            "palette": self._open_palette,
            "command": screen.ask_command,
            "redraw": self._redraw,
            "suspend": self._suspend,
            "quit": self._saving.quit,
        }

    def run(self, action: Action) -> None:
        """Run an action of the registry, unless it does not apply to these logs."""
        if action.needs_verdicts and self._screen.background.too_early():
            return
        if self._session.comparison.single and action.about_two:
            self._screen.say("needs two logs; only one is open")
            return
        if self._session.rules_off and action.changes_rules:
            self._screen.say("the rules are off: T turns them on")
            return
        self._repeated = self._repeated + 1 if action.id == self._ran else 0
        self._ran = action.id
        self.by_id[action.id]()

    def _times(self) -> int:
        """Return the typed count, 1 without one."""
        return self._screen.reader.count() or 1

    def _told(self, message: str) -> None:
        """Show the session's answer."""
        if message:
            self._screen.say(message)
        else:
            self._screen.draw()

    # -- move

    def _move(self, by: int) -> None:
        by *= self._times()
        if self._screen.inspector.active:
            self._screen.inspector.move(self._session, by)
        else:
            self._listing.move(by)
            self._screen.draw()

    def _scroll(self, pages: float) -> None:
        inspector = self._screen.inspector
        if inspector.active:
            inspector.scroll_lines(round(pages * inspector.room))
        else:
            self._screen.table.scroll_pages(self._listing, pages * self._times())
            self._screen.draw()

    def _go_number(self, line: int) -> None:
        number = self._screen.reader.count()
        if number is None:
            self._listing.go_line(line)
        else:
            self._listing.go(min(number, len(self._session.comparison)) - 1)
        self._screen.draw()

    def _align(self, where: float) -> None:
        self._screen.table.align(self._listing, where)
        self._screen.draw()

    def _scroll_names(self, steps: int) -> None:
        self._told(self._screen.table.scroll_names(self._listing, steps * self._times()))

    def _with_letter(self, name: str, do: Callable[[str], str], waiting: str) -> None:
        """Call `do` with the typed letter; without one, wait for it."""
        if letter := self._screen.reader.letter:
            self._screen.say(do(letter))
        else:
            self._screen.reader.await_letter(name)
            self._screen.say(waiting)

    # -- follow the data

    def _inspect(self) -> None:
        """Enter the inspector; inside it, go to the producer of the chosen input."""
        inspector = self._screen.inspector
        if inspector.active:
            if inspector.position is not None:
                self._told(self._listing.producer(inspector.position))
            self._switch(to_list=True)
        elif self._listing.unfold():
            self._screen.draw()
        else:
            self._switch()

    def _switch(self, to_list: bool = False) -> None:
        """Switch between list and inspector; right after going back, go forward."""
        if self._went_back >= 0 and self._went_back == self._listing.cursor:
            self._forward()
            return
        inspector = self._screen.inspector
        if to_list or inspector.active:
            inspector.leave()
        else:
            inspector.enter(self._session)
        self._screen.resize_inspector()
        self._screen.draw()

    def _give_details(self, more: int) -> None:
        at = self._listing.details + more
        if at not in Details.__members__.values():
            told = "inspector already at its largest" if more > 0 else "inspector hidden: + shows it"
            self._screen.say(told)
            return
        self._listing.details = Details(at)
        if self._listing.details is Details.NONE and self._screen.inspector.active:
            self._screen.inspector.leave()
        self._screen.resize_inspector()
        self._screen.draw()

    def _back(self) -> None:
        if self._listing.back():
            self._went_back = self._listing.cursor
            self._screen.draw()
        else:
            self._screen.say("no earlier jump")

    def _forward(self) -> None:
        if self._listing.forward():
            self._went_back = self._listing.cursor
            self._screen.draw()
        else:
            self._went_back = -1
            self._screen.say("no later jump")

    def _go_to_rank(self, by: int) -> None:
        """Show another rank in place of this one; ask about unsaved rules."""
        screen, ranks = self._screen, self._screen.ranks
        rank = None if ranks is None else ranks.beside(by * self._times())
        if ranks is None:
            screen.say("there is one rank: open the folders of two runs to have them all")
        elif rank is None:
            screen.say(ranks.message)
        else:
            self._saving.ask_then(partial(screen.leave_for, rank), f"go to rank {rank}")

    # -- choose what is listed

    def _note(self) -> None:
        """Ask for a note on the row; an empty one deletes it."""
        listing = self._listing

        def answered(text: str) -> None:
            self._screen.say(listing.annotate(text))
            self._screen.background.store_session()

        if listing.cursor >= 0:
            had = listing.annotations.note(listing.comparison, listing.cursor)
            self._screen.prompt.ask("note", "note: ", answered, value=had)

    def _columns(self) -> None:
        """Switch between a column of names per side and one for both."""
        if (width := self._screen.table.size.width) < SIDE_BY_SIDE:
            self._screen.say(f"two columns of names need {SIDE_BY_SIDE} columns, the terminal has {width}")
            return
        self._listing.merged = not self._listing.merged
        self._screen.draw()

    def _fold(self) -> None:
        if self._listing.order is not Order.DISPATCH:
            self._screen.say("folding needs dispatch order: S sorts")
            return
        self._listing.toggle_fold()
        self._screen.draw()

    def _toggle(self, group: StatusGroup) -> None:
        self._listing.toggle(group)
        shown = "shown" if group in self._listing.filter.groups else "hidden"
        self._screen.say(f"{group.label} rows are {shown} ({plural(len(self._listing.view), 'line')})")

    def _reset(self) -> None:
        """Cancel the newest pending state."""
        session, listing, screen = self._session, self._listing, self._screen
        if screen.inspector.active:
            self._switch(to_list=True)
        elif screen.reader.clear() or session.cancel() or screen.replays.cancel():
            screen.draw()
        elif session.mark is not None:
            session.mark = None
            screen.say("mark cleared")
        elif listing.search is not None:
            listing.search = None
            screen.draw()
        elif listing.what_if is not None:
            listing.assume(None)
            screen.say("nothing is assumed equal any more")
        elif listing.clear_filter():
            screen.say("the only row is listed" if (n := len(listing.view)) == 1 else f"all {n:,} rows are listed")
        elif listing.order is not Order.DISPATCH:
            listing.sort(Order.DISPATCH)
            screen.say(f"sorted by {arrange.SORTED[Order.DISPATCH]}")

    # -- change the pairing

    def _propose(self, propose: Callable[[], str | None]) -> None:
        try:
            message = propose()
        except UserError as error:
            self._screen.say(str(error), trouble=True)
            return
        self._jobs.start(self._session.preview_job())
        self._told(message or "")

    def _search(self, key: str, what: str, search: Callable[[], tuple[Edit, ...]]) -> None:
        """Search the whole logs for edits in a thread, then propose them."""

        def work() -> tuple[Edit, ...] | UserError:
            try:
                return search()
            except UserError as error:
                return error

        def show(found: tuple[Edit, ...] | UserError) -> None:
            if isinstance(found, UserError):
                self._screen.say(str(found), trouble=True)
            else:
                self._session.propose(key, found)
                self._jobs.start(self._session.preview_job())

        self._screen.background.run_then_show(what, work, show)

    def _travel(self, travel: Callable[[], tuple[Job | None, str]]) -> None:
        """Undo or redo."""
        job, message = travel()
        self._screen.say(message)
        self._jobs.start(job)

    def _open_rules(self) -> None:
        """Open the rules panel."""
        from numtui.tui.screens.rules import RulesPanel

        def chosen(number: int | None) -> None:
            self._rule = panel.at
            if number is not None:
                self._screen.prompt.filter_by(f"rule:{number}")

        self._session.cancel()
        start, save = self._jobs.start, self._saving.save_changes
        panel = RulesPanel(self._session, start, save, say=self._screen.say, at=self._rule)
        self._screen.app.push_screen(panel, chosen)

    def _open_suggestions(self) -> None:
        """Open the suggestions panel."""
        from numtui.tui.screens.suggestions import Suggestions

        panel = Suggestions(self._session, self._jobs.start, self._saving.save_changes)
        self._screen.app.push_screen(panel, partial(panels.go_to, self._screen))

    # -- save, ask, leave

    def _copy_key(self) -> None:
        from numtui.tui.screens.export import copy_key  # imports the reports, which most sessions do not need

        copy_key(self._screen, self._repeated)

    def _copy_row(self) -> None:
        from numtui.tui.screens.export import copy_row

        copy_row(self._screen)

    def _ask_page(self) -> None:
        from numtui.tui.screens.export import ask_page

        ask_page(self._screen)

    def _redraw(self) -> None:
        app = self._screen.app
        self._screen.background.later(app.run_action, "app.redraw")

    def _suspend(self) -> None:
        self._screen.app.action_suspend_process()

    def _open_palette(self) -> None:
        from numtui.tui.screens.palette import Palette

        self._screen.app.push_screen(Palette())
