"""Header of the main screen: facts that always show, and counts that add up, at any width."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchers.comparison import compare
from matchers.logs.parser import read_log
from matchers.rules.file import RuleFile
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from numtui.session.session import Session
from numtui.text.lines import line_width
from numtui.views.header import header
from tests.builders import write_log
from tests.matchers.ops.test_training_scalars import clipping, step_of
from tests.numtui.fakes import comparison_of

E, R, A, B = Status.EQUAL, Status.DIVERGED, Status.ONLY_A, Status.ONLY_B


def session_of(*statuses: Status, causes: tuple[int, ...] = (), names: tuple[str, str] = ("one", "two")) -> Session:
    return Session(comparison_of(statuses, causes=causes), RuleFile.empty(Path("r.yaml")), names=names)


def head(session: Session, width: int, work: str = "") -> str:
    return "\n".join("".join(text for text, _ in line) for line in header(session, width, work))


def test_one_line_where_all_has_room() -> None:
    session = session_of(E, R, A, B, causes=(1,))
    shown = head(session, 160)
    assert "numtui  one ⇄ two · 2 of 3 compared (I) · rank 0 · step 2 · f32" in shown
    assert "● 1 first cause  ✗ 1 red" in shown
    assert "= 1 equal" in shown
    assert "\n" not in shown


def test_a_full_coverage_is_not_mentioned() -> None:
    assert "numtui  one ⇄ two · rank 0 · step 2 · f32" in head(session_of(E, R), 160)
    assert "compared" not in head(session_of(Status.PENDING), 200)


def test_what_has_to_be_seen_takes_a_second_line() -> None:
    session = session_of(E, R, A, B, causes=(1,), names=("a_run_of_yesterday", "a_run_of_today"))
    session.listing.comparison = replace(session.comparison, expectation=Expectation(preset=Expect.REDUCTION_ORDER))
    first, second = head(session, 80).split("\n")
    assert (
        first.rstrip().endswith("· 2 of 3 compared · reduction-order · rank 0 · step 2") or "2 of 3 compared" in first
    )
    assert "expect reduction-order" in head(session, 160)
    assert "✗ 1 red" in second


def test_the_counts_lose_words_before_the_facts_do() -> None:
    session = session_of(E, R, Status.SHARDED, causes=(1,))
    assert "· rank 0 · step 2" in head(session, 84)
    assert "= 1 equal" not in head(session, 84)
    assert "numtui" in head(session, 110)


def test_every_status_is_counted() -> None:
    every = head(session_of(*Status), 240)
    assert "✗ 3 red (1 nan)" in every
    assert "◀ 1  ▶ 1 only one side  ∥…Σ∅? 5 not judged  ↻ 1 recompute  · 1 ignored" in every


def test_progress_takes_the_place_of_counts() -> None:
    shown = head(session_of(Status.PENDING), 100, "reading one 42%")
    assert "reading one 42%" in shown
    assert "red" not in shown


@pytest.mark.parametrize(("count", "told"), [(1, "1 unreadable spot (I)"), (2, "2 unreadable spots (I)")])
def test_one_spot_is_one_spot(count: int, told: str) -> None:
    session = session_of(E)
    c = session.comparison
    session.listing.comparison = replace(c, a=replace(c.a, problem_count=count))
    assert told in head(session, 160)


def test_a_rank_that_names_a_side_is_told_once() -> None:
    assert "rank 0" in head(session_of(E), 160)
    assert head(session_of(E, names=("rank 0", "rank 0")), 160).count("rank 0") == 2
    assert " · step 2" in head(session_of(E, names=("rank 0", "rank 0")), 160)


def test_the_loss_stands_where_it_has_room(tmp_path: Path) -> None:
    one, two = (
        read_log(write_log(tmp_path / f"{norm}.log", [*step_of(), *clipping(norm)], run={"phases": 7}, exact=True))
        for norm in (1.82, 1.95)
    )
    session = Session(compare(one, two), RuleFile.empty(Path("r.yaml")), names=("one", "two"))
    assert "· loss 3.3202 in both · gradient norm 1.8200 | 1.9500" in head(session, 160)
    assert "· loss 3.3202 in both" in head(session, 120)
    assert "gradient" not in head(session, 120)
    assert "\n" not in head(session, 120)


@given(
    st.lists(st.sampled_from([s for s in Status if s is not Status.PENDING]), min_size=1, max_size=9),
    st.integers(59, 220),
    st.sampled_from([Expectation(), Expectation(rtol=1e-3), *(Expectation(preset=preset) for preset in Expect)]),
)
def test_what_limits_the_verdict_shows_at_any_width(statuses: list[Status], width: int, expected: Expectation) -> None:
    session = session_of(*statuses)
    session.listing.comparison = replace(session.comparison, expectation=expected)
    lines = header(session, width)
    assert all(line_width(line) == width for line in lines)
    shown = " ".join(head(session, width).split())
    side = session.comparison.coverage.larger
    if side.compared < side.operations:
        assert f"{side.compared} of {side.operations} compared" in shown
    if expected.preset is not None:
        assert expected.preset.value in shown
    if expected.rtol is not None:
        assert "rtol 0.001" in shown
    assert "rank 0 · step 2" in shown
    counted = [int(number) for number in re.findall(r"[✗≈=◀▶∅?↻…Σ∥·] (\d+)", shown[shown.index("●") :])]
    assert sum(counted) == len(statuses), shown
