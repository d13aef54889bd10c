"""Kept operations in the explorer: their elements, and replays in the background."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec

from capture.keeping.replay import Kept, ReplayError, Running
from matchers.comparison import Comparison
from numtui.action import key_name
from numtui.report.kept import KeptOperations
from numtui.report.kept_tensors import Elements
from numtui.tui.screens.elements import ElementsScreen, differing_first, read
from numtui.tui.screens.export import copy_text
from numtui.tui.screens.screen import MainScreen

__all__ = ["Replays"]

_NOTHING_KEPT = "this operation was not kept: numtui plan A B writes what numtui capture --save is to keep"


class Replays:
    """Reader of the bundles beside the logs, and the one replay that may run.

    Args:
        python: an environment with torch; None for this one, if it has it.
    """

    def __init__(self, screen: MainScreen, python: str | None) -> None:
        self._screen = screen
        self._python = python or (sys.executable if find_spec("torch") is not None else "")
        self._running: Running | None = None
        self._read: object = None

    def look(self) -> None:
        """Read the bundles beside the shown logs, in a thread, where these are other logs than before."""
        c = self._screen.session.comparison
        if self._read is not c.a and len(c):
            self._read = c.a
            self._screen.background.run(partial(KeptOperations, c), self._found, group="kept", exclusive=True)

    def _found(self, kept: KeptOperations) -> None:
        self._screen.session.kept = kept
        if kept.trouble:
            self._screen.warn(kept.trouble, besides=True)
        self._screen.draw()

    def open_elements(self) -> None:
        """Open the elements of the row's tensors."""
        session, screen = self._screen.session, self._screen
        sides = self._sides()
        if not sides:
            return
        c, row = session.comparison, session.listing.cursor
        keys = list(dict.fromkeys(ranks[0].call["key"] for ranks in sides.values()))
        replay, elements = (next(a.keys for a in screen.actions if a.id == name) for name in ("replay", "elements"))
        does: dict[str, Callable[[], None]] = dict.fromkeys(map(key_name, replay), partial(self._replay, sides))
        does["y"] = partial(self._copy, sides)

        def show(first: Elements | str) -> None:
            opened = ElementsScreen(
                sides,
                first,
                title=" ⇄ ".join(keys),
                background=screen.background,
                verdict=partial(self._shown, c, row),
                does=does,
                cancels=self.cancel,
                opened_by=[*map(key_name, elements)],
                colour=not screen.app.no_color,
            )
            screen.app.push_screen(opened)

        work = partial(read, sides, differing_first(sides)[0])
        screen.background.run_then_show("reading the kept tensors", work, show)

    def replay(self) -> None:
        """Run the row's operation again, in the background."""
        if sides := self._sides():
            self._replay(sides)

    def cancel(self) -> bool:
        """End the running replay; False if there is none."""
        if self._running is None or self._running.cancelled:
            return False
        self._running.cancel()
        return True

    def _sides(self) -> dict[str, tuple[Kept, ...]]:
        session = self._screen.session
        kept, row = session.kept, session.listing.cursor
        sides = kept.sides(session.comparison, row) if kept is not None and row >= 0 else {}
        if not sides:
            self._screen.say("what was kept is still being read" if kept is None else kept.trouble or _NOTHING_KEPT)
        return sides

    def _shown(self, c: Comparison, row: int) -> Sequence[str]:
        kept = self._screen.session.kept
        return [] if kept is None else kept.shown(c, row)

    def _replay(self, sides: Mapping[str, Sequence[Kept]]) -> None:
        screen, kept = self._screen, self._screen.session.kept
        if any(len(ranks) > 1 for ranks in sides.values()):
            screen.say("merged ranks are replayed one by one: y in # copies the command")
            return
        one = {side: ranks[0] for side, ranks in sides.items()}
        if self._running is not None or kept is None:
            screen.say("a replay is running: esc cancels it")
            return
        if not self._python:
            screen.say("no torch here: name a Python that has it as `replay_python` in the settings, or y in # copies"
                " the command", trouble=True)  # fmt: skip
            return
        running = Running(lambda name, done: screen.background.later(self._progress, running, name, done))
        self._running = running
        screen.background.run(partial(self._run, kept, one, running), partial(self._ended, kept))
        self._progress(running, "starting torch", 0.0)

    def _run(self, kept: KeptOperations, sides: Mapping[str, Kept], running: Running) -> str:
        """Run in a worker thread; return what went wrong."""
        try:
            kept.replay(sides, self._python, running)
        except (ReplayError, OSError) as error:
            return str(error)
        return ""

    def _progress(self, running: Running, name: str, done: float) -> None:
        if running is self._running:
            self._screen.background.working = "replaying"
            self._screen.say(f"replaying, {done:.0%}: {name} …  (esc cancels)", passing=True)

    def _ended(self, kept: KeptOperations, trouble: str) -> None:
        screen, cancelled = self._screen, self._running is not None and self._running.cancelled
        self._running, screen.background.working = None, ""
        kept.read_results()
        c, row = screen.session.comparison, screen.session.listing.cursor
        if trouble:
            screen.say("replay cancelled" if cancelled else f"not replayed: {trouble}", trouble=not cancelled)
        else:
            screen.say(next(iter(kept.shown(c, row) if screen.session.kept is kept else ()), "replayed"))

    def _copy(self, sides: Mapping[str, Sequence[Kept]]) -> None:
        folders = list(dict.fromkeys(str(ranks[0].folder.absolute()) for ranks in sides.values()))
        command = ["numtui", "replay", *folders, "--op", next(iter(sides.values()))[0].call["key"]]
        copy_text(self._screen, shlex.join(command))
        self._screen.say(f"copied {shlex.join(command)}")
