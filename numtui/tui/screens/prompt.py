"""What is typed on a line of its own: the search as it is typed, the filters, the `:` commands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path

import numpy as np
from textual.screen import Screen

from numtui.actions import ACTIONS, Action
from numtui.query.query import NO_QUERY, Query, QueryError, completions, parse_query
from numtui.query.view import Filter
from numtui.session.listing import Search
from numtui.session.session import Session
from numtui.text.line_editor import LineEditor, Typed
from numtui.tui.key_reader import KeyReader
from numtui.tui.widgets.inspector import Inspector
from numtui.tui.widgets.table import Table
from numtui.views.message_log import Messages

__all__ = ["Asking"]

_QUERIES = ("keep", "filter")
"""Questions whose answer is a filter query: words to keep are words that a key must contain."""


class Asking(Screen[None]):
    """A screen with a session and a line to type into."""

    session: Session
    actions: tuple[Action, ...] = ACTIONS
    """The registry, with the user's own keys."""
    reader: KeyReader
    messages: Messages
    """What was said."""
    table: Table
    inspector: Inspector
    editor: LineEditor | None = None
    """What is being typed."""
    repeated = 0
    """How often the action that runs has run just before."""
    _ran = ""
    _origin = -1
    """The row that the search started from."""
    _query = NO_QUERY
    """What was typed of a query, as far as it meant something."""
    _entered: Query | None = None
    """The query to be listed when its rows are known."""
    _before: Search | None = None
    """The search before this one: `esc` brings it back, an empty one repeats it."""

    @abstractmethod
    def draw(self) -> None:
        """Bring the screen up to the session."""

    @abstractmethod
    def say(self, message: str, *, trouble: bool = False, passing: bool = False) -> None:
        """Show a sentence until the next key; unless it is a passing one, it can be read again."""

    @abstractmethod
    def save(self, *, force: bool = False, path: Path | None = None, then: Callable[[], None] | None = None) -> None:
        """Write the rules."""

    @abstractmethod
    def tell_saved(self) -> None:
        """Say that there is nothing to save."""

    @abstractmethod
    def leave(self) -> None:
        """End the session in order."""

    @abstractmethod
    def save_filter(self, name: str) -> None:
        """Save the filter on the screen under a name."""

    @abstractmethod
    def write_page(self, path: Path) -> None:
        """Write the HTML report of what is on the screen."""

    def run_named(self, name: str) -> None:
        """Do what an action of the registry says, where there is what it is about."""
        action = next(a for a in self.actions if a.id == name)
        if self.session.comparison.single and action.about_two:
            self.say("that takes two logs: this is one by itself")
            return
        if action.about_rules and self._rules_unread():
            return
        self.repeated = self.repeated + 1 if name == self._ran else 0
        self._ran = name
        do: Callable[[], None] = getattr(self, f"action_{name}")
        do()

    def _rules_unread(self) -> bool:
        """Whether the file of the rules has not been read yet, which is then said: a change would be lost."""
        unread = self.session.comparison.a.partial
        if unread:
            self.say("the logs are being read: the rules can be changed and saved when they have been")
        return unread

    def ask(self, kind: str, sign: str, value: str = "", words: tuple[str, ...] = (), *, many: bool = False) -> None:
        """Take what is typed from now on as the answer to a question, in place of the status line."""
        earlier = self.session.typed.of(kind)
        self.editor = LineEditor(kind, sign, value, words=words, many=many, earlier=earlier)
        self.draw()

    def type(self, key: str, character: str | None) -> None:
        """A key while something is asked."""
        editor = self.editor
        if editor is None:
            return
        typed = editor.key(key, character)
        if typed is Typed.ENTERED:
            self.editor = None
            if self._answered(editor):
                self.session.typed.add(editor.kind, editor.text)
            else:
                editor.refused = True
                self.editor = editor
        elif typed is Typed.CANCELLED:
            self.editor = None
            if editor.kind == "search":
                self.session.listing.end_search(self._origin, self._before)
        elif typed is Typed.EDITED:
            self.edited()
        self.draw()

    def edited(self) -> None:
        """Search as it is typed; the line itself says how many hits there are, or what is wrong with a query."""
        editor = self.editor
        if editor is None:
            return
        editor.refused = False
        if editor.kind == "search":
            self.search_for(editor.text)
        elif editor.kind in _QUERIES and (query := self._parsed(editor)) is not None:
            self.evaluate(query)

    def _parsed(self, editor: LineEditor) -> Query | None:
        """The query that is being typed; None where it means nothing, which the line then says."""
        if editor.wrong is None and self._query.text == editor.text.strip():
            return self._query
        editor.wrong, editor.told = None, ""
        try:
            self._query = parse_query(editor.text, self.session.listing.saved)
        except QueryError as error:
            editor.wrong, editor.told = (error.start, error.end), str(error)
            return None
        return self._query

    @abstractmethod
    def evaluate(self, query: Query) -> None:
        """Find the rows that a query wants, then `show_query` them; now or in a moment."""

    def filter_by(self, text: str) -> None:
        """List what a query wants, as if it had been typed."""
        self._entered = parse_query(text, self.session.listing.saved)
        self.evaluate(self._entered)

    def show_query(self, query: Query) -> None:
        """The rows of a query are known: list them if it was entered, else tell how many they are."""
        if query is self._entered:
            self._entered = None
            self.session.listing.list_only(query)
            if not len(self.session.listing.view):
                self.say("no row passes this filter: esc drops it")
            self.draw()
        elif query is self._query and self.editor is not None and self.editor.kind in _QUERIES:
            c = self.session.comparison
            passing = Filter(self.session.listing.filter.groups, query).mask(c, self.session.listing.wanted(query))
            self.editor.told = f"{np.count_nonzero(passing):,} of {len(c):,} rows"
            if not self.editor.text:
                self.editor.told = f"tab shows what can be asked for   {self.editor.told}"
            self.draw()

    @abstractmethod
    def search_for(self, text: str) -> None:
        """Find the hits and show them, now or in a moment."""

    def show_hits(self, search: Search) -> None:
        """Go to the first hit from where the search started."""
        self.session.listing.go_to_hits(search, self._origin)
        if self.editor is None:
            return
        if not search.text:
            self.editor.told = ""
        elif len(search.rows):
            self.editor.told = f"{search.place(self.session.listing.cursor)}/{len(search.rows)}"
        else:
            self.editor.told = "no hit"

    def begin_search(self) -> None:
        """Search from the cursor on."""
        self._origin, self._before = self.session.listing.cursor, self.session.listing.search
        self.ask("search", "/")

    def ask_query(self, kind: str, sign: str, value: str = "") -> None:
        """Take what is typed as the filter."""
        self._query = NO_QUERY
        self.ask(kind, sign, value, completions(self.session.comparison, self.session.listing.saved), many=True)
        self.edited()

    def _answered(self, editor: LineEditor) -> bool:
        """Do what was asked for; False when the answer means nothing, which the line then says."""
        text = editor.text.strip()
        if editor.kind == "search":
            self._searched(editor.text)
        elif editor.kind in _QUERIES:
            if (query := self._parsed(editor)) is None:
                return False
            self._entered = query
            self.evaluate(query)
        elif editor.kind == "name" and text:
            self.save_filter(text)
        elif editor.kind == "page" and text:
            self.write_page(Path(text).expanduser())
        elif editor.kind == "note":
            self.say(self.session.listing.annotate(text))
            # Who is killed without a warning loses nothing that was written.
            self.run_worker(self.session.keep, thread=True, group="keep")
        elif text:
            self._commanded(text)
        return True

    def _searched(self, text: str) -> None:
        if text:
            if self.session.listing.search is None or self.session.listing.search.text != text:
                # Enter came before the hits did.
                self.show_hits(self.session.listing.hits(text))
            self.session.listing.accept_search(self._origin)
        elif self._before is not None:
            self.session.listing.end_search(self._origin, self._before)
            self.say(self.session.listing.next_hit())
        self.draw()

    def _commanded(self, text: str) -> None:
        name, _, argument = text.partition(" ")
        argument = argument.strip()
        if name.isascii() and name.isdigit():
            self.session.listing.go(min(int(name[:9]), len(self.session.comparison)) - 1)
            self.draw()
        elif name in ("w", "w!", "write", "wq", "wq!", "x"):
            if self._rules_unread():
                return
            path = Path(argument).expanduser() if argument else None
            then = self.leave if name in ("wq", "wq!", "x") else None
            if path is None and not name.endswith("!") and not self.session.dirty:
                # Written nonetheless, a file that holds nothing would appear.
                (then or self.tell_saved)()
            else:
                self.save(force=name.endswith("!"), path=path, then=then)
        elif name == "q!":
            self.leave()
        elif name == "html" and argument:
            self.write_page(Path(argument).expanduser())
        else:
            action = next((a for a in self.actions if name in (a.name, a.id, *a.command)), None)
            if action is None:
                self.say(f"{name}: there is no such command{self._meant(name)}; ctrl+p lists them all", trouble=True)
            else:
                self.run_named(action.id)

    def _meant(self, name: str) -> str:
        """The command that was meant, as a question; empty where none is like it."""
        names = [word for action in self.actions for word in (action.name, *action.command) if len(word) > 1]
        from rapidfuzz import fuzz, process  # for a mistake only

        like = process.extractOne(name, names, scorer=fuzz.ratio, score_cutoff=60)
        return f" (:{like[0]}?)" if like else ""
