"""The explorer as a Textual application: from the opening screen to the exit code.

The command line calls `run_app`. This module imports Textual, but neither numpy nor the matchers: those are imported
behind the first frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.message import Message
from textual.screen import Screen

from matchers.errors import UserError
from numtui.inputs import OpenRequest
from numtui.runtime_tuning import forget_what_stays, keep_what_is_there
from numtui.tui.screens.opening import Opening
from numtui.tui.terminal_app import TerminalApp, run_on_terminal
from numtui.tui.textual_shims import pass_on

if TYPE_CHECKING:
    from numtui.session.ranks import RanksCursor
    from numtui.session.session import Session
    from numtui.tui.screens.explorer import Explorer

__all__ = ["Numtui", "run_app"]


def _actions() -> type:
    # The palette is rarely opened, and its imports cost time.
    from numtui.tui.screens.palette import ActionProvider

    return ActionProvider


def _places() -> type:
    from numtui.tui.screens.palette import PlaceProvider

    return PlaceProvider


def _opened(request: OpenRequest) -> Session | UserError:
    """Open a session on the heads of the logs, in a worker thread."""
    from numtui.session.loading import open_heads

    try:
        return open_heads(request)
    except UserError as error:
        return error


class Numtui(TerminalApp, inherit_bindings=False):
    """One session on one terminal. The shown screen gets every key: none is bound to the application itself."""

    COMMANDS: ClassVar = {_actions, _places}

    @dataclass
    class Prepared(Message):
        """The heads of the logs are read, and everything is imported."""

        session: Session

    def __init__(self, request: OpenRequest, ranks: RanksCursor | None = None) -> None:
        super().__init__(request)
        self.ranks = ranks
        self.explorer: Explorer | None = None
        self._opening = Opening(request)

    def get_default_screen(self) -> Screen[None]:
        """Return the opening screen, so that the first frame has rows."""
        return self._opening

    def on_mount(self) -> None:
        """Draw the first frame before anything else."""
        self.call_after_refresh(self.run_worker, self._prepare, thread=True)

    def _prepare(self) -> None:
        """Read and import, in a worker thread, what takes longer than a frame."""
        import numtui.tui.screens.explorer  # noqa: F401 - imported here, so that it is there when the session is

        session = _opened(self.request)
        if isinstance(session, UserError):
            self.call_from_thread(self.fail, session)
        else:
            self.post_message(self.Prepared(session))

    async def on_numtui_prepared(self, message: Prepared) -> None:
        """Open the explorer, and pass on the keys that came too early."""
        from numtui.tui.screens.explorer import Explorer

        explorer = Explorer(message.session, self.request, self.ranks)
        await self._show(explorer, self.push_screen)
        for key in self._opening.typed:
            pass_on(self, key)
        keep_what_is_there()

    async def on_explorer_left(self, message: Explorer.Left) -> None:
        """Open the explorer on another rank, in place of the one that is left; keys wait meanwhile."""
        from numtui.tui.screens.explorer import Explorer

        before, ranks = self.explorer, self.ranks
        assert before is not None
        assert ranks is not None
        request = ranks.request_for(self.request, message.rank)
        if request is None:
            before.stay(ranks.message)
            return
        session = await self.run_worker(partial(_opened, request), thread=True).wait()
        if isinstance(session, UserError):
            before.stay(str(session))
            return
        if self.screen is not before:  # a question has come up meanwhile
            before.stay("")
            return
        before.saving.end()
        before.loader.keep()
        left = before.loader.leave()
        forget_what_stays()
        ranks.go_to_rank(message.rank)
        await self._show(Explorer(session, request, ranks, left), self.switch_screen)
        if before.session.journal is not None:
            before.session.journal.close()

    async def _show(self, explorer: Explorer, put: Callable[[Screen[None]], Awaitable[object]]) -> None:
        """Show an explorer at once: no blank frame, a filled one, and one per widget that gets its size."""
        self.explorer = explorer
        with self.batch_update():
            await put(explorer)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(explorer.drawn.wait(), timeout=1)
        explorer.refresh()

    def on_unmount(self) -> None:
        """Restore the state from before."""
        forget_what_stays()

    def on_explorer_doomed(self, message: Explorer.Doomed) -> None:
        """Exit: the logs cannot be compared."""
        self.fail(message.error)

    @property
    def session(self) -> Session | None:
        """The session, as soon as there is one."""
        return self.explorer.session if self.explorer is not None else None

    def write_journal(self) -> None:
        """Keep unsaved rules for the next session."""
        if self.session is not None:
            self.session.write_journal()

    def store_session(self) -> None:
        """Keep place, marks and notes for the next session."""
        if self.session is not None:
            self.session.store_session()


def run_app(request: OpenRequest, ranks: RanksCursor | None = None) -> int:
    """Open the explorer; the exit code is that of `diff`: 0 the runs agree, 1 they do not, 128 + n after signal n.

    Args:
        ranks: the overview that has asked for it; there are keys for its other ranks.

    Raises:
        UserError: a log or the rule file cannot be read; the terminal is restored.
        Exception: a bug; the command line reports it in one line and keeps the details.
    """
    app = Numtui(request, ranks)
    try:
        run_on_terminal(app)
    finally:
        if app.session is not None and app.session.journal is not None:
            app.session.journal.close()
        if app.explorer is not None:
            app.explorer.loader.keep()
    return app.return_code or 0
