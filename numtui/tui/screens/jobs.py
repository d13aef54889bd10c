"""The session's jobs in the background: the logs matched under other rules, a search for pairs made past each other."""

from __future__ import annotations

from functools import partial

from matchers.errors import UserError
from numtui.runtime_tuning import give_memory_back
from numtui.session.jobs import Job, RealignmentSearch
from numtui.session.loading import Cancelled
from numtui.tui.screens.modal import Modal
from numtui.tui.screens.screen import MainScreen
from numtui.views.run_summary import rule_trouble

__all__ = ["Jobs"]


class Jobs:
    """Runs the jobs of the session of a screen, and has it take the results."""

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._session = screen.session

    def start(self, job: Job | None) -> None:
        """Run a job in a thread; without one, nothing."""
        if job is None:
            return
        if job.result is not None:
            self._matched(job, None)
            return
        background = self._screen.background
        if not job.preview:
            background.working = "matching"
        background.run(partial(self._run, job), partial(self._matched, job))
        self._screen.draw()

    def _run(self, job: Job) -> UserError | None:
        """In a worker's thread."""

        def go_on(_what: str, _fraction: float) -> None:
            if job.generation != self._session.generation:
                raise Cancelled  # the rules have changed again: nobody waits for this any more

        try:
            self._session.listing.prepare(job.run(go_on))
        except Cancelled:
            return None  # without a result, which the session does not accept
        except UserError as error:
            return error
        give_memory_back()
        return None

    def _matched(self, job: Job, error: UserError | None) -> None:
        screen = self._screen
        if error is not None:
            screen.background.working = ""
            screen.say(str(error), trouble=True)
            return
        if self._session.accept(job) and not job.preview:
            screen.background.working = ""
            screen.warn(rule_trouble(self._session))
            self.look()
            self.tell_modal()
        screen.draw()

    def tell_modal(self) -> None:
        """Tell the page over the screen, if there is one, that the comparison is another."""
        if isinstance(over := self._screen.app.screen, Modal):
            over.session_changed()

    def look(self) -> None:
        """Search for pairs made past each other, one search after the other: each takes memory of its own."""
        if (look := self._session.look()) is not None:
            self._screen.background.run(
                partial(self._run_look, look), lambda _: self._looked(look), group="look", exclusive=True
            )

    def _run_look(self, look: RealignmentSearch) -> None:
        """In a worker's thread."""
        look.run()
        give_memory_back()

    def _looked(self, look: RealignmentSearch) -> None:
        if self._session.take(look):
            self._screen.draw()
