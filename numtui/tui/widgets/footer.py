"""The last line of the screen: the most important keys."""

from __future__ import annotations

from collections.abc import Sequence

from numtui.actions import ACTIONS, Action, key_label
from numtui.session.jobs import Proposal
from numtui.text.lines import Line, line_width
from numtui.tui.widgets.lines import Lines

__all__ = ["Footer"]


class Footer(Lines):
    """Shows as many footer actions of the registry as fit; help is always among them."""

    def show(
        self,
        proposal: Proposal | None = None,
        actions: Sequence[Action] = ACTIONS,
        following: Sequence[tuple[str, str]] = (),
        mode: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Show the keys for the current state: those of a prompt or dialog, those that follow a prefix, or answer."""
        if mode:
            shown = list(mode)
        elif following:
            shown = [*following, ("esc", "nothing")]
        elif proposal is not None:
            shown = [("enter", "apply"), (proposal.key, "apply"), ("esc", "cancel")]
            if len(proposal.edits) > 1:
                shown.insert(2, ("tab", f"alternative ({proposal.chosen + 1}/{len(proposal.edits)})"))
        else:
            shown = [(key_label(a.keys[0]), a.footer) for a in actions if a.footer is not None and a.keys]
        *rest, last = shown or [("", "")]
        room = self.size.width - _width(last)
        line: Line = []
        for item in rest:
            if (room := room - _width(item)) < 0:
                break
            line += _item(item)
        self.paint([line + _item(last)])


def _item(item: tuple[str, str]) -> Line:
    return [(f" {item[0]}", "key"), (f" {item[1]} ", "dim")]


def _width(item: tuple[str, str]) -> int:
    return line_width(_item(item))
