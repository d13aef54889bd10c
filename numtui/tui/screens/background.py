"""Background threads of the main screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from textual import events
from textual.screen import Screen
from textual.timer import Timer

from numtui.session.session import Session
from numtui.tui.textual_shims import pass_on

__all__ = ["Background"]

T = TypeVar("T")


class Background:
    """Worker threads; results are handled on the screen's own thread, in message order."""

    def __init__(self, screen: Screen[None], session: Session, say: Callable[..., None]) -> None:
        self._screen = screen
        self._session = session
        self._say = say
        self.working = ""
        """Description of the running work for the header; empty when idle."""
        self.opening = True
        """True until the logs are shown for the first time."""
        self._ahead: list[events.Key] | None = None
        """Keys typed ahead for a panel in preparation, or for the logs; None without one."""
        self._serial = 0

    def run(
        self,
        work: Callable[[], T],
        then: Callable[[T], None] | None = None,
        *,
        group: str = "default",
        exclusive: bool = False,
    ) -> None:
        """Run `work` in a thread, then pass its result to `then`; `exclusive`: only the last of its group counts."""

        def run() -> None:
            found = work()
            if then is not None:
                self.later(then, found)

        self._screen.run_worker(run, thread=True, group=group, exclusive=exclusive)

    def later(self, then: Callable[..., object], *results: object) -> None:
        """Call a function on the screen's own thread, from any thread."""
        self._screen.call_later(then, *results)

    def every(self, seconds: float, work: Callable[[], None]) -> None:
        """Call a function on the screen's own thread periodically."""
        self._screen.set_interval(seconds, work)

    def after(self, seconds: float, work: Callable[[], None]) -> Timer:
        """Call a function on the screen's own thread once."""
        return self._screen.set_timer(seconds, work)

    def store_session(self) -> None:
        """Save the session, so that a killed process loses nothing."""
        self.run(self._session.store_session, group="keep")

    # -- keys that wait for the logs, or for a panel that takes a moment to prepare

    @property
    def waiting(self) -> str:
        """Return the keys typed ahead, as typed."""
        return " ".join(key.character if key.is_printable and key.character else key.key for key in self._ahead or ())

    def hold(self, *keys: events.Key) -> None:
        """Keep keys, and those typed after them, until the logs are shown."""
        self._ahead = list(keys)
        self._say("waiting until the logs are compared …  (esc gives up)", passing=True)

    def too_early(self) -> bool:
        """Report, where it is so, that the logs are not compared yet."""
        if self.opening:
            self._say("the logs are still being compared")
        return self.opening

    def opened(self) -> None:
        """Pass on the keys that waited for the logs."""
        self.opening = False
        self._pass_on()

    def _pass_on(self) -> None:
        ahead, self._ahead = self._ahead or [], None
        for key in ahead:
            pass_on(self._screen.app, key)

    def run_then_show(self, what: str, work: Callable[[], T], show: Callable[[T], None]) -> None:
        """Run `work` in a thread, then show its result; keys typed meanwhile go to the result."""
        self._serial += 1
        serial, about = self._serial, self._session.comparison
        self._ahead = []
        self._say(f"{what} …  (esc gives up)", passing=True)

        def then(found: T) -> None:
            if serial != self._serial:
                return
            if about is not self._session.comparison:
                # Rules or logs have changed meanwhile: row numbers are stale.
                self._ahead = None
                self._say("the verdicts have changed meanwhile: press the key again")
                return
            self._say("")
            show(found)
            self._pass_on()

        self.run(work, then, group="show", exclusive=True)

    def typed_ahead(self, event: events.Key) -> bool:
        """Keep a key for the panel in preparation; False without one."""
        if self._ahead is None:
            return False
        if event.key in ("escape", "ctrl+c"):
            self._serial += 1  # the result is dropped
            self._ahead = None
        else:
            self._ahead.append(events.Key(event.key, event.character))
        return True
