"""Saving and recovery of rules, with the dialogs at the end of a session."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from textual.timer import Timer

from matchers.errors import RulesError
from matchers.files.file_lock import PATIENCE
from numtui.session.journal import Recovered
from numtui.tui.screens.jobs import Jobs
from numtui.tui.screens.modal import Modal
from numtui.tui.screens.screen import MainScreen

__all__ = ["Saving"]

_AGAIN = 0.1
"""Seconds between two tries while another process saves the file."""


class Saving:
    """Saver of a session's rules; asks where something would be lost."""

    def __init__(self, screen: MainScreen, jobs: Jobs) -> None:
        self._screen = screen
        self._session = screen.session
        self._jobs = jobs
        self._waiting: Timer | None = None

    def save_changes(self, then: Callable[[], None] | None = None) -> None:
        """Save the rules if they differ from the file, so that no empty file appears.

        `then` runs afterwards; without it, a message reports that nothing was to save.
        """
        if self._session.dirty:
            self.save(then=then)
        elif then is not None:
            then()
        else:
            file = self._session.file
            why = "no rules yet" if file.raw is None else f"no changes since {file.path}"
            self._screen.say(f"nothing to save: {why}")

    def save(
        self,
        *,
        force: bool = False,
        path: Path | None = None,
        then: Callable[[], None] | None = None,
        tries: int = int(PATIENCE / _AGAIN),
    ) -> None:
        """Save the rules, then call `then`; ask first when the file changed on disk.

        While another process saves the file, try again in a moment, so often.
        """
        from matchers.rules.file import RulesBusyError, RulesChangedError

        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None
        session = self._session
        if path is not None and os.path.realpath(path) == os.path.realpath(session.file.path):
            # Its content was read: it is the same file under any name.
            path = None
        try:
            if path is None:
                session.save(force=force)
            else:
                session.save_to(path, force=force)
        except RulesChangedError:
            self._ask_conflict(path, then)
        except RulesBusyError as error:
            if tries:
                again = partial(self.save, force=force, path=path, then=then, tries=tries - 1)
                self._waiting = self._screen.background.after(_AGAIN, again)
                self._screen.say(f"waiting: {str(error).removesuffix('; try again')} …", passing=True)
            else:
                self._screen.say(f"not saved: {error}", trouble=True)
        except RulesError as error:
            # Force overcomes a layout that cannot be edited, not a failing disk.
            anew = f", :w!{'' if path is None else f' {path}'} overwrites it" * (
                not isinstance(error.__cause__, OSError)
            )
            self._screen.say(f"{error}   (nothing is lost: :w FILE saves elsewhere{anew})", trouble=True)
        else:
            self._screen.say(f"saved to {session.file.path}")
            if then is not None:
                then()

    def _ask_conflict(self, path: Path | None, then: Callable[[], None] | None) -> None:
        from numtui.tui.screens.dialog import conflict, overwrite

        def answered(answer: str | None) -> None:
            if answer == "overwrite":
                self.save(force=True, path=path, then=then)
            elif answer == "elsewhere":
                if isinstance(over := self._screen.app.screen, Modal):
                    over.dismiss(None)  # the prompt is below it
                self._screen.ask_command("w " if then is None else "wq ")
            else:
                self._screen.say("not saved")

        dialog = conflict(str(self._session.file.path)) if path is None else overwrite(str(path))
        self._screen.app.push_screen(dialog, answered)

    # -- leaving

    def quit(self) -> None:
        """End the session; ask about unsaved rules."""
        self.ask_then(self.leave, "quit" if self._screen.ranks is None else "return to all ranks")

    def ask_then(self, then: Callable[[], None], does: str) -> None:
        """Ask about unsaved rules, then call `then`, which ends the session and `does` so."""
        if not self._session.dirty:
            then()
            return
        from numtui.tui.screens.dialog import quit_unsaved

        def answered(answer: str | None) -> None:
            if answer == "save":
                self.save(then=then)
            elif answer == "discard":
                then()

        self._screen.app.push_screen(quit_unsaved(str(self._session.file.path), does), answered)

    def end(self) -> None:
        """Drop the journal, and save the place, marks and notes."""
        if self._session.journal is not None:
            self._session.journal.clear()
        self._session.store_session()

    def leave(self) -> None:
        """Save the session and leave."""
        self.end()
        from numtui.report.gate import fails

        self._screen.app.exit(return_code=1 if fails(self._session.comparison) else 0)

    # -- work of an earlier session

    def offer_recovery(self) -> None:
        """Offer the unsaved rules of an earlier session, if any."""
        journal = self._session.journal
        found = journal.pending() if journal is not None else None
        if found is None:
            return
        from numtui.tui.screens.dialog import recovery

        when = datetime.fromtimestamp(found.time, timezone.utc).astimezone().strftime("on %Y-%m-%d at %H:%M")
        self._screen.app.push_screen(recovery(when), lambda answer: self._recovered(found, answer))

    def _recovered(self, found: Recovered, answer: str | None) -> None:
        journal = self._session.journal
        assert journal is not None
        if answer == "discard":
            journal.clear()
            self._screen.say("the unsaved rules were discarded")
        elif answer != "restore":
            journal.postpone()
            self._screen.say("the unsaved rules are kept: the next session offers them again")
        else:
            job = self._session.recover(found)
            self._screen.say("rules of the earlier session restored, not saved yet (ctrl+s)")
            self._jobs.start(job)
