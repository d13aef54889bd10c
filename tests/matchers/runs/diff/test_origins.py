"""Where a divergence began, in executions made up by hypothesis: no rank is lost, time does not run back."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.origins import of_causes, trace
from matchers.runs.diff.summary import RankSummary
from tests.matchers.runs.diff.made_summaries import Execution, executions, summaries


@given(executions())
def test_origins_are_what_arose_on_a_rank_by_itself(made: Execution) -> None:
    """One for each place of the program."""
    found = trace(made.summaries, of_causes)
    expected: dict[str, set[int]] = {}
    for _, rank, module in made.began:
        expected.setdefault(module, set()).add(rank)
    assert {origin.event.module: set(origin.events) for origin in found.origins} == expected


@given(executions())
def test_every_rank_that_differs_is_in_an_origin(made: Execution) -> None:
    found = trace(made.summaries, of_causes)
    named = {rank for origin in found.origins for rank in (*origin.events, *origin.reached)}
    differ = {rank for rank, summary in made.summaries.items() if summary.causes}
    assert named == differ == set(found.behind)
    for rank, behind in found.behind.items():
        assert behind
        for number in behind:
            assert rank in {*found.origins[number].events, *found.origins[number].reached}
    for origin in found.origins:
        assert not origin.events.keys() & origin.reached.keys()


@given(executions())
def test_what_precedes_is_listed_first_and_earlier(made: Execution) -> None:
    found = trace(made.summaries, of_causes)
    for number, origin in enumerate(found.origins):
        assert all(before < number for before in origin.after)
        for before in origin.after:
            first = min(event.row for event in found.origins[before].events.values())
            assert first < max(event.row for event in origin.events.values())


@given(executions())
def test_the_classes_divide_the_ranks(made: Execution) -> None:
    comparison = RunComparison(("a", "b"), made.summaries)
    assert sorted(rank for each in comparison.classes for rank in each.ranks) == sorted(made.summaries)


@given(st.integers(1, 4).flatmap(lambda number: st.tuples(*(summaries(rank) for rank in range(number)))))
def test_any_summaries_are_traced(made: tuple[RankSummary, ...]) -> None:
    """What a damaged or hostile file may say: no rank is lost, nothing precedes itself."""
    of_rank = {summary.rank: replace(summary, channels=("x 0>1", "", *summary.channels)) for summary in made}
    comparison = RunComparison(("a", "b"), of_rank)
    for traced in (comparison.causes, comparison.differences):
        for number, origin in enumerate(traced.origins):
            assert all(before < number for before in origin.after)
    named = {rank for origin in comparison.causes.origins for rank in (*origin.events, *origin.reached)}
    assert named == {rank for rank, summary in of_rank.items() if summary.causes}
    assert sorted(rank for each in comparison.classes for rank in each.ranks) == sorted(of_rank)
