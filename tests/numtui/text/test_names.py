"""Two names beside each other: the marked parts, and what is left of them in a narrow column."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from matchers.status import Status
from numtui.text.lines import Line, width_of, window
from numtui.text.names import marked_keys
from numtui.text.safe import safe_text
from numtui.text.short_names import cut_middle, shortened
from numtui.views.table import RIGHT, Columns, RowWriter
from tests.numtui.fakes import comparison_of

keys = st.text(st.sampled_from("abc.01_/[]宽é\u0301\ufe0f❤\x1b\u202e"), min_size=1, max_size=60)


def marked(line: Line) -> list[str]:
    return [text for text, role in line if role == "drift"]


def plain(line: Line) -> str:
    return "".join(text for text, _ in line)


def cells(line: Line) -> int:
    return sum(width_of(text) for text, _ in line)


def test_a_long_key_keeps_its_layer_and_as_much_of_its_end_as_has_room() -> None:
    assert shortened("layers.2.attention.inner_attention/op_1_neg", 32) == "layers.2…/op_1_neg"
    assert shortened("layers.6.attention.qkv_linear.wqkv/op_6_split", 40) == "layers.6…qkv_linear.wqkv/op_6_split"
    flash = "layers.3.attention.inner_attention/op_1__scaled_dot_product_flash_attention_for_cpu"
    assert shortened(flash, 40) == "layers.3…/op_1_…_flash_attention_for_cpu"
    assert shortened("<none>/op_36__foreach_mul_", 22) == "<none>/op_36_…ach_mul_", "nothing is hidden before it"
    assert shortened(flash, 12) == "…ion_for_cpu"
    assert shortened("layers.3/op_0_add", 16) == "…yers.3/op_0_add", "a layer without its number says nothing"


@given(keys, st.integers(1, 40))
def test_a_cut_key_fits_and_a_key_that_fits_is_whole(key: str, width: int) -> None:
    shown = shortened(key, width)
    assert width_of(shown) <= width
    assert shown == safe_text(key) or width_of(safe_text(key)) > width


def test_marks_stay_with_what_they_mark() -> None:
    line: Line = [("layers.2.attention.", ""), ("wq", "drift"), (".lora_a", ""), ("/op_0_mm", "")]
    assert cut_middle(line, 28) == [("layers.2", ""), ("…", ""), ("wq", "drift"), (".lora_a", ""), ("/op_0_mm", "")]


def test_only_the_segments_are_marked_that_differ() -> None:
    a, b = marked_keys("attention_norm/op_0_pow", "layers.5.attention_norm/op_4_pow")
    assert marked(a) == ["0"]
    assert marked(b) == ["layers.5.", "4"]
    a, b = marked_keys("m/op_1__allgather_base_", "m/op_1_wait_tensor")
    assert plain(a) == "m/op_1__allgather_base_"
    assert "wait" in "".join(marked(b))


@given(st.text("abc.01_/", min_size=1, max_size=30), st.text("abc.01_/", min_size=1, max_size=30))
def test_nothing_is_lost_and_equal_keys_have_no_mark(one: str, other: str) -> None:
    a, b = marked_keys(one, other)
    assert (plain(a), plain(b)) == (one, other)
    assert (not marked(a) and not marked(b)) == (one == other)


def test_a_sign_between_marked_parts_is_marked_with_them() -> None:
    assert marked(marked_keys("m/op_0_wait_tensor", "m/op_0_mm")[0]) == ["wait_tensor"]


@given(keys, keys, st.integers(0, 50), st.integers(0, 50))
def test_a_cut_name_is_the_key_cut_and_has_its_width(one: str, other: str, width: int, back: int) -> None:
    for key, line in zip((one, other), marked_keys(one, other), strict=True):
        assert plain(line) == safe_text(key)
        shown = window(line, width, back)
        assert cells(shown) == min(width, cells(line))
        assert plain(shown).isprintable()
        if cells(line) > width > 2:
            left, right = plain(shown)[:1], plain(shown).rstrip()[-1:]
            assert "…" in (left, right)
            whole = plain(line)
            # A blank stands for half of a wide character.
            assert plain(shown).removeprefix("…").removesuffix("…").strip() in whole


def test_a_hidden_difference_marks_the_ellipsis() -> None:
    line, _ = marked_keys("encoder.norm/op_0_pow", "decoder.norm/op_0_pow")
    assert window(line, 10) == [("…", "drift"), ("/op_0_pow", "")]
    assert window(line, 10, back=99) == [("encoder", "drift"), (".n", ""), ("…", "")]


@given(keys, keys, st.sampled_from([48, 59, 80, 120, 200]), st.booleans(), st.integers(0, 30))
def test_each_row_has_the_width_of_the_table(one: str, other: str, width: int, merged: bool, back: int) -> None:
    c = comparison_of([Status.EQUAL, Status.ONLY_B, Status.RECOMPUTE], keys=[one] * 3, keys_b=[other] * 3)
    writer = RowWriter(c, Columns.of(width, 3, 40, merged=merged), back)
    for row in range(3):
        line = writer.row(row, False)
        assert cells(line) == width - RIGHT
        assert plain(line).isprintable()
