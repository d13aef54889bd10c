"""The `:` line: actions by name, rows by number, commands that take a file."""

from __future__ import annotations

from functools import partial

from numtui.paths import typed_path
from numtui.tui.screens.saving import Saving
from numtui.tui.screens.screen import MainScreen

__all__ = ["ask_command"]


def ask_command(explorer: MainScreen, saving: Saving, value: str = "") -> None:
    """Ask for a command; `value` is typed already."""
    words = tuple(name for action in explorer.offered for name in (action.name, *action.command))
    explorer.prompt.ask("command", ":", partial(_run, explorer, saving), value=value, words=words)


def _run(explorer: MainScreen, saving: Saving, text: str) -> None:
    name, _, argument = text.partition(" ")
    argument = argument.strip()
    if name.isascii() and name.isdigit():
        explorer.session.listing.go(min(int(name[:9]), len(explorer.session.comparison)) - 1)
    elif name in ("w", "w!", "write", "wq", "wq!", "x"):
        if not explorer.background.too_early():
            _save(saving, name, argument)
    elif name == "q!":
        saving.leave()
    elif name == "html" and argument:
        from numtui.tui.screens.export import write_page  # imports the reports, which most sessions do not need

        write_page(explorer, typed_path(argument, expand=True))
    elif name:
        action = next((a for a in explorer.actions if name in (a.name, a.id, *a.command)), None)
        if action is None:
            told = f"{name}: unknown command{_meant(explorer, name)}; ctrl+p lists them all"
            explorer.say(told, trouble=True)
        else:
            explorer.run_named(action.id)


def _save(saving: Saving, name: str, file: str) -> None:
    then = saving.leave if name in ("wq", "wq!", "x") else None
    if file or name.endswith("!"):
        saving.save(force=name.endswith("!"), path=typed_path(file, expand=True) if file else None, then=then)
    else:
        saving.save_changes(then)


def _meant(explorer: MainScreen, name: str) -> str:
    """Return the most similar command as a question; empty without one."""
    names = [word for action in explorer.actions for word in (action.name, *action.command) if len(word) > 1]
    from rapidfuzz import fuzz, process  # needed only after a mistake

    like = process.extractOne(name, names, scorer=fuzz.ratio, score_cutoff=60)
    return f" (:{like[0]}?)" if like else ""
