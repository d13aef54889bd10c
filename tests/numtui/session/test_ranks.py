"""The cursor in the matrix of ranks, the row that it takes from rank to rank, and the comparisons that are kept."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from matchers.comparison import Comparison
from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.summary import Cell, Outcome, RankSummary
from numtui.inputs import OpenRequest
from numtui.report.runs.matrix import stretches
from numtui.session.kept import KeptComparisons
from numtui.session.loading import Loaded, load, open_heads, stamps_of
from numtui.session.ranks import RanksCursor
from numtui.session.same_row import LeftRow
from numtui.session.session import Session
from tests.ranks import BEGAN, ORIGIN, logged_runs, made_runs, steps

REQUEST = OpenRequest(path_a="", path_b="", name_a="", name_b="", rules_path=Path("overrides.yaml"))


def with_cells(*steps: list[tuple[str, str]]) -> list[RankSummary]:
    return [
        RankSummary(
            rank=rank, outcome=Outcome.COMPARED, cells=tuple(Cell(*stretch, "equal", 0, 0) for stretch in stretches)
        )
        for rank, stretches in enumerate(steps)
    ]


def test_the_stages_of_a_pipeline_are_one_step() -> None:
    """No rank has the layers of another: phases order them, then layers, in the backward pass from the last one."""
    merged = stretches(with_cells(*(steps(stage) for stage in (2, 0, 3, 1))))
    layers = [f"layers.{n}" for n in range(12)]
    forward = ["tok_embeddings", *layers, "norm", ""]
    assert [place for phase, place in merged if phase == "forward"] == forward
    assert [place for phase, place in merged if phase == "backward"] == forward[::-1]
    assert [phase for phase, _ in merged] == sorted(
        (phase for phase, _ in merged), key=("forward", "backward", "optimizer").index
    )


def test_the_order_of_each_rank_is_kept() -> None:
    one = [("forward", "b"), ("prepare", ""), ("forward", "a")]
    assert list(stretches(with_cells(one, one[1:]))) == one


def test_ranks_that_contradict_each_other_are_put_in_some_order() -> None:
    one, other = ("forward", "layers.1"), ("forward", "layers.0")
    assert stretches(with_cells([one, other], [other, one])) == (other, one)


def test_it_starts_where_the_divergence_began() -> None:
    cursor = RanksCursor(made_runs(64))
    assert cursor.rank == ORIGIN
    assert cursor.columns[cursor.column] == ("forward", BEGAN)
    assert cursor.event is cursor.summary.causes[0]
    opening = cursor.opening(REQUEST)
    assert opening == replace(
        REQUEST,
        path_a="base/rank_2_activations.log",
        path_b="new/rank_2_activations.log",
        name_a="base",
        name_b="new",
        row=35,
    )


def test_a_cell_without_an_event_opens_where_its_worst_status_begins() -> None:
    cursor = RanksCursor(made_runs(8))
    assert cursor.cell is not None
    cursor.go_to_column(cursor.column + 1)
    opening = cursor.opening(REQUEST)
    assert opening is not None
    assert opening.row == cursor.cell.record != 35


def test_an_operation_that_only_b_has_is_opened_by_its_line() -> None:
    runs = made_runs(8)
    summary = runs.summaries[ORIGIN]
    only_b = replace(summary, causes=(replace(summary.causes[0], line_a=0),))
    opening = RanksCursor(replace(runs, summaries={**runs.summaries, ORIGIN: only_b})).opening(REQUEST)
    assert opening is not None
    assert (opening.row, opening.line_b) == (35, 102)


def test_a_rank_of_one_run_opens_alone_and_one_of_none_says_why() -> None:
    runs = made_runs(16)
    cursor = RanksCursor(runs)
    cursor.go_to_rank(9)
    assert cursor.opening(REQUEST) is None
    assert cursor.message == "rank 9: new has no log of it"
    half = replace(runs.summaries[9], paths=("", "new/rank_9.log"))
    cursor = RanksCursor(replace(runs, summaries={**runs.summaries, 9: half}))
    cursor.go_to_rank(9)
    opening = cursor.opening(REQUEST)
    assert opening is not None
    assert (opening.path_a, opening.path_b, opening.name_a, opening.row) == ("new/rank_9.log", "", "new", None)


def test_many_ranks_are_folded_until_they_are_listed() -> None:
    """A row per class and stage: the ranks that are red from layer 2 on are not those red in the optimizer."""
    cursor = RanksCursor(made_runs(64))
    assert cursor.folded
    assert cursor.row.ranks == (ORIGIN,)
    assert sorted(rank for row in cursor.rows for rank in row.ranks) == list(range(64))
    alike = cursor.rows[0]
    assert alike.coordinates == {"pp": 0}
    cursor.toggle_fold()
    assert len(cursor.rows) == 64
    assert cursor.rank == ORIGIN == cursor.at
    assert not RanksCursor(made_runs(4)).folded


def test_16384_ranks_are_a_few_rows() -> None:
    assert len(RanksCursor(made_runs(16_384)).rows) < 10


def test_moves() -> None:
    cursor = RanksCursor(made_runs(16))
    cursor.go_to_row(-3)
    assert cursor.rank == 0
    cursor.next_red(1)
    assert cursor.rank == 1
    cursor.next_red(-1)
    cursor.next_red(-1)
    assert (cursor.rank, cursor.message) == (0, "no red rank above")
    cursor.go_to_class(cursor.class_at + 1)
    assert cursor.rank == 9
    cursor.go_to_class(cursor.class_at - 1)
    assert cursor.rank == 0
    cursor.next_origin()
    assert (cursor.rank, cursor.columns[cursor.column]) == (ORIGIN, ("forward", BEGAN))
    cursor.next_origin()
    assert (cursor.rank, cursor.message) == (ORIGIN, "it began here")
    cursor.go_to_row(99)
    cursor.go_to_column(9999)
    assert (cursor.rank, cursor.column) == (15, len(cursor.columns) - 1)


def test_the_rank_beside_was_compared() -> None:
    cursor = RanksCursor(made_runs(16))
    cursor.go_to_rank(8)
    assert (cursor.beside(1), cursor.beside(3), cursor.beside(-1), cursor.beside(100)) == (10, 12, 7, 15)
    cursor.go_to_rank(15)
    assert cursor.beside(1) is None
    assert cursor.message == "no later rank was compared"


def test_ranks_without_anything_to_show() -> None:
    """None that was read, none that differs."""
    absent = {3: RankSummary(rank=3, outcome=Outcome.FAILED, why="not a log")}
    for summaries in (absent, {0: RankSummary(rank=0, outcome=Outcome.EQUAL)}):
        cursor = RanksCursor(RunComparison(("a", "b"), summaries))
        cursor.next_origin()
        assert cursor.message == "nothing differs"
        cursor.next_red(1)
        assert cursor.message == "no rank that differs below"
        assert cursor.opening(REQUEST) is None


# -- from rank to rank


@pytest.fixture
def cursor(tmp_path: Path) -> RanksCursor:
    """On the first rank. The last one has an operation more; rank 1 differs from row 5 on."""
    cursor = RanksCursor(logged_runs(tmp_path))
    cursor.go_to_rank(0)
    return cursor


def request_of(cursor: RanksCursor, rank: int, rules: Path) -> OpenRequest:
    found = cursor.request_for(REQUEST, rank)
    assert found is not None
    return replace(found, rules_path=rules, resume=False)


def opened(request: OpenRequest, kept: KeptComparisons | None = None) -> tuple[Session, Loaded]:
    loaded = load(request, lambda *_: None, None, kept)
    session = open_heads(request)
    session.adopt(loaded.comparison, loaded.file)
    return session, loaded


def test_a_row_is_found_on_another_rank(cursor: RanksCursor, tmp_path: Path) -> None:
    """By its key; where that is missing, the row before it; with the filter, and without the notes."""
    (first, _), (last, _) = (opened(request_of(cursor, rank, tmp_path / "r.yaml")) for rank in (0, 2))
    first.listing.set_query("layers.1")
    first.listing.go(12)
    first.listing.annotate("odd")
    assert LeftRow.of(first).resume(last) == "same operation"
    assert last.listing.cursor == 13
    assert last.listing.filter.query.text == "layers.1"
    assert not last.listing.annotations.notes
    last.listing.go(2)
    assert LeftRow.of(last).resume(first).startswith("nearest operation")
    assert first.listing.cursor == 1


def test_a_row_of_another_program_is_found_by_its_share(cursor: RanksCursor, tmp_path: Path) -> None:
    session, _ = opened(request_of(cursor, 0, tmp_path / "r.yaml"))
    left = LeftRow.of(session)
    other, _ = opened(request_of(cursor, 1, tmp_path / "r.yaml"))
    other.listing.go(0)
    rows = len(session.comparison)
    shortened = replace(left, row=rows // 2, comparison=_renamed(session, tmp_path))
    assert shortened.resume(other).startswith("same share of the step")
    assert abs(other.listing.cursor - rows // 2) <= 1


def _renamed(session: Session, folder: Path) -> Comparison:
    """The comparison of the same logs with other keys."""
    paths = []
    for side, log in zip("ab", (session.comparison.a, session.comparison.b), strict=True):
        path = folder / f"renamed_{side}.log"
        path.write_text(Path(log.path).read_text().replace("[layers", "[blocks").replace("[", "[x"))
        paths.append(str(path))
    return load(replace(REQUEST, path_a=paths[0], path_b=paths[1]), lambda *_: None).comparison


def test_a_kept_comparison_is_not_made_again(cursor: RanksCursor, tmp_path: Path) -> None:
    """Unless a log has changed; saved rules apply to it."""
    request = request_of(cursor, 1, tmp_path / "r.yaml")
    _, loaded = opened(request)
    kept = KeptComparisons()
    kept.keep(request, loaded.comparison, loaded.stamps)
    assert opened(request, kept)[1].comparison is loaded.comparison
    request.rules_path.write_text("ignore:\n  - match: layers.0.attention/op_0_bmm\n")
    again = opened(request, kept)[1].comparison
    assert again.a is loaded.comparison.a
    assert (loaded.comparison.red.sum(), again.red.sum()) == (1, 0)
    os.utime(request.path_b, ns=(1, 1))
    assert opened(request, kept)[1].comparison.a is not loaded.comparison.a


def test_the_last_few_comparisons_are_kept(cursor: RanksCursor, tmp_path: Path) -> None:
    loaded = opened(request_of(cursor, 0, tmp_path / "r.yaml"))[1]
    kept = KeptComparisons()
    requests = [replace(REQUEST, path_a=f"a{n}") for n in range(6)]
    for request in (*requests, requests[2]):
        kept.keep(request, loaded.comparison, loaded.stamps)
    assert [kept.find(request, loaded.stamps) is not None for request in requests] == [False, False, *[True] * 4]
    assert kept.find(requests[5], stamps_of(requests[5])) is None
