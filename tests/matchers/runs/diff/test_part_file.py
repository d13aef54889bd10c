"""Files of summaries: what is written is read, parts join to the whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matchers.errors import InputError
from matchers.runs.diff.part_file import Part, Shard, joined, parse_summary, read_part, render_part, render_summary
from matchers.runs.diff.summary import Outcome, RankSummary
from tests.matchers.runs.diff.made_summaries import summaries

# one folder for all examples: each writes the file anew
one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def part_of(made: tuple[RankSummary, ...], shard: Shard, ranks: tuple[int, ...]) -> Part:
    """A part of a comparison."""
    return Part(("run a", "run b"), ("a", "b"), shard, ranks, ("--rtol", "0.1"), made)


@one_folder
@given(st.lists(summaries(3), max_size=3).map(tuple))
def test_a_part_is_read_as_it_was_written(tmp_path: Path, made: tuple[RankSummary, ...]) -> None:
    """NaN and infinite errors too: compared as text, since NaN is not equal to itself."""
    part = part_of(made, Shard(2, 3), (0, 3, 1 << 20))
    path = tmp_path / "part.json"
    path.write_text(render_part(part), encoding="utf-8")
    assert repr(read_part(path)) == repr(part)


@given(summaries(0))
def test_a_summary_is_read_as_it_was_written(made: RankSummary) -> None:
    assert repr(parse_summary(render_summary(made))) == repr(made)


@given(st.sets(st.integers(0, 1 << 16), max_size=12), st.integers(1, 5))
def test_parts_join_to_the_whole(ranks: set[int], number: int) -> None:
    """In any order; what is not there has failed."""
    ordered = tuple(sorted(ranks))
    whole = {rank: RankSummary(rank=rank, outcome=Outcome.EQUAL, rows=rank) for rank in ordered}
    parts = {
        f"part_{index}": part_of(
            tuple(whole[rank] for rank in Shard(index, number).ranks(ordered)), Shard(index, number), ordered
        )
        for index in range(number, 0, -1)
    }
    assert joined(parts) == whole
    assert list(joined(parts)) == list(ordered)
    left = parts.pop("part_1")
    if parts:
        found = joined(parts)
        assert list(found) == list(ordered)
        lacking = {rank for rank, summary in found.items() if summary.outcome == Outcome.FAILED}
        assert lacking == {summary.rank for summary in left.summaries}


def test_parts_of_other_comparisons_do_not_join() -> None:
    one = part_of((), Shard(1, 2), (0, 1))
    for other in (part_of((), Shard(2, 3), (0, 1)), part_of((), Shard(2, 2), (0, 1, 2))):
        with pytest.raises(InputError, match="y and x are parts of different comparisons"):
            joined({"x": one, "y": other})


@given(st.text())
def test_any_text_is_a_summary_or_none(text: str) -> None:
    assert parse_summary(text) is None
