"""A page that finds out what a change of the rules would do, before it is made.

One change at a time is tried, in a thread; when another one is wanted meanwhile, the one that runs is given up at its
next step, and its result is dropped.
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
"""An edit, or what makes one and takes so long that it belongs into the thread."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The effect of a change; `at` is the index of the rule that it is about, -1 where it is about no single one."""

    edit: Edit
    at: int
    job: Job
    effect: Effect


class Trying(Modal[T]):
    """See the module's docstring."""

    @dataclass
    class Tried(Message):
        """A change has been tried: its effect, the error that it meets, None when it was given up."""

        change: Change
        result: Trial | UserError | None

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._busy = False
        self.wanted: tuple[Change, int] | None = None
        """The change that is being tried, or will be next."""
        self.trial: Trial | None = None
        """The effect of the change that was wanted last."""

    @abstractmethod
    def tried(self) -> None:
        """`trial` is there."""

    @abstractmethod
    def refused(self, error: UserError) -> None:
        """There will be none."""

    def try_change(self, change: Change, at: int = -1) -> None:
        """Find out what a change would do; `at` is the index of the rule that it is about."""
        self.wanted, self.trial = (change, at), None
        if not self._busy:
            self._busy = True
            generation, base = self._session.generation, self._session.comparison
            self.run_worker(lambda: self._run(change, at, generation, base), thread=True)

    def give_up(self) -> None:
        """Nobody wants to know any more what would be."""
        self.wanted = self.trial = None

    def on_unmount(self) -> None:
        """The page is closed."""
        self.give_up()

    def _run(self, change: Change, at: int, generation: int, base: Comparison) -> None:
        """In a worker's thread: only messages leave it."""

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
