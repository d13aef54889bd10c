"""Background jobs of the session: matching under changed rules, searching for mispaired runs."""

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
    """Runner of the session's jobs; passes it their results."""

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._session = screen.session

    def start(self, job: Job | None) -> None:
        """Run a job in a thread; None does nothing."""
        if job is None:
            return
        background = self._screen.background
        if not job.preview and job.result is None:
            background.working = "matching"
        background.run(partial(self._run, job), partial(self._matched, job))
        self._screen.draw()

    def _run(self, job: Job) -> UserError | None:
        """Run in a worker thread."""

        def go_on(_what: str, _fraction: float) -> None:
            if job.generation != self._session.generation:
                raise Cancelled  # the rules have changed again

        try:
            result = job.run(go_on)
            if not job.preview:
                self._session.listing.prepare(result)
        except Cancelled:
            return None  # no result: the session rejects the job
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
        accepted = self._session.accept(job)
        if accepted and not job.preview:
            screen.background.working = ""
            screen.warn(rule_trouble(self._session))
            self.look()
            self.tell_modal()
        elif accepted and job.result is not None:  # the effect is told at once, the rest is ready when it is applied
            screen.background.run(partial(self._session.listing.prepare, job.result), group="ahead", exclusive=True)
        screen.draw()

    def tell_modal(self) -> None:
        """Notify the page over the screen, if any, of a new comparison."""
        if isinstance(over := self._screen.app.screen, Modal):
            over.session_changed()

    def look(self) -> None:
        """Search for mispaired runs, one search at a time to bound memory."""
        if (look := self._session.look()) is not None:
            self._screen.background.run(
                partial(self._run_look, look), lambda _: self._looked(look), group="look", exclusive=True
            )

    def _run_look(self, look: RealignmentSearch) -> None:
        """Run in a worker thread."""
        look.run()
        give_memory_back()

    def _looked(self, look: RealignmentSearch) -> None:
        if self._session.take(look):
            self._screen.draw()
