"""The one registry of what a person can do on the main screen.

The key bindings, the footer, the `?` help, the command palette, the `:` commands and the table of keys in the README
all come from `ACTIONS`; a test proves that they agree. The callable that does it is in the table by id of
tui/screens/actions.py. Every binding carries the action's id, so that a keymap can move it to another key.

Keys are written as Textual names them, or as the character itself; a space separates the keys of a sequence (`z z`).
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
    "key_label",
    "key_name",
    "main",
    "readme_table",
    "remapped",
    "sequences",
    "update_readme",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to do.

    Attributes:
        id: name of the binding, and of what does it in the table of the screen's actions.
        keys: any of them does it; empty for what only the palette and `:` offer.
        help: what it does, a sentence without its full stop.
        group: heading in the help.
        footer: its label in the footer, None to leave it out.
        brief: its label among the keys that can follow a prefix, where the footer has none.
        command: short names for the `:` line, besides the id.
        shown: what the help prints in place of the keys' own names.
    """

    id: str
    keys: tuple[str, ...]
    help: str
    group: str
    footer: str | None = None
    brief: str | None = None
    command: tuple[str, ...] = ()
    shown: str | None = None

    @property
    def label(self) -> str:
        """The keys as the help prints them."""
        return self.shown if self.shown is not None else " ".join(key_label(k) for k in self.keys)

    @property
    def in_short(self) -> str:
        """What it does in as few words as there are."""
        return self.brief or self.footer or self.help.split(";")[0].split(":")[0]

    @property
    def about_two(self) -> bool:
        """Whether it makes no sense for one log by itself."""
        return self.group == Group.RULES or self.id in _ABOUT_TWO

    @property
    def about_rules(self) -> bool:
        """Whether it needs the rules of the file."""
        return self.group == Group.RULES or self.id == "save"

    @property
    def name(self) -> str:
        """The id as a person types it after `:`."""
        return self.id.replace("_", "-")


class Group:
    """Headings of the help, in its order."""

    MOVE = "Move"
    FIND = "Find what is wrong"
    FLOW = "Follow the data"
    LIST = "Choose what is listed"
    RULES = "Change the pairing"
    PROGRAM = "Save, ask, leave"


_ABOUT_TWO = ("save", "html", "copy_row", "causes", "comparability")


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
) -> Action:
    """An action; `keys` are separated by two spaces, because one space separates the keys of a sequence."""
    split = tuple(keys.split("  ")) if keys else ()
    commands = tuple(command.split())
    return Action(id=id, keys=split, help=help, group=group, footer=footer, brief=brief, command=commands, shown=shown)


ACTIONS: tuple[Action, ...] = (
    _a("down", "j  down", Group.MOVE, "a line down; `5j` five lines"),
    _a("up", "k  up", Group.MOVE, "a line up"),
    _a("half_page_down", "ctrl+d", Group.MOVE, "half a screen down"),
    _a("half_page_up", "ctrl+u", Group.MOVE, "half a screen up"),
    _a("page_down", "pagedown  space  ctrl+f", Group.MOVE, "a screen down"),
    _a("page_up", "pageup  b", Group.MOVE, "a screen up"),
    _a("top", "g  home", Group.MOVE, "to the first line; `123g` to row 123", shown="g gg home"),
    _a("bottom", "G  end", Group.MOVE, "to the last line; `123G` to row 123", shown="G end 123G"),
    _a("center", "z z", Group.MOVE, "put the cursor's line in the middle", brief="line to the middle"),
    _a("line_to_top", "z t", Group.MOVE, "put the cursor's line at the top", brief="line to the top"),
    _a("line_to_bottom", "z b", Group.MOVE, "put the cursor's line at the bottom", brief="line to the bottom"),
    _a("next_red", "n  ] c", Group.FIND, "next red row", footer="next red"),
    _a("previous_red", "N  [ c", Group.FIND, "previous red row"),
    _a("next_cause", "o", Group.FIND, "next first cause: where the runs begin to differ", footer="first cause"),
    _a("previous_cause", "O", Group.FIND, "previous first cause"),
    _a("plot", "v", Group.FIND, "the error over depth, from the first operation to the last; `enter` goes to a row"),
    _a("causes", "C", Group.FIND, "the first causes and what follows from each: how many rows, where, how large"),
    _a("larger_error", "e", Group.FIND, "the next larger error; from a row without one, the largest"),
    _a("smaller_error", "E", Group.FIND, "the next smaller error"),
    _a("search", "/", Group.FIND, "search in the keys of both sides as you type; empty: the last search again"),
    _a("next_hit", ";", Group.FIND, "next hit of the search (`n` stays with the red rows)"),
    _a("previous_hit", ",", Group.FIND, "previous hit of the search"),
    _a(
        "inspect",
        "enter",
        Group.FLOW,
        "into the inspector; on a folded line, unfold it; `esc` comes back",
        footer="look",
    ),
    _a(
        "switch",
        "tab",
        Group.FLOW,
        "list ⇄ inspector; right after `ctrl+o`, forward again (terminals send ctrl+i as tab)",
    ),
    _a(
        "producer",
        "p",
        Group.FLOW,
        "to what produced an input: the one that explains the row, `2p` the second",
        footer="producer",
    ),
    _a("consumer", "c", Group.FLOW, "to the first operation that consumes the output, `2c` the second"),
    _a("why", "w", Group.FLOW, "why is this red? The way back to its first cause", footer="why red"),
    _a("neighbours", "P", Group.FLOW, "all that the row reads and all that reads it, in both runs, to choose from"),
    _a("back", "ctrl+o  ' '", Group.FLOW, "back to where the last jump started", brief="back", command="jump-back"),
    _a("forward", "ctrl+i", Group.FLOW, "forward again"),
    _a("places", "J", Group.FLOW, "marked rows, notes and where jumps started, to choose from", command="marks jumps"),
    _a("mark_letter", "M letter", Group.FLOW, "mark the row with a letter", brief="marks the row", shown="Ma"),
    _a("go_mark", "' letter", Group.FLOW, "to the row that is marked with the letter", brief="to its row", shown="'a"),
    _a("note", '"', Group.FLOW, "write a note on the row; an empty one takes it away"),
    _a("keep", "&", Group.LIST, "list only rows whose key contains a text; empty: all again"),
    _a(
        "filter",
        "f",
        Group.LIST,
        "filter query: status:red phase:bwd op:mm module:layers.3 conf<.8 error>1e-3 cause:1 …",
        footer="filter",
    ),
    _a("filters", "F", Group.LIST, "saved filters; with none, save the one on the screen (`@name` in a filter)"),
    _a("group", "B", Group.LIST, "the listed rows by module, source line or operation: how many, how many red"),
    _a("sort", "S", Group.LIST, "sort by order of dispatch, by error, by confidence"),
    _a("toggle_red", "1", Group.LIST, "show or hide red rows"),
    _a("toggle_close", "2", Group.LIST, "show or hide close rows"),
    _a("toggle_equal", "3", Group.LIST, "show or hide equal rows"),
    _a("toggle_only_a", "4", Group.LIST, "show or hide rows that only a has"),
    _a("toggle_only_b", "5", Group.LIST, "show or hide rows that only b has"),
    _a("toggle_other", "6", Group.LIST, "show or hide the rest: recompute, sharded, unfinished, partial sums, ignored"),
    _a("larger_inspector", "+", Group.LIST, "a larger inspector: more of each row while one steps through the list"),
    _a("smaller_inspector", "-", Group.LIST, "a smaller one; then none, for more rows"),
    _a("fold", "=", Group.LIST, "fold stretches of equal rows into one line each"),
    _a("reset", "escape", Group.LIST, "drop what is pending: a preview, the mark, the search, then the filters"),
    _a(
        "suggestions",
        "s",
        Group.RULES,
        "what kinds of drift there are, the rules that settle them, and what these would do: accept, reject",
        footer="suggest",
    ),
    _a("mark", "m", Group.RULES, "mark a row; `m` on another: pair a of the one with b of the other", footer="mark"),
    _a("unpair", "x", Group.RULES, "cut the pair"),
    _a("generalise", "t", Group.RULES, "say for all layers what is so for this pair: a template instead of pair rules"),
    _a("realign", "a", Group.RULES, "pair a run of red rows as their numbers say, and take back the rule at fault"),
    _a("ignore", "i", Group.RULES, "ignore the row (`tab`: every such op); on an ignored row, stop ignoring it"),
    _a(
        "drift",
        "D",
        Group.RULES,
        "how the two names of the row differ, what a recomputed copy repeats, which wait carries a value",
    ),
    _a("undo", "u", Group.RULES, "undo the last change of the rules"),
    _a("redo", "ctrl+r", Group.RULES, "redo it"),
    _a(
        "rules",
        "r",
        Group.RULES,
        "the rules and what each of them matches: edit, disable, move, drop, undo",
        footer="rules",
    ),
    _a("save", "ctrl+s", Group.PROGRAM, "save the rules (`:w`, `:w FILE` elsewhere)", footer="save", command="w write"),
    _a(
        "edit",
        "V",
        Group.PROGRAM,
        "the source line in `$VISUAL` or `$EDITOR`, if below this folder; `2V` that of b",
    ),
    _a("copy", "y", Group.PROGRAM, "copy the key under the cursor; again: that of b, then the source line"),
    _a("copy_row", "Y", Group.PROGRAM, "copy the row as Markdown, to paste into an issue"),
    _a("html", "H", Group.PROGRAM, "write an HTML page of all this: same rules, filters and row (`:html FILE`)"),
    _a(
        "comparability",
        "!",
        Group.PROGRAM,
        "what the two runs do not have in common: seeds, batch, weights, dtypes, …",
    ),
    _a(
        "reload",
        "R",
        Group.PROGRAM,
        "read the logs again, and keep the place (they may have grown); once more gives that up",
    ),
    _a("follow", "", Group.PROGRAM, "read the logs again by itself whenever they change", shown=":follow"),
    _a("raw", "L", Group.PROGRAM, "what the logs say of this row, as it stands there, with file and line"),
    _a("info", "I", Group.PROGRAM, "what the logs say about themselves: excluded ops, run info, problems"),
    _a("messages", "@", Group.PROGRAM, "what was said before on the line above the keys, with the time"),
    _a("help", "?  f1", Group.PROGRAM, "this help", footer="help", command="h"),
    _a("palette", "ctrl+p", Group.PROGRAM, "every action, to search in"),
    _a("command", ":", Group.PROGRAM, "type an action's name, `:w`, `:q`, `:wq`, `:q!`, or `:123` for row 123"),
    _a("redraw", "ctrl+l", Group.PROGRAM, "draw the screen anew"),
    _a("suspend", "ctrl+z", Group.PROGRAM, "to the shell; `fg` comes back"),
    _a("quit", "q  ctrl+q  ctrl+c", Group.PROGRAM, "quit; asks when there is something to save", command="q"),
)

_LABELS = {
    "down": "↓",
    "up": "↑",
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
"""Where Textual's name of a sign is not Unicode's."""


def key_name(key: str) -> str:
    """Textual's name of a key: `right_square_bracket` for `]`."""
    if len(key) != 1 or key.isalnum():
        return key
    name = unicodedata.name(key, key).lower().replace("-", "_").replace(" ", "_")
    return _RENAMED.get(name, name)


def key_label(key: str) -> str:
    """A key as people write it: `↓` for `down`, `zz` for `z z`."""
    return "".join(_LABELS.get(part, part) for part in key.split(" "))


def remapped(keys: Mapping[str, tuple[str, ...]]) -> tuple[Action, ...]:
    """The registry with other keys for some actions, by their ids."""
    return tuple(replace(a, keys=keys[a.id], shown=None) if a.id in keys else a for a in ACTIONS)


def conflicts(actions: Sequence[Action]) -> Iterator[tuple[Action, Action, str]]:
    """Two actions and the key that both have, or with which a sequence of the second begins."""
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
    """The actions under their headings."""
    for heading in dict.fromkeys(a.group for a in actions):
        yield heading, tuple(a for a in actions if a.group == heading)


def sequences(actions: Sequence[Action] = ACTIONS) -> dict[tuple[str, ...], Action]:
    """The actions that take more than one key, by the Textual names of the keys."""
    found = {}
    for action in actions:
        for key in action.keys:
            parts = tuple(map(key_name, key.split(" ")))
            if len(parts) > 1:
                found[parts] = action
    return found


def readme_table() -> str:
    """The table of keys, in Markdown."""
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
    """The README with the table between its two markers replaced.

    Raises:
        ValueError: the markers are missing.
    """
    before, start, rest = text.partition(_START)
    _, end, after = rest.partition(_END)
    if not start or not end:
        raise ValueError(f"the markers {_START} and {_END} are missing")
    return f"{before}{_START}\n{readme_table()}\n{_END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """`python -m numtui.actions` prints the table; with `--readme FILE` it is put into that file."""
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
