"""What the terminal shows is what the program means it to show, though only what has changed is ever sent."""

from __future__ import annotations

import random
import re
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.pty.test_actions import made_logs
from tests.pty.tmux import POLL_SECONDS, ScreenTimeout, Terminal

MOVES = (
    "j", "jjj", "k", "5j", "\x04", "\x15", " ", "b", "G", "g", "n", "N", "o", "60G", "zt", "zz", "zb",
    "=", "S", "1", "3", "Ma", "'a", "w", "C", "v", "?", "P", "J", "B", "r", "s", "I", "m", "i", "x", "/bmm\r", ";",
    "f is:red\r", "\t", "\r", ":undo\r", "u", "D", "I3",
)  # fmt: skip

ESCAPE = "\x1b[27u"
"""The key in the kitty protocol: no sequence of keys that a busy program reads at once is another key with it."""

MARK = "¤"
"""A sign that the program does not draw."""

Cell = tuple[str, frozenset[str]]
"""A character and how it is shown: the codes that tmux gives; of a blank, only what can be seen of it."""

_BLANK: Cell = (" ", frozenset())

_CODES = re.compile(r"\x1b\[([0-9;:]*)m|(.)", re.DOTALL)
_PARTS = re.compile(r"[34]8[;:][25](?:[;:]\d+)+|\d+")
_OFF = {"22": {"1", "2"}, "23": {"3"}, "24": {"4"}, "27": {"7"}}


def cells(screen: str) -> list[list[Cell]]:
    """The lines, by whatever codes tmux says what is on them."""
    lines: list[list[Cell]] = [[]]
    fg = bg = ""
    attributes: set[str] = set()
    for codes, character in _CODES.findall(screen.rstrip("\n")):
        if character == "\n":
            lines.append([])
        elif character:
            seen = {bg} | (attributes & {"4", "7"} if character == " " else attributes | {fg})
            lines[-1].append((character, frozenset(seen - {""})))
        for code in () if character else _PARTS.findall(codes) or ["0"]:
            if code == "0":
                fg, bg, attributes = "", "", set()
            elif code in ("39", "49"):
                fg, bg = ("", bg) if code == "39" else (fg, "")
            elif code in _OFF:
                attributes -= _OFF[code]
            elif len(code) == 1:
                attributes = attributes | {code}
            elif code[0] in "39":
                fg = code
            else:
                bg = code
    # tmux tells blanks at the end of a line or not, depending on how they came there.
    for line in lines:
        while line and line[-1] == _BLANK:
            line.pop()
    return lines


def text_of(lines: list[list[Cell]]) -> list[str]:
    return ["".join(character for character, _ in line) for line in lines]


def resting(t: Terminal) -> list[list[Cell]]:
    """The screen, when it has been the same for a quarter of a second and the program has nothing to do.

    Without the line that the next key clears.
    """
    shown, same = t.screen(styles=True), 0
    while same < 12:
        time.sleep(POLL_SECONDS)
        now = t.screen(styles=True)
        shown, same = now, same + 1 if now == shown and t.is_idle else 0
    lines = cells(shown)
    return lines[:-2] + lines[-1:]


def leave_pages(t: Terminal) -> None:
    """Return to the list, which alone draws itself anew: of a key without a meaning it says so, when all else is done.

    A page that was asked for may open after that.
    """
    resting(t)
    for seconds in (2, 4, 8, 16, 30):
        t.type(5 * ESCAPE + "Z")
        with suppress(ScreenTimeout):
            t.wait_for("Z does nothing here", seconds)
            return
    raise AssertionError(t.screen())


@pytest.mark.parametrize(("size", "seed"), [((80, 24), 1), ((150, 45), 2)])
def test_nothing_is_left_behind(tmp_path: Path, size: tuple[int, int], seed: int) -> None:
    """After some keys the screen is as it is after all of it has been drawn anew."""
    chance = random.Random(seed)
    command = [sys.executable, "-m", "numtui", *made_logs(tmp_path), "-r", str(tmp_path / "rules.yaml")]
    with Terminal(command, columns=size[0], rows=size[1], env={"ESCDELAY": "20"}) as t:
        t.wait_for(" at row ")
        t.type("i\r")
        t.wait_for("u undoes it")
        for _ in range(7):
            typed = "".join(chance.choices(MOVES, k=6))
            t.type(typed)
            leave_pages(t)
            before = resting(t)
            with open(t.device, "w", encoding="utf-8") as device:
                device.write(f"\x1b[1;1H{MARK}")
            t.wait_for(MARK)
            t.keys("C-l")
            t.wait_for(lambda screen: MARK not in screen)
            after = resting(t)
            assert text_of(before) == text_of(after), f"after {typed!r}"
            assert before == after, f"after {typed!r}"
