"""The main screen: keys in, the session changed, what differs drawn again.

Nothing is decided here. A key becomes an action of the registry; the action calls the session; `show` brings the
widgets up to it. Work that takes time runs in a thread and comes back as a message.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.timer import Timer

from matchers.errors import RulesError, UserError
from numtui.actions import ACTIONS, Action, remapped
from numtui.inputs import OpenRequest
from numtui.query.query import Query
from numtui.runtime_tuning import give_memory_back, keep_what_is_there
from numtui.session.jobs import Job, RealignmentSearch
from numtui.session.journal import Recovered
from numtui.session.listing import Details, Search
from numtui.session.loading import Cancelled, Loaded, Throttled, load, warm
from numtui.session.session import Session
from numtui.tui.key_reader import LETTER, KeyReader
from numtui.tui.screens.modal import Modal
from numtui.tui.screens.watch_files import Following
from numtui.tui.textual_shims import bound_action, output_waits, pass_on, rebind
from numtui.tui.widgets.breadcrumb import Breadcrumb
from numtui.tui.widgets.footer import Footer
from numtui.tui.widgets.header import Header
from numtui.tui.widgets.inspector import Inspector
from numtui.tui.widgets.lines import Lines
from numtui.tui.widgets.status_line import StatusLine
from numtui.tui.widgets.table import Table
from numtui.tui.widgets.too_small import MINIMUM, TooSmall
from numtui.views.message_log import Messages
from numtui.views.run_summary import all_agree, rule_trouble

__all__ = ["Explorer"]

SEARCH_AT_ONCE = 20_000
"""Rows up to which a search takes less than a frame."""

KEEP = 10.0
"""Seconds between two looks whether something is to be kept for the next sitting."""

PAUSE = 0.5
"""Seconds after which a digit stands alone: long enough to type a count over a slow line."""


def _bindings(actions: Sequence[Action] = ACTIONS) -> list[BindingType]:
    """A binding per action that has a key of its own."""
    found: list[BindingType] = []
    for action in actions:
        single = ["comma" if key == "," else key for key in action.keys if " " not in key]
        if single:
            found.append(Binding(",".join(single), action.id, action.help, show=False, id=action.id))
    return found


class Explorer(Following):
    """Both runs side by side."""

    BINDINGS: ClassVar[list[BindingType]] = _bindings()

    @dataclass
    class Opened(Message):
        """Both logs were read and compared."""

        loaded: Loaded

    @dataclass
    class Matched(Message):
        """A job has run."""

        job: Job

    @dataclass
    class Found(Message):
        """A search over large logs has ended."""

        search: Search

    @dataclass
    class Evaluated(Message):
        """It is known which rows a query wants."""

        query: Query

    @dataclass
    class Looked(Message):
        """It was looked for pairs made past each other."""

        look: RealignmentSearch

    class Warmed(Message):
        """What the first keys would have to wait for is there."""

    @dataclass
    class Progressed(Message):
        """Some of the work is done; `fraction` is from 0 to 1."""

        what: str
        fraction: float

    @dataclass
    class Failed(Message):
        """The work cannot be done, for a reason that a person can mend."""

        error: UserError
        opening: bool

    @dataclass
    class Doomed(Message):
        """There is nothing to show: the program has to end with this error."""

        error: UserError

    def __init__(self, session: Session, request: OpenRequest | None = None) -> None:
        super().__init__()
        self.session = session
        if request is not None and request.keys:
            self.actions = remapped(request.keys)
            rebind(self, _bindings(self.actions))
        self.editor_setting = request.editor if request is not None else None
        self.reader = KeyReader(actions=self.actions)
        self._request = request
        self._again = False
        """The logs were read before: what is on the screen is to stay."""
        self._loading: Throttled | None = None
        self._work = ""
        self.messages = Messages()
        self._message = ""
        self._trouble = False
        self._warning = ""
        self._drawing = False
        self._pause: Timer | None = None
        self.drawn = asyncio.Event()
        """Set when there is something to see."""

    def compose(self) -> ComposeResult:
        yield Header(id="header")
        yield Breadcrumb(id="breadcrumb")
        yield Table(id="table")
        yield Inspector(id="inspector")
        yield StatusLine(id="status")
        yield Footer(id="footer")
        yield TooSmall(id="small")

    def on_mount(self) -> None:
        """Find the widgets once; start the work when the first frame is out."""
        self.table = self.query_one(Table)
        self.inspector = self.query_one(Inspector)
        if self._request is not None:
            self._work = "reading"
            self.call_after_refresh(self._start_loading)
        elif self.session.journal is not None:
            self.call_after_refresh(self._offer_recovery)

    # -- drawing

    def on_resize(self, event: events.Resize) -> None:
        """Give each part its height; say so when there is no room."""
        small = event.size.width < MINIMUM.width or event.size.height < MINIMUM.height
        self.set_class(small, "-small")
        if small:
            self._stop_pause()
            self.reader.clear()

    @on(Lines.Resized)
    def _lines_resized(self) -> None:
        self.draw()

    def resize_inspector(self) -> None:
        """As large as the person wants it: usually less than a third of the screen, and with the focus more than half
        when there is more to say.
        """
        inspector, wanted = self.inspector, self.session.listing.details
        more = inspector.active and (inspector.wanted > inspector.size.height or inspector.has_class("-large"))
        inspector.set_class(more or wanted is Details.MOST, "-large")
        inspector.set_class(wanted is Details.NONE and not inspector.active, "-away")

    def draw(self) -> None:
        """Bring the screen up to the session, once, after everything that was typed has been handled."""
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
            return  # what nobody sees is drawn when it is seen again
        session = self.session
        if self.has_class("-small"):
            self.query_one(TooSmall).show()
            return
        self.query_one(Header).show(session, self._work)
        self.query_one(Breadcrumb).show(session.listing)
        self.table.show(session)
        if self.inspector.display:
            self.inspector.show(session)
        status = self.query_one(StatusLine)
        if self.editor is not None:
            status.show_editor(self.editor)
        else:
            status.show(session, self._message, self._trouble, self.reader.pending, self._warning)
        usable = [a for a in self.actions if not (session.comparison.single and a.about_two)]
        self.query_one(Footer).show(session.proposal, usable, self._following())
        if self.table.size:
            self.drawn.set()

    def on_screen_resume(self) -> None:
        """What was over this screen is gone."""
        self.draw()

    def _following(self) -> list[tuple[str, str]]:
        """The keys that can follow the prefix that was typed; marks by the letters that are in use."""
        marks = " ".join(sorted(self.session.listing.annotations.marks))
        return [
            ((marks if action.id == "go_mark" and marks else "a letter") if key == LETTER else key, action.in_short)
            for key, action in self.reader.following()
        ]

    def say(self, message: str, *, trouble: bool = False, passing: bool = False) -> None:
        """Show a sentence until the next key; unless it is a passing one, it can be read again."""
        self._message, self._trouble = message, trouble
        if not passing:
            self.messages.add(message, trouble=trouble)
        if isinstance(over := self.app.screen, Modal):
            over.hear(message, trouble=trouble)
        self.draw()

    def _warn(self, *warnings: str) -> None:
        """Show what must not be overlooked behind the message, until the next key."""
        self._warning = " · ".join(warning for warning in warnings if warning)
        for warning in warnings:
            self.messages.add(warning)
        self.draw()

    # -- keys

    def on_key(self, event: events.Key) -> None:
        """Every key is dealt with here and now, bindings too: keys that come in a burst keep their order."""
        event.stop()
        if self.app.return_code is not None:
            # The program is ending: what came after that key has nowhere to go.
            return
        if self.app.screen is not self:
            # It was typed for what has just been opened over this screen, under which this one can still be seen.
            pass_on(self.app, event)
            return
        if self.typed_ahead(event):
            return
        self._message, self._trouble, self._warning = "", False, ""
        self._stop_pause()
        self.draw()
        if self.has_class("-small"):
            # Whoever cannot see the rows must not change their rules.
            if bound_action(self, event.key) == "quit":
                self.action_quit()
            return
        if self.editor is not None:
            self.type(event.key, event.character)
            return
        if self.session.proposal is not None and self._answer(event.key):
            return
        before = self.reader.pending
        taken = self.reader.feed(event.key)
        if taken is True:
            if self.reader.digits:
                self._pause = self.set_timer(PAUSE, self.settle)
            elif not self.reader.pending and event.key != "escape":
                self._does_nothing(before, event)
            return
        name = bound_action(self, event.key) if taken is False else taken.id
        if name is None:
            self._does_nothing(before, event)
        else:
            self.run_named(name)
        # A count is for the command that follows it, whether or not that takes one.
        self.reader.clear()

    def _does_nothing(self, before: str, event: events.Key) -> None:
        """Over a slow line one would wonder whether the key has arrived."""
        key = event.character if event.is_printable and event.character else event.key
        self.say(f"{before}{key} does nothing here: ? lists the keys", passing=True)

    def on_paste(self, event: events.Paste) -> None:
        """Into the line that is being typed; commands are not pasted."""
        event.stop()
        if self.editor is not None and not self.has_class("-small"):
            self.editor.insert(event.text)
            self.edited()
            self.draw()

    def settle(self) -> None:
        """Nothing was typed for a while after a digit."""
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
        """A key while a change is proposed; True when it was an answer."""
        proposal = self.session.proposal
        if proposal is None:
            return False
        if key in ("enter", proposal.key):
            job = self.session.confirm()
            self.say(f"{proposal.edit.title}   (u undoes it)")
            self.start(job)
        elif key == "tab":
            self.session.next_alternative()
            self.start(self.session.preview_job())
        else:
            self.session.cancel()
            if key != "escape":
                return False
            self.say("nothing was changed")
        return True

    # -- work

    def start(self, job: Job | None) -> None:
        """Run a job in a thread; its result comes back as a message."""
        if job is None:
            return
        if job.result is not None:
            self._matched(self.Matched(job))
            return
        if not job.preview:
            self._work = "matching"
        self.run_worker(lambda: self._run(job), thread=True)
        self.draw()

    def _run(self, job: Job) -> None:
        """In a worker's thread: only messages leave it."""

        def go_on(_what: str, _fraction: float) -> None:
            if job.generation != self.session.generation:
                raise Cancelled  # the rules have changed again: nobody waits for this any more

        try:
            self.session.listing.prepare(job.run(go_on))
        except Cancelled:
            return
        except UserError as error:
            self.post_message(self.Failed(error, opening=False))
        else:
            give_memory_back()
            self.post_message(self.Matched(job))

    @on(Matched)
    def _matched(self, event: Matched) -> None:
        if self.session.accept(event.job) and not event.job.preview:
            self._work = ""
            self._warn(rule_trouble(self.session))
            self._look()
            if isinstance(over := self.app.screen, Modal):
                over.session_changed()
        self.draw()

    def _look(self) -> None:
        """RealignmentSearch in a thread for pairs made past each other: nobody has to wait for it."""
        if (look := self.session.look()) is not None:
            self.run_worker(lambda: self._run_look(look), thread=True, group="look", exclusive=True)

    def _run_look(self, look: RealignmentSearch) -> None:
        """In a worker's thread."""
        look.run()
        give_memory_back()
        self.post_message(self.Looked(look))

    @on(Looked)
    def _looked(self, event: Looked) -> None:
        if self.session.take(event.look):
            self.draw()

    def search_for(self, text: str) -> None:
        """Search at once; large logs in a thread, so that typing goes on."""
        comparison, session = self.session.comparison, self.session
        if len(comparison) < SEARCH_AT_ONCE:
            self.show_hits(session.listing.hits(text))
        else:
            self.run_worker(lambda: self._search(text), thread=True, group="search", exclusive=True)

    def _search(self, text: str) -> None:
        """In a worker's thread."""
        self.post_message(self.Found(self.session.listing.hits(text)))

    @on(Found)
    def _found(self, event: Found) -> None:
        if self.editor is not None and self.editor.kind == "search" and self.editor.text == event.search.text:
            self.show_hits(event.search)
            self.draw()

    def evaluate(self, query: Query) -> None:
        """At once; over large logs in a thread, so that typing goes on."""
        if len(self.session.comparison) < SEARCH_AT_ONCE:
            self.show_query(query)
        else:
            self.run_worker(lambda: self._evaluate(query), thread=True, group="query", exclusive=True)

    def _evaluate(self, query: Query) -> None:
        """In a worker's thread."""
        self.session.listing.wanted(query)
        self.post_message(self.Evaluated(query))

    @on(Evaluated)
    def _evaluated(self, event: Evaluated) -> None:
        self.show_query(event.query)

    def _start_loading(self) -> None:
        loading = self._loading = Throttled(self._report)
        self.run_worker(lambda: self._load(loading), thread=True)

    @property
    def reading(self) -> bool:
        """Whether the logs are being read."""
        return self._loading is not None

    def read_again(self) -> None:
        """Read the logs in the background; what is on the screen stays until they have been read."""
        self._again = True
        self._start_loading()

    def give_up_reading(self) -> bool:
        if self._loading is None or not self._again:
            return False
        self._loading.cancelled = True
        self._loading, self._work = None, ""
        return True

    def _report(self, what: str, fraction: float) -> None:
        self.post_message(self.Progressed(what, fraction))

    def _load(self, loading: Throttled) -> None:
        """In a worker's thread."""
        assert self._request is not None
        try:
            loaded = load(self._request, loading, self.session.rules if self._again else None)
        except Cancelled:
            return
        except UserError as error:
            self.post_message(self.Failed(error, opening=not self._again))
            return
        if not loading.cancelled:
            self.post_message(self.Opened(loaded))
            warm(loaded)
            import numtui.session.export  # noqa: F401 - the reports take 50 ms to import: here nobody waits for them

            self.post_message(self.Warmed())

    def on_unmount(self) -> None:
        """Nobody waits for the work any more."""
        if self._loading is not None:
            self._loading.cancelled = True

    @on(Progressed)
    def _progressed(self, event: Progressed) -> None:
        if self._loading is not None:
            self._work = f"{event.what} {event.fraction:.0%}"
            self.draw()

    @on(Opened)
    def _opened(self, event: Opened) -> None:
        self._loading = None
        self._work = ""
        self._stamps = event.loaded.stamps
        if self._again:
            self._opened_again(event.loaded)
            return
        self.session.adopt(event.loaded.comparison, event.loaded.file)
        if self.session.rules.problems:
            self.say(str(self.session.rules.problems[0]), trouble=True)
        elif self.session.comparison.red.any():
            single = self.session.comparison.single
            first = ("NaN or Inf", "where one begins") if single else ("red row", "the first cause")
            self.say(f"n goes to the first {first[0]}, o to {first[1]}")
        elif self.session.comparison.single:
            self.say("there is no NaN or Inf; S sorts by the largest values, `f is:cast` lists the dtype boundaries")
        else:
            self.say(all_agree(self.session.comparison))
        if self.session.store is not None:
            if told := self.session.resume(self.session.store.known):
                self.say(told)
            self.resize_inspector()
            self.set_interval(KEEP, partial(self.run_worker, self.session.keep, thread=True, group="keep"))
        self._warn(self.session.comparison.comparability.sentence, rule_trouble(self.session))
        self.draw()
        self.watch_files()
        self._offer_recovery()
        keep_what_is_there()

    def _opened_again(self, loaded: Loaded) -> None:
        """The logs have been read once more."""
        session = self.session
        before = sum(len(log) for _, log in session.comparison.logs)
        session.reload(loaded.comparison)
        more = sum(len(log) for _, log in session.comparison.logs) - before
        change = f": {more:,} more operations" if more > 0 else f": {-more:,} fewer operations" if more else ""
        self.say(f"the logs have been read again{change}")
        if session.rules != loaded.comparison.rules:
            self.start(session.rematch())  # they were changed meanwhile
        elif isinstance(over := self.app.screen, Modal):
            over.session_changed()
        self._warn(session.comparison.comparability.sentence, rule_trouble(session))
        self.draw()

    @on(Warmed)
    def _warmed(self) -> None:
        """One after the other, because each takes memory of its own."""
        self._look()

    @on(Failed)
    def _failed(self, event: Failed) -> None:
        self._work, self._loading = "", None
        if event.opening:
            self.post_message(self.Doomed(event.error))
            return
        self.say(str(event.error), trouble=True)

    # -- work of an earlier session

    def _offer_recovery(self) -> None:
        journal = self.session.journal
        found = journal.pending() if journal is not None else None
        if found is None:
            return
        from numtui.tui.screens.dialog import recovery

        when = datetime.fromtimestamp(found.time, timezone.utc).astimezone().strftime("on %Y-%m-%d at %H:%M")
        self.app.push_screen(recovery(when), lambda answer: self._recovered(found, answer))

    def _recovered(self, found: Recovered, answer: str | None) -> None:
        journal = self.session.journal
        if answer == "discard":
            if journal is not None:
                journal.clear()
            self.say("the unsaved rules were discarded")
        elif answer != "restore":
            if journal is not None:
                journal.postpone()
            self.say("the unsaved rules are kept: the next session offers them again")
        else:
            job = self.session.recover(found)
            self.say("the rules of the earlier session are back; they are not saved yet (ctrl+s)")
            self.start(job)

    # -- saving and leaving

    def save(self, *, force: bool = False, path: Path | None = None, then: Callable[[], None] | None = None) -> None:
        """Save the rules; ask when somebody else changed the file. `then` is done when they are saved."""
        from matchers.rules.file import RulesChangedError

        session = self.session
        if path is not None and os.path.realpath(path) == os.path.realpath(session.file.path):
            # Its content was read: this is no other file, whatever name it goes by.
            path = None
        try:
            if path is None:
                session.save(force=force)
            else:
                session.save_to(path, force=force)
        except RulesChangedError:
            self._ask_conflict(path, then)
        except RulesError as error:
            # Force overcomes a layout that cannot be edited, not a disk that says no.
            anew = f", :w!{'' if path is None else f' {path}'} writes anew" * (not isinstance(error.__cause__, OSError))
            self.say(f"{error}   (nothing is lost: :w FILE saves elsewhere{anew})", trouble=True)
        else:
            self.say(f"saved to {session.file.path}")
            if then is not None:
                then()

    def _ask_conflict(self, path: Path | None, then: Callable[[], None] | None) -> None:
        from numtui.tui.screens.dialog import conflict, overwrite

        def answered(answer: str | None) -> None:
            if answer == "overwrite":
                self.save(force=True, path=path, then=then)
            elif answer == "elsewhere":
                if isinstance(over := self.app.screen, Modal):
                    over.dismiss(None)  # the line to type it into is under it
                self.ask("command", ":", "w " if then is None else "wq ")
            else:
                self.say("not saved")

        self.app.push_screen(conflict(str(self.session.file.path)) if path is None else overwrite(str(path)), answered)

    def leave(self) -> None:
        """End the session in order."""
        if self.session.journal is not None:
            self.session.journal.clear()
        self.session.keep()
        self._stop_pause()
        self.app.exit(return_code=1 if self.session.comparison.red.any() else 0)
