"""Logs that change while one looks at them: noticed, and read again in place."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

from textual import on
from textual.message import Message

from numtui.inputs import OpenRequest
from numtui.session.loading import Stamps, stamps_of
from numtui.tui.screens.actions import Commands

__all__ = ["Following"]

_EVERY = 2.0
"""Seconds between two looks at the files."""


class Following(Commands):
    """A screen whose logs may be written to."""

    _request: OpenRequest | None = None
    _stamps: Stamps = ()
    """Of the files as they were when what is shown was read."""
    _noticed: Stamps = ()
    _tried: Stamps = ()
    _follows = False

    class Stamped(Message):
        """It was looked at the files."""

        def __init__(self, stamps: Stamps) -> None:
            super().__init__()
            self.stamps = stamps

    @property
    @abstractmethod
    def reading(self) -> bool:
        """Whether the logs are being read."""

    @abstractmethod
    def read_again(self) -> None:
        """Read the logs in the background; what is on the screen stays until they have been read."""

    @abstractmethod
    def give_up_reading(self) -> bool:
        """What is being read again is not wanted any more; False when nothing is."""

    def watch_files(self) -> None:
        """From now on notice when the files change."""
        look = partial(self.run_worker, self._look_at_files, thread=True, group="stamps", exclusive=True)
        self.set_interval(_EVERY, look)

    def _look_at_files(self) -> None:
        """In a worker's thread: a file system over a network can take its time."""
        if self._request is not None and not self.reading:
            self.post_message(self.Stamped(stamps_of(self._request)))

    @on(Stamped)
    def _stamped(self, event: Stamped) -> None:
        settled, self._noticed = event.stamps == self._noticed, event.stamps
        changed = event.stamps != self._stamps
        if changed != self.session.outdated:
            self.session.outdated = changed
            self.draw()
        # A log that is being written at this moment is read when it pauses.
        if changed and settled and self._follows and not self.reading and event.stamps != self._tried:
            self._tried = event.stamps  # once: what cannot be read now is not read before it changes
            self.read_again()

    def action_reload(self) -> None:
        """Read the logs again, and keep the place; while that is done, give it up."""
        if self.give_up_reading():
            self.say("the logs were not read again")
        elif self._request is None or self.reading:
            self.say("the logs are being read")
        else:
            self.read_again()

    def action_follow(self) -> None:
        """Read the logs again by itself whenever they change, or stop doing so."""
        self._follows = not self._follows
        self.say("the logs are read again whenever they change" if self._follows else "changes are only told: R reads")
