"""Real runs of four ranks with planted faults against healthy ones: where the comparison says that it began."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from matchers.comparison import compare
from matchers.logs.parser import read_log
from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.origins import Origin
from matchers.runs.diff.summarise import equal_by_footers, summary_of
from matchers.runs.diff.summary import Outcome, RankSummary
from matchers.runs.run import find_run
from tests.bed_cases import AGAIN, CASES, Case

HEALTHY = {(case.script, case.arguments): case for case in CASES if not case.bug}
FAULTY = [case for case in CASES if case.bug]
_OTHER_WEIGHTS = {"megatron-not-broadcast": (2, 3), "ddp-not-broadcast": (1, 2, 3)}
"""Ranks that have other weights without the broadcast: not the first data rank, whose own are broadcast."""
_ELSEWHERE = {
    # the function that reduces: the call that is not made has no module of its own
    "megatron-not-reduced": "Group.all_reduce/op_8_clone",
    # DDP's bucket, which lacks the gradient
    "ddp-not-reduced": "embedding/op_3_allreduce_",
    # the first to read the gradients: a collective that one layout lacks is no difference by itself
    "tp-not-reduced": "clip_grad_norm_/op_10__foreach_norm",
    "fsdp2+tp-not-reduced": "clip_grad_norm_/op_0__foreach_norm",
    # one operation for all parameters
    "none-left-out": "optimizer/op_8__foreach_addcdiv_",
    "ddp-left-out": "optimizer/op_8__foreach_addcdiv_",
    "fsdp2-left-out": "optimizer/op_8__foreach_addcdiv_",
    "tp-left-out": "optimizer/op_11__foreach_addcdiv_",
    "fsdp2+tp-left-out": "optimizer/op_8__foreach_addcdiv_",
}
"""Keys of the first difference, where it is rightly at another place than the fault."""
_OF_BATCH = "micro_batch"
"""Function that makes the batch."""


def compared(folder: Path, a: Case, b: Case, *, read_all: bool = False) -> RunComparison:
    """Two runs of the bed."""
    runs = find_run(str(folder / a.name)), find_run(str(folder / b.name))
    summaries = {
        rank: _summary(rank, (path, runs[1].paths[rank]), read_all=read_all) for rank, path in runs[0].paths.items()
    }
    return RunComparison((a.name, b.name), summaries)


def _summary(rank: int, paths: tuple[str, str], *, read_all: bool) -> RankSummary:
    known = None if read_all else equal_by_footers(rank, *paths)
    return known or summary_of(compare(read_log(paths[0]), read_log(paths[1])), rank, paths)


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.name)
def test_it_began_where_the_fault_is(runs_bed: Path, case: Case) -> None:
    """On the ranks that have it, at its parameter, module or operation; what it reached is named too."""
    comparison = compared(runs_bed, HEALTHY[case.script, case.arguments], case)
    traced = comparison.traced
    (origin,) = traced.origins
    assert sorted(origin.events) == list(_OTHER_WEIGHTS.get(case.name, case.culprits))
    for event in origin.events.values():
        assert _at_the_fault(case, event.key, event.module)
        assert event.location
    _through_collectives(comparison, origin)
    named = {*origin.events, *origin.reached}
    differ = {rank for rank, summary in comparison.summaries.items() if summary.red or summary.difference}
    assert named == differ
    assert len(comparison.classes) <= 2
    if case.bug != "flipped-bit":  # the lowest bit of one number
        assert comparison.red


def _at_the_fault(case: Case, key: str, module: str) -> bool:
    if case.name in _ELSEWHERE:
        return key == _ELSEWHERE[case.name]
    if case.module or case.op:
        return (bool(case.module) and module.startswith(case.module)) or (bool(case.op) and case.op in key)
    if case.parameter:  # FSDP reads those of a whole layer at once
        return fnmatchcase(f"{module}.weight", case.parameter) or case.parameter.startswith(f"{module}.")
    return module == _OF_BATCH


def _through_collectives(comparison: RunComparison, origin: Origin) -> None:
    """What reached a rank was sent by ranks that had it, over a group in which this rank is."""
    had = {*origin.events, *origin.reached}
    for rank, reached in origin.reached.items():
        assert reached.senders
        assert set(reached.senders) <= had - {rank}
        assert reached.by.channel in comparison.summaries[rank].channels


@pytest.mark.parametrize(("once", "again"), AGAIN, ids=lambda case: case.name)
def test_two_runs_of_one_program_are_equal_by_their_footers(runs_bed: Path, once: Case, again: Case) -> None:
    comparison = compared(runs_bed, once, again)
    assert comparison.outcomes(Outcome.EQUAL) == tuple(range(once.ranks))
    assert not comparison.traced.origins


@pytest.mark.parametrize(("once", "again"), AGAIN, ids=lambda case: case.name)
def test_two_runs_of_one_program_have_no_difference_where_they_are_read(
    runs_bed: Path, once: Case, again: Case
) -> None:
    comparison = compared(runs_bed, once, again, read_all=True)
    assert comparison.outcomes(Outcome.COMPARED) == tuple(range(once.ranks))
    assert not comparison.red
    assert not any(summary.difference or summary.sent_difference for summary in comparison.summaries.values())
