"""Log loading in the background: at the start behind the first rows, later in place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np

from matchers.comparison import Comparison
from matchers.errors import UserError
from numtui.inputs import OpenRequest
from numtui.runtime_tuning import give_memory_back
from numtui.session.jobs import RulesEffect
from numtui.session.kept import KeptComparisons
from numtui.session.loading import Cancelled, Loaded, Stamps, Throttled, load, warm
from numtui.session.same_row import LeftRow
from numtui.tui.screens.jobs import Jobs
from numtui.tui.screens.screen import MainScreen
from numtui.views.run_summary import all_agree, rule_trouble, rules_effect

__all__ = ["LogLoader"]

_AHEAD = 20_000
"""Rows up to which drift is searched for before anybody asks: beyond, it takes a second, memory, and time from keys."""


class LogLoader:
    """Background loader of the logs of a request.

    Args:
        kept: comparisons of ranks that were looked at before; None where there is one pair of logs.
        left: the row and view to continue with, from another rank.
        opened: called once the logs are shown for the first time.
        failed: called when the logs cannot be read.
    """

    def __init__(
        self,
        screen: MainScreen,
        jobs: Jobs,
        request: OpenRequest,
        *,
        kept: KeptComparisons | None,
        left: LeftRow | None,
        opened: Callable[[], None],
        failed: Callable[[UserError], None],
    ) -> None:
        self._screen = screen
        self._session = screen.session
        self._jobs = jobs
        self.request = request
        self._kept = kept
        self._left = left
        self._first = opened
        self._doomed = failed
        self._again = False
        """True when reloading: the screen keeps its content meanwhile."""
        self._closed = False
        self._loading: Throttled | None = None
        self.stamps: Stamps = ()
        """Stamps of the files as they were read for the screen."""

    @property
    def reading(self) -> bool:
        """True while the logs are being read."""
        return self._loading is not None

    def start(self) -> None:
        """Read the logs."""
        loading = self._loading = Throttled(partial(self._screen.background.later, self._progressed))
        self._screen.background.run(partial(self._load, loading))

    def read_again(self) -> None:
        """Reload the logs in the background; the screen keeps its content meanwhile."""
        self._again = True
        self.start()

    def give_up(self) -> bool:
        """Cancel a reload; False without one."""
        if self._loading is None or not self._again:
            return False
        self._loading.cancelled = True
        self._loading, self._screen.background.working = None, ""
        return True

    def leave(self) -> LeftRow | None:
        """Return the row and view to continue with on another rank."""
        return LeftRow.of(self._session) if self.stamps else self._left  # before it, nothing was compared

    def keep(self) -> None:
        """Keep the comparison for those who return to these logs."""
        if self._kept is not None and self.stamps:
            self._kept.keep(self.request, self._session.comparison, self.stamps)

    def close(self) -> None:
        """Cancel the work: the screen is closing."""
        self._closed = True
        if self._loading is not None:
            self._loading.cancelled = True

    def _load(self, loading: Throttled) -> None:
        """Load in a worker thread."""
        later = self._screen.background.later
        try:
            rules, kept = (self._session.applied, None) if self._again else (None, self._kept)
            loaded = load(self.request, loading, rules, kept)
        except Cancelled:
            return
        except UserError as error:
            later(self._failed, error)
            return
        if not loading.cancelled:
            later(self._opened, loaded)
            warm(loaded, self.request.cache)
            import numtui.tui.screens.export  # noqa: F401 - imports the reports (50 ms) ahead of use

            if not self._again and loaded.file.raw is not None and not loaded.comparison.single:
                self._weigh(loaded)
            later(self._jobs.look)
            self._search_ahead(loaded.comparison)

    def _search_ahead(self, c: Comparison) -> None:
        """Search for drift before `s` asks for it, in a worker thread."""
        if not self._again and not self._closed and len(c) <= _AHEAD:
            self._session.suggestions_in(c)
            give_memory_back()

    def _weigh(self, loaded: Loaded) -> None:
        """Find what the rules of the file change, in a worker thread: it takes as long as the comparison."""

        def go_on(_what: str, _fraction: float) -> None:
            if self._closed:
                raise Cancelled

        effect = RulesEffect(loaded.comparison)
        with suppress(Cancelled):
            effect.run(go_on)
            give_memory_back()
            self._screen.background.later(self._weighed, effect)

    def _weighed(self, effect: RulesEffect) -> None:
        if self._session.comparison is effect.comparison:
            self._screen.warn(rules_effect(self._session, effect), besides=True)

    def _progressed(self, what: str, fraction: float) -> None:
        if self._loading is not None:
            self._screen.background.working = f"{what} {fraction:.0%}"
            self._screen.draw()

    def _failed(self, error: UserError) -> None:
        self._loading, self._screen.background.working = None, ""
        if self._again:
            self._screen.say(str(error), trouble=True)
        else:
            self._doomed(error)

    def _opened(self, loaded: Loaded) -> None:
        session, screen = self._session, self._screen
        self._loading, screen.background.working = None, ""
        self.stamps = loaded.stamps
        if self._again:
            self._opened_again(loaded)
        else:
            session.adopt(loaded.comparison, loaded.file)
            self._greet()
            if self._left is not None:
                told = self._left.resume(session)
                screen.say(f"rank {screen.ranks.rank}: {told}" if screen.ranks is not None and told else told)
                screen.resize_inspector()
            elif session.store is not None:
                told = session.resume(session.store.known)
                if told and self.request.row is None:
                    screen.say(told)
                screen.resize_inspector()
            session.listing.open_at_difference()
            if (row := self._asked_row()) is not None:
                session.listing.go(row)
        screen.warn(session.comparison.comparability.sentence, rule_trouble(session))
        screen.draw()
        if not self._again:
            self._first()
            screen.background.opened()

    def _asked_row(self) -> int | None:
        """Return the row of the record that the request asks for; None if it asks for none, or there is none."""
        c, record, line = self._session.comparison, self.request.row, self.request.line_b
        if line is not None and len(found := np.flatnonzero(c.b.line == line)):
            return int(c.at_b[found[0]])
        return int(c.at_a[record]) if record is not None and record < len(c.a) else None

    def _greet(self) -> None:
        """Say what is wrong with the rules, or else that nothing is red."""
        session, c = self._session, self._session.comparison
        if session.rules.problems:
            self._screen.say(str(session.rules.problems[0]), trouble=True)
        elif c.red.any():
            return  # the banner says where it begins
        elif c.single:
            self._screen.say("no NaN or Inf; S sorts by the largest values, `f is:cast` lists the dtype boundaries")
        elif c.coverage.enough:
            self._screen.say(all_agree(c))

    def _opened_again(self, loaded: Loaded) -> None:
        session = self._session
        before = sum(len(log) for _, log in session.comparison.logs)
        session.reload(loaded.comparison)
        more = sum(len(log) for _, log in session.comparison.logs) - before
        change = f": {more:,} more operations" if more > 0 else f": {-more:,} fewer operations" if more else ""
        self._screen.say(f"logs reloaded{change}")
        if session.applied != loaded.comparison.rules:
            self._jobs.start(session.rematch())  # the rules were changed meanwhile
        self._jobs.tell_modal()
