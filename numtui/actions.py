"""The registry of all actions of the main screen: keys, help text, group.

The key bindings, the footer, the `?` help, the command palette, the `:` commands and the table of keys in the README
all come from `ACTIONS`; a test proves that they agree. `tui/screens/actions.py` has the callable of
each id. Every binding carries the action's id, so that a keymap can move it to another key.

Keys are Textual's names or the character itself; a space separates the keys of a sequence (`z z`).
"""

from __future__ import annotations

import argparse
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = [
    "ACTIONS",
    "Action",
    "Group",
    "by_group",
    "conflicts",
    "first_keys",
    "key_label",
    "key_name",
    "main",
    "offered",
    "readme_table",
    "remapped",
    "sequences",
    "tour",
    "update_readme",
]


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
    """

    id: str
    keys: tuple[str, ...]
    help: str
    group: str
    footer: str | None = None
    brief: str | None = None
    command: tuple[str, ...] = ()
    shown: str | None = None
    alone: str | None = None

    @property
    def label(self) -> str:
        """Return the keys as the help prints them."""
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
    "save", "html", "copy_row", "causes", "comparability", "first_difference",
    "toggle_close", "toggle_equal", "toggle_only_a", "toggle_only_b", "fold", "columns",
)  # fmt: skip
_AT_ONCE = (
    "inspect", "switch", "larger_inspector", "smaller_inspector", "reset", "note", "copy", "messages", "help",
    "palette", "command", "redraw", "suspend", "quit",
)  # fmt: skip
_ABOUT_RED = ("next_red", "previous_red", "next_cause", "previous_cause", "why")


def _a(
    id: str,  # noqa: A002 - it is the field's name
    keys: str,
    group: str,
    help: str,  # noqa: A002 - as above
    *,
    footer: str | None = None,
    brief: str | None = None,
    command: str = "",
    shown: str | None = None,
    alone: str | None = None,
) -> Action:
    """Build an action; two spaces separate its `keys`, because one separates the keys of a sequence."""
    split = tuple(keys.split("  ")) if keys else ()
    commands = tuple(command.split())
    return Action(
        id=id,
        keys=split,
        help=help,
        group=group,
        footer=footer,
        brief=brief,
        command=commands,
        shown=shown,
        alone=alone,
    )


ACTIONS: tuple[Action, ...] = (
    _a("down", "j  down", Group.MOVE, "move down a line; `5j` five lines"),
    _a("up", "k  up", Group.MOVE, "move up a line"),
    _a("half_page_down", "ctrl+d", Group.MOVE, "move down half a screen"),
    _a("half_page_up", "ctrl+u", Group.MOVE, "move up half a screen"),
    _a("page_down", "pagedown  space  ctrl+f", Group.MOVE, "move down a screen"),
    _a("page_up", "pageup  b", Group.MOVE, "move up a screen"),
    _a("top", "g  home", Group.MOVE, "go to the first line; `123g` to row 123", shown="g gg home"),
    _a("bottom", "G  end", Group.MOVE, "go to the last line; `123G` to row 123", shown="G end 123G"),
    _a("names_left", "h  left", Group.MOVE, "scroll the cut names of both sides towards their start"),
    _a("names_right", "l  right", Group.MOVE, "scroll the cut names back to their end, which says most"),
    _a("center", "z z", Group.MOVE, "centre the cursor's line", brief="line to the middle"),
    _a("line_to_top", "z t", Group.MOVE, "scroll the cursor's line to the top", brief="line to the top"),
    _a("line_to_bottom", "z b", Group.MOVE, "scroll the cursor's line to the bottom", brief="line to the bottom"),
    _a(
        "next_red",
        "n  ] c",
        Group.FIND,
        "go to the next red row; also a first cause that only one run has",
        footer="next red",
    ),
    _a("previous_red", "N  [ c", Group.FIND, "go to the previous red row", brief="previous red"),
    _a(
        "next_cause",
        "o",
        Group.FIND,
        "go to the next first cause, where the runs begin to differ",
        footer="first cause",
    ),
    _a("previous_cause", "O", Group.FIND, "go to the previous first cause"),
    _a(
        "first_difference",
        "d",
        Group.FIND,
        "go to the first difference, however small; `n` and `o` stop there too",
        command="first",
    ),
    _a(
        "plot",
        "v",
        Group.FIND,
        "plot the error over depth, first operation to last; `enter` goes to a row",
        alone="plot",
    ),
    _a("causes", "C", Group.FIND, "list the first causes and their consequences: row count, place, error"),
    _a("larger_error", "e", Group.FIND, "go to the next larger error; from a row without one, to the largest"),
    _a("smaller_error", "E", Group.FIND, "go to the next smaller error"),
    _a("search", "/", Group.FIND, "search the keys of both sides as you type; empty repeats the last search"),
    _a("next_hit", ";", Group.FIND, "go to the next search hit (`n` steps through red rows)"),
    _a("previous_hit", ",", Group.FIND, "go to the previous search hit"),
    _a(
        "inspect",
        "enter",
        Group.FLOW,
        "enter the inspector, or unfold a folded line; `esc` returns",
        footer="look",
    ),
    _a(
        "switch",
        "tab",
        Group.FLOW,
        "switch list ⇄ inspector; right after `ctrl+o`, jump forward (terminals send ctrl+i as tab)",
    ),
    _a(
        "producer",
        "p",
        Group.FLOW,
        "go to the producer of the input that explains the row; `2p` of the second",
        footer="producer",
    ),
    _a("consumer", "c", Group.FLOW, "go to the first consumer of the output; `2c` the second"),
    _a("why", "w", Group.FLOW, "trace a red row back to its first cause", footer="why red"),
    _a("neighbours", "P", Group.FLOW, "choose among the producers and consumers of the row in both runs"),
    _a("back", "ctrl+o  ' '", Group.FLOW, "go back to where the last jump started", brief="back", command="jump-back"),
    _a("forward", "ctrl+i", Group.FLOW, "jump forward again"),
    _a("places", "J", Group.FLOW, "choose among marks, notes and past jumps", command="marks jumps"),
    _a("mark_letter", "M letter", Group.FLOW, "mark the row with a letter", brief="mark the row", shown="Ma"),
    _a("go_mark", "' letter", Group.FLOW, "go to the row marked with the letter", brief="go to its row", shown="'a"),
    _a("note", '"', Group.FLOW, "write a note on the row; an empty note deletes it"),
    _a("keep", "&", Group.LIST, "keep only rows whose key contains a text; empty lists all"),
    _a(
        "filter",
        "f",
        Group.LIST,
        "filter by a query: status:red phase:bwd op:mm module:layers.3 conf<.8 error>1e-3 cause:1 …",
        footer="filter",
    ),
    _a("filters", "F", Group.LIST, "choose a saved filter; with none, save the current one (`@name` in a filter)"),
    _a("group", "B", Group.LIST, "group the listed rows by module, source line or operation, with red counts"),
    _a("sort", "S", Group.LIST, "sort by dispatch order, error or confidence", alone="sort"),
    _a("toggle_red", "1", Group.LIST, "show or hide red rows"),
    _a("toggle_close", "2", Group.LIST, "show or hide close rows"),
    _a("toggle_equal", "3", Group.LIST, "show or hide equal rows"),
    _a("toggle_only_a", "4", Group.LIST, "show or hide rows only in a"),
    _a("toggle_only_b", "5", Group.LIST, "show or hide rows only in b"),
    _a(
        "toggle_other",
        "6",
        Group.LIST,
        "show or hide other rows: recompute, sharded, unfinished, partial sums, no values, not judged, ignored",
    ),
    _a("larger_inspector", "+", Group.LIST, "enlarge the inspector: more of each row"),
    _a("smaller_inspector", "-", Group.LIST, "shrink the inspector, then hide it: more rows"),
    _a(
        "columns", "|", Group.LIST, 'show the names in two columns (`"`: as in a), or in one: `a ⇄ b` where they differ'
    ),
    _a("fold", "=", Group.LIST, "fold each stretch of equal rows into one line"),
    _a("reset", "escape", Group.LIST, "cancel in turn: preview, mark, search, filters"),
    _a(
        "suggestions",
        "s",
        Group.RULES,
        "review suggested rules for each kind of drift, with their effect: accept, reject",
        footer="suggest",
    ),
    _a("mark", "m", Group.RULES, "mark a row; `m` on another pairs a of the first with b of the second", footer="mark"),
    _a("unpair", "x", Group.RULES, "cut the pair"),
    _a("generalise", "t", Group.RULES, "generalise this pair to all layers: a template instead of pair rules"),
    _a("realign", "a", Group.RULES, "realign a run of mispaired red rows by their values; drop the rule at fault"),
    _a("ignore", "i", Group.RULES, "ignore the row (`tab` every such op), or stop ignoring it"),
    _a(
        "drift",
        "D",
        Group.RULES,
        "compare the two names of the row; find a recompute's original, a collective's wait",
    ),
    _a("undo", "u", Group.RULES, "undo the last rule change"),
    _a("redo", "ctrl+r", Group.RULES, "redo the last undone rule change"),
    _a(
        "rules",
        "r",
        Group.RULES,
        "list the rules and their matches: edit, disable, move, drop, undo",
        footer="rules",
    ),
    _a("toggle_rules", "T", Group.RULES, "turn the rules off, and on again; their file stays as it is"),
    _a("save", "ctrl+s", Group.PROGRAM, "save the rules (`:w`, or `:w FILE`)", footer="save", command="w write"),
    _a(
        "edit",
        "V",
        Group.PROGRAM,
        "open the source line in `$VISUAL` or `$EDITOR`, if below this folder; `2V` that of b",
    ),
    _a("copy", "y", Group.PROGRAM, "copy the row's key; again copies that of b, then the source line"),
    _a("copy_row", "Y", Group.PROGRAM, "copy the row as Markdown for an issue"),
    _a("html", "H", Group.PROGRAM, "write this view as an HTML page: same rules, filters and row (`:html FILE`)"),
    _a(
        "comparability",
        "!",
        Group.PROGRAM,
        "list the differences between the runs: seeds, batch, weights, dtypes, …",
    ),
    _a(
        "reload",
        "R",
        Group.PROGRAM,
        "reload the logs, keeping your place; again cancels",
    ),
    _a("follow", "", Group.PROGRAM, "reload the logs whenever they change", shown=":follow"),
    _a("raw", "L", Group.PROGRAM, "show the row's raw log records, with file and line"),
    _a("info", "I", Group.PROGRAM, "show the log headers: excluded ops, run info, problems"),
    _a("messages", "@", Group.PROGRAM, "list earlier messages, with the time"),
    _a("help", "?  f1", Group.PROGRAM, "show this help", footer="help", command="h"),
    _a("palette", "ctrl+p", Group.PROGRAM, "search all actions"),
    _a("command", ":", Group.PROGRAM, "type an action's name, `:w`, `:q`, `:wq`, `:q!`, or `:123` for row 123"),
    _a("redraw", "ctrl+l", Group.PROGRAM, "redraw the screen"),
    _a("suspend", "ctrl+z", Group.PROGRAM, "suspend to the shell; `fg` returns"),
    _a("quit", "q  ctrl+q  ctrl+c", Group.PROGRAM, "quit; asks if rules are unsaved", command="q"),
)

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


def remapped(keys: Mapping[str, tuple[str, ...]]) -> tuple[Action, ...]:
    """Return the registry with other keys for some actions, by their ids."""
    return tuple(replace(a, keys=keys[a.id], shown=None) if a.id in keys else a for a in ACTIONS)


_FIRST = (
    "next_cause", "next_red", "why", "inspect", "producer", "back", "search", "filter", "suggestions", "quit",
)  # fmt: skip


def first_keys(actions: Sequence[Action] = ACTIONS) -> tuple[Action, ...]:
    """Return the ten actions that do most of the work, in the order in which one needs them."""
    of = {action.id: action for action in actions if action.keys}
    return tuple(of[name] for name in _FIRST if name in of)


_TOUR = {"next_cause": "first cause", "why": "why", "suggestions": "suggestions", "help": "help"}


def tour(actions: Sequence[Action], *, red: bool) -> str:
    """Return the keys to begin with, in one line; `red`: a row is red."""
    of = {action.id: action for action in actions if action.keys and (red or action.id not in _ABOUT_RED)}
    return " · ".join(f"{key_label(of[name].keys[0])} {label}" for name, label in _TOUR.items() if name in of)


def offered(actions: Sequence[Action], *, single: bool, red: bool) -> tuple[Action, ...]:
    """Return the actions that do something with these logs.

    Args:
        single: only one log is open.
        red: a row is red.
    """
    if not single:
        return tuple(actions)
    usable = (a for a in actions if not a.about_two and (red or a.id not in _ABOUT_RED))
    return tuple(replace(a, footer=a.footer or a.alone) for a in usable)


def conflicts(actions: Sequence[Action]) -> Iterator[tuple[Action, Action, str]]:
    """Yield two actions and the key that both have, or that begins a sequence of the second."""
    of: dict[str, Action] = {}
    first: dict[str, Action] = {}
    for action in actions:
        for key in action.keys:
            if key in of:
                yield of[key], action, key
            of[key] = action
            if " " in key:
                first.setdefault(key.split(" ")[0], action)
    for key, action in first.items():
        if key in of:
            yield of[key], action, key


def by_group(actions: Sequence[Action] = ACTIONS) -> Iterator[tuple[str, tuple[Action, ...]]]:
    """Yield the actions by heading."""
    for heading in dict.fromkeys(a.group for a in actions):
        yield heading, tuple(a for a in actions if a.group == heading)


def sequences(actions: Sequence[Action] = ACTIONS) -> dict[tuple[str, ...], Action]:
    """Return the actions with more than one key, by the Textual names of the keys."""
    found = {}
    for action in actions:
        for key in action.keys:
            parts = tuple(map(key_name, key.split(" ")))
            if len(parts) > 1:
                found[parts] = action
    return found


def readme_table() -> str:
    """Return the table of keys in Markdown."""
    lines = ["| key | does |", "| --- | --- |"]
    for heading, actions in by_group():
        lines.append(f"| **{heading}** | |")
        for action in actions:
            # A bar would end the cell, in a code span too.
            keys = " ".join(f"`{label}`".replace("|", "\\|") for label in action.label.split(" "))
            lines.append(f"| {keys} | {action.help} |")
    return "\n".join(lines)


_START, _END = "<!-- keys -->", "<!-- /keys -->"


def update_readme(text: str) -> str:
    """Return the README with the table between its two markers replaced.

    Raises:
        ValueError: the markers are missing.
    """
    before, start, rest = text.partition(_START)
    _, end, after = rest.partition(_END)
    if not start or not end:
        raise ValueError(f"the markers {_START} and {_END} are missing")
    return f"{before}{_START}\n{readme_table()}\n{_END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Print the table of keys, or put it into a file with `--readme FILE`."""
    parser = argparse.ArgumentParser(prog="python -m numtui.actions", description=main.__doc__)
    parser.add_argument("--readme", type=Path, metavar="FILE")
    chosen = parser.parse_args(arguments)
    if chosen.readme is None:
        sys.stdout.write(readme_table() + "\n")
        return 0
    chosen.readme.write_text(update_readme(chosen.readme.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
