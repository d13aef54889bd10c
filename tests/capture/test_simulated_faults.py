"""Faults of single ranks that one process simulates: the comparison of two such runs names each, and its place."""

from __future__ import annotations

import json
from pathlib import Path

from matchers.comparison import compare
from matchers.logs.parser import read_log
from matchers.runs.diff.classes import Kind
from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.summarise import summary_of
from matchers.runs.layouts.read import read_both
from matchers.verdict.expectation import Expect, Expectation
from tests.capture.runs import Examples, Run

RANKS = 8
LAYOUT = f"--parallel fsdp2+tp --local-tensor {RANKS}"


def compared(a: Run, b: Run) -> RunComparison:
    """Two runs, rank by rank."""
    summaries = {}
    for rank in range(RANKS):
        one, other = (log_of(run.folder, rank) for run in (a, b))
        summaries[rank] = summary_of(compare(read_log(one), read_log(other)), rank, (one, other))
    return RunComparison(("a", "b"), summaries)


def log_of(folder: Path, rank: int) -> str:
    """The log of a rank."""
    return str(folder / "numerics" / f"rank_{rank}_activations.log")


def test_three_faults_on_three_ranks_are_four_classes(examples: Examples) -> None:
    """The data rank of each fault, and those that only the sum of the gradients reached."""
    healthy = examples.captured(LAYOUT)
    faulty = examples.captured(f"{LAYOUT} --bug other-batch:4 --bug nan@0:6 --bug nan@1:3")
    comparison = compared(healthy, faulty)
    began = {min(origin.events): (origin.event.module, len(origin.events)) for origin in comparison.traced.origins}
    assert began == {4: ("embedding", 1), 6: ("layers.0.feed_forward", 1), 3: ("layers.1.feed_forward", 1)}
    behind = {
        each.place: {min(comparison.traced.origins[k].events) for k in each.origins} for each in comparison.classes
    }
    assert behind == {"dp=2": {4}, "dp=3": {6}, "dp=1": {3}, "dp=0": {3, 4, 6}}
    assert {each.kind for each in comparison.classes} == {Kind.RED}


def test_a_bit_of_one_rank_is_the_first_difference(examples: Examples) -> None:
    comparison = compared(examples.captured(LAYOUT), examples.captured(f"{LAYOUT} --bug flipped-bit@1:5"))
    (origin,) = comparison.differences.origins
    assert list(origin.events) == [5]
    assert origin.event.module == "layers.1"
    assert set(origin.reached) == set(range(RANKS)) - {5}


def test_one_process_and_simulated_ranks_agree(examples: Examples) -> None:
    """Each rank knows its part, also in the slices of the mesh that the simulation makes for the first ranks only."""
    alone = examples.captured("--micro-batches 4")
    simulated = examples.captured(LAYOUT)
    for rank in range(RANKS):
        texts = read_log(log_of(simulated.folder, rank)).texts("Placement")
        assert texts
        assert all("offsets" in json.loads(texts[row]) for row in texts)
    a, b = read_both((log_of(alone.folder, 0), str(simulated.folder / "numerics")))
    c = compare(a, b, expectation=Expectation(Expect.REDUCTION_ORDER))
    assert not c.red.any()
    assert c.coverage.a.compared >= 0.95 * c.coverage.a.operations
