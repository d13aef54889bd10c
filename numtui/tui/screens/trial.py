"""Base class of pages that preview the effect of a rule change.

One change at a time is tried, in a thread; when another is wanted meanwhile, the running one stops at its next step and
its result is dropped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from textual import on
from textual.message import Message

from matchers.comparison import Comparison
from matchers.errors import UserError
from numtui.session.jobs import Job
from numtui.session.loading import Cancelled
from numtui.session.rule_edits import Edit, Effect
from numtui.session.session import Session
from numtui.tui.screens.modal import Modal

__all__ = ["Trial", "Trying"]

T = TypeVar("T")

Change = Edit | Callable[[], Edit]
"""An edit, or a slow function that makes one in the thread."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Effect of a change; `at` is the index of the changed rule, -1 for none in particular."""

    edit: Edit
    at: int
    job: Job
    effect: Effect


class Trying(Modal[T]):
    """A page that tries rule changes in a thread."""

    @dataclass
    class Tried(Message):
        """A trial ended: the effect, the error it met, or None when it was cancelled."""

        change: Change
        result: Trial | UserError | None

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._busy = False
        self.wanted: tuple[Change, int] | None = None
        """The change being tried, or to be tried next."""
        self.trial: Trial | None = None
        """The effect of the last wanted change."""

    @abstractmethod
    def tried(self) -> None:
        """Handle a finished trial."""

    @abstractmethod
    def refused(self, error: UserError) -> None:
        """Handle a change that cannot be tried."""

    def try_change(self, change: Change, at: int = -1) -> None:
        """Try a change; `at` is the index of the changed rule."""
        self.wanted, self.trial = (change, at), None
        if not self._busy:
            self._busy = True
            generation, base = self._session.generation, self._session.comparison
            self.run_worker(lambda: self._run(change, at, generation, base), thread=True)

    def give_up(self) -> None:
        """Cancel the trial."""
        self.wanted = self.trial = None

    def on_unmount(self) -> None:
        """Cancel the trial: the page is closed."""
        self.give_up()

    def _run(self, change: Change, at: int, generation: int, base: Comparison) -> None:
        """Try a change in a worker thread, which only posts messages."""

        def go_on(_what: str, _fraction: float) -> None:
            if self.wanted is None or self.wanted[0] is not change:
                raise Cancelled

        result: Trial | UserError | None = None
        try:
            edit = change if isinstance(change, Edit) else change()
            job = Job(generation, base, edit.rules)
            after = job.run(go_on)
            self._session.listing.prepare(after)
            result = Trial(edit, at, job, Effect.between(base, after))
        except Cancelled:
            pass
        except UserError as error:
            result = error
        self.post_message(self.Tried(change, result))

    @on(Tried)
    def _tried(self, event: Tried) -> None:
        self._busy = False
        if self.wanted is None:
            return
        change, at = self.wanted
        result = event.result if event.change is change else None
        if isinstance(result, UserError):
            self.wanted = None
            self.refused(result)
        elif result is not None and result.job.generation == self._session.generation:
            self.trial, self.wanted = result, None
            self.tried()
        else:
            self.try_change(change, at)
