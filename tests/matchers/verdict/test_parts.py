"""Pairs of parts: judged by their wholes, by their dtypes, and by infinities that no part can have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capture.log_writer import TensorSummary
from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog
from matchers.ops.batch_numbers import BATCH_RANKS
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from tests.captured import Array, Step, captured_log, summary
from tests.matchers.invariants import check

RNG = np.random.default_rng(11)
X = RNG.normal(size=(8, 16))
W = RNG.normal(size=(16, 16))


def shard(values: Array, dtype: str = "") -> TensorSummary:
    """The first half of the rows."""
    placement = {"mesh": {"tp": 2}, "placements": ["Shard(0)"], "shape": list(values.shape), "offsets": [0, 0]}
    return summary(values[:4], placement=placement, dtype=dtype)


def step(key: str, gives: Any, *made: tuple[str, Array]) -> Step:
    return Step(key=key, gives=[gives], reads=[read for _, read in made], made=[maker for maker, _ in made])


def whole(x: Array = X) -> OpLog:
    y = np.tanh(x)
    return captured_log(
        [
            step("norm/op_0_tanh", y, ("", x)),
            step("wq/op_0_mm", y @ W, ("norm/op_0_tanh", y), ("", W)),
        ]
    )


def parallel(y: Array, dtype: str = "") -> OpLog:
    """A rank that computes half of the rows, and then gathers all."""
    half = y[:4]
    if dtype:
        y = y * RNG.uniform(0.9, 1.1, y.shape)  # alike, the gather would be its partner
    return captured_log(
        [
            step("norm/op_0_tanh", shard(y, dtype), ("", X[:4])),
            step("attention/op_0_all_gather_into_tensor", y, ("norm/op_0_tanh", half)),
            step("attention/op_1_cat", y, ("attention/op_0_all_gather_into_tensor", y)),
            step("wq/op_0_mm", y @ W, ("attention/op_1_cat", y), ("", W)),
        ]
    )


def statuses(c: Comparison) -> dict[str, Status]:
    return {c.a.keys[c.row_a[row]]: Status(c.status[row]) for row in np.flatnonzero(c.pair >= 0)}


@pytest.mark.parametrize("preset", [None, Expect.REDUCTION_ORDER])
def test_a_shard_is_judged_by_the_whole_that_is_read_in_its_place(preset: Expect | None) -> None:
    expectation = Expectation(preset=preset)
    right = compare(whole(), parallel(np.tanh(X)), expectation=expectation)
    check(right)
    assert statuses(right) == {"norm/op_0_tanh": Status.EQUAL, "wq/op_0_mm": Status.EQUAL}
    wrong = np.tanh(X)
    wrong[6] *= 1.01  # among the rows that the rank does not hold
    c = compare(whole(), parallel(wrong), expectation=expectation)
    check(c)
    assert statuses(c) == {"norm/op_0_tanh": Status.DIVERGED, "wq/op_0_mm": Status.DIVERGED}
    [row] = np.flatnonzero(c.cause).tolist()
    assert headline(c, row).startswith("FIRST CAUSE: the whole tensor, in attention/op_1_cat, differs by ≈")
    assert "the inputs are not judged" in headline(c, row)


def test_a_shard_that_nobody_gathers_is_not_judged() -> None:
    log = parallel(np.tanh(X))
    alone = captured_log([step("norm/op_0_tanh", shard(np.tanh(X) * 1.5), ("", X[:4]))])
    assert statuses(compare(whole(), alone)) == {"norm/op_0_tanh": Status.SHARDED}
    assert len(log) == 4


def test_another_dtype_is_red_in_a_shard_too() -> None:
    c = compare(whole(), parallel(np.tanh(X), dtype="bfloat16"))
    assert statuses(c)["norm/op_0_tanh"] == Status.SHAPE
    assert headline(c, 0).endswith("dtype differs: float64 in a, bfloat16 in b")


def masked(rows: slice, kind: float) -> Array:
    x = X.copy()
    x[rows, ::4] = kind
    return x


def filled(values: Array, *, part: bool) -> OpLog:
    return captured_log([step("attention/op_0_masked_fill", shard(values) if part else values, ("", X))])


@pytest.mark.parametrize(
    ("whole_rows", "part_rows", "kind", "expected"),
    [
        (slice(0, 8), slice(0, 8), -np.inf, Status.SHARDED),  # spread evenly
        (slice(0, 2), slice(0, 2), -np.inf, Status.SHARDED),  # all of them in this part
        (slice(6, 8), slice(6, 8), -np.inf, Status.SHARDED),  # none
        (slice(0, 0), slice(0, 1), -np.inf, Status.NAN),  # more than in the whole
        (slice(0, 8), slice(0, 0), -np.inf, Status.SHARDED),
        (slice(0, 8), slice(0, 8), np.nan, Status.NAN),  # never a match
        (slice(0, 0), slice(0, 1), np.nan, Status.NAN),
    ],
)
def test_a_part_has_a_share_of_the_infinities(
    whole_rows: slice, part_rows: slice, kind: float, expected: Status
) -> None:
    c = compare(filled(masked(whole_rows, kind), part=False), filled(masked(part_rows, kind), part=True))
    assert list(statuses(c).values()) == [expected]


def test_a_part_without_room_for_the_infinities_is_red() -> None:
    """Of 128 numbers 120 are infinite: a part of 64 finite ones cannot be of this tensor."""
    most = X.copy()
    most.ravel()[8:] = np.inf
    c = compare(filled(most, part=False), filled(X, part=True))
    assert list(statuses(c).values()) == [Status.NAN]


def test_a_whole_that_one_run_changes_before_it_is_read() -> None:
    """Then the shard is right, and what changes its whole is the cause."""
    y = np.tanh(X)
    steps = [
        step("norm/op_0_tanh", shard(y), ("", X[:4])),
        step("attention/op_0_all_gather_into_tensor", y, ("norm/op_0_tanh", y[:4])),
        step("attention/op_1_mul", y * 1.02, ("attention/op_0_all_gather_into_tensor", y)),
        step("wq/op_0_mm", y @ W * 1.02, ("attention/op_1_mul", y * 1.02), ("", W)),
    ]
    c = compare(whole(), captured_log(steps))
    check(c)
    assert statuses(c) == {"norm/op_0_tanh": Status.EQUAL, "wq/op_0_mm": Status.DIVERGED}
    [row] = np.flatnonzero(c.cause).tolist()
    assert c.b.keys[c.row_b[row]] == "attention/op_1_mul"


def test_a_copy_of_a_flat_buffer_is_arranged_like_it() -> None:
    """Ranks of another number reduce other parts of it, and copy what they got."""

    def ranks() -> OpLog:
        part, key = RNG.normal(size=12).astype(np.float32), "out/op_0__reduce_scatter_base_"
        fields = {"phase": "backward"}
        copied = Step(key="out/op_1_copy_", gives=[part], reads=[part, part], made=[key, ""], fields=fields)
        group = {"ranks": [0, 1], "nth": 0, "op": "sum"}
        scattered = Step(key=key, gives=[part], reads=[part, part], fields={**fields, "group": group})
        return replace(captured_log([scattered, copied]), members={0: "rank_0_activations.log"})

    c = compare(ranks(), ranks(), expectation=Expectation(Expect.REDUCTION_ORDER))
    assert set(statuses(c).values()) == {Status.SHARDED}


def test_what_ranks_add_up_over_samples_is_no_sum_over_parts() -> None:
    """Data parallelism reduces a gradient that tensor parallelism reduces for another reason."""

    def ranks(op: str, batches: int) -> OpLog:
        gradient = RNG.normal(size=(4, 3)).astype(np.float32)
        fields = {"phase": "gradients", "group": {"ranks": [0, 1], "nth": 0, "op": "sum"}}
        steps = [Step(key=f"reduce/op_0_{op}", gives=[gradient], reads=[gradient], fields=fields)]
        if op == "all_reduce":
            key, made = "reduce/op_1_wait_tensor", [steps[0].key]
            steps.append(Step(key=key, gives=[gradient], reads=[gradient], made=made, fields={"phase": "gradients"}))
        log = captured_log(steps)
        run = {**log.header.run, BATCH_RANKS: batches}
        return replace(log, header=replace(log.header, run=run), members={0: "rank_0", 1: "rank_1"})

    for batches, status in ((1, Status.SHARDED), (2, Status.DIVERGED)):
        c = compare(
            ranks("allreduce_", 2), ranks("all_reduce", batches), expectation=Expectation(Expect.REDUCTION_ORDER)
        )
        assert set(statuses(c).values()) == {status}


def test_a_sum_over_ranks_that_one_run_lacks_is_the_first_cause() -> None:
    """Both hold terms; what reads one in place of their sum holds no other part."""
    term, other = X @ W[:, :8], X @ W[:, 8:]
    half = {"mesh": {"tp": 2}, "placements": ["Partial(sum)"], "shape": [8, 8], "offsets": [0, 0]}

    def run(*sums: str) -> OpLog:
        steps, read = [Step(key="out/op_0_mm", gives=[summary(term, placement=half)], reads=[X])], term
        for key in (*sums, "block/op_2_neg", "block/op_3_exp", "block/op_4_tanh"):
            result = term + other if key in sums else np.tanh(read)
            steps.append(step(key, result, (steps[-1].key, read)))
            read = result
        return captured_log(steps)

    whole = run("block/op_0_all_reduce", "block/op_1_wait_tensor")
    c = compare(whole, run(), expectation=Expectation(Expect.REDUCTION_ORDER))
    assert [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.cause)] == ["block/op_0_all_reduce"]
