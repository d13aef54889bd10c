"""Source lines in the user's own editor."""

from __future__ import annotations

import subprocess
from pathlib import Path

from textual.app import SuspendNotSupported

from matchers.errors import InputError, UserError
from numtui.query.source_line import editor_command, find_source, source_lines, split_location
from numtui.terminal.signals import without_keyboard_signals
from numtui.text.safe import safe_text
from numtui.tui.screens.screen import MainScreen

__all__ = ["open_source"]


def open_source(explorer: MainScreen) -> None:
    """Find the row's source line (with 2: that of b, if another) and open it in an editor."""
    which = explorer.reader.count() or 1
    lines = source_lines(explorer.session.comparison, explorer.session.listing.cursor)
    if not lines:
        explorer.say("no source line logged for this row")
        return
    if which > len(lines):
        explorer.say(f"{safe_text(lines[0], 200)} is the only source line of this row")
        return
    name, line = split_location(lines[which - 1])
    other = safe_text(lines[2 - which], 200) if len(lines) > 1 else ""
    besides = f"   (in {'ba'[which - 1]}: {other}; {3 - which}V opens it)" if other else ""

    def look() -> Path | UserError | None:
        try:
            return find_source(name, (Path.cwd(), *explorer.sources))
        except UserError as error:
            return error
        except OSError as error:
            return InputError(f"the current folder cannot be read: {error.strerror or error}")

    def show(found: Path | UserError | None) -> None:
        if isinstance(found, Path):
            _edit(explorer, found, line, besides)
        elif found is None:
            where = "start numtui in the source tree, or name it in the setting `sources`"
            explorer.say(f"{name} not found here; {where}", trouble=True)
        else:
            explorer.say(str(found), trouble=True)

    explorer.background.run_then_show(f"looking for {name}", look, show)


def _edit(explorer: MainScreen, path: Path, line: int, besides: str) -> None:
    try:
        command = editor_command(explorer.editor_setting, path, line)
        with explorer.app.suspend(), without_keyboard_signals():
            subprocess.run(command, check=False)  # noqa: S603 - the user's own editor
    except SuspendNotSupported:
        explorer.say(f"{path}:{line}   (this terminal cannot run an editor){besides}")
    except (OSError, UserError) as error:
        explorer.say(f"the editor cannot be started: {error}", trouble=True)
    else:
        explorer.say(f"back from {path}:{line}{besides}")
    explorer.app.refresh(layout=True)
