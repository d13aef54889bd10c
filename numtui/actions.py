"""The registry of all actions of the main screen: keys, help text, group.

The key bindings, the footer, the `?` help, the command palette, the `:` commands and the table of keys in the README
all come from `ACTIONS`; a test proves that they agree. `tui/screens/actions.py` has the callable of
each id. Every binding carries the action's id, so that a keymap can move it to another key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from numtui.action import Action, Group, by_group, grouped, help_of, key_label, key_name
from numtui.action import action_of as _a

__all__ = [
    "ACTIONS",
    "Action",
    "KEYS_OF_VIM",
    "Group",
    "by_group",
    "conflicts",
    "first_keys",
    "help_of",
    "key_label",
    "key_name",
    "offered",
    "remapped",
    "sequences",
    "without_effect",
]


ACTIONS: tuple[Action, ...] = (
    *grouped(
        Group.MOVE,
        _a("down", "j  down", "move down a line; `5j` five lines", line="move down, up a line; `5j`: five lines"),
        _a("up", "k  up", "move up a line", beside="down"),
        _a("half_page_down", "ctrl+d", "move down half a screen", line="move down, up half a screen"),
        _a("half_page_up", "ctrl+u", "move up half a screen", beside="half_page_down"),
        _a("page_down", "space  pagedown  ctrl+f", "move down a screen", line="move down, up a screen"),
        _a("page_up", "b  pageup", "move up a screen", beside="page_down"),
        _a(
            "top",
            "g  home",
            "go to the first line; `123g` to row 123",
            line="go to the first, last line; `123g`, `123G`: to row 123",
        ),
        _a("bottom", "G  end", "go to the last line; `123G` to row 123", beside="top"),
        _a(
            "names_left",
            "h  left",
            "scroll the cut names towards their start",
            line="scroll the cut names towards their start, back to their end",
        ),
        _a("names_right", "l  right", "scroll the cut names back to their end", beside="names_left"),
        _a(
            "center",
            "z z",
            "centre the cursor's line",
            brief="line to the middle",
            line="scroll the cursor's line to the middle, top, bottom",
        ),
        _a("line_to_top", "z t", "scroll the cursor's line to the top", brief="line to the top", beside="center"),
        _a(
            "line_to_bottom",
            "z b",
            "scroll the cursor's line to the bottom",
            brief="line to the bottom",
            beside="center",
        ),
        _a(
            "next_rank",
            "}  ] r",
            "show this row on the next rank",
            footer="next rank",
            line="show this row on the next, previous rank of two runs; `q` returns to all ranks",
        ),
        _a("previous_rank", "{  [ r", "show this row on the previous rank", beside="next_rank"),
    ),
    *grouped(
        Group.FIND,
        _a(
            "next_red",
            "n  ] c",
            "go to the next red row; also a first cause that only one run has",
            footer="next red",
            line="go to the next, previous red row; also a first cause that only one run has",
        ),
        _a("previous_red", "N  [ c", "go to the previous red row", brief="previous red", beside="next_red"),
        _a(
            "next_cause",
            "o",
            "go to the next first cause, where the runs begin to differ",
            footer="first cause",
            line="go to the next, previous first cause, where the runs begin to differ; list them all",
        ),
        _a("previous_cause", "O", "go to the previous first cause", beside="next_cause"),
        _a("causes", "C", "list the first causes and their consequences: row count, place, error", beside="next_cause"),
        _a(
            "first_difference",
            "d",
            "go to the first difference, however small; `n` and `o` stop there too",
            command=("first",),
        ),
        _a("plot", "v", "plot the error over depth, first operation to last; `enter` goes to a row", alone="plot"),
        _a(
            "larger_error",
            "",
            "go to the next larger error; from a row without one, to the largest (`S` sorts by error)",
            former="e",
        ),
        _a("smaller_error", "", "go to the next smaller error (`S` sorts by error)", former="E"),
        _a("search", "/", "search the keys of both sides as you type; empty repeats the last search"),
        _a(
            "next_hit",
            ";",
            "go to the next search hit (`n` steps through red rows)",
            line="go to the next, previous search hit (`n` steps through red rows)",
        ),
        _a("previous_hit", ",", "go to the previous search hit", beside="next_hit"),
    ),
    *grouped(
        Group.FLOW,
        _a("inspect", "enter", "enter the inspector, or unfold a folded line; `esc` returns", footer="look"),
        _a(
            "switch",
            "tab",
            "switch list ⇄ inspector; right after `ctrl+o`, jump forward (terminals send ctrl+i as tab)",
        ),
        _a(
            "producer",
            "p",
            "go to the producer of the input that explains the row; `2p` of the second",
            footer="producer",
            line="go to the producer, consumer of the row (`2p`, `2c`: the second); list both, in both runs",
        ),
        _a("consumer", "c", "go to the first consumer of the output; `2c` the second", beside="producer"),
        _a("neighbours", "P", "list the producers and consumers of the row in both runs", beside="producer"),
        _a(
            "why",
            "w",
            "explain the row: why it is red, close or not judged, and the way back to its first cause",
            footer="why",
        ),
        _a(
            "assume",
            "W",
            "what if this red row were equal: grey what it explains, go to the next independent cause; "
            "again takes it back",
        ),
        _a(
            "elements",
            "#",
            "show the elements of the row's kept tensors: which differ, by what pattern and how much",
            line="show the elements of the row's kept tensors; replay the kept operation in the background",
        ),
        _a(
            "replay",
            ".",
            "replay the row's kept operation in the background: whose bits come out, who is right",
            brief="replay",
            beside="elements",
        ),
        _a(
            "back",
            "ctrl+o  ' '",
            "go back to where the last jump started",
            brief="back",
            command=("jump-back",),
            line="go back to where the last jump started; forward again",
        ),
        _a("forward", "ctrl+i", "jump forward again", beside="back"),
        _a("places", "J", "list marks, notes and past jumps, and go to one", command=("marks", "jumps")),
        _a(
            "mark_letter",
            "M letter",
            "mark the row with a letter",
            brief="mark the row",
            shown="Ma",
            line="mark the row with a letter; go to the row marked with it",
        ),
        _a(
            "go_mark",
            "' letter",
            "go to the row marked with the letter",
            brief="go to its row",
            shown="'a",
            beside="mark_letter",
        ),
        _a("note", '"', "write a note on the row; an empty note deletes it"),
    ),
    *grouped(
        Group.LIST,
        _a(
            "filter",
            "f",
            "filter by a query: words of the key, "
            "status:red phase:bwd op:mm module:layers.3 conf<.8 error>1e-3 cause:1 …",
            footer="filter",
        ),
        _a("filters", "F", "choose a saved filter; with none, save the current one (`@name` in a filter)"),
        _a("keep", "", "keep only rows whose key contains a text, as plain words in a filter do", former="&"),
        _a("group", "B", "group the listed rows by module, source line or operation, with red counts"),
        _a("sort", "S", "sort by error; again by confidence; again by order of dispatch", alone="sort"),
        _a(
            "toggle_red",
            "1",
            "show or hide red rows",
            line="show or hide rows: red, close, equal, only in a, only in b, others (not judged, recompute, ignored)",
        ),
        _a("toggle_close", "2", "show or hide close rows", beside="toggle_red"),
        _a("toggle_equal", "3", "show or hide equal rows", beside="toggle_red"),
        _a("toggle_only_a", "4", "show or hide rows only in a", beside="toggle_red"),
        _a("toggle_only_b", "5", "show or hide rows only in b", beside="toggle_red"),
        _a("toggle_other", "6", "show or hide other rows: not judged, recompute, ignored", beside="toggle_red"),
        _a(
            "larger_inspector",
            "+",
            "enlarge the inspector: more of each row",
            line="enlarge the inspector; shrink it, then hide it",
        ),
        _a("smaller_inspector", "-", "shrink the inspector, then hide it: more rows", beside="larger_inspector"),
        _a("columns", "|", 'show the names in two columns (`"`: as in a), or in one: `a ⇄ b` where they differ'),
        _a("fold", "=", "fold or unfold each stretch of equal rows, or of another form"),
        _a("reset", "escape", "cancel in turn: preview, mark, search, what if, filters"),
    ),
    *grouped(
        Group.RULES,
        _a(
            "suggestions",
            "s",
            "review suggested rules for each kind of drift, with their effect: accept, reject",
            footer="suggest",
        ),
        _a("mark", "m", "mark a row; `m` on another pairs a of the first with b of the second", footer="mark"),
        _a("unpair", "x", "cut the pair"),
        _a("generalise", "t", "generalise this pair to all layers: a template instead of pair rules"),
        _a("realign", "a", "realign a run of mispaired red rows by their values; drop the rule at fault"),
        _a("ignore", "i", "ignore the row (`tab` every such op), or stop ignoring it"),
        _a("drift", "D", "compare the two names of the row; find a recompute's original, a collective's wait"),
        _a("undo", "u", "undo the last rule change", line="undo, redo the last rule change"),
        _a("redo", "ctrl+r", "redo the last undone rule change", beside="undo"),
        _a("rules", "r", "list the rules and their matches: edit, disable, move, drop, undo", footer="rules"),
        _a("toggle_rules", "T", "turn the rules off, and on again; their file stays as it is"),
    ),
    *grouped(
        Group.PROGRAM,
        _a("save", "ctrl+s", "save the rules (`:w`, or `:w FILE`)", footer="save", command=("w", "write")),
        _a("edit", "V", "open the source line in `$VISUAL` or `$EDITOR`, if below this folder; `2V` that of b"),
        _a("code", "K", "show the code around the source line, of both runs where it differs; files as for `V`"),
        _a(
            "copy",
            "y",
            "copy the row's key; again copies that of b, then the source line",
            line="copy the row's key (again: that of b, then the source line); the row as Markdown for an issue",
        ),
        _a("copy_row", "Y", "copy the row as Markdown for an issue", beside="copy"),
        _a("html", "H", "write this view as an HTML page: same rules, filters and row (`:html FILE`)"),
        _a("info", "I", "show what is known, in pages: comparability, log headers, the row's records, messages"),
        _a("comparability", "", "list the differences between the runs, a page of `I`", former="!"),
        _a("raw", "", "show the row's raw log records, a page of `I`", former="L"),
        _a(
            "commits",
            "",
            "list the commits between the two runs that touch the row's line, function or data path, a page of `I`",
        ),
        _a("messages", "", "list earlier messages, a page of `I`", former="@"),
        _a("reload", "R", "reload the logs, keeping your place; again cancels"),
        _a("follow", "", "reload the logs whenever they change"),
        _a("help", "?  f1", "show this help", footer="help", command=("h",)),
        _a("palette", "ctrl+p", "search all actions"),
        _a("command", ":", "type an action's name, `:w`, `:q`, `:wq`, `:q!`, or `:123` for row 123"),
        _a("redraw", "ctrl+l", "redraw the screen"),
        _a("suspend", "ctrl+z", "suspend to the shell; `fg` returns"),
        _a("quit", "q  ctrl+q  ctrl+c", "quit; asks if rules are unsaved", command=("q",)),
    ),
)


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


_ABOUT_RED = ("next_red", "previous_red", "next_cause", "previous_cause")
_HELP_OF_ONE_LOG = {
    "next_red": "go to the next NaN or Inf, or recomputed copy that differs",
    "next_cause": "go to the next operation where NaN or Inf begins, or copy that differs",
    "plot": "plot the largest values over depth, first operation to last; `enter` goes to a row",
    "larger_error": "go to the next larger value (`S` sorts by it)",
    "smaller_error": "go to the next smaller value (`S` sorts by it)",
    "search": "search the keys as you type; empty repeats the last search",
    "producer": "go to the producer of the first input; `2p` of the second",
    "neighbours": "list the producers and consumers of the row",
    "filter": "filter by a query: words of the key, is:red is:cast phase:bwd op:mm module:layers.3 largest>1e4 …",
    "sort": "sort by the largest value; again by order of dispatch",
    "toggle_red": "show or hide rows with NaN or Inf",
    "toggle_other": "show or hide rows without NaN or Inf",
    "reset": "cancel in turn: search, filters",
    "code": "show the code around the source line; files as for `V`",
    "edit": "open the source line in `$VISUAL` or `$EDITOR`, if below this folder",
    "copy": "copy the row's key; again copies the source line",
    "info": "show what is known, in pages: log header, the row's records, messages",
}
_LINE_OF_ONE_LOG = {
    "next_red": "go to the next, previous NaN or Inf, or recomputed copy that differs",
    "next_cause": "go to the next, previous operation where NaN or Inf begins, or copy that differs",
    "producer": "go to the producer, consumer of the row (`2p`, `2c`: the second); list both",
    "toggle_red": "show or hide rows: with NaN or Inf, all others",
}
"""Words of the help where they are others with one log."""

_ABOUT_RANKS = ("next_rank", "previous_rank")
_QUIT_TO_RANKS = "return to all ranks; asks if rules are unsaved"


def offered(actions: Sequence[Action], *, single: bool, red: bool, ranks: bool = False) -> tuple[Action, ...]:
    """Return the actions that do something with these logs.

    Args:
        single: only one log is open.
        red: a row is red.
        ranks: there are other ranks, and quitting returns to all of them.
    """
    if ranks:
        actions = tuple(replace(a, footer="all ranks", help=_QUIT_TO_RANKS) if a.id == "quit" else a for a in actions)
    else:
        actions = tuple(a for a in actions if a.id not in _ABOUT_RANKS)
    if not single:
        return tuple(actions)
    usable = (a for a in actions if not a.about_two and (red or a.id not in _ABOUT_RED))
    return tuple(
        replace(
            a,
            footer=a.footer or a.alone,
            help=_HELP_OF_ONE_LOG.get(a.id, a.help),
            line=_LINE_OF_ONE_LOG.get(a.id, a.line),
        )
        for a in usable
    )


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


KEYS_OF_VIM = {
    **dict.fromkeys(("za", "zc", "zi", "zm", "zM", "zo", "zr", "zR"), "fold"),
    "ctrl+w": "switch",
    "*": "search",
}
"""Unbound keys that do in vim what an action does here, with its id."""


def without_effect(actions: Sequence[Action], typed: str) -> str:
    """Return the message on keys that are bound to nothing, with the action that was probably meant."""
    meant = next((a for a in actions if a.id == KEYS_OF_VIM.get(typed) or (a.former == typed and not a.keys)), None)
    if meant is None:
        return f"{typed} does nothing here: ? lists the keys"
    way = key_label(meant.keys[0]) if meant.keys else f"`:{meant.name}`"
    return f"{typed} does nothing here; {way}: {meant.essence}"


def sequences(actions: Sequence[Action] = ACTIONS) -> dict[tuple[str, ...], Action]:
    """Return the actions with more than one key, by the Textual names of the keys."""
    found = {}
    for action in actions:
        for key in action.keys:
            parts = tuple(map(key_name, key.split(" ")))
            if len(parts) > 1:
                found[parts] = action
    return found
