"""The command palette: every action of the registry, and every module and source file of the two logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from rapidfuzz import fuzz, process
from rich.text import Text
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.widgets import Input

from numtui.actions import Action, Group
from numtui.query.fields import FIELDS
from numtui.query.query import exactly
from numtui.text.safe import safe_text
from numtui.tui.screens.screen import MainScreen

__all__ = ["ActionProvider", "Palette", "PlaceProvider", "scores"]

_MOST = 30
"""Modules and files that are offered for what was typed."""

_ALIKE = 70.0
_ALIKE_HELP = 80.0
"""Percent that a name, or a stretch of a sentence about it, must agree with what was typed."""
_HELP = 0.8
"""Weight of a hit in that sentence."""


class Palette(CommandPalette):
    """Textual's, which looks for its list's first line also before there is one, or any room for it."""

    def on_mount(self) -> None:
        """A cursor that blinks would send bytes for as long as it is looked at."""
        self.query_one(Input).cursor_blink = False

    def _action_command_list(self, action: str) -> None:
        with suppress(KeyError):
            super()._action_command_list(action)


class ActionProvider(Provider):
    """Every action of the explorer, with its keys."""

    @property
    def _screen(self) -> MainScreen:
        return _main_screen(self)

    async def discover(self) -> Hits:
        """All of them, before anything is typed; those last that everybody knows."""
        for action in sorted(self._screen.actions, key=lambda action: action.group == Group.MOVE):
            yield DiscoveryHit(_shown(action), self._runner(action), text=_text(action))

    async def search(self, query: str) -> Hits:
        """Those that match; Textual lists the highest score first."""
        actions = self._screen.actions
        for at, score in scores(query, actions).items():
            yield Hit(score, _shown(actions[at]), self._runner(actions[at]), text=_text(actions[at]))

    def _runner(self, action: Action) -> Callable[[], Any]:
        return partial(self._screen.run_named, action.id)


class PlaceProvider(Provider):
    """Every module and source file: to list only what it did."""

    async def search(self, query: str) -> Hits:
        """Those that contain every word of what was typed; the shortest first, which have the least else in them."""
        screen = _main_screen(self)
        words = query.lower().split()
        # A score for each of thousands of names would take longer than a frame: their text is compared instead.
        found = [
            (len(name), field, name)
            for field in ("module", "file")
            for name in FIELDS[field].names(screen.session.comparison)
            if name and all(word in name.lower() for word in words)
        ]
        for length, field, name in sorted(found)[:_MOST]:
            shown = Text.assemble((f"{field:<14} ", "bold"), safe_text(name, 200))
            yield Hit(
                1 / (1 + length), shown, partial(screen.prompt.filter_by, exactly(field, name)), text=f"{field} {name}"
            )


def _main_screen(provider: Provider) -> MainScreen:
    """The screen under the palette: only the main screen opens one."""
    return cast(MainScreen, provider.screen)


def scores(query: str, actions: Sequence[Action]) -> dict[int, float]:
    """How well each action that matches does so, by its index: exact names first, then those that begin like this, then
    those of which a word does; then by likeness, so that a slip of a finger is no obstacle.
    """
    asked = query.lower().strip()
    helps = [action.help.lower() for action in actions]
    likeness = process.extract(asked, helps, scorer=fuzz.partial_ratio, limit=None, score_cutoff=_ALIKE_HELP)
    found = {at: _HELP * score for _, score, at in likeness}
    names = [action.name.replace("-", " ") for action in actions]
    for name, score, at in process.extract(asked, names, scorer=fuzz.WRatio, limit=None, score_cutoff=_ALIKE):
        begins = (name == asked, name.startswith(asked), f" {asked}" in f" {name}")
        found[at] = max(found.get(at, 0.0), score + 100 * sum(begins))
    return found


def _text(action: Action) -> str:
    return f"{action.name}  {action.help}"


def _shown(action: Action) -> Text:
    # A Text, because a string would be read as markup and `]c` would vanish.
    return Text.assemble((f"{action.label:<14} ", "bold"), action.help)
