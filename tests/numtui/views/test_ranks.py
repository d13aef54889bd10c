"""The overview of ranks as text: at any size, for any number of ranks, whatever the logs say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.summary import Cell, Outcome, RankSummary, Received, Sent
from matchers.status import Status
from numtui.session.ranks import RanksCursor
from numtui.text.lines import line_width
from numtui.views.ranks import last_top, next_column, ranks_lines
from tests.hostile import NASTY, RAW_CONTROL
from tests.ranks import BEGAN, ORIGIN, event, made_runs

SIZES = ((80, 24), (120, 40))


def text(cursor: RanksCursor, width: int = 80, height: int = 24) -> list[str]:
    lines, items = ranks_lines(cursor, width, height)
    assert len(lines) == len(items) == height
    assert all(line_width(line) <= width for line in lines)
    return ["".join(piece for piece, _ in line) for line in lines]


def test_four_ranks() -> None:
    assert [line.rstrip() for line in text(RanksCursor(made_runs(4)))[:17]] == [
        " base ⇄ new: 3 of 4 ranks are red; it began on rank 2",
        " ✗ ranks 0–2  layers.2.attention/op_0_mul, model.py:41 · 20–50 red rows · began…",
        " ≡ rank 3  dp=1, tp=1  agree: same records by the footers of their logs",
        "",
        " forward · layers.2  ● began here  ✗ red, 5 red rows",
        "                         forward     backward    optimiz",
        "                           0 1 2         2 1 0   0 1 2",
        " rank 0  pp=0 dp=0 tp=0  ≡ ≈ ≈ ≡ ≈ ≈ ≡ ≈ ≈ ≡ ≈ ≈ ✗ ✗ ✗ ✗",
        " rank 1  pp=0 dp=0 tp=1  ≡ ≈ ≈ ≡ ≈ ≈ ≡ ≈ ≈ ≡ ≈ ≈ ✗ ✗ ✗ ✗",
        "▸rank 2  pp=0 dp=1 tp=0  ≡ ≈ ≈ ● ✗ ✗ ✗ ✗ ✗ ✗ ✗ ✗ ✗ ✗ ✗ ✗",
        " rank 3  pp=0 dp=1 tp=1  ≡ ≡ ≡ ≡ ≡ ≡ ≡ ≡ ≡ ≡ ≡ ≡ ≡ ≡ ≡ ≡",
        " ● began here  ✗ red  ≈ close  ≡ equal",
        " rank 2 · pp=0 dp=1 tp=0 · node node0 · 50 of 900 rows red",
        " FIRST CAUSE: the output differs by 1.0e-02; all inputs agree",
        " layers.2.attention/op_0_mul, forward, model.py:41 · a line 100, b line 102",
        " explains 50 red rows of this rank",
        " began on rank 2 · dp=1, tp=0",
    ]


@pytest.mark.parametrize("ranks", [4, 64, 1024])
@pytest.mark.parametrize("size", SIZES)
def test_one_screen_shows_the_origin_and_every_kind_of_rank(ranks: int, size: tuple[int, int]) -> None:
    cursor = RanksCursor(made_runs(ranks))
    shown = text(cursor, *size)
    assert f"ranks are red; it began on rank {ORIGIN}" in shown[0]
    assert any(line.startswith(f"▸rank {ORIGIN} ") and "●✗✗" in line.replace(" ", "") for line in shown)
    assert any(line.startswith(" ≡ ") and "  agree: " in line for line in shown)
    assert ranks == 4 or any("– absent: new has no log of it" in line for line in shown)
    assert any("began here" in line for line in shown)
    assert shown[-1].startswith(" ↓↑ rank  ←→ step  enter explorer")


@pytest.mark.parametrize("size", SIZES)
def test_the_row_of_the_cursor_is_shown_wherever_it_is(size: tuple[int, int]) -> None:
    cursor = RanksCursor(made_runs(1024))
    cursor.toggle_fold()
    for rank in (0, 500, 1023):
        cursor.go_to_rank(rank)
        assert rank in ranks_lines(cursor, *size)[1]
        assert any(line.startswith(f"▸rank {rank} ") for line in text(cursor, *size))


def test_a_rank_that_was_reached_says_from_where() -> None:
    cursor = RanksCursor(made_runs(8))
    cursor.go_to_rank(1)
    shown = "\n".join(text(cursor, 120, 40))
    assert "came through all_reduce (sum) of ranks 0–7, from rank 2; began on rank 2 · dp=1, tp=0:" in shown
    assert "layers.2.attention/op_0_mul, forward, model.py:41  (o goes there)" in shown


def test_neighbours_share_a_sign_where_there_is_no_room() -> None:
    """The worst one; the arrow keys go to it."""
    cursor = RanksCursor(made_runs(64))
    narrow = text(cursor, 48, 24)
    row = next(line for line in narrow if line.startswith("▸"))
    assert "●" in row
    assert len(row.rstrip()) <= 47
    before = cursor.column
    for by in (-1, 1):
        cursor.go_to_column(next_column(cursor, 48, 24, by))
    assert cursor.column == before, "where it began is the worst of its neighbours"
    cursor.go_to_column(next_column(cursor, 48, 24, 1))
    assert cursor.column > before + 1
    cursor.go_to_column(0)
    assert next_column(cursor, 48, 24, -1) == 0


def test_what_differs_within_tolerance_is_not_red() -> None:
    close = event("forward", BEGAN, text="First difference: row 41, within tolerance", red=0)
    cells = (Cell("forward", BEGAN, "close", 0, 40),)
    one = RankSummary(rank=0, outcome=Outcome.COMPARED, paths=("a", "b"), rows=9, difference=close, cells=cells)
    shown = text(RanksCursor(RunComparison(("a", "b"), {0: one, 1: replace(one, rank=1)})))
    assert shown[0] == " a ⇄ b: No divergence: 2 ranks agree, 2 of them within tolerance"
    assert shown[1].startswith(" ≈ ranks 0, 1  layers.2.attention/op_0_mul, model.py:41")
    assert any("First difference: row 41" in line for line in shown)
    assert " forward · layers.2  ○ began here  ≈ close" in map(str.rstrip, shown)
    assert " ○ began here, within tolerance" in map(str.rstrip, shown)


def test_equal_runs_and_runs_that_could_not_be_compared() -> None:
    equal = RankSummary(rank=0, outcome=Outcome.EQUAL, paths=("a", "b"), rows=9, world_size=(4, 4))
    failed = RankSummary(rank=1, outcome=Outcome.FAILED, why="b is cut off")
    shown = text(RanksCursor(RunComparison(("a", "b"), {0: equal})))
    assert shown[0] == " a ⇄ b: Not compared: ranks 1–3; 1 rank agrees"
    assert " all 9 records equal by the digests at the end of both logs" in shown
    shown = text(RanksCursor(RunComparison(("a", "b"), {1: failed})))
    assert shown[0] == " a ⇄ b: Nothing was compared"
    assert any("– failed: b is cut off" in line for line in shown)


def test_details_scroll_to_their_end_and_no_further() -> None:
    runs = made_runs(4)
    noted = replace(runs.summaries[ORIGIN], notes=tuple(("note", f"note {n}") for n in range(30)))
    cursor = RanksCursor(replace(runs, summaries={**runs.summaries, ORIGIN: noted}))
    assert any(line.startswith("  more: space") for line in text(cursor))
    cursor.top = last_top(cursor, 80, 24)
    shown = text(cursor)
    assert not any("more: space" in line for line in shown)
    assert any("new/rank_2_activations.log" in line for line in shown), "the last line"


@pytest.mark.parametrize("nasty", [value.decode("utf-8", "surrogateescape") for value in NASTY.values()])
def test_hostile_texts_are_made_safe(nasty: str) -> None:
    cause = event(
        nasty, nasty, key=nasty, module=nasty, location=nasty, text=nasty, received=(Received(nasty, 0, nasty),)
    )
    one = RankSummary(
        rank=0,
        outcome=Outcome.COMPARED,
        why=nasty,
        paths=(nasty, nasty),
        rows=1,
        red=1,
        causes=(cause,),
        sent=(Sent(nasty, 0, 0, 0),),
        cells=(Cell(nasty, nasty, nasty, 1, 0),),
        failures=((nasty, nasty),),
        troubles=(nasty,),
        notes=((nasty, nasty),),
        host=nasty,
        coordinates={nasty: 0},
    )
    other = replace(one, rank=1, sent=())
    absent = RankSummary(rank=2, outcome=Outcome.ABSENT, why=nasty)
    cursor = RanksCursor(RunComparison((nasty, nasty), {0: one, 1: other, 2: absent}))
    for rank in range(3):
        cursor.go_to_rank(rank)
        cursor.message = nasty if rank else ""
        assert not RAW_CONTROL.search("".join(text(cursor, 120, 40)))


PLACES = st.sampled_from(["", "layers.0", "layers.1", "層.3", "norm"])
PHASES = st.sampled_from(["forward", "backward", "optimizer", "?"])
CELLS = st.builds(
    Cell,
    PHASES,
    PLACES,
    st.sampled_from([*(status.label for status in Status), "unknown"]),
    st.integers(0, 9),
    st.integers(0, 99),
)
EVENTS = st.builds(
    lambda phase, place, received, channel: event(
        phase, place, received=(Received(channel, 0, "all_gather"),) if received else ()
    ),
    PHASES,
    PLACES,
    st.booleans(),
    st.sampled_from(["dp 0-3", "tp 0-1"]),
)


@st.composite
def runs(draw: st.DrawFn) -> RunComparison:
    summaries = {}
    for rank in draw(st.lists(st.integers(0, 20_000), min_size=1, max_size=20, unique=True).map(sorted)):
        causes = tuple(draw(st.lists(EVENTS, max_size=2)))
        cells = {cell.stretch: cell for cell in draw(st.lists(CELLS, max_size=12))}
        summaries[rank] = RankSummary(
            rank=rank,
            outcome=draw(st.sampled_from(Outcome)),
            why=draw(st.sampled_from(["", "no log " * 30])),
            red=draw(st.integers(0, 9)) * bool(causes),
            rows=9,
            causes=causes,
            difference=draw(st.none() | EVENTS),
            sent=(Sent("dp 0-3", 0, 0, 0),) * draw(st.integers(0, 1)) * bool(causes),
            cells=tuple(cells.values()),
            coordinates=draw(st.dictionaries(st.sampled_from(["dp", "tp"]), st.integers(0, 3))),
            world_size=(draw(st.none() | st.integers(0, 30)), None),
        )
    return RunComparison(("a", "b" * draw(st.integers(1, 90))), summaries)


@given(runs(), st.integers(1, 200), st.integers(1, 60), st.data())
def test_any_ranks_fill_the_screen_exactly(made: RunComparison, width: int, height: int, data: st.DataObject) -> None:
    cursor = RanksCursor(made)
    for _ in range(data.draw(st.integers(0, 4))):
        cursor.message = ""
        move = data.draw(st.sampled_from(["origin", "fold", "red", "class", "row", "left", "right"]))
        if move == "origin":
            cursor.next_origin()
        elif move == "fold":
            cursor.toggle_fold()
        elif move == "red":
            cursor.next_red(1)
        elif move == "class":
            cursor.go_to_class(cursor.class_at + 1)
        elif move == "row":
            cursor.go_to_row(cursor.at + 1)
        else:
            cursor.go_to_column(next_column(cursor, width, height, 1 if move == "right" else -1))
    cursor.top = data.draw(st.integers(0, last_top(cursor, width, height)))
    lines, items = ranks_lines(cursor, width, height)
    assert len(lines) == len(items) == height
    assert all(line_width(line) <= width for line in lines)
    assert all(item == -1 or item in made.summaries for item in items)
