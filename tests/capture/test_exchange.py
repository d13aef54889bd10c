"""What the members of a group give to a collective and receive from it, as parts of one vector."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from capture import trace
from capture.process_groups import GroupCall, ProcessGroup, reduction
from tests.capture.exchanges import EACH, TOGETHER
from tests.capture.logs import Log, Row
from tests.capture.test_collectives import sketch
from tests.two_ranks import CAPTURED, TwoRanks

Sums = Sequence[float]
ops = torch.ops._c10d_functional


class Call(NamedTuple):
    """One call of a collective on one of its members."""

    row: Row
    group: dict[str, Any]

    @property
    def parts(self) -> dict[str, list[dict[str, Any]]]:
        """What the record says, and the first output that it leaves out."""
        found: dict[str, list[dict[str, Any]]] = {"in": [], "out": []}
        found |= json.loads(self.row.fields.get("Exchanged", "{}"))
        if "Sketch" in self.row.fields and not any(entry.get("output") == 0 for entry in found["out"]):
            tensor = {"tensor": 0} if any("tensor" in entry for side in found.values() for entry in side) else {}
            found["out"].append({"sketch": self.row.fields["Sketch"], **tensor})
        return found


def groups(log: Log) -> list[dict[str, Any]]:
    """The groups of a log's collectives."""
    return [json.loads(row.fields["Group"]) for row in log if "Group" in row.fields]


def calls(logs: Iterable[Log]) -> Iterator[list[Call]]:
    """The members' records of each call."""
    found = defaultdict(list)
    for log in logs:
        for row in log:
            if "Group" in row.fields:
                group = json.loads(row.fields["Group"])
                found[tuple(group["ranks"]), group["name"], group["nth"], "peer" in group].append(Call(row, group))
    yield from found.values()


def sums(members: Iterable[Call], side: str) -> dict[int, Sums]:
    """Tensor of a coalesced form → the sum of the sketches on one side."""
    found: dict[int, list[Sums]] = defaultdict(list)
    for member in members:
        for entry in member.parts[side]:
            found[entry.get("tensor", 0)].append(sketch(entry))
    return {tensor: [sum(of_k) for of_k in zip(*sketches, strict=True)] for tensor, sketches in found.items()}


def assert_adds_up(members: list[Call], exact: float = 1e-12) -> None:
    """What is received is what was given: by each member, or by all together."""
    scale = 1 / len(members) if members[0].group.get("op") == "avg" else 1
    given = {tensor: [scale * x for x in total] for tensor, total in sums(members, "in").items()}
    receivers = [[member] for member in members] if members[0].row.op in EACH else [members]
    for receiver in receivers:
        received = sums(receiver, "out")
        assert received.keys() == given.keys()
        for tensor, total in given.items():
            assert received[tensor] == pytest.approx(total, rel=exact, abs=exact * max(map(abs, total)))


@pytest.mark.parametrize("kind", [*EACH, *TOGETHER])
def test_sketches_of_what_is_given_add_up_to_those_of_what_is_received(two_ranks: TwoRanks, kind: str) -> None:
    (members,) = (members for members in calls(two_ranks.logs(kind)) if members[0].row.op == kind or kind == "send")
    assert_adds_up(members)
    for member in members:
        for entry in member.parts["in"]:
            assert entry["digest"] == member.row.input_digests[entry["input"]]


@pytest.mark.parametrize("variant", CAPTURED)
def test_they_add_up_in_every_way_to_divide_work(two_ranks: TwoRanks, variant: str) -> None:
    """Up to the rounding of float32, in which these are added."""
    found = [members for members in calls(two_ranks.logs(variant)) if members[0].group["ranks"] == [0, 1]]
    assert found
    for members in found:
        assert_adds_up(members, 1e-5)


def test_pieces_are_those_of_the_members(two_ranks: TwoRanks) -> None:
    """Those of an all-gather's result are the members' inputs; those of a reduce-scatter add up to their results."""
    judged = []
    for variant in CAPTURED:
        for members in calls(two_ranks.logs(variant)):
            given, taken = ([entry for member in members for entry in member.parts[side]] for side in ("in", "out"))
            kind = members[0].row.op
            if "gather" in kind:
                own = [entry["digest"] for entry in given]
                assert all([digest for digest, _ in entry["pieces"]] == own for entry in taken)
            elif "reduce_scatter" in kind:
                for k, member in enumerate(members):
                    counts = dict(field.split("=") for field in member.row.fields["Counts"].split())
                    total = float(member.row.fields["Mean"]) * int(counts["numel"])
                    size = sum(entry["l1"] for entry in given)
                    assert sum(entry["pieces"][k][1] for entry in given) == pytest.approx(total, abs=1e-6 * size)
            else:
                continue
            judged.append(kind)
    assert {"_allgather_base_", "_reduce_scatter_base_", "all_gather_into_tensor"} <= set(judged)


def test_a_message_says_with_whom_and_is_counted_by_both_alike(two_ranks: TwoRanks) -> None:
    first, second = two_ranks.logs("send")
    for one, other, peer in ((first, second, 1), (second, first, 0)):
        (sent,), (received,) = one.of("send"), other.of("recv_")
        group = {"ranks": [0, 1], "nth": 0, "name": "0"}
        assert json.loads(sent.fields["Group"]) == {**group, "peer": peer}
        assert json.loads(received.fields["Group"]) == {**group, "peer": 1 - peer}
        given, taken = Call(sent, group).parts["in"], Call(received, group).parts["out"]
        assert [entry["digest"] for entry in given] == [entry["digest"] for entry in taken]


def test_groups_of_the_same_ranks_are_counted_apart(two_ranks: TwoRanks) -> None:
    """They may overtake each other: counted together, each rank would pair the calls in its own order."""
    found = list(calls(two_ranks.logs("overtaking")))
    assert [[call.group["nth"] for call in members] for members in found] == [[0, 0], [0, 0]]
    assert len({members[0].group["name"] for members in found}) == 2
    for members in found:
        assert_adds_up(members)


def test_a_reduction_and_a_root_are_named(two_ranks: TwoRanks) -> None:
    first, second = map(groups, two_ranks.logs("reductions"))
    assert [group.get("op") for group in first] == ["max", "product", "avg"]
    assert [group.get("op") for group in second] == ["max", "product", "avg", None]
    assert (second[-1]["ranks"], second[-1]["root"]) == ([1], 1), "the first of its group is rank 1 of all"
    for log in two_ranks.logs("reduce_"):
        assert [group["root"] for group in groups(log)] == [1]


def test_the_factor_of_a_premultiplied_sum_is_there_where_torch_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Boxed:
        """A reduction as an operation gets it."""

        def op(self) -> int:
            return int(dist.ReduceOp.PREMUL_SUM)

    assert reduction("AVG") == ("avg", None)
    assert reduction(None) == (None, None)
    inside = getattr(dist, "_make_nccl_premul_sum")(0.5)  # noqa: B009  has no public name
    monkeypatch.setattr(dist.ReduceOp, "unbox", lambda _: inside, raising=False)
    told = 0.5 if hasattr(inside, "factor") else None
    assert reduction(Boxed()) == ("premul_sum", told)
    assert GroupCall(ProcessGroup("7", (4, 6), 6), 3, ("premul_sum", 0.5), root=1).as_json(None) == {
        "ranks": [4, 6],
        "nth": 3,
        "name": "7",
        "op": "premul_sum",
        "factor": 0.5,
        "root": 6,
    }


def test_averages_add_up_too(two_ranks: TwoRanks) -> None:
    (members,) = (members for members in calls(two_ranks.logs("reductions")) if members[0].group.get("op") == "avg")
    assert_adds_up(members)


def test_parts_of_different_sizes_have_norms_only(two_ranks: TwoRanks) -> None:
    (members,) = calls(two_ranks.logs("uneven alltoall_base_"))
    entries = [[entry for member in members for entry in member.parts[side]] for side in ("in", "out")]
    assert all("at" not in entry and "sketch" not in entry for side in entries for entry in side)
    given, received = (sum(entry["l1"] for entry in side) for side in entries)
    assert given == received > 0


def test_no_sketch_where_none_is_wanted(two_ranks: TwoRanks) -> None:
    for log in two_ranks.logs("no sketch"):
        (row,) = log.of("allreduce_")
        exchanged = json.loads(row.fields["Exchanged"])
        assert exchanged["out"] == []
        (given,) = exchanged["in"]
        assert given.keys() == {"input", "at", "numel", "digest", "l1", "l2", "mean"}


def test_what_was_not_waited_for_was_given_and_not_received(two_ranks: TwoRanks) -> None:
    (row,) = two_ranks.logs("unfinished")[0].of("allreduce_")
    (given,) = json.loads(row.fields["Exchanged"])["in"]
    assert given["l1"] == 4.0


def test_simulated_ranks_have_groups_and_parts_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "rank_{rank}_activations.log"
    each = {rank: torch.arange(6.0) * (rank + 1) for rank in range(4)}
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        with LocalTensorMode(4):
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            with trace(nn.Identity(), path=path):
                x = LocalTensor(each)
                dist.all_reduce(x, group=mesh.get_group("dp"))
                gathered = ops.all_gather_into_tensor(x, 2, mesh.get_group("tp").group_name)
                ops.wait_tensor(gathered)
    finally:
        dist.destroy_process_group()
    logs = [Log.read(Path(str(path).replace("{rank}", str(rank)))) for rank in range(4)]
    found = {tuple(members[0].group["ranks"]): members for members in calls(logs)}
    assert found.keys() == {(0, 2), (1, 3), (0, 1), (2, 3)}
    for members in found.values():
        assert len(members) == 2
        assert_adds_up(members)
