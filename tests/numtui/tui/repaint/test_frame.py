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

from numtui.text.lines import fit
from numtui.tui.repaint.cells import Cells
from numtui.tui.repaint.frame import Frame
from numtui.tui.repaint.scroll import scroll_between

WIDTH, HEIGHT = 40, 8
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
        first, last = 0, HEIGHT - 1
        for code, arguments, plain in _tokens(text):
            if code == "H":
                y, x = (int(part or 1) - 1 for part in f"{arguments};".split(";")[:2])
            elif code == "m":
                look = ";".join(part for part in arguments.split(";") if part != "0")
            elif code == "r":
                first, last = (int(part) - 1 for part in (arguments or f"1;{HEIGHT}").split(";"))
                x = y = 0
            elif code in ("up", "down"):
                assert y == (last if code == "up" else first), "elsewhere only the cursor moves"
                del self.cells[first if code == "up" else last]
                self.cells.insert(y, [(" ", "")] * WIDTH)
            elif code in ("X", "K"):
                end = x + int(arguments) if code == "X" else WIDTH
                self.cells[y][x:end] = [(" ", "")] * (end - x)
            elif code == "C":
                x += int(arguments or 1)
            else:
                assert x < WIDTH, "where a terminal goes from behind the last cell is its own affair"
                # A blank looks the same in bold; what is left of half a wide sign is blank.
                shown = "" if plain == " " and look == "1" else look
                cells = self.cells[y]
                if cells[x][0] == "":
                    cells[x - 1] = (" ", "")
                for part in range(2 if plain == "宽" else 1):
                    if x + 1 < WIDTH and cells[x + 1][0] == "":
                        cells[x + 1] = (" ", "")
                    cells[x] = (plain if part == 0 else "", shown)
                    x += 1


def _tokens(text: str) -> Iterator[tuple[str, str, str]]:
    for arguments, code, index, plain in re.findall(r"\x1b\[([\d;]*)([A-Za-z])|\x1b([DM])|([^\x1b])", text):
        yield {"D": "up", "M": "down"}.get(index, code), arguments, plain


def whole(lines: list[Strip]) -> LayoutUpdate:
    return LayoutUpdate([[strip] for strip in lines], Region(0, 0, WIDTH, HEIGHT))


def sent(shown: Frame, drawn: ChopsUpdate | LayoutUpdate) -> str:
    told = shown.tightened(drawn)
    assert isinstance(told, (ChopsUpdate, LayoutUpdate))
    return told.render_segments(CONSOLE)


@given(st.lists(st.tuples(frame, st.none() | span, st.booleans()), min_size=1, max_size=6))
def test_the_terminal_shows_what_was_drawn(frames: list[tuple[list[Strip], tuple[int, int, int] | None, bool]]) -> None:
    """However parts of the screen, all of it, and terminals that have to be drawn anew follow each other."""
    shown, terminal = Frame(), Terminal()
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
        expected.write(sent(Frame(), whole(lines)))
        assert terminal.cells == expected.cells


def test_what_is_shown_already_is_not_sent() -> None:
    lines = [Strip([Segment(f"line {y}".center(WIDTH, "·"))]) for y in range(HEIGHT)]
    shown = Frame()
    assert len(sent(shown, whole(lines))) > WIDTH * HEIGHT
    assert sent(shown, whole(lines)) == ""
    under_a_page = [Strip([Segment(text, Style(color="default")) for text, _, _ in strip]) for strip in lines]
    assert sent(shown, whole(under_a_page)) == "", "the terminal's own colour by another name"
    lines[2] = Strip([Segment("line 7".center(WIDTH, "·"))])
    assert sent(shown, whole(lines)) == "\x1b[3;23H7"
    shown.forget()
    assert len(sent(shown, whole(lines))) > WIDTH * HEIGHT


def test_a_part_of_another_size_is_drawn_as_it_is() -> None:
    """The screen below one that closes has been laid out for an earlier size, or for a later one."""
    lines = [Strip([Segment("x" * WIDTH)])] * HEIGHT
    for width, height in ((WIDTH, HEIGHT + 3), (WIDTH + 3, HEIGHT), (WIDTH - 3, HEIGHT), (WIDTH, HEIGHT - 3)):
        shown = Frame()
        sent(shown, whole(lines))
        chops: list[dict[int, Strip | None]] = [{0: Strip([Segment("x" * width)])}] * height
        part = ChopsUpdate(chops, [(height - 1, 0, width)], [[width]] * height)
        assert "x" * width in sent(shown, part)
        assert len(sent(shown, whole(lines))) > WIDTH * HEIGHT, "afterwards, nobody knows what the terminal shows"


def test_an_update_begins_where_the_difference_does() -> None:
    strip = Strip([Segment(fit("the number is 42", 30)), Segment("!", STYLES[1])])
    drawn = ChopsUpdate([{0: strip}], [(0, 14, 31)], [[31]])
    assert sent(Frame(), drawn) == "\x1b[1;15H42\x1b[14X\x1b[1m\x1b[14C!\x1b[m"


def test_stretches_that_become_blank_are_erased_together_where_that_is_shorter() -> None:
    def columns(*texts: str) -> list[Strip]:
        return [Strip([Segment("".join(fit(text, 10) for text in texts))])]

    shown = Frame()
    sent(shown, whole([*columns("aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc", "d")]))
    assert sent(shown, whole(columns("x", "y", "z", "d"))) == "\x1b[H\x1b[30Xx\x1b[9Cy\x1b[9Cz"
    assert sent(shown, whole(columns("x", "y", "", "d"))) == "\x1b[1;21H "


def test_pieces_of_one_style_are_written_together_where_that_is_shorter() -> None:
    def column(*pieces: str) -> list[Strip]:
        parts = [(fit(piece, 20), STYLES[k % 2]) for k, piece in enumerate(pieces)]
        return [Strip([Segment(text, style) for text, style in parts])] * HEIGHT

    shown = Frame()
    sent(shown, whole(column("a", "a")))
    jumps = [(f"\x1b[{y or ''}H", f"\x1b[{y or 1};21H") for y in (0, *range(2, HEIGHT + 1))]
    plain, bold = ("".join(f"{jump}b" for jump in there) for there in zip(*jumps, strict=True))
    assert sent(shown, whole(column("b", "b"))) == f"{plain}\x1b[1m{bold}\x1b[m"
    sent(shown, whole([*column("b", "b")[1:], *column("", "")[1:2]]))
    last = Strip([Segment("a"), Segment(fit("b", WIDTH - 1), STYLES[1])])
    assert sent(shown, whole([*column("b", "b")[1:], last])) == f"\x1b[{HEIGHT}Ha\x1b[1mb\x1b[m"


@given(st.integers(-3, 3), st.integers(0, 2), st.lists(st.text("ab 宽", min_size=20, max_size=20), min_size=14))
def test_a_list_that_moves_is_moved_by_the_terminal(by: int, top: int, texts: list[str]) -> None:
    """Between lines that stay and beside a column that stays, whatever else has changed."""

    def screen(start: int) -> list[Strip]:
        lines = [f"{y} {texts[start + y] if y >= top else 'stays'} {'x' * y}" for y in range(HEIGHT)]
        return [Strip([Segment(fit(line, WIDTH))]) for line in lines]

    shown, terminal, expected = Frame(), Terminal(), Terminal()
    terminal.write(sent(shown, whole(screen(3))))
    terminal.write(sent(shown, whole(screen(3 + by))))
    expected.write(sent(Frame(), whole(screen(3 + by))))
    assert terminal.cells == expected.cells


def test_a_step_over_the_edge_sends_one_line() -> None:
    def screen(start: int) -> list[Strip]:
        texts = ["heading", *(str(start + y) * WIDTH for y in range(HEIGHT - 2)), "status"]
        return [Strip([Segment(fit(text[:WIDTH], WIDTH))]) for text in texts]

    shown = Frame()
    sent(shown, whole(screen(1)))
    down = sent(shown, whole(screen(2)))
    assert down == f"\x1b[2;7r\x1b[7H\x1bD\x1b[r\x1b[7H{'7' * WIDTH}"
    assert sent(shown, whole(screen(1))) == f"\x1b[2;7r\x1b[2H\x1bM\x1b[r\x1b[2H{'1' * WIDTH}"


def test_lines_that_stay_are_not_moved_with_two_lists_around_them() -> None:
    def screen(start: int) -> list[Cells]:
        moving = [str(start + y) * 200 for y in range(6)]
        return [[(character, None) for character in text] for text in (*moving, *["=" * 200] * 5, *moving[:2])]

    scroll = scroll_between(screen(1), screen(2))
    assert scroll is not None
    assert (scroll.first, scroll.last, scroll.by) == (0, 5, 1)


def test_what_is_not_known_is_drawn_as_it_is() -> None:
    shown = Frame()
    lines = [Strip([Segment("x" * WIDTH)])] * HEIGHT
    sent(shown, whole(lines))
    assert shown.tightened(None) is None
    assert sent(shown, whole(lines)) == ""
    assert shown.tightened("text") == "text"
    assert len(sent(shown, whole(lines))) > WIDTH * HEIGHT, "afterwards, nobody knows what the terminal shows"
