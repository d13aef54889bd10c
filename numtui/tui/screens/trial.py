"""Base class of pages that preview the effect of a rule change.

One change at a time is tried, in a thread; when another is wanted meanwhile, the running one stops at its next step and
its result is dropped.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TypeVar

from textual import on
from textual.message import Message

from matchers.errors import UserError
from numtui.session.jobs import Job
from numtui.session.loading import Cancelled
from numtui.session.rule_edits import Edit, Effect
from numtui.session.session import Session
from numtui.tui.screens.modal import Modal

__all__ = ["Trial", "Trying"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Trial:
    """Effect of a change; `at` is the index of the changed rule."""

    edit: Edit
    at: int
    job: Job
    effect: Effect


class Trying(Modal[T]):
    """A page that tries rule changes in a thread."""

    @dataclass
    class Tried(Message):
        """A trial ended; `trial` is None when it was cancelled."""

        trial: Trial | None

    @dataclass
    class Refused(Message):
        """A change cannot be tried."""

        error: UserError

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._busy = False
        self.wanted: tuple[Edit, int] | None = None
        """The change being tried, or to be tried next."""
        self.trial: Trial | None = None
        """The effect of the last wanted change."""

    @abstractmethod
    def tried(self) -> None:
        """Handle a finished trial."""

    @abstractmethod
    def refused(self, error: UserError) -> None:
        """Handle a change that cannot be tried."""

    def try_change(self, edit: Edit, at: int) -> None:
        """Try a change; `at` is the index of the changed rule."""
        self.wanted, self.trial = (edit, at), None
        if not self._busy:
            self._busy = True
            job = Job(self._session.generation, self._session.comparison, edit.rules)
            self.run_worker(lambda: self._run(edit, at, job), thread=True)

    def give_up(self) -> None:
        """Cancel the trial."""
        self.wanted = self.trial = None

    def _run(self, edit: Edit, at: int, job: Job) -> None:
        """Try a change in a worker thread, which only posts messages."""

        def go_on(_what: str, _fraction: float) -> None:
            if self.wanted is None or self.wanted[0] is not edit:
                raise Cancelled

        try:
            after = job.run(go_on)
            self._session.prepare(after)
        except Cancelled:
            self.post_message(self.Tried(None))
        except UserError as error:
            self.post_message(self.Refused(error))
        else:
            self.post_message(self.Tried(Trial(edit, at, job, Effect.between(job.base, after))))

    @on(Tried)
    def _tried(self, event: Tried) -> None:
        self._busy = False
        if self.wanted is None:
            return
        edit, at = self.wanted
        trial = event.trial
        if trial is not None and trial.edit is edit and trial.job.generation == self._session.generation:
            self.trial, self.wanted = trial, None
            self.tried()
        else:
            self.try_change(edit, at)

    @on(Refused)
    def _refused(self, event: Refused) -> None:
        self._busy, self.wanted = False, None
        self.refused(event.error)
