"""Collectives: one row in one run, two in the other; and values that were read too early."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.logs.op_log import OpLog
from matchers.ops.collectives import Chain, find_chains, lowered, unfinished
from matchers.ops.laws import collective
from matchers.rules.model import ApartRule, OpRule, RuleSet
from matchers.status import Status
from tests.builders import Op, op
from tests.matchers.drifted_logs import made_up_log

FORMS = (
    ("_allgather_base_", "all_gather_into_tensor"),
    ("_allgather_base_", "all_gather_into_tensor_out"),
    ("_reduce_scatter_base_", "reduce_scatter_tensor"),
    ("allreduce_", "all_reduce"),
    ("alltoall_base_", "all_to_all_single"),
    ("broadcast_", "broadcast"),
)
SHAPE = (16,)


def step(communication: Sequence[Op]) -> OpLog:
    """A collective between two operations that every run has; the second reads the gathered value."""
    before = op("layers.0/op_0_mul", 2.0, shape=SHAPE)
    after = op("layers.0/op_9_mm", 4.0, inputs=[33.0], shape=SHAPE)
    return made_up_log([before, *communication, after])


def in_place(name: str, value: float = 99.0, k: int = 1) -> Op:
    """What c10d logs: one row, whose value was read before it was there."""
    return op(f"layers.0/op_{k}_{name}", value, shape=SHAPE, inputs=[6.0])


def functional(name: str, waited: float = 11.0, k: int = 1) -> list[Op]:
    """What a traced graph logs: the start, and the wait for the value."""
    start = op(f"layers.0/op_{k}_{name}", 98.0, shape=SHAPE, inputs=[6.0], producers=["layers.0/op_0_mul"])
    wait = op(f"layers.0/op_{k}_wait_tensor", waited, shape=SHAPE, inputs=start.outputs, producers=[start.key])
    return [start, wait]


def grouped(c: Comparison) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [c.pairing.members(pair) for pair in np.flatnonzero(c.pairing.grouped).tolist()]


@pytest.mark.parametrize(("whole", "start"), FORMS)
def test_the_start_and_its_wait_are_the_one_collective_of_the_other_run(whole: str, start: str) -> None:
    """All three rows are one pair, on either side; its lead is the wait, and the start is not only in b."""
    one, two = step([in_place(whole)]), step(functional(start))
    c = compare(one, two)
    assert grouped(c) == [((1,), (1, 2))]
    (pair,) = np.flatnonzero(c.pairing.grouped).tolist()
    assert (int(c.pairing.lead_a[pair]), int(c.pairing.lead_b[pair])) == (1, 2)
    assert len(c) == 3
    assert not c.red.any()
    assert c.counts[Status.ONLY_A] == c.counts[Status.ONLY_B] == 0
    assert grouped(compare(two, one)) == [((1, 2), (1,))]


def test_where_both_runs_have_two_rows_they_are_two_pairs() -> None:
    log = step(functional("all_gather_into_tensor"))
    c = compare(log, log)
    assert grouped(c) == []
    assert len(c.pairing) == len(log)


def test_the_waited_value_is_judged() -> None:
    """In both runs by itself: a difference in it is a divergence, one at the start is not."""
    a = step(functional("all_gather_into_tensor"))
    b = step(functional("all_gather_into_tensor", waited=12.0))
    c = compare(a, b)
    assert np.flatnonzero(c.red).tolist() == [2]


def test_several_in_flight_at_once_keep_their_waits() -> None:
    """Starts first, waits later, in another order: the producers tell which is whose."""
    pairs = [functional("all_gather_into_tensor", 10.0 + k, k) for k in range(1, 4)]
    starts, waits = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    log = step([*starts, waits[2], waits[0], waits[1]])
    lead, stands_for = find_chains(log, [Chain(("all_gather_into_tensor", "wait_tensor"), "_allgather_base_")])
    assert lead.tolist() == [-1, 5, 6, 4, -1, -1, -1, -1]
    assert stands_for.tolist() == [-1, -1, -1, -1, 0, 0, 0, -1]


def test_without_producers_a_wait_belongs_to_the_nearest_start_of_its_module() -> None:
    rows = [
        op("m/op_0_all_reduce", shape=SHAPE),
        op("m/op_1_all_reduce", shape=SHAPE),
        op("m/op_2_wait_tensor", shape=SHAPE),
        op("m/op_3_wait_tensor", shape=SHAPE),
        op("m/op_4_wait_tensor", shape=SHAPE),
    ]
    lead, stands_for = find_chains(made_up_log(rows), [Chain(("all_reduce", "wait_tensor"), "allreduce_")])
    assert lead.tolist() == [3, 2, -1, -1, -1]
    assert stands_for.tolist() == [-1, -1, 0, 0, -1]


def test_which_collectives_are_lowered_is_decided_shape_by_shape() -> None:
    both = [op("m/op_1_all_gather_into_tensor", shape=(8,)), op("m/op_2_wait_tensor", shape=(8,))]
    a = made_up_log([op("m/op_0__allgather_base_", shape=(4,)), *both])
    b = made_up_log([op("m/op_0_all_gather_into_tensor", shape=(4,)), *both])
    assert lowered(b, a) == [Chain(("all_gather_into_tensor", "wait_tensor"), "_allgather_base_", frozenset({"[4]"}))]
    assert lowered(a, b) == []


def test_a_rule_declares_a_chain_of_other_operations() -> None:
    """A fused operation against the three that it fuses."""
    a = made_up_log([op("m/op_0_mul", 1.0), op("m/op_1_addmm", 5.0), op("m/op_2_sum", 7.0)])
    b = made_up_log(
        [op("m/op_0_mul", 1.0), op("m/op_1_mm", 4.0), op("m/op_2_add", 5.0), op("m/op_3_sum", 7.0)],
    )
    c = compare(a, b, RuleSet((OpRule(a=("addmm",), b=("mm", "add")),)))
    assert grouped(c) == [((1,), (1, 2))]
    assert c.counts[Status.SAME_PRINT] == 3
    assert len(c) == 3


def test_what_a_collective_is() -> None:
    names = ["add", "wait_tensor", "all_reduce", "_allgather_base_", "all_gather_copy_in", "send"]
    log = made_up_log([op(f"m/op_{k}_{name}") for k, name in enumerate(names)])
    assert collective(log).tolist() == [False, True, True, True, False, True]
    assert unfinished(log).tolist() == [False, False, True, True, True, True]
    ours = made_up_log([op("m/op_0_all_reduce")], run={}, footer=True)
    assert unfinished(ours).tolist() == [False]


def test_ten_thousand_collectives_in_one_module_are_told_apart_in_time() -> None:
    """Linear, whatever the order of the waits."""
    n = 5_000
    rows = [op(f"m/op_{k}_all_reduce", shape=SHAPE, location=None) for k in range(n)]
    rows += [op(f"m/op_{n + k}_wait_tensor", shape=SHAPE, location=None) for k in range(n)]
    lead, _ = find_chains(made_up_log(rows), [Chain(("all_reduce", "wait_tensor"), "allreduce_")])
    assert sorted(lead[:n].tolist()) == list(range(n, 2 * n))


def test_a_step_can_be_kept_apart_from_what_its_chain_stands_for() -> None:
    a = made_up_log([op("m/op_0_mul", 1.0), op("m/op_1_addmm", 5.0)])
    b = made_up_log([op("m/op_0_mul", 1.0), op("m/op_1_mm", 4.0), op("m/op_2_add", 5.0)])
    rules = RuleSet((OpRule(a=("addmm",), b=("mm", "add")), ApartRule(a="m/op_1_addmm", b="m/op_1_mm")))
    c = compare(a, b, rules)
    assert c.pairing.partner_of_a.tolist() == [0, 2]
    assert not c.pairing.grouped.any()
    assert c.pairing.of_b.tolist() == [0, -1, 1]
    assert [use.hint for use in c.usage] == [None, None]
