"""Differences of two lines, cell by cell, and breaks of a sentence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from numtui.text.lines import verdict_line, width_of, wrap
from numtui.tui.widgets.lines import differences

STYLES = (None, Style(bold=True), Style(reverse=True))
WIDTH = 40

pieces = st.lists(
    st.tuples(st.text(st.sampled_from("ab ✗宽é"), max_size=30), st.sampled_from(STYLES)), min_size=1, max_size=4
)


def strip_of(made: list[tuple[str, Style | None]]) -> Strip:
    return Strip([Segment(text, style) for text, style in made]).adjust_cell_length(WIDTH)


def cells(strip: Strip) -> list[tuple[str, Style | None]]:
    """A blank looks the same in bold."""
    bold = STYLES[1]
    return [
        (character, None if (character, style) == (" ", bold) else style)
        for text, style, _ in strip
        for character in text
        for _ in range(2 if character == "宽" else 1)
    ]


@given(pieces, pieces)
def test_what_lies_outside_the_differences_is_on_the_screen_already(
    before: list[tuple[str, Style | None]], after: list[tuple[str, Style | None]]
) -> None:
    old, new = strip_of(before), strip_of(after)
    spans = differences(old, new)
    assert all(start < end for start, end in spans)
    shown, wanted = cells(old), cells(new)
    for start, end in spans:
        shown[start:end] = wanted[start:end]
        # A wide character that is cut in two would be drawn as blanks.
        assert new.crop(start, end).text in new.text
    assert shown == wanted


def test_equal_strips_differ_nowhere() -> None:
    assert differences(strip_of([("abc", None)]), strip_of([("abc", None)])) == []


def test_a_verdict_comes_first_where_its_subject_leaves_no_room() -> None:
    assert verdict_line("a ⇄ b", "3 ranks agree", 21) == [(" a ⇄ b: 3 ranks agree", "title")]
    assert verdict_line("a ⇄ b", "3 ranks agree", 20) == [(" 3 ranks agree · a ⇄ b", "title")]


def test_the_end_of_a_path_and_the_words_of_an_operation_stay_whole() -> None:
    path = "/runs/of_yesterday/rank_0_activations.log:6338"
    assert wrap(path, 42) == ["/runs/of_yesterday/", "rank_0_activations.log:6338"]
    assert wrap("op_0__scaled_dot_product_flash_attention_for_cpu", 40) == [
        "op_0__scaled_dot_product_flash_",
        "attention_for_cpu",
    ]


def test_a_name_that_has_no_room_in_a_line_is_broken_behind_a_dot_or_slash() -> None:
    told = "row 66, layers.3.attention.inner_attention/op_0__scaled_dot_product_flash_attention_for_cpu (a.py:418)"
    assert wrap(told, 60, "  ") == [
        "row 66, layers.3.attention.inner_attention/",
        "  op_0__scaled_dot_product_flash_attention_for_cpu",
        "  (a.py:418)",
    ]


@given(st.text(st.sampled_from("ab./_ 宽"), max_size=80), st.integers(8, 40), st.sampled_from(["", "  "]))
def test_every_line_fits_and_nothing_is_lost(text: str, width: int, indent: str) -> None:
    lines = wrap(text, width, indent)
    assert all(width_of(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
