"""Logs that change while one looks at them: noticed, and read again in place."""

from __future__ import annotations

from functools import partial

from numtui.session.loading import Stamps, stamps_of
from numtui.tui.screens.loader import LogLoader
from numtui.tui.screens.screen import MainScreen

__all__ = ["FileWatcher"]

_EVERY = 2.0
"""Seconds between two looks at the files."""


class FileWatcher:
    """Notices when the logs of a screen are written to."""

    def __init__(self, screen: MainScreen, loader: LogLoader) -> None:
        self._screen = screen
        self._loader = loader
        self._noticed: Stamps = ()
        self._tried: Stamps = ()
        self._follows = False

    def start(self) -> None:
        """Look at the files from now on."""
        self._screen.background.every(_EVERY, self.look)

    def look(self) -> None:
        """Look at the files, in a thread: a file system over a network can take its time."""
        if not self._loader.reading:
            work = partial(stamps_of, self._loader.request)
            self._screen.background.run(work, self._stamped, group="stamps", exclusive=True)

    def _stamped(self, stamps: Stamps) -> None:
        session, loader = self._screen.session, self._loader
        settled, self._noticed = stamps == self._noticed, stamps
        changed = stamps != loader.stamps
        if changed != session.outdated:
            session.outdated = changed
            self._screen.draw()
        # A log that is being written at this moment is read when it pauses.
        if changed and settled and self._follows and not loader.reading and stamps != self._tried:
            self._tried = stamps  # once: what cannot be read now is not read before it changes
            loader.read_again()

    def reload(self) -> None:
        """Read the logs again, and keep the place; while that is done, give it up."""
        if self._loader.give_up():
            self._screen.say("the logs were not read again")
        elif self._loader.reading:
            self._screen.say("the logs are being read")
        else:
            self._loader.read_again()

    def follow(self) -> None:
        """Read the logs again by itself whenever they change, or stop doing so."""
        self._follows = not self._follows
        told = "the logs are read again whenever they change" if self._follows else "changes are only told: R reads"
        self._screen.say(told)
