"""Export of the screen: HTML page, copied row, copied key."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from matchers.errors import UserError
from numtui.paths import typed_path
from numtui.session.export import copies_of, free_path, page_of, row_of
from numtui.terminal.clipboard import copy_in_tmux
from numtui.tui.screens.screen import MainScreen

__all__ = ["ask_page", "copy_key", "copy_row", "copy_text", "write_page"]


def copy_key(explorer: MainScreen, again: int) -> None:
    """Copy the row's key; `again` selects its further texts in turn."""
    found = copies_of(explorer.session.comparison, explorer.session.listing.spot)
    if not found:
        return
    _, text = found[again % len(found)]
    more, _ = found[(again + 1) % len(found)]
    copy_text(explorer, text)
    explorer.say(f"copied {text}" + (f"   (again: {more})" if len(found) > 1 else ""))


def copy_row(explorer: MainScreen) -> None:
    """Copy the row under the cursor as Markdown."""
    if row := row_of(explorer.session):
        copy_text(explorer, row)
        explorer.say("copied the row as Markdown")


def copy_text(explorer: MainScreen, text: str) -> None:
    """Copy a text to the clipboard of the user's machine."""

    def copied(done: bool) -> None:
        if not done:
            explorer.app.copy_to_clipboard(text)

    explorer.background.run(partial(copy_in_tmux, text), copied)


def ask_page(explorer: MainScreen) -> None:
    """Ask for the path of the HTML page; propose an unused name."""
    explorer.prompt.ask("page", "write an HTML page to: ", partial(_page_named, explorer), value=str(free_path()))


def _page_named(explorer: MainScreen, name: str) -> None:
    if name:
        write_page(explorer, typed_path(name, expand=True))


def write_page(explorer: MainScreen, path: Path) -> None:
    """Write the HTML report of the current view; ask before replacing a file."""
    if not path.exists():
        _write(explorer, path)
        return
    from numtui.tui.screens.dialog import overwrite

    def answered(answer: str | None) -> None:
        if answer == "overwrite":
            _write(explorer, path)
        elif answer == "elsewhere":
            ask_page(explorer)

    explorer.app.push_screen(overwrite(str(path)), answered)


def _write(explorer: MainScreen, path: Path) -> None:
    page = page_of(explorer.session)

    def work() -> int | UserError:
        try:
            return page.write(path)
        except UserError as error:
            return error

    def written(size: int | UserError) -> None:
        if isinstance(size, UserError):
            explorer.say(str(size), trouble=True)
        else:
            explorer.say(f"written: {path} ({size / 1e6:.1f} MB)")

    explorer.say(f"writing {path}")
    explorer.background.run(work, written)
