"""What is kept from one sitting to the next: found again by key, merged, and never in the way."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchers.comparison import Comparison
from matchers.rules.file import RuleFile
from matchers.status import Status
from numtui.query.view import Order, StatusGroup
from numtui.session.listing import Details
from numtui.session.rule_edits import record_pair_of
from numtui.session.session import Session
from numtui.session.store import NOWHERE, Anchor, SavedSession, SessionStore, anchor_of, row_of_anchor
from tests.numtui.fakes import comparison_of, log_of

E, A, B = Status.EQUAL, Status.ONLY_A, Status.ONLY_B
HERE: Anchor = (("layers.0/op_0_mm", 0), None)
THERE: Anchor = (("layers.0/op_0_mm", 1), ("layers.0/op_0_mm", 0))


def store(folder: Path) -> SessionStore:
    return SessionStore("a.log", "b.log", folder=folder)


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    kept = SavedSession(
        cursor=THERE,
        query="op:mm -is:close",
        hidden=("equal",),
        order="error",
        fold_chosen=True,
        filters={"heads": "op:mm conf<.5"},
        marks={"x": HERE},
        notes={HERE: "Kim: “seen before”\nsecond line", (None, ("k\udcff", 0)): "not UTF-8"},
    )
    store(tmp_path).save(kept)
    assert store(tmp_path).load() == kept
    assert SessionStore("b.log", "a.log", folder=tmp_path).load() == SavedSession(), "another pair of logs"


def test_a_session_of_before_the_list_opened_folded_chose_nothing(tmp_path: Path) -> None:
    mine = store(tmp_path)
    mine.save(SavedSession(query="op:mm", fold_chosen=False))
    assert mine.load().fold_chosen is False
    mine.path.write_text(mine.path.read_text().replace('"fold_chosen"', '"folded"'))
    assert mine.load() == SavedSession(query="op:mm")


def test_another_session_that_hangs_while_it_saves_does_not_hang_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numtui.session.store.PATIENCE", 0)
    mine = store(tmp_path)
    mine.save(SavedSession(query="op:mm"))
    with mine.path.with_suffix(".lock").open("rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        mine.save(SavedSession(query="op:add"))
        assert mine.problem is not None
        assert "another process is saving it" in mine.problem
    mine.save(SavedSession(query="op:add"))
    assert store(tmp_path).load().query == "op:add"


def test_a_row_is_found_again_by_its_key_in_a_log_that_has_grown_in_front() -> None:
    keys = ["w/op_0_mm", "aw/op_0_mm", "w/op_0_mm", "w/op_0_mm"]
    before, after = comparison_of([E, E, A, B], keys=keys), comparison_of([A, E, E, A, B], keys=["new/op_0_x", *keys])
    assert anchor_of(before, record_pair_of(before, 2)) == (("w/op_0_mm", 1), None)
    assert [row_of_anchor(after, anchor_of(before, record_pair_of(before, row))) for row in range(4)] == [1, 2, 3, 4]
    assert row_of_anchor(after, (("gone/op_0_mm", 0), None)) == -1
    assert row_of_anchor(after, (("w/op_0_mm", 7), None)) == -1
    assert anchor_of(before, record_pair_of(before, -1)) == NOWHERE
    assert row_of_anchor(after, NOWHERE) == -1


@given(st.lists(st.sampled_from(["a", "aa", "ba", "", "a/a"]), min_size=1, max_size=12))
def test_keys_are_counted_as_slow_code_counts_them(keys: list[str]) -> None:
    column = log_of(keys).keys
    for row, key in enumerate(keys):
        nth = keys[:row].count(key)
        assert column.occurrence(row) == nth
        assert column.find(key.encode(), nth) == row
        assert column.find(key.encode(), keys.count(key)) == -1


def test_two_sittings_at_once_do_not_undo_each_other(tmp_path: Path) -> None:
    first = SavedSession(notes={HERE: "old", THERE: "stays"}, filters={"f": "op:mm"})
    store(tmp_path).save(first)
    one, other = store(tmp_path), store(tmp_path)
    assert one.load() == other.load() == first
    one.save(SavedSession(notes={HERE: "mine", THERE: "stays"}, filters={"f": "op:mm", "g": "is:red"}))
    other.save(SavedSession(notes={THERE: "stays"}, filters={"f": "op:add"}, query="is:cause"))
    now = store(tmp_path).load()
    assert now.filters == {"f": "op:add", "g": "is:red"}
    assert now.notes == {HERE: "mine", THERE: "stays"}, "what was changed is not removed"
    assert now.query == "is:cause"


def test_what_two_sittings_at_once_reject_stays_rejected(tmp_path: Path) -> None:
    store(tmp_path).save(SavedSession(rejected=("old", "taken back")))
    one, other = store(tmp_path), store(tmp_path)
    assert one.load() == other.load()
    one.save(SavedSession(rejected=("old", "of one", "taken back")))
    other.save(SavedSession(rejected=("of the other", "old")))
    assert store(tmp_path).load().rejected == ("of one", "of the other", "old")


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2}', '{"version": 1, "notes": 3}', "[" * 100_000])
def test_a_damaged_file_is_put_aside_and_said(tmp_path: Path, text: str) -> None:
    mine = store(tmp_path)
    mine.path.write_text(text, encoding="utf-8")
    assert mine.load() == SavedSession()
    assert mine.problem is not None
    assert mine.path.with_suffix(".damaged").read_text(encoding="utf-8") == text
    mine.save(SavedSession(query="op:mm"))
    assert json.loads(mine.path.read_text(encoding="utf-8"))["query"] == "op:mm"


def test_a_folder_that_cannot_be_made_is_said_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    mine = SessionStore("a.log", "b.log", folder=tmp_path / "taken" / "sessions")
    assert mine.load() == SavedSession()
    mine.save(SavedSession(query="op:mm"))
    assert mine.problem is not None
    assert "session not saved" in mine.problem


def test_a_sitting_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    c = comparison_of([E, Status.DIVERGED, Status.CLOSE, A, Status.DIVERGED, B])
    first = session_of(c, tmp_path)
    first.listing.saved["heads"] = "op:mm"
    first.listing.set_query("@heads row>1")
    first.listing.toggle(StatusGroup.ONLY_B)
    first.listing.sort(Order.ERROR)
    first.listing.details, first.listing.merged = Details.MOST, True
    first.listing.go(4)
    first.listing.annotations.notes[first.listing.spot] = "Kim knows"
    first.listing.annotations.marks["k"] = first.listing.spot
    first.store_session()
    assert first.store is not None
    first.store.save(replace(first.store.known, notes={**first.store.known.notes, HERE: "on a row that is gone"}))

    second = session_of(c, tmp_path)
    told = second.resume(second.store.load() if second.store is not None else SavedSession())
    assert told == "last session restored: at #5, 4 of 6 rows listed, esc lists all, 1 note"
    assert (second.listing.cursor, second.listing.order, second.listing.filter.groups) == (
        4,
        Order.ERROR,
        first.listing.filter.groups,
    )
    assert (second.listing.details, second.listing.merged) == (Details.MOST, True)
    assert second.listing.view.row.tolist() == first.listing.view.row.tolist()
    assert second.listing.annotations.notes == {second.listing.spot: "Kim knows"}
    assert second.listing.annotations.marks == {"k": second.listing.spot}
    second.store_session()
    assert store(tmp_path).load().notes[HERE] == "on a row that is gone"


def test_who_has_begun_already_is_not_moved(tmp_path: Path) -> None:
    session = session_of(comparison_of([E, E, E]), tmp_path)
    session.listing.go(2)
    assert session.resume(SavedSession(cursor=anchor_of(session.comparison, (1, 1)), query="status:red")) == ""
    assert (session.listing.cursor, len(session.listing.view)) == (2, 3)


def test_notes_of_two_rows_stay_when_they_come_together(tmp_path: Path) -> None:
    """Written on both halves of a pair that was cut, with rules that were never saved."""
    cut = comparison_of([A, B], keys=["w/op_0_mm", "w/op_0_mm"])
    before = session_of(cut, tmp_path)
    for row, text in enumerate(("of a", "of b")):
        before.listing.go(row)
        before.listing.annotate(text)
    before.store_session()
    after = session_of(comparison_of([E], keys=["w/op_0_mm"]), tmp_path)
    assert after.store is not None
    after.resume(after.store.load())
    assert after.listing.annotations.note(after.comparison, 0) == "of a; of b"
    after.store_session()
    again = session_of(cut, tmp_path)
    assert again.store is not None
    again.resume(again.store.load())
    assert again.listing.annotations.noted(cut) == [(0, "of a"), (1, "of b")]


def test_what_is_written_while_the_logs_are_read_is_kept(tmp_path: Path) -> None:
    """Also when that is all there is, because the connection was lost meanwhile."""
    c = comparison_of([E, E, E])
    earlier = session_of(c, tmp_path)
    earlier.listing.annotate("of an earlier sitting")
    earlier.typed.add("filter", "op:mm")
    earlier.listing.go(2)
    earlier.store_session()
    reading = session_of(replace(c, a=replace(c.a, partial=True)), tmp_path)
    assert reading.store is not None
    kept = reading.store.load()
    reading.listing.go(1)
    reading.listing.annotate("written meanwhile")
    reading.listing.mark_row("m")
    reading.listing.saved["reds"] = "status:red"
    reading.typed.add("filter", "status:red")
    reading.store_session()
    written = store(tmp_path).load()
    assert sorted(written.notes.values()) == ["of an earlier sitting", "written meanwhile"]
    assert (list(written.marks), written.filters, written.cursor) == (["m"], {"reds": "status:red"}, kept.cursor)
    assert written.typed == {"filter": ("op:mm", "status:red")}
    reading.adopt(c, reading.file)
    assert reading.resume(kept) == ""
    assert reading.listing.annotations.noted(c) == [(0, "of an earlier sitting"), (1, "written meanwhile")]
    assert (reading.listing.annotations.letters(c), reading.listing.saved) == ({1: "m"}, {"reds": "status:red"})
    assert reading.typed.of("filter") == ("op:mm", "status:red")


def test_a_filter_of_another_version_is_said_and_not_used(tmp_path: Path) -> None:
    session = session_of(comparison_of([E, E, E]), tmp_path)
    assert "invalid filter: colour:red" in session.resume(SavedSession(query="colour:red"))
    assert len(session.listing.view) == 3


def session_of(c: Comparison, folder: Path) -> Session:
    return Session(c, RuleFile.empty(Path("overrides.yaml")), store=store(folder))


def test_the_oldest_sittings_are_forgotten_unless_somebody_wrote_something_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numtui.session.store._MAX_SESSIONS", 3)
    for number in range(6):
        made = SessionStore(f"{number}.log", "b.log", folder=tmp_path)
        made.save(SavedSession(query="op:mm", notes={HERE: "Kim saw it"} if number == 1 else {}))
        os.utime(made.path, (number, number))
    left = {json.loads(path.read_text())["logs"]["a"][-5:] for path in tmp_path.glob("*.json")}
    assert left == {"1.log", "3.log", "4.log", "5.log"}
    assert len(list(tmp_path.glob("*.lock"))) == len(left)
    SessionStore("5.log", "b.log", folder=tmp_path).save(SavedSession())
    assert len(list(tmp_path.glob("*.json"))) == len(left), "no new one, none to forget"


@pytest.mark.parametrize(
    "change",
    [
        {"cursor": [["k", float("inf")], None]},
        {"cursor": [["k", 10**400], None]},
        {"cursor": [["k", -1], None]},
        {"cursor": [["k", 1.5], None]},
        {"cursor": [["\ud800", 0], None]},
        {"query": "\ud800"},
        {"marks": {"a": [["k", float("nan")], None]}},
        {"version": float("inf")},
    ],
)
def test_a_broken_session_is_kept_aside_and_costs_only_itself(change: dict[str, object], tmp_path: Path) -> None:
    store = SessionStore("a.log", "b.log", folder=tmp_path)
    store.save(SavedSession(query="red"))
    assert store.load().query == "red"
    store.path.write_text(json.dumps(json.loads(store.path.read_text()) | change))
    assert store.load() == SavedSession()
    assert "invalid file of the last session" in str(store.problem)
    assert store.path.with_suffix(".damaged").exists()
    store.save(SavedSession(query="cause:1"))
    assert store.load().query == "cause:1"


def test_a_session_that_nests_too_deeply_is_kept_aside(tmp_path: Path) -> None:
    store = SessionStore("a.log", "b.log", folder=tmp_path)
    store.save(SavedSession(query="red"))
    store.path.write_text("[" * 100_000)
    assert store.load() == SavedSession()
    assert store.path.with_suffix(".damaged").exists()


@pytest.mark.parametrize("field", ["hidden", "rejected"])
def test_a_text_is_no_list_of_texts(tmp_path: Path, field: str) -> None:
    kept = store(tmp_path)
    kept.save(SavedSession(hidden=("equal",), rejected=("a rule",)))
    kept.path.write_text(json.dumps(json.loads(kept.path.read_text()) | {field: "equal"}))
    assert kept.load() == SavedSession()
    assert "kept as" in (kept.problem or "")
