"""The command palette's commands: the registry of actions, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rich.text import Text
from textual.command import DiscoveryHit, Hit, Hits, Provider

from numtui.actions import ACTIONS, Action

__all__ = ["ActionProvider"]


class ActionProvider(Provider):
    """Every action of the explorer, with its keys."""

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        for action in ACTIONS:
            yield DiscoveryHit(_shown(action), self._runner(action), text=_text(action))

    async def search(self, query: str) -> Hits:
        """Those that match."""
        matcher = self.matcher(query)
        for action in ACTIONS:
            if (score := matcher.match(_text(action))) > 0:
                yield Hit(score, _shown(action), self._runner(action), text=_text(action))

    def _runner(self, action: Action) -> Callable[[], Any]:
        return partial(self.screen.run_action, action.id)


def _text(action: Action) -> str:
    return f"{action.name}  {action.help}"


def _shown(action: Action) -> Text:
    # A Text, because a string would be read as markup and `]c` would vanish.
    return Text.assemble((f"{action.label:<14} ", "bold"), action.help)
