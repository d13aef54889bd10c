"""Collectives on two gloo ranks: read when they are done and not before; what is sharded says which part it is."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from tests.capture.logs import Log, Row
from tests.capture.runs import Examples
from tests.two_ranks import TwoRanks

FSDP = "--parallel fsdp2"


def result(row: Row) -> float:
    return float(row.mutated[0]["l1"]) if row.mutated else float(row.fields["Output hash"].split(", ")[0])


@pytest.mark.parametrize(
    ("kind", "op", "early"),
    [
        ("functional", "all_reduce", 4.0),
        ("in_place", "allreduce_", 4.0),
        ("never_used", "allreduce_", 4.0),
        ("gathered", "_allgather_base_", None),
        ("wrapped", "all_reduce", None),
    ],
)
def test_three_a_collective_has_the_values_that_its_wait_brings(
    two_ranks: TwoRanks, kind: str, op: str, early: float | None
) -> None:
    """The third fault: rank 1 joins late, and what rank 0 has before it does is not the sum.

    Of two kinds DebugMode's hash is nothing to compare with: of an all-gather it is that of fresh memory, and a tensor
    that waits for itself when it is looked at would be waited for until the end of time.
    """
    if early is not None:
        assert two_ranks.stock(kind)[0][op] == [early]
    for rank, log in enumerate(two_ranks.logs(kind)):
        (row,) = log.of(op)
        assert result(row) == 12.0
        group = json.loads(row.fields["Group"])
        assert (group["ranks"], group["nth"]) == ([0, 1], 0)
        assert float(row.fields["Input hashes"].split(", ")[-1]) == 4.0 * (1 + rank)


@pytest.mark.parametrize("kind", ["functional", "wrapped"])
def test_a_wait_passes_the_value_on(two_ranks: TwoRanks, kind: str) -> None:
    for log in two_ranks.logs(kind):
        (begun,), (wait,), (user,) = log.of("all_reduce"), log.of("wait_tensor"), log.of("add")
        assert wait.digests == begun.digests
        assert wait.producers == [begun.key]
        assert user.producers == [wait.key]


def test_what_was_not_waited_for_has_no_numbers(two_ranks: TwoRanks) -> None:
    (row,) = two_ranks.logs("unfinished")[0].of("allreduce_")
    assert row.fields["Output hash"] == "nan"
    assert "Digest" not in row.fields
    assert row.input_digests != ["-"]


def collectives(log: Log) -> list[Row]:
    return [row for row in log if "Group" in row.fields]


@pytest.mark.parametrize("variant", [FSDP, "--parallel tp", "--parallel ddp --micro-batches 2", "--parallel fsdp2+tp"])
class TestEveryWayToDivideWork:
    def test_collectives_are_counted_by_group_and_alike_on_both_ranks(self, two_ranks: TwoRanks, variant: str) -> None:
        first, second = map(collectives, two_ranks.logs(variant))
        assert [(row.op, row.fields["Group"]) for row in first] == [(row.op, row.fields["Group"]) for row in second]
        assert [json.loads(row.fields["Group"])["nth"] for row in first] == list(range(len(first)))

    def test_all_that_came_is_there(self, two_ranks: TwoRanks, variant: str) -> None:
        """Memory that was never written to is NaN here: not one element of it was read."""
        for log in two_ranks.logs(variant):
            assert collectives(log)
            assert [row.key for row in log if row.fields.get("Counts") and row.counts["nan"]] == []

    def test_what_all_ranks_get_is_the_same_on_all(self, two_ranks: TwoRanks, variant: str) -> None:
        whole = {"_allgather_base_", "all_gather_into_tensor", "all_reduce", "allreduce_", "broadcast_"}
        first, second = ([row for row in collectives(log) if row.op in whole] for log in two_ranks.logs(variant))
        assert [row.digests for row in first] == [row.digests for row in second]


class TestFullyShardedData:
    def test_a_rank_computes_what_one_process_does_with_its_micro_batch(
        self, two_ranks: TwoRanks, examples: Examples
    ) -> None:
        alone = examples.log("--micro-batches 2")
        for rank, log in enumerate(two_ranks.logs(FSDP)):
            assert products(log, "0") == products(alone, str(rank))

    def test_what_is_sharded_says_which_part_it_is(self, two_ranks: TwoRanks) -> None:
        for rank, log in enumerate(two_ranks.logs(FSDP)):
            weight = stepped(log)["layers.0.attention.wq.weight"]
            assert weight["placement"] == {
                "mesh": {"dp": 2}, "placements": ["Shard(0)"], "shape": [32, 32], "offsets": [16 * rank, 0],
            }  # fmt: skip

    def test_the_head_has_the_placement_of_every_parameter_and_the_place_of_the_rank(self, two_ranks: TwoRanks) -> None:
        for rank, log in enumerate(two_ranks.logs(FSDP)):
            placed = {name: entry["placement"] for name, entry in stepped(log).items()}
            told = log.run["parameter_placements"]
            assert {name: told[name] for name in placed} == placed
            assert told.keys() == log.run["parameter_digests"].keys()
            assert log.run["mesh_coordinates"] == {"dp": rank}

    def test_the_sketches_of_the_shards_add_up_to_the_whole(self, two_ranks: TwoRanks, examples: Examples) -> None:
        parts = [stepped(log) for log in two_ranks.logs(FSDP)]
        whole = stepped(examples.log("--micro-batches 2"))
        assert set(whole) == set(parts[0]) == set(parts[1])
        for name, entry in whole.items():
            total = [sum(pair) for pair in zip(*(sketch(part[name]) for part in parts), strict=True)]
            assert total == pytest.approx(sketch(entry), rel=1e-4, abs=1e-4)


def test_every_rank_names_its_place_and_its_machine(two_ranks: TwoRanks, examples: Examples) -> None:
    simulated = examples.captured("--parallel tp --local-tensor 2 --layers 1").logs.values()
    for variant, logs in (("--parallel fsdp2+tp", two_ranks.logs("--parallel fsdp2+tp")), ("simulated", simulated)):
        told = [log.run["mesh_coordinates"] for log in logs]
        first = {"dp": 0} if variant != "simulated" else {}
        assert told == [{**first, "tp": 0}, {**first, "tp": 1}]
        assert len({log.run["host"] for log in logs}) == 1
    assert "parameter_placements" not in examples.log().run


def products(log: Log, micro_batch: str) -> list[tuple[str, list[str]]]:
    """Module and digests of the forward pass's matrix products."""
    return [
        (row.module, row.digests)
        for row in log
        if row.op in ("mm", "bmm") and row.phase == "forward" and row.fields["Micro-batch"] == micro_batch
    ]


def stepped(log: Log) -> dict[str, dict[str, Any]]:
    """What the optimizer made of each parameter, by name."""
    return {
        entry["name"]: entry
        for row in log
        if row.phase == "optimizer"
        for entry in row.mutated
        if entry.get("name", "").endswith("weight")
    }


def sketch(entry: dict[str, Any]) -> tuple[float, ...]:
    return struct.unpack("<16d", base64.b64decode(entry["sketch"]))
