"""An action of the main screen: its names, keys and words, and its line of the help; `actions.py` lists them all.

Keys are Textual's names or the character itself; a space separates the keys of a sequence (`z z`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any

__all__ = ["Action", "Group", "HelpLine", "action_of", "by_group", "grouped", "help_of", "key_label", "key_name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action of the main screen.

    Attributes:
        id: name of the binding, and of its callable in the table of the screen.
        keys: any of them runs it; empty where only the palette and `:` offer it.
        help: an imperative sentence without its full stop.
        group: heading in the help.
        footer: label in the footer, None to leave it out.
        brief: label among the keys that can follow a prefix, where `footer` is None.
        command: short names for the `:` line, besides the id.
        shown: text of the help in place of the keys' names.
        alone: label in the footer when only one log is open, where `footer` is None.
        line: help of the line that it leads, which has the keys of the actions `beside` it too, in their order.
        beside: id of the action that leads its line of the help.
        former: the key that it had; only the HTML page, which has no palette, still takes it.
    """

    id: str
    keys: tuple[str, ...]
    help: str
    group: str = ""
    footer: str | None = None
    brief: str | None = None
    command: tuple[str, ...] = ()
    shown: str | None = None
    alone: str | None = None
    line: str | None = None
    beside: str | None = None
    former: str = ""

    @property
    def label(self) -> str:
        """Return the keys as the help prints them; the `:` command where it has none."""
        if not self.keys:
            return f":{self.name}"
        return self.shown if self.shown is not None else " ".join(key_label(k) for k in self.keys)

    @property
    def in_short(self) -> str:
        """Return the shortest description there is."""
        return self.brief or self.footer or self.help.split(";")[0].split(":")[0]

    @property
    def essence(self) -> str:
        """Return the help without its details."""
        return self.help.split(";")[0].split(": ")[0]

    @property
    def about_two(self) -> bool:
        """True when the action needs two logs."""
        return self.group == Group.RULES or self.id in _ABOUT_TWO

    @property
    def changes_rules(self) -> bool:
        """True when the action changes or lists the rules, and so needs them in force."""
        return self.group == Group.RULES and self.id not in ("drift", "toggle_rules")

    @property
    def needs_verdicts(self) -> bool:
        """True when the action says nothing true before the logs are compared."""
        return self.group != Group.MOVE and self.id not in _AT_ONCE

    @property
    def opens(self) -> bool:
        """True when the action opens a page, or says why it cannot."""
        return self.id in _OPENS

    @property
    def name(self) -> str:
        """Return the id as it is typed after `:`."""
        return self.id.replace("_", "-")


class Group:
    """Headings of the help, in order."""

    MOVE = "Move"
    FIND = "Find the divergence"
    FLOW = "Follow the data"
    LIST = "Filter and sort"
    RULES = "Change the pairing"
    PROGRAM = "Save, inspect, quit"


_ABOUT_TWO = (
    "save", "html", "copy_row", "causes", "commits", "comparability", "assume", "first_difference",
    "toggle_close", "toggle_equal", "toggle_only_a", "toggle_only_b", "fold", "columns",
)  # fmt: skip
_OPENS = (
    "causes", "comparability", "commits", "drift", "elements", "filters", "group", "info", "messages", "neighbours",
    "places", "plot", "raw", "rules", "suggestions", "why",
)  # fmt: skip
_AT_ONCE = (
    "inspect", "switch", "larger_inspector", "smaller_inspector", "reset", "note", "copy", "messages", "help",
    "palette", "command", "redraw", "suspend", "quit",
)  # fmt: skip


def action_of(id: str, keys: str, help: str, **words: Any) -> Action:  # noqa: A002 - they are the fields' names
    """Build an action; two spaces separate its `keys`, because one separates the keys of a sequence.

    Args:
        words: its other fields.
    """
    return Action(id=id, keys=tuple(keys.split("  ")) if keys else (), help=help, **words)


def grouped(group: str, *actions: Action) -> tuple[Action, ...]:
    """Return the actions under a heading."""
    return tuple(replace(action, group=group) for action in actions)


_LABELS = {
    "down": "↓",
    "up": "↑",
    "left": "←",
    "right": "→",
    "pagedown": "pgdn",
    "pageup": "pgup",
    "escape": "esc",
    "f1": "F1",
}

_RENAMED = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
"""Signs that Textual names otherwise than Unicode."""


def key_name(key: str) -> str:
    """Return Textual's name of a key: `right_square_bracket` for `]`."""
    if len(key) != 1 or key.isalnum():
        return key
    name = unicodedata.name(key, key).lower().replace("-", "_").replace(" ", "_")
    return _RENAMED.get(name, name)


def key_label(key: str) -> str:
    """Return a key as it is usually written: `↓` for `down`, `zz` for `z z`."""
    return "".join(_LABELS.get(part, part) for part in key.split(" "))


def by_group(actions: Sequence[Action]) -> Iterator[tuple[str, tuple[Action, ...]]]:
    """Yield the actions by heading."""
    for heading in dict.fromkeys(a.group for a in actions):
        yield heading, tuple(a for a in actions if a.group == heading)


@dataclass(frozen=True, slots=True)
class HelpLine:
    """A line of the help: its keys, its text, and the actions that it is about."""

    label: str
    help: str
    actions: tuple[Action, ...]


def help_of(actions: Sequence[Action]) -> Iterator[tuple[str, tuple[HelpLine, ...]]]:
    """Yield the lines of the help by heading; actions without a key come last, by their commands."""
    with_keys = [a for a in actions if a.keys]
    for heading, group in by_group(with_keys):
        yield heading, tuple(_lines(group, actions))
    if without := tuple(HelpLine(a.label, a.help, (a,)) for a in actions if not a.keys):
        yield "Without a key", without


def _lines(group: Sequence[Action], actions: Sequence[Action]) -> Iterator[HelpLine]:
    """Put the keys of related actions on one line, where all of them have one."""
    joined: dict[str, tuple[Action, ...]] = {}
    for lead in (a for a in group if a.line):
        row = (lead, *(a for a in actions if a.beside == lead.id))
        if len(row) > 1 and all(a.keys for a in row):
            joined |= {a.id: row for a in row}
    for action in group:
        row = joined.get(action.id, (action,))
        if len(row) == 1:
            yield HelpLine(action.label, action.help, row)
        elif action is row[0]:
            labels = chain.from_iterable(zip_longest(*(a.label.split(" ") for a in row)))
            yield HelpLine(" ".join(filter(None, labels)), action.line or action.help, row)
