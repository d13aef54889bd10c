"""A page that finds out what a change of the rules would do, before it is made.

One change at a time is tried, in a thread; when another one is wanted meanwhile, the one that runs is given up at its
next step, and its result is dropped.
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
    """What a change would do; `at` is the index of the rule that it is about."""

    edit: Edit
    at: int
    job: Job
    effect: Effect


class Trying(Modal[T]):
    """See the module's docstring."""

    @dataclass
    class Tried(Message):
        """It is known what a change would do; `trial` is None when it was given up."""

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
        """The change that is being tried, or will be next."""
        self.trial: Trial | None = None
        """What the change would do that was wanted last."""

    @abstractmethod
    def tried(self) -> None:
        """`trial` is there."""

    @abstractmethod
    def refused(self, error: UserError) -> None:
        """There will be none."""

    def try_change(self, edit: Edit, at: int) -> None:
        """Find out what a change would do; `at` is the index of the rule that it is about."""
        self.wanted, self.trial = (edit, at), None
        if not self._busy:
            self._busy = True
            job = Job(self._session.generation, self._session.comparison, edit.rules)
            self.run_worker(lambda: self._run(edit, at, job), thread=True)

    def give_up(self) -> None:
        """Nobody wants to know any more what would be."""
        self.wanted = self.trial = None

    def _run(self, edit: Edit, at: int, job: Job) -> None:
        """In a worker's thread: only messages leave it."""

        def go_on(_what: str, _fraction: float) -> None:
            if self.wanted is None or self.wanted[0] is not edit:
                raise Cancelled

        try:
            after = job.run(go_on)
            self._session.listing.prepare(after)
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
