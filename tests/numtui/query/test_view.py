"""What is listed, and the way from row to row; the fast code against a slow one written row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchers.comparison import Comparison
from matchers.status import Status
from numtui.query.query import QueryError, completions, exactly, parse_query
from numtui.query.view import (
    FOLD_MIN,
    Filter,
    Order,
    StatusGroup,
    build_view,
    foldable,
    sorted_rows,
    step,
    step_error,
    with_error,
)
from numtui.text.glyphs import WITHOUT_ERROR, WORDS
from tests.matchers.regions.test_find import compared
from tests.matchers.regions.test_find import model as forms
from tests.numtui.fakes import comparison_of

E, S, C, R, A, B = Status.EQUAL, Status.SAME_PRINT, Status.CLOSE, Status.DIVERGED, Status.ONLY_A, Status.ONLY_B

statuses = st.lists(st.sampled_from(list(Status)), min_size=1, max_size=60)


def slow_view(c: Comparison, shown: list[bool], cursor: int, folded: bool) -> list[tuple[int, int]]:
    """The lines of a view, made row by row."""
    rows = [r for r in range(len(c)) if shown[r]]
    if not folded:
        return [(r, 0) for r in rows]
    lines: list[tuple[int, int]] = []
    stretch: list[int] = []

    def close() -> None:
        if len(stretch) >= FOLD_MIN:
            lines.append((stretch[0], len(stretch)))
        else:
            lines.extend((r, 0) for r in stretch)
        stretch.clear()

    for r in rows:
        if c.status[r] in (E, S) and not c.cause[r] and r != cursor:
            stretch.append(r)
        else:
            close()
            lines.append((r, 0))
    close()
    return lines


@given(statuses, st.data())
def test_view_agrees_with_the_slow_one(found: list[Status], data: st.DataObject) -> None:
    causes = data.draw(st.lists(st.integers(0, len(found) - 1), max_size=3))
    cursor = data.draw(st.integers(-1, len(found) - 1))
    folded = data.draw(st.booleans())
    hidden = data.draw(st.frozensets(st.sampled_from(list(StatusGroup))))
    c = comparison_of(found, causes=causes)
    wanted = Filter(frozenset(StatusGroup) - hidden)
    view = build_view(c, wanted, folded=folded, cursor=cursor)
    shown = wanted.mask(c).tolist()
    assert list(zip(view.row.tolist(), view.fold.tolist(), strict=True)) == slow_view(c, shown, cursor, folded)
    for line, row in enumerate(view.row.tolist()):
        assert view.line_of(row) == line
        assert view.row_at(line) == row


def test_every_status_belongs_to_one_switch() -> None:
    c = comparison_of(list(Status))
    masks = [Filter(frozenset({g})).mask(c) for g in StatusGroup]
    assert np.sum(masks, axis=0).tolist() == [1] * len(Status)
    assert Filter(frozenset({StatusGroup.RED})).mask(c).tolist() == [s.red for s in Status]


@pytest.mark.parametrize(
    ("word", "of"),
    [
        ("red", (Status.SHAPE, Status.DIVERGED, Status.NAN)),
        ("close", (Status.CLOSE,)),
        ("equal", (Status.EQUAL, Status.SAME_PRINT)),
        ("only-one-side", (Status.ONLY_A, Status.ONLY_B)),
        (
            "not-judged",
            (Status.SHARDED, Status.UNFINISHED, Status.PARTIAL, Status.NO_VALUES, Status.NOT_JUDGED),
        ),
        ("recompute", (Status.RECOMPUTE,)),
        ("ignored", (Status.IGNORED,)),
    ],
)
def test_the_words_of_the_screen_are_words_of_the_filter(word: str, of: tuple[Status, ...]) -> None:
    c = comparison_of(list(Status))
    assert parse_query(f"status:{word}").mask(c).tolist() == [status in of for status in Status]
    assert {WORDS[status] for status in of} == {word.replace("-", " ")}


def test_the_filter_knows_the_labels_of_reports_too() -> None:
    c = comparison_of(list(Status))
    wider = {Status.EQUAL, Status.NOT_JUDGED}  # also words of the screen, which cover more
    for status in set(Status) - wider:
        assert parse_query(f"is:{status.label}").mask(c).tolist() == [other is status for other in Status]


def test_another_way_to_the_same_values_folds_as_one_stretch_and_a_first_cause_does_not() -> None:
    written, fused = forms(fused=False), forms(fused=True)
    c = compared(written, fused)
    view = build_view(c, Filter(), folded=True)
    for line in np.flatnonzero(view.fold).tolist():
        rows = view.folded(line)
        assert len(rows) == view.fold[line]
        assert len({int(stretch) for stretch in foldable(c)[rows]}) == 1
    folded = [view.folded(line) for line in np.flatnonzero(view.stretch > 0).tolist() if view.fold[line]]
    assert [len(rows) for rows in folded] == [3, 3], "softmax and bmm of a, attend of b"
    wrong = compared(written, forms(fused=True, factor=1.5))
    assert np.all(foldable(wrong)[wrong.cause | wrong.red] == -1)
    assert not np.any(build_view(wrong, Filter(), folded=True).stretch > 0)


def test_equal_stretches_fold_but_not_under_the_cursor() -> None:
    c = comparison_of([E, E, S, E, R, E, E, S])
    view = build_view(c, Filter(), folded=True)
    assert view.row.tolist() == [0, 4, 5]
    assert view.fold.tolist() == [4, 0, 3]
    under = build_view(c, Filter(), folded=True, cursor=2)
    assert under.row.tolist() == [0, 1, 2, 3, 4, 5], "what is left on both sides is too short to fold"
    opened = np.zeros(8, bool)
    opened[5:] = True
    assert build_view(c, Filter(), folded=True, opened=opened).row.tolist() == [0, 4, 5, 6, 7]


def test_a_first_cause_is_never_folded_away() -> None:
    c = comparison_of([E] * 9, causes=[4])
    assert build_view(c, Filter(), folded=True).row.tolist() == [0, 4, 5]


def test_a_row_that_was_gone_to_is_listed_against_the_filter() -> None:
    c = comparison_of([E, R, E])
    opened = np.array([False, False, True])
    view = build_view(c, Filter(frozenset({StatusGroup.RED})), opened=opened)
    assert view.row.tolist() == [1, 2]


def test_line_of_a_hidden_row_is_the_nearest() -> None:
    c = comparison_of([R, E, E, E, E, R])
    view = build_view(c, Filter(frozenset({StatusGroup.RED})))
    assert [view.line_of(r) for r in range(6)] == [0, 0, 0, 1, 1, 1]
    folded = build_view(comparison_of([E] * 5 + [R]), Filter(), folded=True)
    assert [folded.line_of(r) for r in range(6)] == [0, 0, 0, 0, 0, 1], "a folded row is on the line of its stretch"


def test_an_empty_view_has_no_row() -> None:
    view = build_view(comparison_of([E]), Filter(frozenset()))
    assert len(view) == 0
    assert view.row_at(0) == -1
    assert view.line_of(0) == 0
    assert view.map(3).tolist() == [False] * 3


@given(st.lists(st.integers(0, 40), unique=True), st.integers(-1, 41), st.integers(1, 5))
def test_step_agrees_with_the_slow_one(found: list[int], at: int, by: int) -> None:
    rows = np.array(sorted(found), np.int32)
    view = build_view(comparison_of([E] * 42), Filter())
    below = [r for r in sorted(found) if r > at]
    above = [r for r in sorted(found, reverse=True) if r < at]
    assert step(view, rows, at, by) == (below[:by][-1] if below else None)
    assert step(view, rows, at, -by) == (above[:by][-1] if above else None)


def test_errors_in_order_of_size() -> None:
    nan, inf = float("nan"), float("inf")
    c = comparison_of([R, E, R, R, R, E], errors=[1e-3, 0.0, inf, 1e-5, 1e-3, nan])
    view = build_view(c, Filter())
    rows = with_error(view)
    assert rows.tolist() == [0, 2, 3, 4]
    up = [step_error(c.error, rows, at, 1) for at in (3, 4, 0, 2)]
    assert up == [4, 0, 2, None], "of equal errors the first dispatched counts as the larger"
    assert step_error(c.error, rows, 1, 1) == 2, "from a row without an error, the largest"
    assert step_error(c.error, rows, -1, -1) == 2
    assert step_error(c.error, rows, 2, -1) == 0
    assert step_error(c.error, rows[:0], 0, 1) is None


def test_the_largest_error_is_none_of_a_row_that_is_not_judged() -> None:
    c = comparison_of([Status.UNFINISHED, E, R, Status.PARTIAL], errors=[1e18, 0.0, 1e-3, 5.0])
    assert with_error(build_view(c, Filter())).tolist() == [2]
    assert sorted_rows(c, Order.ERROR).tolist() == [2, 0, 1, 3]


@given(st.lists(st.sampled_from([0.0, 1e-5, 1e-3, 2.0, float("inf"), float("nan")]), min_size=1), st.data())
def test_a_step_by_error_agrees_with_the_slow_one(errors: list[float], data: st.DataObject) -> None:
    c = comparison_of([R] * len(errors), errors=errors)
    rows = with_error(build_view(c, Filter()))
    ranked = sorted(rows.tolist(), key=lambda row: (errors[row], -row))
    at = data.draw(st.sampled_from(ranked or [0]))
    by = data.draw(st.integers(-5, 5).filter(bool))
    there = ranked.index(at) + by if ranked else -1
    assert step_error(c.error, rows, at, by) == (ranked[there] if 0 <= there < len(ranked) else None)


def test_the_map_has_the_stretches_with_red() -> None:
    c = comparison_of([E] * 50 + [R] + [E] * 29 + [C] + [E] * 19, causes=[])
    assert np.flatnonzero(build_view(c, Filter()).map(10)).tolist() == [5]
    assert build_view(comparison_of([R, E]), Filter()).map(6).any()


def slow_order(c: Comparison, order: Order) -> list[int]:
    """All rows in an order, with Python's own sorting."""

    def key(row: int) -> tuple[float, int]:
        if order is Order.ERROR:
            told = c.error[row] > 0 and c.status[row] not in WITHOUT_ERROR
            return (-float(c.error[row]) if told else math.inf, row)
        if order is Order.CONFIDENCE:
            return (float(c.pairing.confidence[c.pair[row]]) if c.pair[row] >= 0 else math.inf, row)
        return (0, row)

    return sorted(range(len(c)), key=key)


@given(statuses, st.sampled_from(list(Order)), st.data())
def test_sorted_lists_agree_with_the_slow_ones(found: list[Status], order: Order, data: st.DataObject) -> None:
    n = len(found)
    errors = data.draw(st.lists(st.sampled_from([math.nan, 0.0, 1e-9, 1e-3, 2.0]), min_size=n, max_size=n))
    causes = data.draw(st.lists(st.integers(0, n - 1), max_size=3))
    hidden = data.draw(st.frozensets(st.sampled_from(list(StatusGroup))))
    c = comparison_of(found, errors=errors, causes=causes)
    c.pairing.confidence[:] = np.arange(len(c.pairing)) * 7 % 5 / 5
    view = build_view(c, Filter(frozenset(StatusGroup) - hidden), order=order)
    listed = [row for row in slow_order(c, order) if view.passing[row]]
    assert view.row.tolist() == listed
    assert view.reds.tolist() == [row for row in listed if c.red[row]]
    assert view.causes.tolist() == [row for row in listed if c.cause[row]]
    for line, row in enumerate(listed):
        assert view.line_of(row) == line
        below = [r for r in listed[line + 1 :] if c.red[r]]
        above = [r for r in reversed(listed[:line]) if c.red[r]]
        assert step(view, view.reds, row, 1) == next(iter(below), None)
        assert step(view, view.reds, row, -1) == next(iter(above), None)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", [0, 1, 2, 3, 4]),
        ("status:red", [1]),
        ("is:red,close", [1, 2]),
        ("-is:equal", [1, 2, 3, 4]),
        ("is:cause", [3]),
        ("role:receiver", [1]),
        ("WQ", [0, 1]),
        ("layers.1 op:add", [3]),
        ("module:layers.0", [0, 1, 2]),
        ("module:layers", [0, 1, 2, 3, 4]),
        ("module:layers.0.w", [0, 1]),
        ("module:=layers.0", [2]),
        ("module:=layers.*", [0, 1, 2, 3, 4]),
        ("module:=layers.#", [2, 3, 4]),
        ("module:=layers.*.wq", [0, 1]),
        ("op:mm,mul", [0, 1, 4]),
        ("op:m", [0, 1, 4]),
        ("-op:=m?", [2, 3, 4]),
        ("error>1e-4", [1]),
        ("error<=1e-4", [0, 2]),
        ("-error<=1e-4", [1, 3, 4]),
        ("eps>1000", [1]),
        ("row>=4", [3, 4]),
        ("method:aligned conf<0.8", [0, 1, 2]),
        ("reason:beyond-tolerance,only-one-run", [1, 3, 4]),
        ("conf>.8", []),
        ("phase:forward", [0, 1, 2, 3, 4]),
        ("phase:fwd,bwd", [0, 1, 2, 3, 4]),
        ("phase:bwd", []),
        ("at:model.py dtype:bfloat16", []),
        ("at:model.py:1 shape:4", [0, 1, 2, 3, 4]),
        ("file:=model.py", [0, 1, 2, 3, 4]),
        ("file:model.py:9", [0, 1, 2, 3, 4]),
        ("shape:4,8", [0, 1, 2, 3, 4]),
        ('"op_0 mm"', []),
        ('"layers.1"', [3, 4]),
        ('-"layers.1"', [0, 1, 2]),
        ('module:"layers.0",layers.1', [0, 1, 2, 3, 4]),
        ('module:"layers.0,layers.1"', []),
        ("-", []),
        ("@mine", [0, 1]),
        ("-@mine op:add", [2, 3]),
    ],
)
def test_queries(text: str, rows: list[int]) -> None:
    keys = ["layers.0.wq/op_0_mm", "layers.0.wq/op_1_mm", "layers.0/op_0_add", "layers.1/op_0_add", "layers.1/op_1_mul"]
    nan = float("nan")
    c = comparison_of([S, R, C, A, B], errors=[0, 1e-3, 1e-5, nan, nan], causes=[3], keys=keys, confidence=0.5)
    saved = {"mine": "@wq op:mm", "wq": "module:wq"}
    assert np.flatnonzero(parse_query(text, saved).mask(c)).tolist() == rows


def test_a_number_in_a_name_is_a_whole_number() -> None:
    c = comparison_of([E, E, E], keys=["layers.1.w1/op_0_mm", "layers.12.w1/op_0_mm", "layers.21/op_0_mm"])
    assert np.flatnonzero(parse_query("module:layers.1").mask(c)).tolist() == [0]
    assert np.flatnonzero(parse_query("module:1").mask(c)).tolist() == [0, 1]
    assert np.flatnonzero(parse_query("module:layers.").mask(c)).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "told", "place"),
    [
        ("status:rot", "status:rot is unknown; expected one of red, close, equal, only-one-side", "rot"),
        ("is:red,rot op:mm", "is:rot is unknown", "rot"),
        ("op:mm error>much", "'error>much': expected a number after >, like error>1e-3", "much"),
        ("error>", "expected a number after >", ""),
        ("error>nan", "expected a number after >", "nan"),
        ("colour:red", "colour: is not a field; known are arg, at, cause, differs", "colour:"),
        ("phases:fwd", "phases: is not a field; phase:?", "phases:"),
        ("error:1e-3", "error is compared with a number, like error>1e-3", "error:"),
        ("op>3", "op is not a number; known are error, largest, eps", "op"),
        ("op:mm,", "op: a value is missing", ""),
        ("cause:first", "cause: expected a number from 1 on, not 'first'", "first"),
        ('wq "two words', "unclosed quotation mark", '"two words'),
        ("wq @yours", "no saved filter 'yours'; known are loop, broken", "@yours"),
        ("@loop", "the saved filter 'loop' refers to itself", "@loop"),
        ("@broken", "the saved filter 'broken': op is not a number", "@broken"),
    ],
)
def test_a_query_that_means_nothing_says_what_was_expected_and_where(text: str, told: str, place: str) -> None:
    with pytest.raises(QueryError) as error:
        parse_query(text, {"loop": "wq -@loop", "broken": "op>3"})
    assert told in str(error.value)
    assert text[error.value.start : error.value.end] == place


@given(st.text(st.sampled_from('ab:"- ,>=*1@\\'), max_size=12))
def test_no_query_is_too_odd(text: str) -> None:
    try:
        query = parse_query(text)
    except QueryError as found:
        place = range(found.start, found.end)
        assert place
        assert place[0] >= 0
        assert place[-1] <= len(text)
        return
    assert len(query.mask(comparison_of([E, R, A]))) == 3


@pytest.mark.parametrize("module", ["layers.0.wq", "a b", 'say "no"', "x,y", "=odd", "tail*", "a[0]"])
def test_a_name_is_found_by_its_exact_word(module: str) -> None:
    c = comparison_of([E, E], keys=[f"{module}/op_0_mm", f"{module}2/op_0_mm"])
    assert 0 in np.flatnonzero(parse_query(exactly("module", module)).mask(c))


def test_completions_are_words_that_mean_something() -> None:
    c = comparison_of([E, R], keys=["layers.0.wq/op_0_mm", "layers.1/op_0_add"])
    words = completions(c, {"mine": "wq"})
    assert {"status:red", "op:mm", "module:layers.0.wq", "file:model.py", "@mine", "error>"} <= set(words)
    for word in words:
        if word[-1] not in ":>":
            parse_query(word, {"mine": "wq"})


def test_a_million_rows_take_milliseconds() -> None:
    """Generous by a factor of about ten: what is measured is that nothing is done row by row."""
    small = comparison_of([E, R] * 500)
    many = np.tile(np.arange(1000), 1000)
    big = Comparison(
        **{
            **{f: getattr(small, f) for f in ("a", "b", "pairing")},
            **{
                f: getattr(small, f)[many]
                for f in ("row_a", "row_b", "pair", "verdict", "reason", "excluded_by", "error", "bound", "tolerance")
            },
            **{f: getattr(small, f)[many] for f in ("role", "cause", "original", "inputs_equal")},
            "at_a": small.at_a,
            "at_b": small.at_b,
        }
    )
    view = build_view(big, Filter(), folded=True)
    view.map(50)
    assert step(view, view.reds, 500_000, 1) == 500_001
    by_error = build_view(big, Filter(), order=Order.ERROR)
    assert step(by_error, by_error.reds, 1, 2) == 5
    assert step_error(big.error, with_error(view), 1, -1) == 3


def test_the_beginning_of_a_word_is_every_word_that_begins_so() -> None:
    c = comparison_of([E, A, B, R])
    assert parse_query("status:only").mask(c).tolist() == [False, True, True, False]
    assert parse_query("status:red,eq").mask(c).tolist() == [True, False, False, True]
    assert parse_query("-is:only").mask(c).tolist() == [True, False, False, True]
