"""The command palette: every action of the registry, and every module and source file of the two logs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from rich.text import Text
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.widgets import Input

from numtui.actions import Action, Group
from numtui.query.fields import FIELDS
from numtui.query.query import exactly
from numtui.text.safe import safe_text
from numtui.tui.screens.prompt import Asking

__all__ = ["ActionProvider", "Palette", "PlaceProvider"]

_MOST = 30
"""Modules and files that are offered for what was typed."""


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
    def _screen(self) -> Asking:
        screen = self.screen
        assert isinstance(screen, Asking)
        return screen

    async def discover(self) -> Hits:
        """All of them, before anything is typed; those last that everybody knows."""
        for action in sorted(self._screen.actions, key=lambda action: action.group == Group.MOVE):
            yield DiscoveryHit(_shown(action), self._runner(action), text=_text(action))

    async def search(self, query: str) -> Hits:
        """Those that match."""
        matcher = self.matcher(query)
        for action in self._screen.actions:
            if (score := matcher.match(_text(action))) > 0:
                yield Hit(score, _shown(action), self._runner(action), text=_text(action))

    def _runner(self, action: Action) -> Callable[[], Any]:
        return partial(self._screen.run_named, action.id)


class PlaceProvider(Provider):
    """Every module and source file: to list only what it did."""

    async def search(self, query: str) -> Hits:
        """Those that contain every word of what was typed; the shortest first, which have the least else in them."""
        screen = self.screen
        assert isinstance(screen, Asking)
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
            yield Hit(1 / (1 + length), shown, partial(screen.filter_by, exactly(field, name)), text=f"{field} {name}")


def _text(action: Action) -> str:
    return f"{action.name}  {action.help}"


def _shown(action: Action) -> Text:
    # A Text, because a string would be read as markup and `]c` would vanish.
    return Text.assemble((f"{action.label:<14} ", "bold"), action.help)
