"""Prompt in place of the status line; searches and filters preview while typed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np

from matchers.comparison import Comparison
from matchers.errors import UserError
from numtui.query.query import NO_QUERY, Query, QueryError, completions, parse_query
from numtui.query.view import Filter
from numtui.session.listing import Search
from numtui.session.rule_edits import RecordPair
from numtui.session.session import Session
from numtui.text.counts import plural
from numtui.text.line_editor import LineEditor, Typed
from numtui.tui.screens.background import Background

__all__ = ["Prompt"]

_QUERIES = ("keep", "filter")
"""Questions answered by a filter query; plain words must occur in the key."""

_AT_ONCE = 20_000
"""Maximum rows for a search within one frame."""


class _Speaker(Protocol):
    def say(self, message: str, *, trouble: bool = False) -> None: ...
    def draw(self) -> None: ...


class Prompt:
    """Prompt for one question at a time: `editor` is the line, `then` takes the answer."""

    def __init__(self, session: Session, background: Background, screen: _Speaker) -> None:
        self._session = session
        self._background = background
        self._screen = screen
        self.editor: LineEditor | None = None
        """Line editor of the current question."""
        self._then: Callable[[str], None] | None = None
        self._origin: RecordPair = (-1, -1)
        """Origin of the search."""
        self._before: Search | None = None
        """Previous search: `esc` restores it, an empty one repeats it."""
        self._about = session.comparison
        """The comparison that both are of: another may have taken its place."""
        self._query = NO_QUERY
        """Last valid query typed so far."""
        self._entered: Query | None = None
        """Entered query whose rows are still being computed."""

    def ask(
        self,
        kind: str,
        sign: str,
        then: Callable[[str], None] | None = None,
        *,
        value: str = "",
        words: tuple[str, ...] = (),
        many: bool = False,
    ) -> None:
        """Ask a question; `then` takes the entered answer.

        `kind` selects the history of earlier answers; the others are as in `LineEditor`.
        """
        earlier = self._session.typed.of(kind)
        self.editor = LineEditor(kind, sign, value, words=words, many=many, earlier=earlier)
        self._then = then
        self._screen.draw()

    def ask_search(self) -> None:
        """Ask for a search; it runs from the cursor while typed."""
        listing = self._session.listing
        self._origin, self._before, self._about = listing.spot, listing.search, listing.comparison
        self.ask("search", "/")

    def ask_query(self, kind: str, sign: str, value: str = "") -> None:
        """Ask for a filter; count its rows while typed."""
        self._query = NO_QUERY
        words = completions(self._session.comparison, self._session.listing.saved)
        self.ask(kind, sign, value=value, words=words, many=True)
        self._edited()

    def filter_by(self, text: str) -> None:
        """Apply a query as if it had been typed."""
        self._entered = parse_query(text, self._session.listing.saved)
        self._evaluate(self._entered)

    # -- keys

    def key(self, key: str, character: str | None) -> None:
        """Handle a key of the answer."""
        editor = self.editor
        if editor is None:
            return
        typed = editor.key(key, character)
        if typed is Typed.ENTERED:
            self.editor = None
            if self._answered(editor):
                self._session.typed.add(editor.kind, editor.text)
            else:
                editor.refused = True
                self.editor = editor
        elif typed is Typed.CANCELLED:
            self.editor = None
            if editor.kind == "search":
                self._end_search()
        elif typed is Typed.EDITED:
            self._edited()
        self._screen.draw()

    def paste(self, text: str) -> None:
        """Paste into the line, if any."""
        if self.editor is not None:
            self.editor.insert(text)
            self._edited()
            self._screen.draw()

    def _edited(self) -> None:
        """Show the number of hits or the query error in the line."""
        editor = self.editor
        if editor is None:
            return
        editor.refused = False
        if editor.kind == "search":
            self._search_for(editor.text)
        elif editor.kind in _QUERIES and (query := self._parsed(editor)) is not None:
            self._evaluate(query)

    def _answered(self, editor: LineEditor) -> bool:
        """Process the answer; False, with a message in the line, when it is invalid."""
        if editor.kind == "search":
            self._searched(editor.text)
        elif editor.kind in _QUERIES:
            if (query := self._parsed(editor)) is None:
                return False
            self._entered = query
            self._evaluate(query)
        elif self._then is not None:
            try:
                self._then(editor.text.strip())
            except UserError as error:
                self._screen.say(str(error), trouble=True)
        return True

    # -- searches

    @property
    def _start(self) -> int:
        """The row where the search started; the current one where that is gone."""
        listing = self._session.listing
        row = listing.row_of(self._origin)
        return row if row >= 0 else listing.cursor

    def _end_search(self) -> None:
        """Return to where the search started, with the previous search."""
        listing, before = self._session.listing, self._before
        if before is not None and listing.comparison is not self._about:
            before = listing.hits(before.text)
        listing.end_search(self._start, before)

    def _search_for(self, text: str) -> None:
        """Search at once; over large logs in a thread, so that typing goes on."""
        listing = self._session.listing
        if len(listing.comparison) < _AT_ONCE:
            self._show_hits(listing.hits(text))
        else:
            found = partial(self._found, listing.comparison)
            self._background.run(lambda: listing.hits(text), found, group="search", exclusive=True)

    def _found(self, c: Comparison, search: Search) -> None:
        if self.editor is None or self.editor.kind != "search" or self.editor.text != search.text:
            return
        if c is self._session.listing.comparison:
            self._show_hits(search)
            self._screen.draw()
        else:
            self._search_for(search.text)

    def _show_hits(self, search: Search) -> None:
        """Go to the first hit from where the search started."""
        listing = self._session.listing
        listing.go_to_hits(search, self._start)
        if self.editor is None:
            return
        if not search.text:
            self.editor.told = ""
        elif len(search.rows):
            self.editor.told = f"{search.place(listing.cursor):,}/{len(search.rows):,}"
        else:
            self.editor.told = "no hit"

    def _searched(self, text: str) -> None:
        listing = self._session.listing
        if text:
            if listing.search is None or listing.search.text != text:
                # Enter came before the hits did.
                self._show_hits(listing.hits(text))
            listing.accept_search(self._start)
        else:
            self._end_search()
            self._screen.say(listing.next_hit())

    # -- queries

    def _parsed(self, editor: LineEditor) -> Query | None:
        """Return the typed query; None, with a message in the line, when it is invalid."""
        if editor.wrong is None and self._query.text == editor.text.strip():
            return self._query
        editor.wrong, editor.told = None, ""
        try:
            self._query = parse_query(editor.text, self._session.listing.saved)
        except QueryError as error:
            editor.wrong, editor.told = (error.start, error.end), str(error)
            return None
        return self._query

    def _evaluate(self, query: Query) -> None:
        """Find the query's rows at once; over large logs in a thread, so that typing goes on."""
        listing = self._session.listing
        if len(listing.comparison) < _AT_ONCE:
            self._evaluated(query)
        else:
            work = partial(listing.wanted, query)
            self._background.run(work, lambda _: self._evaluated(query), group="query", exclusive=True)

    def _evaluated(self, query: Query) -> None:
        """List the rows of an entered query; count those of one still typed."""
        listing = self._session.listing
        if query is self._entered:
            self._entered = None
            listing.list_only(query)
            if not len(listing.view):
                self._screen.say("no row matches this filter: esc clears it")
            self._screen.draw()
        elif query is self._query and self.editor is not None and self.editor.kind in _QUERIES:
            c = listing.comparison
            passing = Filter(listing.filter.groups, query).mask(c, listing.wanted(query))
            self.editor.told = f"{np.count_nonzero(passing):,} of {plural(len(c), 'row')}"
            if not self.editor.text:
                self.editor.told = f"tab lists filter words   {self.editor.told}"
            self._screen.draw()
