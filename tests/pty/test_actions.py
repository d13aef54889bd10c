"""Every action of the registry by every one of its keys, in a real terminal, with the screen looked at.

What is waited for after a key must not be on the screen before it: a key that does nothing is found out.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import pytest

from numtui.actions import ACTIONS
from tests.builders import Op, op, training_step, write_log
from tests.pty.tmux import Terminal

CAUSE, RECEIVER, LAST = 28, 31, 123
"""Rows of the made logs: the first cause, a row that it makes red, the last one."""


@dataclass(frozen=True)
class Seen:
    """What is on the screen."""

    text: str
    row: int
    """The number of the row under the cursor, 0 where none is shown."""
    height: float
    """Where its line stands in the list, 0 at the top and 1 at the bottom."""

    @classmethod
    def on(cls, screen: str) -> Seen:
        """From the text of the screen with its styles."""
        styled = screen.split("\n")
        lines = [_STYLE.sub("", line) for line in styled]
        first = next((y for y, line in enumerate(lines) if line.lstrip().startswith("#  ")), 0) + 1
        end = next((y for y, line in enumerate(lines) if line.startswith("───")), len(lines))
        at = next((y for y in range(first, end) if _REVERSE.search(styled[y])), -1)
        number = _NUMBER.match(lines[at]) if at >= 0 else None
        return cls("\n".join(lines), int(number[1]) if number else 0, (at - first) / max(end - 1 - first, 1))


_STYLE = re.compile(r"\x1b\[[0-9;:]*m")
_REVERSE = re.compile(r"\x1b\[(?:[0-9;:]*;)?7[;m]")
_COLOUR = re.compile(r"\x1b\[(?:[0-9;:]*;)?(?:3[0-8]|4[0-8]|9[0-7])[;m]")
_NUMBER = re.compile(r"\D{0,5} *(\d+) ")

Check = Callable[[Seen, Seen], bool]
"""Whether what was wanted has come about, from the screen before and the screen after."""


def text(wanted: str) -> Check:
    return lambda _, now: wanted in now.text


def gone(unwanted: str) -> Check:
    return lambda _, now: unwanted not in now.text


def both(one: Check, other: Check) -> Check:
    return lambda before, now: one(before, now) and other(before, now)


def at(row: int) -> Check:
    return lambda _, now: now.row == row


def moved(down: bool) -> Check:
    return lambda before, now: now.row > before.row if down else 0 < now.row < before.row


def elsewhere(before: Seen, now: Seen) -> bool:
    return now.row not in (before.row, 0)


def height(low: float, high: float) -> Check:
    return lambda before, now: now.row == before.row and low <= now.height <= high and now.height != before.height


def divided(*, higher: bool) -> Check:
    """The line between the list and the inspector is elsewhere; without inspector it is below everything."""

    def line(seen: Seen) -> int:
        lines = seen.text.split("\n")
        return next((y for y, text in enumerate(lines) if text.startswith("───")), len(lines))

    return lambda before, now: line(now) < line(before) if higher else line(now) > line(before)


def asks(sign: str) -> Check:
    """A line is typed into, behind this sign."""
    return lambda _, now: any(line.strip() == sign for line in now.text.split("\n"))


Step = tuple[tuple[str, ...], Check]
"""Keys, and what they bring about."""


@dataclass(frozen=True)
class Script:
    """How an action is seen to work.

    Attributes:
        shows: what its key brings about.
        first: what is done before.
        escape: whether `esc` takes away again what was shown.
        back: what else is done, until the screen is as it was but for the place of the cursor.
    """

    shows: Check
    first: tuple[Step, ...] = ()
    _: KW_ONLY
    escape: bool = False
    back: tuple[Step, ...] = ()


def keys(*names: str, until: Check) -> Step:
    return names, until


TO_CAUSE = keys("n", until=at(CAUSE))
TO_RECEIVER = keys(*f"{RECEIVER}G", until=at(RECEIVER))
TO_LAST = keys("G", until=at(LAST))
# the header knows of a rule before the rows do: what comes next needs the rows
IGNORED = keys("i", "enter", until=both(text("rules not saved"), text("1 · tok_embeddings")))
UNDONE = keys("u", until=both(gone("rules not saved"), text("1 = tok_embeddings")))
SAVED = keys("ctrl+s", until=text("saved to"))
SEARCHED = keys("/", *"bmm", "enter", until=text("/bmm  1/"))


def _other_columns(before: Seen, now: Seen) -> bool:
    """The names are in the other number of columns, or there is no room for two."""
    merged = ["where it differs" in seen.text for seen in (before, now)]
    return "two columns of names need" in now.text or merged[0] != merged[1]


SCRIPTS: dict[str, Script] = {
    "down": Script(at(2)),
    "up": Script(at(4), (keys(*"5G", until=at(5)),)),
    "half_page_down": Script(moved(down=True)),
    "half_page_up": Script(moved(down=False), (TO_LAST,)),
    "page_down": Script(moved(down=True)),
    "page_up": Script(moved(down=False), (TO_LAST,)),
    "top": Script(at(1), (TO_LAST,)),
    "bottom": Script(at(LAST)),
    "names_left": Script(text("no name on the screen is cut"), back=(keys("j", until=gone("is cut")),)),
    "names_right": Script(text("no name on the screen is cut"), back=(keys("j", until=gone("is cut")),)),
    "center": Script(height(0.4, 0.6), (keys(*"60G", until=at(60)),)),
    "line_to_top": Script(height(0, 0), (keys(*"60G", until=at(60)),)),
    "line_to_bottom": Script(height(1, 1), (keys(*"60G", until=at(60)),)),
    "next_rank": Script(text("there is one rank"), back=(keys("j", until=gone("is one rank")),)),
    "previous_rank": Script(text("there is one rank"), back=(keys("j", until=gone("is one rank")),)),
    "next_red": Script(at(CAUSE)),
    "previous_red": Script(text("no red row above: from the bottom")),
    "next_cause": Script(at(CAUSE)),
    "previous_cause": Script(text("no first cause above: from the bottom")),
    "first_difference": Script(at(CAUSE)),
    "plot": Script(text("error over depth"), escape=True),
    "causes": Script(text("first causes (2)"), escape=True),
    "larger_error": Script(elsewhere),
    "smaller_error": Script(elsewhere, (TO_RECEIVER,)),
    "columns": Script(_other_columns),
    "search": Script(asks("/"), escape=True),
    "next_hit": Script(text("/bmm  2/"), (SEARCHED,), escape=True),
    "previous_hit": Script(text("around the start"), (SEARCHED,), escape=True),
    "inspect": Script(text("choose input"), (TO_CAUSE,), escape=True),
    "switch": Script(text("choose input"), (TO_CAUSE,), escape=True),
    "producer": Script(at(CAUSE - 1), (TO_CAUSE,)),
    "consumer": Script(at(RECEIVER), (TO_CAUSE,)),
    "why": Script(text("back to its first cause"), (TO_RECEIVER,), escape=True),
    "assume": Script(text("without row 28: "), (TO_CAUSE,), escape=True),
    "neighbours": Script(text("data flow around this row"), (TO_CAUSE,), escape=True),
    "back": Script(at(1), (TO_CAUSE,)),
    "forward": Script(at(CAUSE), (TO_CAUSE, keys("ctrl+o", until=at(1)))),
    "places": Script(text("marks, notes and jumps"), (TO_CAUSE,), escape=True),
    "mark_letter": Script(text("marked a")),
    "go_mark": Script(
        at(9), (keys(*"9G", until=at(9)), keys("M", "a", until=text("marked a")), keys("g", until=at(1)))
    ),
    "note": Script(asks("note:"), escape=True),
    "keep": Script(text("keep only keys with:"), escape=True),
    "filter": Script(text(" filter: "), escape=True),
    "filters": Script(text("no saved or active filter")),
    "group": Script(text("by module ("), escape=True),
    "sort": Script(text("sorted by error"), escape=True),
    **{
        f"toggle_{name}": Script(text(f"{name.replace('_', ' ')} rows are hidden"), escape=True)
        for name in ("red", "close", "equal", "only_a", "only_b", "other")
    },
    "larger_inspector": Script(divided(higher=True), back=(keys("-", until=divided(higher=False)),)),
    "smaller_inspector": Script(divided(higher=False), back=(keys("+", until=divided(higher=True)),)),
    "fold": Script(text("equal …"), back=(keys("=", until=gone("equal …")),)),
    "reset": Script(text("rows are listed"), (keys("f", *"is:red", "enter", until=text("filter: is:red")),)),
    "suggestions": Script(text("no known kind of drift: the names of the two runs agree"), escape=True),
    "drift": Script(text("the names are equal"), (TO_CAUSE,), escape=True),
    "mark": Script(text("go to its partner"), escape=True),
    "unpair": Script(text("cuts 1 pair"), (TO_CAUSE,), escape=True),
    "generalise": Script(text("no new pairs"), (TO_CAUSE,), escape=True),
    "realign": Script(text("this row is in no mispaired run")),
    "ignore": Script(text("ignores 1 row"), escape=True),
    "undo": Script(both(text("undone: ignore"), text("1 = tok_embeddings")), (IGNORED,)),
    "redo": Script(text("done again: ignore"), (IGNORED, UNDONE), back=(UNDONE,)),
    "rules": Script(text("Rules "), escape=True),
    "toggle_rules": Script(
        text("rules off: verdicts without them"), (IGNORED,), back=(keys("T", until=text("rules on")), UNDONE)
    ),
    "save": Script(text("saved to"), (IGNORED,), back=(keys("u", until=text("rules not saved")), SAVED)),
    "code": Script(text("as the file is now"), (TO_CAUSE,), escape=True),
    "elements": Script(text("this operation was not kept")),
    "replay": Script(text("this operation was not kept"), (TO_CAUSE,)),
    "edit": Script(text("the editor shows +14"), (TO_CAUSE,), back=(keys("enter", until=text("back from")),)),
    "copy": Script(text("copied tok_embeddings/op_0_embedding")),
    "copy_row": Script(text("copied the row as Markdown")),
    "html": Script(text("write an HTML page to: "), escape=True),
    "comparability": Script(text("[1 comparability]"), escape=True),
    "reload": Script(text("logs reloaded")),
    "follow": Script(
        text("the logs reload whenever"), back=(keys(":", *"follow", "enter", until=text("only announced")),)
    ),
    "messages": Script(text("[4 messages]"), escape=True),
    "commits": Script(text("[5 commits]"), escape=True),
    "raw": Script(text("[3 row 1]"), escape=True),
    "info": Script(text("tab next"), escape=True),
    "help": Script(text("q close"), escape=True),
    "palette": Script(text("Search"), escape=True),
    "command": Script(asks(":"), escape=True),
    "quit": Script(text("Unsaved rule changes"), (IGNORED,), escape=True, back=(UNDONE,)),
}
"""Every action but those of `OUTSIDE`. All start on the first row of the whole list."""


def redraw(desk: Desk, key: str) -> None:
    """Something else has written to the terminal."""
    with open(desk.terminal.device, "w", encoding="utf-8") as device:
        device.write("\x1b[6;20Hsomebody else was here")
    desk.wait(text("somebody else was here"))
    desk.press(key, until=gone("somebody else was here"))


def suspend(desk: Desk, key: str) -> None:
    """To the shell, and back."""
    desk.press(key, until=gone("one ⇄ two"))
    os.kill(desk.terminal.pid, signal.SIGCONT)
    desk.wait(text("? help"))


OUTSIDE: dict[str, Callable[[Desk, str], None]] = {"redraw": redraw, "suspend": suspend}
"""Actions whose effect is not on the screen that the program draws."""


class Desk:
    """The program in its terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal

    @property
    def seen(self) -> Seen:
        return Seen.on(self.terminal.screen(styles=True))

    def wait(self, check: Check, before: Seen | None = None, what: str = "") -> None:
        """Wait for something; `before` is the screen that it is compared with."""
        then = self.seen if before is None else before

        def shown(screen: str) -> bool:
            return check(then, Seen.on(screen))

        shown.__name__ = what or "what was waited for"
        self.terminal.wait_for(shown, styles=True)

    def press(self, *names: str, until: Check) -> None:
        """Press keys by the registry's names and wait for what they bring about."""
        before, what = self.seen, f"what {' '.join(names)} brings about"
        assert not until(before, before), f"{what} was there before:\n{before.text}"
        self.terminal.keys(*map(terminal_name, names))
        self.wait(until, before, what)

    def play(self, script: Script, key: tuple[str, ...]) -> None:
        for names, until in script.first:
            self.press(*names, until=until)
        before = self.seen
        self.press(*key, until=script.shows)
        if script.escape:
            self.press("escape", until=lambda _, now: not script.shows(before, now))
        for names, until in script.back:
            self.press(*names, until=until)
        # The list is still being drawn where it has no cursor, or one that moves by itself.
        self.wait(lambda _, now: now.row != 0 and self.terminal.is_idle)
        if self.seen.row != 1:
            self.press("g", until=at(1))


_TERMINAL_NAMES = {
    "escape": "Escape", "enter": "Enter", "tab": "Tab", "space": "Space", "up": "Up", "down": "Down", "home": "Home",
    "end": "End", "pageup": "PageUp", "pagedown": "PageDown", "f1": "F1", "letter": "a", " ": "Space",
}  # fmt: skip


def terminal_name(key: str) -> str:
    """Tmux's name of a key of the registry."""
    return f"C-{key[5:]}" if key.startswith("ctrl+") else _TERMINAL_NAMES.get(key, key)


def made_logs(folder: Path) -> tuple[str, str]:
    """Eight layers with two first causes and what follows from them, a row that only a has, and one that only b has."""
    ops_a, ops_b = training_step(layers=8), training_step(layers=8)
    of = {o.key: o for o in ops_b}
    by: dict[str, float] = {}
    for o in ops_b:
        after = [by[source] for source in o.producers if source in by]
        if o.key in ("layers.2.attention.wq/op_0_mm", "layers.5.feed_forward.w1/op_0_mm"):
            after.append(1)
        # Layer 3 forgets what it was given, so that there are two causes.
        if after and not o.key.startswith("layers.3"):
            by[o.key] = max(after) * 1.001
            _scale(o, by[o.key])
        o.inputs = [of[p].outputs[0] if p else value for p, value in zip(o.producers, o.inputs, strict=True)]
    ops_b.remove(of["layers.1.feed_forward/op_0_silu"])
    ops_b.insert(4, op("layers.0.attention/op_9_clone", 7.0))
    a, b = (
        write_log(folder / side / "rank_0_activations.log", ops, run={"seed": seed}, footer=True)
        for side, ops, seed in (("one", ops_a, 1), ("two", ops_b, 2))
    )
    return str(a), str(b)


def _scale(o: Op, by: float) -> None:
    o.l2, o.min, o.max, o.mean = (float(value or 0) * by for value in (o.l2, o.min, o.max, o.mean))
    o.outputs = [float(value) * by for value in o.outputs]


def test_every_action_has_a_script() -> None:
    assert SCRIPTS.keys() | OUTSIDE.keys() == {action.id for action in ACTIONS}
    assert not SCRIPTS.keys() & OUTSIDE.keys()


@pytest.mark.parametrize(
    ("size", "env", "colours", "leave"),
    [
        ((80, 24), {"NO_COLOR": "1"}, False, "C-q"),
        ((200, 50), {"TERM": "xterm-16color"}, True, "C-c"),
    ],
    ids=["80x24 without colours", "200x50 in 16 colours"],
)
def test_every_action(tmp_path: Path, size: tuple[int, int], env: dict[str, str], colours: bool, leave: str) -> None:
    """By every one of its keys on the smallest screen; by the first of them on the largest."""
    logs = made_logs(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "wq.py").write_text("\n" * 80)
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "the editor shows $*"\nread line\n')
    editor.chmod(0o755)
    command = [sys.executable, "-m", "numtui", *logs, "-r", str(tmp_path / "rules.yaml")]
    # How long Textual waits after an escape for the rest of a sequence; here there is no slow line in between.
    environment = {"EDITOR": str(editor), "ESCDELAY": "20", **env}
    with Terminal(command, columns=size[0], rows=size[1], env=environment, cwd=tmp_path) as t:
        t.wait_for(" at row ")
        assert bool(_COLOUR.search(t.screen(styles=True))) is colours
        desk = Desk(t)
        desk.press("=", until=gone("equal …"))
        desk.press("g", until=at(1))
        for action in ACTIONS:
            for key in action.keys[: None if size == (80, 24) else 1] or (" ".join((":", *action.name, "enter")),):
                if action.id in OUTSIDE:
                    OUTSIDE[action.id](desk, key)
                else:
                    desk.play(SCRIPTS[action.id], tuple(key.split(" ")))
        assert t.exit_code(leave) == 1
        assert "Traceback" not in t.screen()
