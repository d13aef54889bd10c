"""Textual application on a terminal that may be slow or lost: theme, signals, keys, exit."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import App
from textual.css.query import NoMatches
from textual.screen import Screen

from matchers.errors import InputError, UserError
from numtui.inputs import OpenRequest
from numtui.runtime_tuning import take_short_turns
from numtui.terminal.crash import restored_after_crash
from numtui.terminal.signals import EndedBySignalError, ending_signals
from numtui.terminal.tty import drawing_on_terminal, is_hung_up, is_terminal
from numtui.tui.repaint.frame import Frame
from numtui.tui.textual_shims import (
    ESCAPE_IN_BETWEEN,
    caught,
    come_back,
    crash_of,
    has_terminal,
    keep_escape,
    keep_pastes,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["TerminalApp", "run_on_terminal"]

_PATIENCE = 3.0
"""Seconds for an orderly exit after a signal; a lost terminal must not block the process."""

_CHECK_INTERVAL = 2.0
"""Seconds between two checks that the terminal is still there."""


class TerminalApp(App[None], inherit_bindings=False):
    """Application whose screens get every key; it survives signals, stops and lost connections.

    Args:
        request: the settings: theme, keys, colours, mouse.
    """

    TITLE = "numtui"
    ALLOW_SELECT = False  # without --mouse the terminal selects, with it clicks are commands
    ENABLE_COMMAND_PALETTE = False  # it would open on its own key, over any screen
    CSS_PATH = "app.tcss"
    signals: tuple[int, ...] = ()
    """Signals that end the program."""
    restore_terminal: Callable[[], None] | None = None
    """Restores the terminal without the event loop; None where it cannot be done, and where it has been."""

    def __init__(self, request: OpenRequest) -> None:
        if not request.color:
            os.environ["NO_COLOR"] = "1"
        # The terminal's own sixteen colours, unless the user sets a theme: native colours from the start, because
        # Textual decides about NO_COLOR when the application is constructed, not when the theme is set.
        super().__init__(ansi_color=True if request.theme is None else None)
        self.animation_level = "none"
        if request.theme is not None and request.theme not in self.available_themes:
            known = ", ".join(sorted(self.available_themes))
            raise InputError(f"unknown theme {request.theme}; known are {known}")
        self.theme = request.theme or "ansi-dark"
        self.request = request
        self.error: UserError | None = None
        """The error that prevents opening."""
        self.shown = Frame()

    async def run_async(self, **settings: Any) -> None:
        """Run until the terminal is as it was; after that, threads that read may still keep the process.

        To restore it twice would take the keyboard protocol of the program before this one.
        """
        try:
            await super().run_async(**settings)
        finally:
            self.restore_terminal = None

    def write_journal(self) -> None:
        """Keep at once what must not be lost."""

    def store_session(self) -> None:
        """Keep what the next session continues with; it may take a while."""

    def on_load(self) -> None:
        """Handle signals before the terminal is touched: a lost connection must neither lose work nor garble it."""
        loop = asyncio.get_running_loop()

        def end(number: int, _: FrameType | None) -> None:
            if loop.is_closed():  # the program has just ended, and the terminal is restored
                raise EndedBySignalError(number)
            loop.call_soon_threadsafe(self.end_by, number)

        for number in self.signals:
            # Not by the loop's own handler: signals reach it through a pipe, which hundreds of new sizes fill.
            signal.signal(number, end)

    def on_mount(self) -> None:
        """Watch the terminal."""
        loop = asyncio.get_running_loop()
        # After a signal that arrived together with this one, and that may end the program instead.
        loop.add_signal_handler(signal.SIGCONT, partial(loop.call_soon, come_back, self))
        for signalled in (self.app_suspend_signal, self.app_resume_signal):
            signalled.subscribe(self, self.forget_shown, immediate=True)
        if is_terminal(sys.__stdin__):
            self.set_interval(_CHECK_INTERVAL, self._look_for_terminal)

    def _look_for_terminal(self) -> None:
        """End when the terminal is gone: the kernel sends SIGHUP only to its controlling process group."""
        if is_hung_up(0):
            self.end_by(signal.SIGHUP)

    def fail(self, error: UserError) -> None:
        """Exit; the error is reported when the terminal is restored."""
        self.error = error
        self.exit(return_code=error.exit_code)

    def end_by(self, number: int) -> None:
        """Exit on a signal; the journal keeps unsaved rules for the next session."""
        self.write_journal()
        # Writing to a lost terminal or file system may block for ever.
        last = threading.Timer(_PATIENCE, self._end_now, (128 + number,))
        last.daemon = True
        last.start()
        try:
            self.store_session()
        finally:
            if not has_terminal(self):
                # The terminal needs no restoring, and touching it from the background would stop the process.
                os._exit(128 + number)
            self.exit(return_code=128 + number)

    def _end_now(self, code: int) -> None:
        """Exit although the event loop hangs."""
        if self.restore_terminal is not None:
            self.restore_terminal()
        os._exit(code)

    async def on_event(self, event: events.Event) -> None:
        """Drop the keys typed after the one that ends the program."""
        if self.return_code is not None and isinstance(event, (events.InputEvent, events.Paste)):
            return
        for typed in self._typed(event) if isinstance(event, events.Key) else (event,):
            await super().on_event(typed)

    def _typed(self, key: events.Key) -> tuple[events.Key, ...]:
        """Split an event into the keys that were pressed."""
        if key.key == "ctrl+j":
            # Enter, as it arrives when typed before the program had the terminal.
            return (events.Key("enter", "\r"),)
        if key.key == ESCAPE_IN_BETWEEN:
            return (events.Key("escape", "\x1b"),)
        character = key.character or ""
        ours = any(key.key in keys for keys in self.request.keys.values())
        if key.key.startswith("alt+") and character and not ours:
            # Over a slow line `esc` and the next key arrive together, just as alt with that key.
            name = character if character.isalnum() else key.key.removeprefix("alt+")
            return events.Key("escape", "\x1b"), events.Key(name, character)
        return (key,)

    def forget_shown(self, *_: object) -> None:
        """Forget the frame on the terminal."""
        self.shown.forget()

    on_resize = forget_shown

    def action_redraw(self) -> None:
        """Send the whole screen again."""
        self.shown.forget()
        self.refresh(layout=True)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Draw in as few bytes as possible."""
        super()._display(screen, self.shown.tightened(renderable))

    def _handle_exception(self, error: Exception) -> None:
        """Drop what a screen misses that opens while the program ends: Textual makes no widgets then."""
        if self.return_code is None or not isinstance(caught(error), NoMatches):
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """End without Textual's page of locals; `run_on_terminal` raises what was caught."""
        self.write_journal()
        # Saving may fail for the same reason: that must not hide the error.
        with suppress(Exception):
            self.store_session()
        self._close_messages_no_wait()


def run_on_terminal(app: TerminalApp) -> None:
    """Run an application until it exits; the terminal is restored in any case.

    Raises:
        UserError: what it failed with.
        Exception: a bug; the command line reports it in one line and keeps the details.
    """
    take_short_turns()
    keep_escape()
    keep_pastes()
    with drawing_on_terminal(), restored_after_crash() as restore, ending_signals(crashes=restore is None) as signals:
        app.signals, app.restore_terminal = signals, restore
        app.run(mouse=app.request.mouse)
    if app.error is not None:
        raise app.error
    if (bug := crash_of(app)) is not None:
        raise bug
