"""Threads of the main screen: work goes out of its way, and the result comes back to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from textual import events
from textual.screen import Screen

from numtui.session.session import Session
from numtui.tui.textual_shims import pass_on

__all__ = ["Background"]

T = TypeVar("T")


class Background:
    """Runs work in threads. Results are handled on the screen's own thread, in the order of its messages."""

    def __init__(self, screen: Screen[None], session: Session, say: Callable[..., None]) -> None:
        self._screen = screen
        self._session = session
        self._say = say
        self.working = ""
        """The work that takes long, in words for the header; empty when there is none."""
        self._ahead: list[events.Key] | None = None
        """Keys that were typed while a panel is being prepared: they are for the panel. None: none is."""
        self._serial = 0

    def run(
        self,
        work: Callable[[], T],
        then: Callable[[T], None] | None = None,
        *,
        group: str = "default",
        exclusive: bool = False,
    ) -> None:
        """Run `work` in a thread, then give `then` its result; `exclusive`: the last of its group counts."""

        def run() -> None:
            found = work()
            if then is not None:
                self.later(then, found)

        self._screen.run_worker(run, thread=True, group=group, exclusive=exclusive)

    def later(self, then: Callable[..., object], *results: object) -> None:
        """Call something on the screen's own thread; the way back out of any other."""
        self._screen.call_later(then, *results)

    def every(self, seconds: float, work: Callable[[], None]) -> None:
        """Call something on the screen's own thread again and again."""
        self._screen.set_interval(seconds, work)

    def keep(self) -> None:
        """Write the session down: whoever is killed without a warning loses nothing that was written."""
        self.run(self._session.keep, group="keep")

    # -- panels that take a moment to prepare

    def run_then_show(self, what: str, work: Callable[[], T], show: Callable[[T], None]) -> None:
        """Find something out, then show it; keys typed meanwhile are for what is shown."""
        self._serial += 1
        serial, about = self._serial, self._session.comparison
        self._ahead = []
        self._say(f"{what} …  (esc gives up)", passing=True)

        def then(found: T) -> None:
            if serial != self._serial:
                return
            ahead, self._ahead = self._ahead or [], None
            self._say("")
            if about is not self._session.comparison:
                # Rules or logs have changed meanwhile: rows are others.
                return
            show(found)
            for key in ahead:
                pass_on(self._screen.app, key)

        self.run(work, then, group="show", exclusive=True)

    def typed_ahead(self, event: events.Key) -> bool:
        """Keep a key for the panel that is being prepared; False when none is."""
        if self._ahead is None:
            return False
        if event.key in ("escape", "ctrl+c"):
            self._serial += 1  # the result is dropped
            self._ahead = None
        else:
            self._ahead.append(events.Key(event.key, event.character))
        return True
