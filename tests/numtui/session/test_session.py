"""The session: everything a key press does, without a screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from matchers.comparison import Comparison, compare, preview
from matchers.errors import RulesError
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.rules.file import RuleFile, RulesChangedError
from matchers.rules.model import ApartRule, IgnoreRule, PairRule, RuleSet, TemplateRule
from matchers.status import Status
from numtui.query.query import QueryError
from numtui.query.view import StatusGroup
from numtui.session.journal import Journal
from numtui.session.listing import Listing, Search
from numtui.session.restore import resume, sitting_of
from numtui.session.rule_edits import EditError, Effect, ignore_edits, pair_edits, unpair_edits
from numtui.session.session import Session
from tests.builders import Op, op, training_step, write_log
from tests.matchers.causes.test_first_causes import Step, changed, flow
from tests.matchers.drifted_logs import made_up_log
from tests.needs import examples
from tests.numtui.fakes import comparison_of

E, R, A, B = Status.EQUAL, Status.DIVERGED, Status.ONLY_A, Status.ONLY_B

WRONG = """\
# agreed with Kim on Monday
pairs:
  - a: layers.0.attention.wq/op_0_mm   # the wrong one
    b: layers.0.attention.wk/op_0_mm
    why: a guess
"""
"""A rule that is wrong: it makes rows red."""


def logs(folder: Path, ops_a: list[Op] | None = None, ops_b: list[Op] | None = None) -> tuple[OpLog, OpLog]:
    a = write_log(folder / "a.log", training_step() if ops_a is None else ops_a)
    b = write_log(folder / "b.log", training_step() if ops_b is None else ops_b)
    return read_log(a), read_log(b)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Two equal runs, and the rules of `WRONG`."""
    a, b = logs(tmp_path)
    path = tmp_path / "overrides.yaml"
    path.write_text(WRONG, encoding="utf-8")
    file = RuleFile.load(path)
    journal = Journal(a.path, b.path, path, folder=tmp_path / "state")
    return Session(compare(a, b, file.rules), file, names=("one", "two"), journal=journal)


def close_before_red(*, red: bool = True) -> Comparison:
    """Four operations; the second differs within the tolerance, the last one beyond it."""
    steps: list[Step] = [
        ("embedding", 1.0, [50.0]),
        ("bmm", 2.0, ["embedding"]),
        ("neg", 7.0, [8.0]),
        ("mm", 3.0, [70.0]),
    ]
    other = changed(steps, {"bmm": 2.00001, **({"mm": 3.3} if red else {})})
    return compare(made_up_log(flow(steps)), made_up_log(flow(other)))


def settle(session: Session) -> None:
    """Bring the comparison up to the rules, as the screen does in the background."""
    job = session.rematch()
    job.run()
    assert session.accept(job)


def row_with(session: Session, key: str, side: str = "a") -> int:
    log, _ = session.comparison.side(side)
    record = list(log.keys).index(key)
    return session.listing.row_of((record, -1) if side == "a" else (-1, record))


def confirm(session: Session) -> None:
    job = session.confirm()
    assert job is not None
    job.run()
    assert session.accept(job)


def change(session: Session) -> None:
    """One more rule."""
    job = session.change(session.rules.adding(IgnoreRule(op="add")), "ignore adds")
    job.run()
    assert session.accept(job)


class TestRules:
    def test_a_pair_becomes_a_template_undoably(self, session: Session) -> None:
        session.listing.go(row_with(session, "layers.0.attention/op_0_bmm"))
        before = session.rules
        session.propose("t", session.template_edits())
        confirm(session)
        (template,) = session.rules.of(TemplateRule)
        assert template.a == ("layers.{i}.attention/op_0_bmm",)
        session.undo()
        assert session.rules == before
        session.listing.go(row_with(session, "output/op_0_mm"))
        with pytest.raises(EditError, match="number"):
            session.propose("t", session.template_edits())

    def test_a_pair_that_is_proposed_is_generalised_before_it_is_applied(self, session: Session) -> None:
        key = "layers.0.attention/op_0_bmm"
        record = list(session.comparison.a.keys).index(key)
        session.propose("m", pair_edits(session.comparison, session.rules, (record, -1), (-1, record + 1)))
        with pytest.raises(EditError, match="being matched"):
            session.template_edits()
        job = session.preview_job()
        assert job is not None
        job.run()
        assert session.accept(job)
        (edit,) = session.template_edits()
        assert edit.title.startswith("layers.{i}.attention/op_0_bmm ↔ layers.{i}.")
        assert not any(isinstance(rule, PairRule) and key in rule.a for rule in edit.rules.rules)
        session.listing.go(row_with(session, key))
        session.propose_unpair()
        job = session.preview_job()
        assert job is not None
        job.run()
        assert session.accept(job)
        with pytest.raises(EditError, match="makes no pair"):
            session.template_edits()

    def test_a_wrong_rule_is_red_and_cutting_it_mends(self, session: Session) -> None:
        assert session.comparison.red.any()
        assert session.listing.next_red() == ""
        session.listing.go(row_with(session, "layers.0.attention.wq/op_0_mm"))
        session.propose_unpair()
        job = session.preview_job()
        assert job is not None
        job.run()
        assert session.accept(job)
        assert session.proposal is not None
        effect = session.proposal.effect
        assert effect is not None
        assert effect.red_after == 0
        assert "fewer red" in effect.sentence()
        assert session.comparison.red.any(), "a preview changes nothing"
        confirm(session)
        assert not session.comparison.red.any()
        assert len(session.rules) == 0

    def test_a_confirmed_preview_needs_no_second_match(self, session: Session) -> None:
        session.listing.go(row_with(session, "layers.0.attention.wq/op_0_mm"))
        session.propose_unpair()
        preview_job = session.preview_job()
        assert preview_job is not None
        made = preview_job.run()
        session.accept(preview_job)
        job = session.confirm()
        assert job is not None
        assert job.result is made

    def test_cutting_an_automatic_pair_keeps_it_apart(self, session: Session) -> None:
        key = "layers.1.attention.wq/op_0_mm"
        session.listing.go(row_with(session, key))
        session.propose_unpair()
        confirm(session)
        assert session.rules.of(ApartRule) == (ApartRule(a=key, b=key),)
        c = session.comparison
        assert c.pairing.partner_of_a[list(c.a.keys).index(key)] != list(c.b.keys).index(key)

    def test_pairing_by_hand_takes_a_of_the_mark_and_b_of_the_other(self, session: Session) -> None:
        session.listing.go(row_with(session, "layers.1.attention.wk/op_0_mm"))
        assert "marked" in session.toggle_mark()
        session.listing.go(row_with(session, "layers.1.attention.wv/op_0_mm"))
        assert session.toggle_mark() == ""
        assert session.proposal is not None
        assert [e.title for e in session.proposal.edits] == [
            "pair layers.1.attention.wk/op_0_mm ↔ layers.1.attention.wv/op_0_mm",
            "pair layers.1.attention.wv/op_0_mm ↔ layers.1.attention.wk/op_0_mm",
        ]
        session.next_alternative()
        confirm(session)
        assert session.rules.of(PairRule)[-1] == PairRule(
            a=("layers.1.attention.wv/op_0_mm",), b=("layers.1.attention.wk/op_0_mm",)
        )
        assert session.mark is None

    def test_pairing_by_hand_replaces_the_rule_that_says_otherwise(self, session: Session) -> None:
        session.listing.go(row_with(session, "layers.0.attention.wq/op_0_mm"))
        session.toggle_mark()
        session.listing.go(row_with(session, "layers.0.attention.wq/op_0_mm", "b"))
        session.toggle_mark()
        confirm(session)
        right = "layers.0.attention.wq/op_0_mm"
        assert session.rules.of(PairRule) == (PairRule(a=(right,), b=(right,)),)
        assert not session.comparison.red.any()

    def test_marking_twice_takes_the_mark_back(self, session: Session) -> None:
        assert "marked" in session.toggle_mark()
        assert session.toggle_mark() == "mark cleared"
        assert session.mark is None

    def test_two_rows_of_one_side_make_no_pair(self, tmp_path: Path) -> None:
        made = Session(comparison_of([A, A]), RuleFile.empty(tmp_path / "r.yaml"))
        made.toggle_mark()
        made.listing.move(1)
        with pytest.raises(EditError, match="both rows are only in a"):
            made.toggle_mark()

    def test_a_row_that_is_no_pair_cannot_be_cut(self, tmp_path: Path) -> None:
        made = Session(comparison_of([A]), RuleFile.empty(tmp_path / "r.yaml"))
        with pytest.raises(EditError, match="unpaired"):
            made.propose_unpair()

    def test_ignoring_and_judging_again(self, session: Session) -> None:
        key = "layers.0.attention.wq/op_0_mm"
        session.listing.go(row_with(session, key))
        session.propose_ignore()
        assert session.proposal is not None
        assert [e.title for e in session.proposal.edits] == [f"ignore {key}", "ignore every mm of a"]
        confirm(session)
        assert IgnoreRule(side="a", match=key) in session.rules.rules
        assert session.comparison.status[session.listing.cursor] == Status.IGNORED
        session.propose_ignore()
        assert session.proposal is not None
        assert session.proposal.edit.title == f"stop ignoring {key}"
        confirm(session)
        assert not session.rules.of(IgnoreRule)

    def test_a_result_that_comes_too_late_is_dropped(self, session: Session) -> None:
        late = session.change(RuleSet(), "nothing")
        now = session.change(session.file.rules, "as it was")
        late.run()
        now.run()
        assert not session.accept(late)
        assert session.accept(now)
        assert session.comparison.rules == session.file.rules

    def test_a_preview_of_a_dropped_proposal_is_dropped(self, session: Session) -> None:
        session.propose_unpair()
        job = session.preview_job()
        assert job is not None
        session.cancel()
        job.run()
        assert not session.accept(job)

    def test_the_cursor_stays_on_its_record(self, session: Session) -> None:
        key = "layers.1/op_0_add"
        session.listing.go(row_with(session, key))
        session.change(RuleSet(), "nothing")
        settle(session)
        assert session.comparison.a.keys[session.listing.spot[0]] == key

    def test_undo_and_redo_show_again_what_was_shown_before(self, session: Session) -> None:
        """They compare nothing: the comparison before the last change is kept, and no other one."""
        before = session.comparison
        job = session.change(RuleSet(), "without the rule")
        job.run()
        session.accept(job)
        after = session.comparison
        for step, shown in ((session.undo, before), (session.redo, after)):
            again, _ = step()
            assert again is not None
            assert again.result is shown
            session.accept(again)
        other = session.change(RuleSet((IgnoreRule(match="<none>/op_0_add"),)), "another rule")
        assert other.result is None
        session.reload(compare(after.a, after.b, before.rules))
        assert session.rematch().result is None, "the logs are others"

    def test_drift_is_searched_for_once(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        searched: list[Comparison] = []

        def suggest(c: Comparison) -> tuple[()]:
            searched.append(c)
            return ()

        monkeypatch.setattr("numtui.session.session.suggest", suggest)
        other = compare(session.comparison.a, session.comparison.b)
        for c in (session.comparison, session.comparison, other, other):
            session.suggestions_in(c)
        assert searched == [session.comparison, other]

    def test_nothing_to_undo(self, session: Session) -> None:
        assert session.undo() == (None, "nothing to undo")
        assert session.redo() == (None, "nothing to do again")

    def test_effect_says_where_the_first_cause_goes(self, tmp_path: Path) -> None:
        before = comparison_of([E, R, R, E], causes=[1])
        after = comparison_of([E, E, R, E], causes=[2])
        assert (
            Effect.between(before, after).sentence()
            == "no new pairs · 1 fewer red · first cause moves from layers.0.mlp/op_1_mm to layers.0.mlp/op_2_mm"
        )
        gone = comparison_of([E] * 4)
        assert Effect.between(before, gone).sentence() == (
            "no new pairs · 2 fewer red · first cause layers.0.mlp/op_1_mm disappears"
        )
        assert Effect.between(gone, before).sentence().endswith("2 more red · new first cause layers.0.mlp/op_1_mm")
        merged = comparison_of([E, R, E], causes=[1], keys=["x" * 50, "y", "z"])
        assert "cause" not in Effect.between(merged, merged).sentence(), "it is the same operation"
        long = comparison_of([R, E, E], causes=[0], keys=["x" * 50, "y", "z"])
        assert f"first cause moves from y to …{'x' * 39}" in Effect.between(merged, long).sentence()

    def test_the_effect_counts_the_pairs_that_give_way(self, session: Session) -> None:
        settle_on = session.change(RuleSet(), "nothing")
        settle_on.run()
        session.accept(settle_on)
        session.listing.go(row_with(session, "layers.1.attention.wk/op_0_mm"))
        session.toggle_mark()
        session.listing.go(row_with(session, "layers.1.attention.wv/op_0_mm"))
        session.toggle_mark()
        job = session.preview_job()
        assert job is not None
        job.run()
        session.accept(job)
        assert session.proposal is not None
        assert session.proposal.effect is not None
        effect = session.proposal.effect
        assert "cuts 2 pairs" in effect.sentence()
        assert effect.cuts_besides("pair x ↔ y") == "cuts layers.1.attention.wk/op_0_mm"
        assert not effect.cuts_besides("keep apart layers.1.attention.wk/op_0_mm"), "the title names it"


class TestSuggestions:
    def test_a_suggestion_can_be_put_in_force_and_undone(self, tmp_path: Path) -> None:
        ops = training_step(3)
        drifted = [replace(o, key=o.key.replace("silu", "gelu")) for o in ops]
        session = Session(compare(*logs(tmp_path, ops, drifted)), RuleFile.empty(tmp_path / "rules.yaml"))
        [found] = [s for s in session.suggestions_in(session.comparison) if s.rules]
        job = session.change(RuleSet((*session.rules.rules, *found.rules)), found.name)
        job.run()
        assert session.accept(job)
        assert session.comparison.counts == found.after
        assert session.suggestions_in(session.comparison) == ()
        session.change(session.rules, "another")
        assert session.undo()[1] == "undone: another   (1 more)"
        assert session.undo()[1] == "undone: equivalent ops"


class TestRealigning:
    def test_a_wrong_rule_is_told_taken_back_and_brought_back(self, session: Session) -> None:
        before = session.rules
        row = row_with(session, "layers.0.attention.wq/op_0_mm")
        session.listing.go(row)
        assert session.realignments == (), "nobody has looked yet"
        look = session.look()
        assert look is not None
        look.run()
        assert session.take(look)
        assert session.look() is None
        told = session.explain()
        assert told is not None
        assert told.notes[0].startswith("1 row of layers.0.attention.wq differs as paired; paired by its numbers")
        assert f"The rule at {session.file.path}:3 makes these pairs" in told.notes[0]
        session.propose("a", session.realign_edits())
        assert session.proposal is not None
        assert session.proposal.edit.title == f"realign 1 row: drop {session.file.path}:3"
        preview = session.preview_job()
        assert preview is not None
        preview.run()
        session.accept(preview)
        assert session.proposal.effect is not None
        assert "1 fewer red" in session.proposal.effect.sentence()
        confirm(session)
        assert session.rules.rules == ()
        assert not session.comparison.red.any()
        assert session.realignments == ()
        session.undo()
        assert session.rules == before

    def test_where_nothing_can_be_realigned(self, session: Session) -> None:
        session.listing.go(0)
        row = row_with(session, "layers.0.attention.wq/op_0_mm") + 1
        with pytest.raises(EditError, match=f"row {row} is in one"):
            session.propose("a", session.realign_edits())
        settled = session.change(RuleSet(), "nothing")
        settled.run()
        session.accept(settled)
        assert session.look() is None, "nothing is red"
        with pytest.raises(EditError, match="in no mispaired run"):
            session.propose("a", session.realign_edits())

    def test_what_was_found_for_other_rules_is_of_no_use(self, session: Session) -> None:
        session.listing.go(row_with(session, "layers.0.attention.wq/op_0_mm"))
        look = session.look()
        assert look is not None
        look.run()
        session.take(look)
        job = session.change(RuleSet(), "nothing")
        with pytest.raises(EditError, match="the rules changed"):
            session.propose("a", session.realign_edits())
        job.run()
        session.accept(job)
        assert not session.take(look)
        assert session.realignments == ()


class TestFileAndJournal:
    def test_saving_keeps_the_comments(self, session: Session) -> None:
        change(session)
        session.save()
        assert not session.dirty
        text = session.file.path.read_text(encoding="utf-8")
        assert text.startswith("# agreed with Kim on Monday\n")
        assert "# the wrong one" in text
        assert RuleFile.load(session.file.path).rules == session.rules

    def test_every_change_is_in_the_journal_until_it_is_saved(self, session: Session, tmp_path: Path) -> None:
        change(session)
        assert session.journal is not None
        session.journal.close()  # the process is gone
        later = Journal(
            session.comparison.a.path, session.comparison.b.path, session.file.path, folder=tmp_path / "state"
        )
        found = later.pending()
        assert found is not None
        again = Session(session.comparison, RuleFile.load(session.file.path), journal=later)
        again.recover(found)
        assert again.rules == session.rules
        assert again.dirty
        again.save()
        assert later.pending() is None

    def test_undoing_everything_leaves_nothing_to_recover(self, session: Session, tmp_path: Path) -> None:
        change(session)
        session.undo()
        assert not session.dirty
        assert not list((tmp_path / "state").glob("*.json"))

    def test_a_save_that_fails_loses_nothing(self, session: Session, tmp_path: Path) -> None:
        change(session)
        session.file = replace(session.file, path=tmp_path / "no folder" / "r.yaml", raw=None)
        with pytest.raises(RulesError, match="make the folder"):
            session.save()
        assert session.dirty
        assert list((tmp_path / "state").glob("*.json"))

    def test_a_file_changed_on_disk_is_not_overwritten_unasked(self, session: Session) -> None:
        session.file.path.write_text(WRONG + "# and more\n", encoding="utf-8")
        change(session)
        with pytest.raises(RulesChangedError):
            session.save()
        session.save(force=True)
        assert not session.dirty

    def test_saving_elsewhere_takes_the_comments_along(self, session: Session, tmp_path: Path) -> None:
        other = tmp_path / "other.yaml"
        session.save_to(other)
        assert session.file.path == other
        assert "# agreed with Kim on Monday" in other.read_text(encoding="utf-8")
        taken = tmp_path / "taken.yaml"
        taken.write_text("version: 1\n", encoding="utf-8")
        with pytest.raises(RulesChangedError):
            session.save_to(taken)


def find(listing: Listing, text: str, origin: int) -> Search:
    search = listing.hits(text)
    listing.go_to_hits(search, origin)
    return search


class TestListing:
    def test_moving_stays_within_the_list(self) -> None:
        listing = Listing(comparison_of([E, R, E]))
        listing.move(-5)
        assert listing.cursor == 0
        listing.move(10)
        assert listing.cursor == 2

    def test_red_rows_and_first_causes(self) -> None:
        listing = Listing(comparison_of([E, R, E, R], causes=[3]))
        assert (listing.next_red(), listing.cursor) == ("", 1)
        assert (listing.next_red(5), listing.cursor) == ("", 3)
        assert (listing.next_red(), listing.cursor) == ("no red row below: from the top", 1)
        assert (listing.next_red(-1), listing.cursor) == ("no red row above: from the bottom", 3)
        assert listing.next_cause() == "this is the only first cause"
        assert (listing.next_red(-1), listing.cursor) == ("", 1)
        assert (listing.next_cause(), listing.cursor) == ("", 3)
        assert listing.next_cause(-1) == "this is the only first cause"
        listing.toggle(StatusGroup.RED)
        assert listing.next_red() == "every red row (2) is hidden by the filter"
        assert Listing(comparison_of([E])).next_red() == "there is no red row"

    def test_a_first_cause_that_only_one_run_has_is_a_stop_of_n_too(self) -> None:
        listing = Listing(comparison_of([E, Status.ONLY_B, E, R, Status.ONLY_B], causes=[1, 3]))
        assert (listing.next_red(), listing.cursor) == ("", 1)
        assert (listing.next_red(), listing.cursor) == ("", 3)
        assert listing.next_red() == "no red row or first cause below: from the top"
        listing.toggle(StatusGroup.ONLY_B)
        assert listing.next_red() == "", "one that the filter hides is none"
        assert listing.next_red() == "this is the only red row or first cause (1 hidden by the filter)"
        nothing_red = Listing(comparison_of([E, Status.ONLY_B], causes=[1]))
        assert (nothing_red.next_red(), nothing_red.next_red()) == ("", "this is the only first cause")

    def test_the_first_difference_is_a_stop_of_its_own(self) -> None:
        listing = Listing(close_before_red())
        first, red = 1, 3
        assert listing.next_red() == "First difference: row 2, ≥5.3e-06, within tolerance"
        assert listing.cursor == first
        assert (listing.next_red(), listing.cursor) == ("", red)
        listing.go(0)
        assert listing.next_cause().startswith("First difference: row 2")
        assert (listing.next_cause(), listing.cursor) == ("", red)
        assert (
            listing.next_cause()
            == "no first cause below: from the top: First difference: row 2, ≥5.3e-06, within tolerance"
        )
        listing.go(0)
        assert "every printed number of its input is equal" in listing.first_difference()
        assert listing.cursor == first

    def test_without_red_rows_the_first_difference_is_the_only_stop(self) -> None:
        listing = Listing(close_before_red(red=False))
        assert listing.next_red() == "First difference: row 2, ≥5.3e-06, within tolerance; there is no red row"
        assert listing.next_red() == "First difference: row 2, ≥5.3e-06, within tolerance; there is no red row"
        assert listing.cursor == 1
        equal = Listing(compare(made_up_log(training_step()), made_up_log(training_step())))
        assert equal.next_red() == "there is no red row"
        assert equal.first_difference() == "there is no first difference: no compared operation differs"

    def test_errors_by_size(self) -> None:
        listing = Listing(comparison_of([R, R, R], errors=[1e-3, 1e-1, 1e-2]))
        listing.next_error()
        assert listing.cursor == 2
        listing.next_error()
        assert listing.cursor == 1
        assert listing.next_error() == "this is the largest error"
        listing.next_error(-2)
        assert listing.cursor == 0
        assert Listing(comparison_of([E], errors=[0])).next_error() == "no row has an error"

    def test_a_hidden_cursor_goes_to_the_nearest_row(self) -> None:
        listing = Listing(comparison_of([R, E, E, R]))
        listing.move(2)
        listing.toggle(StatusGroup.EQUAL)
        assert listing.cursor == 3
        assert listing.clear_filter()
        assert not listing.clear_filter()
        assert len(listing.view) == 4

    def test_nothing_listed(self) -> None:
        listing = Listing(comparison_of([R, E]))
        listing.set_query("no such key")
        assert listing.cursor == -1
        assert listing.explain() is None
        listing.move(1)
        listing.next_red()
        listing.back()
        listing.toggle_fold()
        assert not listing.unfold()
        listing.clear_filter()
        assert listing.cursor == 0

    def test_a_bad_query_changes_nothing(self) -> None:
        listing = Listing(comparison_of([R, E]))
        with pytest.raises(QueryError):
            listing.set_query("is:nothing")
        assert len(listing.view) == 2

    def test_folding_and_unfolding_by_hand(self) -> None:
        listing = Listing(comparison_of([R, E, E, E, E, R]))
        listing.toggle_fold()
        assert listing.view.fold.tolist() == [0, 4, 0]
        listing.move(1)
        assert listing.unfold()
        assert listing.view.row.tolist() == [0, 1, 2, 3, 4, 5]
        assert listing.cursor == 1
        listing.toggle_fold()
        listing.toggle_fold()
        assert listing.view.row.tolist() == [0, 1, 2, 5], "the row under the cursor stays out of the fold"
        assert listing.view.fold.tolist() == [0, 0, 3, 0]

    def test_it_opens_folded_around_what_differs_at_the_first_cause(self) -> None:
        listing = Listing(comparison_of([E, E, E, E, R, R, E], causes=[5]))
        listing.open_at_difference()
        assert listing.cursor == 5
        assert listing.view.fold.tolist() == [4, 0, 0, 0]
        assert not listing.back(), "opening is no jump"
        equal = Listing(comparison_of([E, E, E, E]))
        equal.open_at_difference()
        assert (equal.cursor, equal.folded) == (0, False), "nothing differs: there is nothing to fold around"

    def test_a_place_and_a_fold_that_were_chosen_stay(self) -> None:
        listing = Listing(comparison_of([E, E, E, E, R]))
        listing.move(2)
        listing.toggle_fold()
        listing.toggle_fold()
        listing.open_at_difference()
        assert (listing.cursor, listing.folded) == (2, False)
        resumed = Listing(listing.comparison)
        resume(resumed, sitting_of(listing))
        resumed.open_at_difference()
        assert not resumed.folded, "remembered"

    def test_the_cursor_goes_over_a_fold_as_over_a_line(self) -> None:
        listing = Listing(comparison_of([R, E, E, E, E, R]))
        listing.toggle_fold()
        listing.move(2)
        assert listing.cursor == 5
        listing.move(-1)
        assert listing.cursor == 1
        assert listing.line == 1

    def test_going_to_a_folded_or_hidden_row_brings_it_to_light(self) -> None:
        listing = Listing(comparison_of([R, E, E, E, E, E, E, R]))
        listing.toggle_fold()
        listing.go(3)
        assert listing.cursor == 3
        assert 3 in listing.view.row.tolist()
        listing.toggle_fold()
        listing.toggle(StatusGroup.EQUAL)
        listing.go(2)
        assert (listing.cursor, listing.view.row.tolist()) == (2, [0, 2, 7])

    def test_jumps_back_and_forward(self) -> None:
        listing = Listing(comparison_of([E, R, R, R, E]))
        listing.go(4)
        listing.next_red(-1)
        listing.next_red(-1)
        listing.next_red(-1)
        assert listing.cursor == 1
        assert listing.back()
        assert listing.cursor == 4, "a run of n is one jump"
        assert listing.back()
        assert listing.cursor == 0
        assert not listing.back()
        assert listing.forward()
        assert listing.forward()
        assert listing.cursor == 1
        assert not listing.forward()
        listing.back()
        listing.go(2)
        assert not listing.forward(), "a new jump forgets where forward was"

    def test_searching(self) -> None:
        keys = ["x/op_0_mm", "x/op_1_add", "y/op_0_mm", "y/op_1_add"]
        listing = Listing(comparison_of([E] * 4, keys=keys))
        listing.move(1)
        search = find(listing, "MM", listing.cursor)
        assert search.rows.tolist() == [0, 2]
        assert listing.cursor == 2, "the first hit from where it started"
        assert search.place(2) == 2
        assert find(listing, "mmx", 1).rows.tolist() == []
        assert listing.cursor == 1, "no hit: back where it started"
        find(listing, "mm", 1)
        listing.accept_search(1)
        assert listing.next_hit() == "around the end: 1/2"
        assert listing.cursor == 0
        assert listing.next_hit(-1) == "around the start: 2/2"
        assert listing.cursor == 2
        listing.end_search(1, None)
        assert (listing.cursor, listing.search) == (1, None)
        assert "no search yet" in listing.next_hit()

    def test_hits_hidden_by_the_filter_do_not_count(self) -> None:
        listing = Listing(comparison_of([E, R], keys=["a/op_0_mm", "b/op_0_mm"]))
        listing.toggle(StatusGroup.EQUAL)
        assert find(listing, "mm", 1).rows.tolist() == [1]
        listing.toggle(StatusGroup.EQUAL)
        assert listing.search is not None
        assert listing.search.rows.tolist() == [0, 1], "the hits follow the filter"

    def test_producer_and_consumer(self, session: Session) -> None:
        session.listing.go(row_with(session, "layers.0.attention/op_0_bmm"))
        assert "input 0" in session.listing.producer(1)
        assert session.comparison.a.keys[session.listing.spot[0]] == "layers.0.attention.wq/op_0_mm"
        session.listing.back()
        session.listing.producer(2)
        assert session.comparison.a.keys[session.listing.spot[0]] == "layers.0.attention.wk/op_0_mm"
        assert "has no captured producer" in session.listing.producer(7)
        session.listing.go(row_with(session, "layers.0.attention_norm/op_0_mul"))
        assert session.listing.consumer() == "consumer 1 of 3 (2c goes to the second)"
        session.listing.back()
        assert session.listing.consumer(3) == "consumer 3 of 3"
        assert session.comparison.a.keys[session.listing.spot[0]] == "layers.0.attention.wv/op_0_mm"
        session.listing.back()
        assert session.listing.consumer(4) == "the output has 3 consumers"

    @staticmethod
    def at_a_product(folder: Path, given: list[float], extra: Op, given_b: list[float], result_b: float) -> Session:
        """On a product of two, of which the second comes from another operation that b alone has."""
        first = [op("m.wq/op_0_mm", 3.0), op("m.wk/op_0_mm", 5.0)]
        of_a = op("m/op_0_bmm", 7.0, inputs=given, producers=["m.wq/op_0_mm", "m.wk/op_0_mm"])
        of_b = op("m/op_0_bmm", result_b, inputs=given_b, producers=["m.wq/op_0_mm", extra.key])
        made = Session(compare(*logs(folder, [*first, of_a], [*first, extra, of_b])), RuleFile.empty(folder / "r.yaml"))
        made.listing.go(row_with(made, "m/op_0_bmm"))
        return made

    def test_the_producer_that_explains_a_red_row_may_be_on_the_other_side(self, tmp_path: Path) -> None:
        extra = op("m.wk/op_1_neg", 4.0, inputs=[15.0], producers=["m.wk/op_0_mm"])
        made = self.at_a_product(tmp_path, [9.0, 15.0], extra, [9.0, 12.0], 8.0)
        assert made.comparison.red[made.listing.cursor]
        assert made.listing.producer() == "the producer of input 1 in b"
        assert made.listing.cursor == row_with(made, "m.wk/op_1_neg", "b")

    def test_the_producer_that_one_side_alone_has_comes_first(self, tmp_path: Path) -> None:
        cast = op("m.wk/op_1_clone", 5.0, inputs=[5.0], producers=["m.wk/op_0_mm"])
        made = self.at_a_product(tmp_path, [3.0, 5.0], cast, [3.0, 5.0], 7.0)
        assert not made.comparison.red[made.listing.cursor]
        assert made.listing.producer() == "the producer of input 1 in b"
        assert made.listing.cursor == row_with(made, "m.wk/op_1_clone", "b")

    def test_an_input_that_differs_and_that_nothing_captured_made_is_named_in_place_of_an_equal_one(
        self, tmp_path: Path
    ) -> None:
        def step(given: float, result: float) -> list[Op]:
            first = op("m.wq/op_0_mm", 3.0)
            inputs = [9.0, given]
            return [first, op("m/op_0_bmm", result, inputs=inputs, producers=["m.wq/op_0_mm", ""])]

        made = Session(compare(*logs(tmp_path, step(15.0, 7.0), step(12.0, 8.0))), RuleFile.empty(tmp_path / "r.yaml"))
        made.listing.go(row_with(made, "m/op_0_bmm"))
        before = made.listing.cursor
        assert made.listing.producer() == "input 1 differs, and no captured operation made it; 1p: input 0"
        assert made.listing.cursor == before
        assert made.listing.producer(1) == "the producer of input 0"

    def test_from_the_heads_to_the_whole(self, tmp_path: Path) -> None:
        a, b = logs(tmp_path)
        made = Session(preview(a, b), RuleFile.empty(tmp_path / "r.yaml"))
        assert not made.comparison.red.any()
        made.listing.move(7)
        spot = made.listing.spot
        path = tmp_path / "r.yaml"
        path.write_text(WRONG, encoding="utf-8")
        file = RuleFile.load(path)
        made.adopt(compare(a, b, file.rules), file)
        assert made.listing.spot[0] == spot[0]
        assert made.rules == file.rules
        assert not made.dirty


class UndoMachine(RuleBasedStateMachine):
    """Any sequence of changes, undone and done again, against a plain list of rule sets."""

    base: Comparison

    def __init__(self) -> None:
        super().__init__()
        file = RuleFile.empty("overrides.yaml")
        self.session = Session(self.base, file)
        self.past: list[RuleSet] = []
        self.present = RuleSet()
        self.future: list[RuleSet] = []
        self.jobs = [self.session.rematch()]

    def _changed(self) -> None:
        job = self.session.confirm()
        assert job is not None
        self.jobs.append(job)
        self.past.append(self.present)
        self.present = self.session.rules
        self.future = []

    @rule(row=st.integers(0, 10_000))
    def unpair(self, row: int) -> None:
        self.session.listing.cursor = row % len(self.session.comparison)
        if self.session.comparison.pair[self.session.listing.cursor] >= 0:
            self.session.propose_unpair()
            self._changed()

    @rule(row=st.integers(0, 10_000))
    def ignore(self, row: int) -> None:
        # The rows of an old comparison may be ignored by a rule that is gone by now; then there is nothing to drop.
        self._settle()
        self.session.listing.cursor = row % len(self.session.comparison)
        self.session.propose_ignore()
        self._changed()

    @rule(one=st.integers(0, 10_000), other=st.integers(0, 10_000))
    def pair(self, one: int, other: int) -> None:
        n = len(self.session.comparison)
        self.session.mark = None
        self.session.listing.cursor = one % n
        self.session.toggle_mark()
        self.session.listing.cursor = other % n
        try:
            self.session.toggle_mark()
        except EditError:
            return
        if self.session.proposal is not None:
            self._changed()

    @precondition(lambda self: self.past)
    @rule()
    def undo(self) -> None:
        job, message = self.session.undo()
        assert job is not None
        assert message.startswith("undone: ")
        self.jobs.append(job)
        self.future.append(self.present)
        self.present = self.past.pop()

    @precondition(lambda self: self.future)
    @rule()
    def redo(self) -> None:
        job, _ = self.session.redo()
        assert job is not None
        self.jobs.append(job)
        self.past.append(self.present)
        self.present = self.future.pop()

    @rule(which=st.integers(0, 100))
    def a_result_arrives(self, which: int) -> None:
        job = self.jobs[which % len(self.jobs)]
        job.run()
        accepted = self.session.accept(job)
        assert accepted == (job.generation == self.session.generation)

    def _settle(self) -> None:
        job = self.session.rematch()
        job.run()
        assert self.session.accept(job)

    @invariant()
    def rules_are_those_of_the_model(self) -> None:
        assert self.session.rules == self.present
        assert self.session.dirty == bool(self.present)

    @invariant()
    def the_cursor_is_on_a_row(self) -> None:
        assert 0 <= self.session.listing.cursor < len(self.session.comparison)

    def teardown(self) -> None:
        """What is shown in the end does not depend on the way there."""
        self._settle()
        fresh = self.base.with_rules(self.present)
        np.testing.assert_array_equal(self.session.comparison.status, fresh.status)
        np.testing.assert_array_equal(self.session.comparison.pair, fresh.pair)


def test_undo_and_redo_of_anything(tmp_path: Path) -> None:
    a, b = logs(tmp_path, training_step(layers=1), training_step(layers=1)[:-1])
    machine = type("Machine", (UndoMachine,), {"base": compare(a, b)})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(30), stateful_step_count=20))


def test_a_row_that_no_rule_can_name_is_refused(tmp_path: Path) -> None:
    ops = [Op(key=""), *training_step(1)]
    log = read_log(write_log(tmp_path / "a.log", ops))
    c = compare(log, log)
    row = int(c.at_a[0])
    with pytest.raises(EditError, match="no rule can name this row"):
        pair_edits(c, c.rules, (0, 0), (0, 0))
    with pytest.raises(EditError, match="no rule can name this row"):
        unpair_edits(c, c.rules, row)
    with pytest.raises(EditError, match="no rule can name this row"):
        ignore_edits(c, c.rules, row)
    assert pair_edits(c, c.rules, (1, 1), (1, 1))
