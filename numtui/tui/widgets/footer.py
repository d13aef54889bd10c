"""The last line of the screen: the most important keys."""

from __future__ import annotations

from collections.abc import Sequence

from numtui.actions import ACTIONS, Action, key_label
from numtui.session.jobs import Proposal
from numtui.text.lines import Line, first_key, line_width
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
        keys = list(mode)
        if not keys and following:
            keys = [*following, ("esc", "nothing")]
        elif not keys and proposal is not None:
            keys = [("enter", "apply"), (proposal.key, "apply"), ("esc", "cancel")]
            if len(proposal.edits) > 1:
                keys.insert(2, ("tab", f"alternative ({proposal.chosen + 1}/{len(proposal.edits)})"))
        items = [_item(label, does, first_key(label)) for label, does in keys] or [
            _item(key_label(a.keys[0]), a.footer, a.keys[0]) for a in actions if a.footer is not None and a.keys
        ]
        *rest, last = items or [[]]
        room = self.size.width - line_width(last)
        line: Line = []
        for item in rest:
            if (room := room - line_width(item)) < 0:
                break
            line += item
        self.paint([line + last])


def _item(label: str, does: str, keys: str) -> Line:
    return [(f" {label}", f"key@{keys}"), (f" {does} ", f"dim@{keys}")]
