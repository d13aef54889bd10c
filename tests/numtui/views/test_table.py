"""How a comparison is written on lines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchers.explain.sentences import Explanation, Fact, InputFact
from matchers.logs.columns import Strings
from matchers.logs.op_log import Header, Problem
from matchers.rules.file import RuleFile
from matchers.status import Status
from numtui.query.view import StatusGroup
from numtui.session.session import Session
from numtui.text.lines import Line, fit, fit_line, width_of
from numtui.text.short_names import shortened
from numtui.views.inspector import inspect
from numtui.views.run_summary import all_agree, breadcrumb, info, join
from numtui.views.table import LEFT, RIGHT, SIDE_BY_SIDE, Columns, RowWriter, error_bar, short_dtype
from tests.numtui.fakes import comparison_of

E, R, A, B = Status.EQUAL, Status.DIVERGED, Status.ONLY_A, Status.ONLY_B


def text(line: Line) -> str:
    return "".join(piece for piece, _ in line)


def session_of(*statuses: Status, **options: object) -> Session:
    return Session(comparison_of(statuses, **options), RuleFile.empty("r.yaml"), names=("one", "two"))  # type: ignore[arg-type]


@given(st.text(max_size=40), st.integers(0, 60), st.booleans())
def test_fit_is_exact(given_text: str, width: int, keep_end: bool) -> None:
    printable = "".join(c for c in given_text if c.isprintable())
    assert width_of(fit(printable, width, keep_end=keep_end)) == width
    assert sum(width_of(t) for t, _ in fit_line([(printable, ""), ("x", "red")], width)) == width


def test_fit_keeps_the_end_that_tells_keys_apart() -> None:
    assert fit("layers.0/op_1_mm", 8, keep_end=True) == "…op_1_mm"
    assert fit("layers.0/op_1_mm", 8) == "layers.…"


@pytest.mark.parametrize("width", [48, 60, 80, 100, 119, 120, 160, 200, 300])
@pytest.mark.parametrize("key", [10, 34, 90])
@pytest.mark.parametrize("merged", [False, True])
def test_the_columns_fill_the_line(width: int, key: int, merged: bool) -> None:
    c = comparison_of([E, R, A, B, Status.RECOMPUTE])
    writer = RowWriter(c, Columns.of(width, len(c), key, merged=merged))
    assert bool(writer.columns.b) == (width >= SIDE_BY_SIDE and not merged)
    assert min(writer.columns.name, key) >= min(key, 40) or not writer.columns.b
    for row in range(len(c)):
        assert sum(width_of(t) for t, _ in writer.row(row, False)) <= width
    w = writer.columns
    assert LEFT + RIGHT + w.number + 3 + w.a + w.via + w.b + w.error + w.bar + w.units + w.shape == width


def test_one_column_for_both_keys_where_two_would_be_cut() -> None:
    keys, keys_b = ["layers.0.wq/op_0_mm"] * 3, ["layers.0.wq/op_0_mm", "layers.0.wq/op_7_mm", "layers.1.wk/op_0_mm"]
    c = comparison_of([E, R, R], keys=keys, keys_b=keys_b)
    writer = RowWriter(c, Columns.of(80, 3, 60))
    shown = [text(writer.row(row, False)) for row in range(3)]
    assert "⇄" not in shown[0]
    assert "layers.0.wq/op_0_mm ⇄ op_7_mm" in shown[1], "the module is said once"
    assert "layers.0.wq/op_0_mm ⇄ layers.1.wk/op_0_mm" in shown[2]


def test_a_column_of_names_per_side() -> None:
    c = comparison_of([E, A, B, R], keys=["x/op_0_mm", "y/op_0_mm", "z/op_0_mm", "x/op_1_mm"], keys_b=_SHIFTED)
    writer = RowWriter(c, Columns.of(160, 4, 20))
    b = LEFT + writer.columns.number + 3 + writer.columns.a
    lines = [writer.row(row, False) for row in range(4)]
    shown = [text(line) for line in lines]
    assert [line[b:].split(" ")[0] for line in shown] == ['"', "—", "z/op_0_mm", "x/op_7_mm"]
    assert "x/op_0_mm" in shown[0]
    assert "—" in shown[2][:b]
    assert [piece for line in lines for piece in line if piece[1] == "drift"] == [("1", "drift"), ("7", "drift")]
    assert "[4,8] f32" in shown[0]


_SHIFTED = ["x/op_0_mm", "y/op_0_mm", "z/op_0_mm", "x/op_7_mm"]


def test_long_names_are_cut_alike_and_where_they_differ_is_seen() -> None:
    module, tail = "layers.0.attention.inner_attention", "_scaled_dot_product_flash_attention_for_cpu_backward"
    one, other = (f"{module}/op_{n}{tail}" for n in (1, 3))
    c = comparison_of([E, E], keys=[one, one], keys_b=[other, one])
    writer = RowWriter(c, Columns.of(120, 2, 90))
    w = writer.columns
    start = LEFT + w.number + 3
    line, equal = (text(writer.row(row, False)) for row in range(2))
    assert line[start:].startswith("layers.0…/op_1_…")
    assert line[start + w.a :].startswith("layers.0…/op_3_…")
    room = w.a + w.b - 3
    assert equal[start : start + room + 2].rstrip() == shortened(one, room) + ' "', (
        "the name of both may use both columns"
    )
    assert writer.hidden(1) == len(one) - room
    scrolled = text(RowWriter(c, w, writer.hidden(1)).row(1, False))
    assert scrolled[start : start + room] == one[: room - 1] + "…"


def test_a_dtype_that_does_not_fit_beside_the_shape_is_left_out_and_not_cut() -> None:
    def shown(shape: bytes, width: int) -> str:
        c = comparison_of([E])
        c = replace(c, a=replace(c.a, shapes=Strings([shape])), b=replace(c.b, shapes=Strings([shape])))
        return text(RowWriter(c, Columns.of(width, 1, 30, merged=True)).row(0, False)).rstrip()

    assert shown(b"[1, 16, 256, 16]", 200).endswith("[1,16,256,16] f32")
    assert shown(b"[1, 16, 256, 16]", 120).endswith("[1,16,256,16]")
    assert shown(b"[16, 256, 16]", 120).endswith("[16,256,16] f32")


def test_a_recomputed_copy_names_its_original() -> None:
    c = comparison_of([E, Status.RECOMPUTE])
    original = c.original.copy()
    original[1] = 0
    c = replace(c, original=original)
    line = text(RowWriter(c, Columns.of(200, 2, 30)).row(1, False))
    assert "(recompute of #1 layers.0.mlp/op_0_mm)" in line


def test_a_group_shows_how_many_more_it_has() -> None:
    c = comparison_of([E, E], keys=["x/op_0_gather", "x/op_1_wait"])
    p = c.pairing
    grouped = replace(p, of_b=np.array([0, 0]), grouped=np.array([True, False]))
    line = text(RowWriter(replace(c, pairing=grouped), Columns.of(200, 2, 30)).row(0, False))
    assert line.count("+1") == 1


def test_doubt_is_shown_and_never_rounded_away() -> None:
    c = comparison_of([E], confidence=0.61)
    assert "aligned·.61" in text(RowWriter(c, Columns.of(200, 1, 30)).row(0, False))
    narrow = RowWriter(c, Columns.of(120, 1, 90))
    assert " .61 " in text(narrow.row(0, False))
    assert "conf" in text(narrow.heading(("a", "b")))
    sure = comparison_of([E], confidence=1.0)
    assert "·" not in text(RowWriter(sure, Columns.of(200, 1, 30)).row(0, False))


def test_bars_grow_with_the_exponent() -> None:
    bars = [error_bar(10.0**e, 5).rstrip() for e in range(-9, 2)]
    assert bars[0] == ""
    assert bars[-1] == bars[-2] == "█████"
    assert [len(b) for b in bars] == sorted(len(b) for b in bars)
    assert error_bar(float("inf"), 5) == "█████"
    assert error_bar(float("nan"), 5) == "     "


def test_dtypes_in_short() -> None:
    assert [short_dtype(d) for d in ("float32", "bfloat16", "int64", "bool", "")] == ["f32", "bf16", "i64", "bool", ""]


def test_the_breadcrumb_says_where_it_is_in_the_source() -> None:
    session = session_of(E, R)
    c = session.comparison
    assert "   model.py:1  " in text(breadcrumb(session.listing, 80))
    session.listing.comparison = replace(c, b=replace(c.b, locations=Strings([b"model.py:7"])))
    assert "model.py:1 ⇄ 7  " in text(breadcrumb(session.listing, 80))
    session.listing.comparison = replace(c, b=replace(c.b, locations=Strings([b"other.py:7"])))
    assert "model.py:1 ⇄ other.py:7  " in text(breadcrumb(session.listing, 80))
    assert text(breadcrumb(session.listing, 40)).split() == ["layers", "›", "0", "›", "mlp", "forward", "red", "–/1"]
    assert "…" in text(breadcrumb(session.listing, 30))


def test_the_breadcrumb_says_what_is_hidden() -> None:
    session = session_of(E, R, R)
    session.listing.next_red()
    assert text(breadcrumb(session.listing, 80)).endswith("red 1/2 ")
    assert "layers › 0 › mlp" in text(breadcrumb(session.listing, 80))
    session.listing.toggle(StatusGroup.EQUAL)
    session.listing.set_query("mm")
    assert "hidden: equal  filter: mm" in text(breadcrumb(session.listing, 80))


@given(st.text(max_size=60), st.text(max_size=30), st.integers(1, 80))
def test_join_never_widens_beyond_what_the_right_needs(left: str, right: str, width: int) -> None:
    one, other = ("".join(c for c in t if c.isascii() and c.isprintable()) for t in (left, right))
    shown = text(join([(one, "")], [(other, "")], width))
    assert shown.endswith(other)
    assert len(shown) <= max(width, len(other) + 1)


def test_the_logs_tell_about_themselves() -> None:
    c = comparison_of([E])
    log = replace(
        c.a,
        header=Header(declared=9, excluded=("detach", "t"), run={"seed": 42, "mesh": {"tp": 2}}, lines=("Total: 9",)),
        problems=(Problem(7, "no number: \x1b[31m"),),
        problem_count=3,
        complete=False,
    )
    shown = [text(line) for line in info(Session(replace(c, a=log), RuleFile.empty("r.yaml")))]
    assert "   1 operation, the header declares 9" in shown
    assert "   excluded operations: detach, t" in shown
    assert "     seed: 42" in shown
    assert "       tp: 2" in shown
    assert "     run/step_2/rank_0_activations.log:7: no number: ␛[31m" in shown
    assert "     … and 2 more" in shown


@pytest.mark.parametrize("width", [80, 160])
def test_the_inspector_lays_out_what_is_known(width: int) -> None:
    told = Explanation(
        headline="FIRST CAUSE: both inputs agree, the output differs",
        pairing="paired by order, names, flow and values",
        notes=("nothing is known about the weights",),
        facts=(Fact("L2 norm", "1.0", "2.0", "5.0e-01", False),),
        inputs=(InputFact(0, "5.2e+04", "5.2e+04", "0", True, 0, 0), InputFact(3, "1", "2", "1", False, -1, -1)),
    )
    session = session_of(E, R)
    session.listing.next_red()
    made = inspect(session, told, width, chosen=1)
    shown = [text(line) for line in made.lines()]
    assert "FIRST CAUSE: both inputs agree" in shown[0]
    assert any("paired by order, names, flow and values" in line for line in shown)
    assert "input 0" in shown[made.inputs[0]]
    assert "← layers.0.mlp/op_0_mm" in shown[made.inputs[0]] or "← …" in shown[made.inputs[0]]
    assert shown[made.inputs[1]].startswith("›input 3")
    assert all(width_of(line) <= width for line in shown)
    assert inspect(session, None, width).lines() == []


@pytest.mark.parametrize("width", [80, 200])
def test_a_verdict_ends_before_the_numbers(width: int) -> None:
    """Names in it are cut for that, and only where it would be too long."""
    name = "layers.2.attention.inner_attention/op_0__scaled_dot_product_flash_attention"
    headline = (
        f"CONSEQUENCE: the output differs by 2.3e-01; input 0 comes from a diverged op, as its norm shows: {name}"
    )
    shown = [
        text(line).strip() for line in inspect(session_of(R), Explanation(headline, "", (), (), ()), width).lines()
    ]
    verdict = " ".join(shown[: 2 if width == 80 else 1])
    assert verdict.startswith(headline.removesuffix(name) + "layers.2")
    assert verdict.endswith("attention")
    assert (verdict == headline) == (width == 200)


def test_a_value_that_is_equal_on_both_sides_is_written_once() -> None:
    facts = (Fact("min", "1.5", "1.5", "0", True), Fact("max", "2.5", "3.5", "1", False), Fact("n", "", "4", "", None))
    inputs = (InputFact(0, "7.0", "7.0", "0", True, -1, -1), InputFact(1, "8.0", "8.0", "≠ bits", False, -1, -1))
    shown = [
        text(line).split() for line in inspect(session_of(R), Explanation("differs", "", (), facts, inputs), 80).lines()
    ]
    for line in (["min", "1.5", '"', "0"], ["max", "2.5", "3.5", "1"], ["n", "4"], ["input", "0", "7.0", '"', "0"]):
        assert line in shown
    assert ["input", "1", "8.0", "8.0", "≠", "bits"] in shown


def test_producers_with_other_counters_do_not_look_alike() -> None:
    """Their module is cut first."""
    keys = [f"layers.0.attention/op_{n}__log_softmax_backward_data" for n in (4, 6)]
    c = comparison_of([E], keys=keys[:1])
    session = Session(replace(c, b=comparison_of([E], keys=keys[1:]).b), RuleFile.empty("r.yaml"))
    fed = InputFact(0, "7.0", "7.0", "0", True, 0, 0)
    for width in (59, 80, 120):
        made = inspect(session, Explanation("differs", "", (), (), (fed,)), width)
        one, _, other = text(made.lines()[made.inputs[0]]).partition("← ")[2].partition(" ⇄ ")
        assert one.strip() != other.strip()


@pytest.mark.parametrize(
    ("status", "headline", "said"),
    [
        (Status.SAME_PRINT, "same printed values", "equal · same printed values"),
        (Status.EQUAL, "equal: the digests match (bitwise)", "equal: the digests match (bitwise)"),
        (Status.NO_VALUES, "no values: only a prints a result", "not judged · no values: only a prints a result"),
        (Status.NOT_JUDGED, "not judged: differs by 1e-2", "not judged: differs by 1e-2"),
        (Status.SHARDED, "LIKELY CAUSE: an unjudged operation", "LIKELY CAUSE: an unjudged operation"),
    ],
)
def test_the_inspector_says_the_word_of_the_screen_before_a_finer_one(status: Status, headline: str, said: str) -> None:
    shown = text(inspect(session_of(status), Explanation(headline, "", (), (), ()), 120).lines()[0])
    assert shown == f" {said}"


def test_a_narrow_inspector_shows_the_numbers_first() -> None:
    session = session_of(E, R)
    session.listing.next_red()
    l1, l2 = Fact("L1", "3.0", "3.0", "0", True), Fact("L2 norm", "1.0", "2.0", "5.0e-01", False)
    inputs = (InputFact(0, "4.0", "4.5", "1.1e-01", False, 0, 0),)
    facts = (l1, l2, Fact("location", "a.py:1", "b.py:1", "≠", False))
    told = Explanation("CONSEQUENCE; it read a red row", "paired by hand", ("a note",), facts, inputs)
    made = inspect(session, told, 80)
    shown = [text(line) for line in made.lines()]
    places = [
        next(i for i, line in enumerate(shown) if word in line)
        for word in ("it read", "one", "L2 norm", "input 0", "L1", "paired by", "a note", "loc")
    ]
    assert places == sorted(places)
    assert made.inputs == (places[3],)
    agreed = replace(told, facts=facts[:1], inputs=())
    shown = [text(line) for line in inspect(session, agreed, 80).lines()]
    assert "L1" in shown[2], "the numbers come first, also where nothing differs"


@pytest.mark.parametrize("width", [80, 120])
def test_the_lines_of_frames_that_differ_are_not_cut_off(width: int) -> None:
    """The path in front of them is long, and mostly the same."""
    folder = "/home/someone/experiments/a-long-name"
    session = session_of(E, R)
    session.listing.next_red()
    frames = (
        Fact("stack", f"{folder}/model.py:63", f"{folder}/model.py:64", "≠", False),
        Fact("called from 1", f"{folder}/train.py:8", f"{folder}/train.py:9", "≠", False),
    )
    differ = Explanation("CONSEQUENCE", "paired by hand", (), frames, ())
    shown = " ".join(text(line) for line in inspect(session, differ, width).lines())
    assert all(place in shown for place in ("model.py:63", "model.py:64", "train.py:8", "train.py:9"))


def test_a_note_of_ones_own_comes_right_after_the_verdict_on_a_narrow_screen() -> None:
    session = session_of(R)
    session.listing.annotate("odd")
    told = Explanation("CONSEQUENCE; it read a red row", "paired by hand", ("note: odd", "another"), (), ())
    shown = [text(line) for line in inspect(session, told, 80).lines()]
    assert shown.index(" note: odd") == 1
    assert sum("note: odd" in line for line in shown) == 1
    assert sum("note: odd" in text(line) for line in inspect(session, told, 160).lines()) == 1


def test_what_one_came_for_is_never_cut_off() -> None:
    """The source line stands whole beside the module, at any width; the keys of both sides in full in the inspector."""
    session = session_of(R, keys=["layers.0.mlp/op_0_mm"], keys_b=["a.very.long.module" * 2 + "/op_7_mm"])
    place = "torchtitan/models/common/feed_forward.py:61"
    facts = (*(Fact(name, "backward", "backward", "", True) for name in ("shape", "dtype", "phase")),)
    same = Explanation("h", "p", (), (*facts, Fact("location", place, place, "", True)), ())
    other = Explanation("h", "p", (), (Fact("location", place, "x" + place, "≠", False),), ())
    for width in (60, 80, 120, 200):
        shown = "".join("".join(text(line) for line in inspect(session, same, width).lines()).split())
        assert place in shown
        assert "a.very.long.module" * 2 in shown
        differing = next(text(n) for n in inspect(session, other, width).lines() if "location" in text(n))
        assert differing.count(".py:61") == 2
        assert "model.py:1" in text(breadcrumb(session.listing, width))


def test_the_inspector_names_a_module_that_both_sides_share_once() -> None:
    session = session_of(R, keys=["m/op_0_mm"], keys_b=["m/op_4_mm"])
    told = Explanation("CONSEQUENCE", "", (), (), ())
    for width in (80, 120):
        verdict, *rest = inspect(session, told, width).lines()
        assert verdict == [(" CONSEQUENCE", "red")]
        assert any(line[-1] == (" m/op_0_mm ⇄ op_4_mm", "title") for line in rest if line)


def test_the_screen_says_how_much_was_compared() -> None:
    enough = session_of(E, E, E, A)
    assert all_agree(enough.comparison).startswith("3 of 4 operations compared; 1 has no partner. No divergence: 3 ")
    half = session_of(E, A, A)
    assert all_agree(half.comparison).startswith(
        "Not compared: the end of a (2), which has no partner; 1 operation agrees."
    )
    page = [text(line) for line in info(half)]
    assert page[:3] == [
        "compared",
        "   1 of 3 operations compared; the end of a (2) has no partner.",
        "   not compared: the end of a (2) has no partner",
    ]


@pytest.mark.parametrize("width", [59, 80, 120, 200])
def test_the_producer_of_an_input_is_named_at_every_width(width: int) -> None:
    session = session_of(E, R, keys=["layers.0.attention/op_0_bmm", "layers.0.attention.wo/op_0_mm"])
    told = Explanation("h", "p", (), (), (InputFact(0, "4.000000e+00", "4.500000e+00", "1.1e-01", False, 0, 0),))
    (shown,) = (text(line) for line in inspect(session, told, width).lines() if "input 0" in text(line))
    assert "4.000000e+00 " in shown
    assert "4.500000e+00 " in shown
    assert "op_0_bmm" in shown.partition("← ")[2]


@pytest.mark.parametrize(
    "status", [Status.UNFINISHED, Status.PARTIAL, Status.NOT_JUDGED, Status.SHARDED, Status.IGNORED]
)
def test_a_row_that_is_not_judged_has_no_error(status: Status) -> None:
    c = comparison_of([status, R], errors=[1.0, 1.0])
    loud, quiet = (text(RowWriter(c, Columns.of(160, 2, 30)).row(row, False)) for row in (1, 0))
    assert "1.0e+00" in loud
    assert "1.0e+00" not in quiet
    assert "█" not in quiet
