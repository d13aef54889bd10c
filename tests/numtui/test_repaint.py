"""What is sent to the terminal: less than everything, and it shows the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from numtui.repaint import Shown
from numtui.text import fit

WIDTH, HEIGHT = 40, 4
CONSOLE = Console(force_terminal=True, color_system="standard", width=WIDTH)
STYLES = (None, Style(bold=True), Style(reverse=True), Style(color="default", bgcolor="default", bold=True))

line = st.lists(
    st.tuples(st.text(st.sampled_from("ab  ✗宽"), max_size=30), st.sampled_from(STYLES)), min_size=1, max_size=4
).map(lambda made: Strip([Segment(text, style) for text, style in made]).adjust_cell_length(WIDTH))
frame = st.lists(line, min_size=HEIGHT, max_size=HEIGHT)
span = st.tuples(st.integers(0, HEIGHT - 1), st.integers(0, WIDTH - 1), st.integers(1, WIDTH))


class Terminal:
    """As much of a terminal as is needed: cells with a character and how it is shown."""

    def __init__(self) -> None:
        self.cells = [[("?", "")] * WIDTH for _ in range(HEIGHT)]

    def write(self, text: str) -> None:
        x = y = 0
        look = ""
        for code, arguments, plain in _tokens(text):
            if code == "H":
                y, x = (int(part) - 1 for part in arguments.split(";"))
            elif code == "m":
                look = "" if arguments == "0" else arguments
            elif code == "X":
                self.cells[y][x : x + int(arguments)] = [(" ", "")] * int(arguments)
            elif code == "C":
                x += int(arguments)
            elif plain != "\n":
                for part in range(2 if plain == "宽" else 1):
                    self.cells[y][x] = (plain if part == 0 else "", look)
                    x += 1


def _tokens(text: str) -> Iterator[tuple[str, str, str]]:
    for arguments, code, plain in re.findall(r"\x1b\[([\d;]*)([A-Za-z])|([^\x1b])", text.replace("\n", "")):
        yield code, arguments, plain


def whole(lines: list[Strip]) -> LayoutUpdate:
    return LayoutUpdate([[strip] for strip in lines], Region(0, 0, WIDTH, HEIGHT))


def sent(shown: Shown, drawn: ChopsUpdate | LayoutUpdate) -> str:
    told = shown.tightened(drawn)
    assert isinstance(told, (ChopsUpdate, LayoutUpdate))
    return told.render_segments(CONSOLE)


@given(st.lists(st.tuples(frame, st.none() | span, st.booleans()), min_size=1, max_size=6))
def test_the_terminal_shows_what_was_drawn(frames: list[tuple[list[Strip], tuple[int, int, int] | None, bool]]) -> None:
    """However parts of the screen, all of it, and terminals that have to be drawn anew follow each other."""
    shown, terminal = Shown(), Terminal()
    terminal.write(sent(shown, whole(frames[0][0])))
    for lines, part, anew in frames:
        if anew:
            shown.forget()
            terminal = Terminal()
        elif part is not None:
            y, start, length = part
            chops: list[dict[int, Strip | None]] = [{0: strip} for strip in lines]
            drawn = ChopsUpdate(chops, [(y, start, min(start + length, WIDTH))], [[WIDTH]] * HEIGHT)
            terminal.write(sent(shown, drawn))
        terminal.write(sent(shown, whole(lines)))
        expected = Terminal()
        expected.write(sent(Shown(), whole(lines)))
        assert terminal.cells == expected.cells


def test_what_is_shown_already_is_not_sent() -> None:
    lines = [Strip([Segment(fit(f"line {y}", WIDTH))]) for y in range(HEIGHT)]
    shown = Shown()
    assert len(sent(shown, whole(lines))) > WIDTH * HEIGHT
    assert sent(shown, whole(lines)) == ""
    under_a_page = [Strip([Segment(text, Style(color="default")) for text, _, _ in strip]) for strip in lines]
    assert sent(shown, whole(under_a_page)) == "", "the terminal's own colour by another name"
    lines[2] = Strip([Segment(fit("line 7", WIDTH))])
    assert sent(shown, whole(lines)) == "\x1b[3;6H7"
    shown.forget()
    assert len(sent(shown, whole(lines))) > WIDTH * HEIGHT


def test_an_update_begins_where_the_difference_does() -> None:
    strip = Strip([Segment(fit("the number is 42", 30)), Segment("!", STYLES[1])])
    drawn = ChopsUpdate([{0: strip}], [(0, 14, 31)], [[31]])
    assert sent(Shown(), drawn) == "\x1b[1;15H42\x1b[14X\x1b[14C\x1b[1m!\x1b[0m"


def test_what_is_not_known_is_drawn_as_it_is() -> None:
    shown = Shown()
    lines = [Strip([Segment("x" * WIDTH)])] * HEIGHT
    sent(shown, whole(lines))
    assert shown.tightened(None) is None
    assert sent(shown, whole(lines)) == ""
    assert shown.tightened("text") == "text"
    assert len(sent(shown, whole(lines))) > WIDTH * HEIGHT, "afterwards, nobody knows what the terminal shows"
