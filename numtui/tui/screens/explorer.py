"""Main screen: keys change the session, and the widgets redraw its differences.

A key becomes an action of the registry; the action calls the session; `draw` updates the widgets. The rest is in the
members: the typed line (`prompt`), threads (`background`), jobs, loading and watching the logs, saving, the actions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer

from matchers.errors import UserError
from numtui.actions import ACTIONS, Action, key_name, offered, remapped, without_effect
from numtui.inputs import OpenRequest
from numtui.runtime_tuning import keep_what_is_there
from numtui.session.listing import Details
from numtui.session.ranks import RanksCursor
from numtui.session.same_row import LeftRow
from numtui.session.session import Session
from numtui.tui.key_reader import LETTER, KeyReader
from numtui.tui.screens.actions import Actions
from numtui.tui.screens.background import Background
from numtui.tui.screens.commands import ask_command
from numtui.tui.screens.jobs import Jobs
from numtui.tui.screens.loader import LogLoader
from numtui.tui.screens.modal import Modal
from numtui.tui.screens.mouse import clicked, wheeled
from numtui.tui.screens.prompt import Prompt
from numtui.tui.screens.replays import Replays
from numtui.tui.screens.saving import Saving
from numtui.tui.screens.watch_files import FileWatcher
from numtui.tui.textual_shims import PresentSize, bound_action, output_waits, pass_on, rebind
from numtui.tui.widgets.breadcrumb import Breadcrumb
from numtui.tui.widgets.footer import Footer
from numtui.tui.widgets.header import Header
from numtui.tui.widgets.inspector import Inspector
from numtui.tui.widgets.lines import Lines
from numtui.tui.widgets.status_line import StatusLine
from numtui.tui.widgets.table import Table
from numtui.tui.widgets.too_small import MINIMUM, TooSmall
from numtui.views.message_log import Messages

__all__ = ["Explorer"]

_KEEP = 10.0
"""Seconds between saves of the session."""

_PAUSE = 0.5
"""Seconds after which a digit stands alone; leaves time to type a count over a slow line."""


def _bindings(actions: Sequence[Action] = ACTIONS) -> list[BindingType]:
    """Return one binding per action with a key."""
    found: list[BindingType] = []
    for action in actions:
        single = ["comma" if key == "," else key for key in action.keys if " " not in key]
        if single:
            found.append(Binding(",".join(single), action.id, action.help, show=False, id=action.id))
    return found


class Explorer(PresentSize, Screen[None], inherit_bindings=False):
    """Both runs side by side."""

    BINDINGS: ClassVar[list[BindingType]] = _bindings()

    @dataclass
    class Doomed(Message):
        """Nothing can be shown: the program ends with this error."""

        error: UserError

    @dataclass
    class Left(Message):
        """The explorer is asked for on another rank, in place of this one."""

        rank: int

    def __init__(
        self,
        session: Session,
        request: OpenRequest,
        ranks: RanksCursor | None = None,
        left: LeftRow | None = None,
    ) -> None:
        super().__init__()
        self.session = session
        self.ranks = ranks
        self.actions = ACTIONS
        if request.keys:
            self.actions = remapped(request.keys)
            rebind(self, _bindings(self.actions))
        self.editor_setting = request.editor
        self.sources = request.sources
        self.reader = KeyReader(actions=self.actions)
        self.messages = Messages()
        self.table = Table(id="table")
        self.inspector = Inspector(id="inspector")
        self.background = Background(self, session, self.say)
        self.prompt = Prompt(session, self.background, self)
        self.replays = Replays(self, request.replay_python)
        self.jobs = Jobs(self)
        self.loader = LogLoader(
            self,
            self.jobs,
            request,
            kept=None if ranks is None else ranks.kept,
            left=left,
            opened=self._opened,
            failed=self._failed,
        )
        self.files = FileWatcher(self, self.loader)
        self.saving = Saving(self, self.jobs)
        self.dispatch = Actions(self, self.jobs, self.saving, self.files)
        self._message = ""
        self._trouble = False
        self._warning = ""
        self._drawing = False
        self._pause: Timer | None = None
        self._refused = False
        """The last key opened no page and did nothing else: a `q` that was meant to close the page does not quit."""
        self._leaving = False
        """Another rank takes this place: later keys are for it."""
        self.drawn = asyncio.Event()
        """Set once the logs are shown."""

    def compose(self) -> ComposeResult:
        yield Header(id="header")
        yield Breadcrumb(id="breadcrumb")
        yield self.table
        yield self.inspector
        yield StatusLine(id="status")
        yield Footer(id="footer")
        yield TooSmall(id="small")

    def on_mount(self) -> None:
        """Start loading after the first frame."""
        self.background.working = "reading"
        self.call_after_refresh(self.loader.start)

    def on_unmount(self) -> None:
        """Cancel the background work."""
        self.replays.cancel()
        self.loader.close()

    def _opened(self) -> None:
        """Start what needs loaded logs."""
        if self.session.store is not None:
            self.background.every(_KEEP, self.background.store_session)
        self.files.start()
        self.saving.offer_recovery()
        keep_what_is_there()

    def _failed(self, error: UserError) -> None:
        """End the program: the logs cannot be read."""
        self.post_message(self.Doomed(error))

    @property
    def offered(self) -> tuple[Action, ...]:
        """The actions that do something with these logs."""
        c = self.session.comparison
        red = c.single and bool(c.red.any())
        return offered(self.actions, single=c.single, red=red, ranks=self.ranks is not None)

    def leave_for(self, rank: int) -> None:
        """Ask for another rank in place of this one."""
        self._leaving = True
        self.post_message(self.Left(rank))

    def stay(self, why: str) -> None:
        """Go on with this rank: the other one cannot be shown."""
        self._leaving = False
        self.say(why, trouble=True)

    # -- drawing

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002 - the mixin looks at it
        """Set the heights of the widgets; report a terminal that is too small."""
        size = self.app.size
        small = size.width < MINIMUM.width or size.height < MINIMUM.height
        self.set_class(small, "-small")
        if small:
            self._stop_pause()
            self.reader.clear()

    @on(Lines.Resized)
    def _lines_resized(self) -> None:
        self.draw()

    def resize_inspector(self) -> None:
        """Set the inspector's height: usually below a third of the screen; focused, up to more than half."""
        inspector, wanted = self.inspector, self.session.listing.details
        more = inspector.active and (inspector.wanted > inspector.size.height or inspector.has_class("-large"))
        inspector.set_class(more or wanted is Details.MOST, "-large")
        inspector.set_class(wanted is Details.NONE and not inspector.active, "-away")

    def draw(self) -> None:
        """Redraw from the session, once, after all typed keys have been handled."""
        if not self._drawing:
            self._drawing = True
            self.call_later(self._draw)

    def _draw(self) -> None:
        if output_waits(self.app):
            # The line is slow: by the time it has caught up, only the latest state matters.
            self.set_timer(0.02, self._draw)
            return
        self._drawing = False
        if not self.is_mounted or (not self.is_current and self.size.area == 0):
            return
        if isinstance(over := self.app.screen, Modal) and over.covers:
            return  # hidden: drawn when it is visible again
        session = self.session
        if self.has_class("-small"):
            self.query_one(TooSmall).show()
            return
        if not self.background.opening:
            self.replays.look()
        self.query_one(Header).show(session, self.background.working)
        self.query_one(Breadcrumb).show(session.listing)
        self.table.show(session)
        if self.inspector.display:
            self.inspector.show(session)
        status = self.query_one(StatusLine)
        if self.prompt.editor is not None:
            status.show_editor(self.prompt.editor)
        else:
            typed = self.reader.pending or self.background.waiting
            status.show(session, self._message, self._trouble, typed, self._warning)
        self.query_one(Footer).show(session.proposal, self.offered, self._following(), self._mode_keys())
        if self.table.size:
            self.drawn.set()

    def on_screen_suspend(self) -> None:
        """Show the keys of the dialog that opens, in place of one's own."""
        self._refused = False
        self.draw()

    def on_screen_resume(self) -> None:
        """Redraw after another screen has closed."""
        self.draw()

    def _mode_keys(self) -> Sequence[tuple[str, str]]:
        """Return the keys of the prompt, dialog or palette that gets the keys; empty where the list gets them."""
        if self.prompt.editor is not None:
            return self.prompt.editor.keys
        return getattr(self.app.screen, "footer_keys", ())

    def _following(self) -> list[tuple[str, str]]:
        """Return the keys that can follow the typed prefix; for marks, the letters in use."""
        marks = " ".join(sorted(self.session.listing.annotations.marks))
        return [
            ((marks if action.id == "go_mark" and marks else "a letter") if key == LETTER else key, action.in_short)
            for key, action in self.reader.following()
        ]

    def say(self, message: str, *, trouble: bool = False, passing: bool = False) -> None:
        """Show a message until the next key; unless `passing`, keep it in the history."""
        self._message, self._trouble = message, trouble
        if not passing:
            self.messages.add(message, trouble=trouble)
        if isinstance(over := self.app.screen, Modal):
            over.hear(message, trouble=trouble)
        self.draw()

    def warn(self, *warnings: str, besides: bool = False) -> None:
        """Show warnings behind the message until the next key; `besides`: those that are shown stay."""
        self._warning = " · ".join(filter(None, (self._warning if besides else "", *warnings)))
        for warning in warnings:
            self.messages.add(warning)
        self.draw()

    # -- keys

    def action(self, name: str) -> Action:
        """Return an action of the registry."""
        return next(action for action in self.actions if action.id == name)

    def run_named(self, name: str) -> None:
        """Run an action of the registry."""
        self.dispatch.run(self.action(name))

    def ask_command(self, value: str = "") -> None:
        """Ask for a `:` command; `value` is typed already."""
        ask_command(self, self.saving, value)

    def on_key(self, event: events.Key) -> None:
        """Handle every key at once, bindings too, so that keys in a burst keep their order."""
        event.stop()
        if self.app.return_code is not None:
            # The program is ending: drop later keys.
            return
        if self._leaving:
            self.app.post_message(events.Key(event.key, event.character))
            return
        if self.app.screen is not self:
            # It was typed for the screen that has just opened over this one.
            pass_on(self.app, event)
            return
        if self.background.typed_ahead(event):
            self.draw()
            return
        refused, self._refused = self._refused and bool(self._message), False
        self._message, self._trouble, self._warning = "", False, ""
        self._stop_pause()
        self.draw()
        if self.has_class("-small"):
            # Invisible rows must not be changed.
            if bound_action(self, event.key) == "quit":
                self.saving.quit()
            return
        if self.prompt.editor is not None:
            self.prompt.key(event.key, event.character)
            return
        if self.session.proposal is not None and self._answer(event.key):
            return
        before = self.reader.pending
        taken = self.reader.feed(event.key)
        if taken is True:
            if self.reader.digits:
                self._pause = self.set_timer(_PAUSE, self.settle)
            elif not self.reader.pending and event.key != "escape":
                self._does_nothing(before, event)
            return
        name = bound_action(self, event.key) if taken is False else taken.id
        if name is None:
            self._does_nothing(before, event)
        elif self.background.opening and self.action(name).needs_verdicts:
            self.background.hold(*(events.Key(key_name(key), key) for key in before), event)
        elif refused and event.key == "q":
            self.say("no page is open to close: q again quits", passing=True)
        else:
            self._refused = self.action(name).opens
            self.run_named(name)
        # A count belongs to the next command, even one that takes none.
        self.reader.clear()

    def _does_nothing(self, before: str, event: events.Key) -> None:
        """Report an unbound key: silence on a slow line looks like a lost key."""
        key = event.character if event.is_printable and event.character else event.key
        self._refused = True
        self.say(without_effect(self.offered, before + key), passing=True)

    def on_lines_clicked(self, event: Lines.Clicked) -> None:
        """Handle a click."""
        if not self.has_class("-small") and self.app.screen is self:
            clicked(self, event)

    def on_lines_wheeled(self, event: Lines.Wheeled) -> None:
        """Scroll."""
        if not self.has_class("-small") and self.app.screen is self:
            wheeled(self, event)

    def on_paste(self, event: events.Paste) -> None:
        """Paste into the typed line; commands are not pasted."""
        event.stop()
        if not self.has_class("-small"):
            self.prompt.paste(event.text)

    def settle(self) -> None:
        """Run a digit's own action after a pause."""
        self._stop_pause()
        action = self.reader.settle()
        if action is not None:
            self.run_named(action.id)
        self.draw()

    def _stop_pause(self) -> None:
        if self._pause is not None:
            self._pause.stop()
            self._pause = None

    def _answer(self, key: str) -> bool:
        """Handle a key while a change is proposed; True when it was an answer."""
        proposal = self.session.proposal
        if proposal is None:
            return False
        if key in ("enter", proposal.key) and proposal.worse and not proposal.asked:
            proposal.asked = True
        elif key in ("enter", proposal.key):
            job = self.session.confirm()
            self.say(f"{proposal.edit.title}   (u undoes it)")
            self.jobs.start(job)
        elif key == "tab":
            self.session.next_alternative()
            self.jobs.start(self.session.preview_job())
        elif bound_action(self, key) == "generalise":
            self.run_named("generalise")
        else:
            self.session.cancel()
            if key != "escape":
                return False
            self.say("nothing was changed")
        return True
