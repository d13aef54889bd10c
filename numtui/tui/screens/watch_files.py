"""Reloading of logs that change while they are shown."""

from __future__ import annotations

from functools import partial

from numtui.session.loading import Stamps, stamps_of
from numtui.tui.screens.loader import LogLoader
from numtui.tui.screens.screen import MainScreen

__all__ = ["FileWatcher"]

_EVERY = 2.0
"""Seconds between checks of the files."""


class FileWatcher:
    """Watcher of a screen's log files."""

    def __init__(self, screen: MainScreen, loader: LogLoader) -> None:
        self._screen = screen
        self._loader = loader
        self._noticed: Stamps = ()
        self._tried: Stamps = ()
        self._follows = False

    def start(self) -> None:
        """Start watching."""
        self._screen.background.every(_EVERY, self.look)

    def look(self) -> None:
        """Check the files in a thread: a network file system can be slow."""
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
        # A log still being written is read when writing pauses.
        if changed and settled and self._follows and not loader.reading and stamps != self._tried:
            self._tried = stamps  # once: an unreadable file is tried again only after it changes
            loader.read_again()

    def reload(self) -> None:
        """Reload the logs in place; during a reload, cancel it."""
        if self._loader.give_up():
            self._screen.say("reload cancelled")
        else:
            self._loader.read_again()

    def follow(self) -> None:
        """Toggle reloading whenever the logs change."""
        self._follows = not self._follows
        told = "the logs reload whenever they change" if self._follows else "changes are only announced: R reloads"
        self._screen.say(told)
