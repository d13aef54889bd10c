"""What DTensors declare to be replicated has equal bits; what they divide, or have yet to sum, may differ."""

from __future__ import annotations

import json

import pytest

from matchers.runs.finding import Check
from tests.builders import op
from tests.matchers.runs.simulated import Layout, Plan, SimulatedRun, checked, simulate

LAYOUT = Layout(dp=2, tp=2)


def with_result(placements: list[str], digests: list[int], name: str = "mul") -> SimulatedRun:
    """A run in which each rank ends with a result of its own; by rank their digests, as numbers."""
    run = simulate(Plan(layout=LAYOUT))
    placement = {"mesh": {"dp": 2, "tp": 2}, "placements": placements, "shape": [4], "offsets": [0]}
    for rank, ops in run.logs.items():
        text = {"Digest": f"{digests[rank]:016x}", "Placement": json.dumps(placement)}
        ops.append(op(f"last/op_0_{name}", 5.0 + digests[rank], shape=(4,), extra=text))
    return run


@pytest.mark.parametrize(
    ("placements", "digests", "odd", "group"),
    [
        (["Replicate", "Replicate"], [1, 1, 2, 1], (2,), (0, 1, 2, 3)),
        (["Shard(0)", "Replicate"], [1, 3, 2, 2], (0, 1), (0, 1)),
        (["Replicate", "Partial(sum)"], [1, 2, 1, 3], (1, 3), (1, 3)),
    ],
)
def test_a_replica_that_differs_is_named(
    placements: list[str], digests: list[int], odd: tuple[int, ...], group: tuple[int, ...]
) -> None:
    (found,) = checked(with_result(placements, digests)).findings
    assert (found.check, found.subject, found.ranks, found.group) == (Check.REPLICAS, "last/op_0_mul", odd, group)
    assert found.text.startswith("declared Replicate, differs between ranks ")
    assert {place.rank for place in found.places} <= set(group)


@pytest.mark.parametrize(
    ("placements", "digests", "name"),
    [
        (["Replicate", "Replicate"], [1, 1, 1, 1], "mul"),
        (["Shard(0)", "Replicate"], [1, 1, 2, 2], "mul"),
        (["Shard(0)", "Shard(0)"], [1, 2, 3, 4], "mul"),
        (["Partial(sum)", "Partial(sum)"], [1, 2, 3, 4], "mul"),
        (["Replicate", "Replicate"], [1, 2, 3, 4], "empty_like"),
    ],
)
def test_other_results_may_differ(placements: list[str], digests: list[int], name: str) -> None:
    assert not checked(with_result(placements, digests, name)).findings


def test_what_was_compared_is_said() -> None:
    made = checked(with_result(["Replicate", "Replicate"], [1, 1, 1, 1])).made
    assert [one.many for one in made if one.what == "results declared Replicate"] == [1]
