"""Command palette: every action, and every module and source file of the logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from rapidfuzz import fuzz, process
from rich.text import Text
from textual import on
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.message import Message
from textual.widgets import Input, OptionList

from numtui.actions import Action, Group
from numtui.query.fields import FIELDS
from numtui.query.query import exactly
from numtui.text.safe import safe_text
from numtui.tui.screens.screen import MainScreen
from numtui.tui.textual_shims import PresentSize

__all__ = ["ActionProvider", "Palette", "PlaceProvider", "scores"]

_MAX_PLACES = 30
"""Maximum number of modules and files offered."""

_ALIKE = 70.0
_ALIKE_HELP = 80.0
"""Minimum similarity in percent of a name, or part of its description, with the typed text."""
_HELP = 0.8
"""Weight of a hit in the description."""


class Palette(PresentSize, CommandPalette):
    """Textual's palette, without its failures: a list that has no first line or room yet, a burst of keys."""

    footer_keys = (("enter", "run"), ("↑ ↓", "choose"), ("esc", "close"))

    def __init__(self) -> None:
        super().__init__()
        self._entered = False
        """True when the first hit is to run as soon as the search ends."""

    def on_mount(self) -> None:
        """Keep the cursor from blinking, which sends bytes all the time."""
        self.query_one(Input).cursor_blink = False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Refuse a key that arrives behind the one that has closed the palette: its list may be gone."""
        return super().check_action(action, parameters) if self.is_current else False

    @on(Input.Changed)
    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _too_late(self, event: Message) -> None:
        """Drop what was typed or chosen behind that key, likewise."""
        if not self.is_current or self._entered:
            event.stop()
            event.prevent_default()

    @on(Input.Submitted)
    def _too_early(self, event: Message) -> None:
        """Wait for the hits of what was typed: the list still shows those of what was typed before."""
        if self._searching:
            self._entered = True
            event.stop()
            event.prevent_default()

    @property
    def _searching(self) -> bool:
        mine = (worker for worker in self.workers if worker.group == self._GATHER_COMMANDS_GROUP)
        return any(worker.node is self and not worker.is_cancelled and not worker.is_finished for worker in mine)

    def on_worker_state_changed(self) -> None:
        """Run the first hit of what was entered."""
        if self._entered and not self._searching:
            self._entered = False
            self._select_or_command()

    def _action_command_list(self, action: str) -> None:
        with suppress(KeyError):
            super()._action_command_list(action)

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Close, once, with the search and its timers, which would look for the list later."""
        self._entered = False
        self._cancel_gather_commands()
        self._stop_no_matches_countdown()
        self._stop_busy_countdown()
        return super().dismiss(result) if self.is_current else AwaitComplete()


class ActionProvider(Provider):
    """Provider of the explorer's actions and their keys."""

    @property
    def _screen(self) -> MainScreen:
        return _main_screen(self)

    async def discover(self) -> Hits:
        """Yield all actions before anything is typed, the best known last."""
        for action in sorted(self._screen.offered, key=lambda action: action.group == Group.MOVE):
            yield DiscoveryHit(_shown(action), self._runner(action), text=_text(action))

    async def search(self, query: str) -> Hits:
        """Yield the matching actions; Textual lists the highest score first."""
        actions = self._screen.offered
        for at, score in scores(query, actions).items():
            yield Hit(score, _shown(actions[at]), self._runner(actions[at]), text=_text(actions[at]))

    def _runner(self, action: Action) -> Callable[[], Any]:
        return partial(self._screen.run_named, action.id)


class PlaceProvider(Provider):
    """Provider of modules and source files, each a filter."""

    async def search(self, query: str) -> Hits:
        """Yield the names that contain every typed word, the shortest first."""
        screen = _main_screen(self)
        words = query.lower().split()
        # Scoring thousands of names would take longer than a frame: compare their text instead.
        found = [
            (len(name), field, name)
            for field in ("module", "file")
            for name in FIELDS[field].names(screen.session.comparison)
            if name and all(word in name.lower() for word in words)
        ]
        for length, field, name in sorted(found)[:_MAX_PLACES]:
            shown = Text.assemble((f"{field:<14} ", "bold"), safe_text(name, 200))
            yield Hit(
                1 / (1 + length), shown, partial(screen.prompt.filter_by, exactly(field, name)), text=f"{field} {name}"
            )


def _main_screen(provider: Provider) -> MainScreen:
    """Return the screen under the palette: only the main screen opens one."""
    return cast(MainScreen, provider.screen)


def scores(query: str, actions: Sequence[Action]) -> dict[int, float]:
    """Return scores of the matching actions by index: exact names, prefixes, word prefixes, then similar names."""
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
