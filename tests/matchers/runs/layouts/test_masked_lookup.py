"""A table of which each rank has some rows: what it looks up of others is set to zero, and the rest adds up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import Comparison
from matchers.explain.facts import facts_of
from matchers.ops.placement import MERGED
from matchers.status import Status
from tests.captured import Step, summary
from tests.matchers.runs.layouts.ranks import compared, write_ranks

RNG = np.random.default_rng(2)
TABLE: NDArray[np.float32] = RNG.normal(size=(8, 6)).astype(np.float32)
TOKENS: NDArray[np.int64] = np.array([0, 3, 4, 7, 5])
LOOKUP, MASK = "embedding/op_0_embedding", "embedding/op_1_index_put_"


def rank(number: int, factor: float) -> list[Step]:
    """The rows of half of the table; index 0 stands for a token of the other half."""
    mine = np.equal(TOKENS // 4, number)
    found = (TABLE[4 * number + TOKENS % 4 * mine] * factor).astype(np.float32)
    term = (found * mine[:, None]).astype(np.float32)
    how: dict[str, Any] = {
        "mesh": {"tp": 2},
        "placements": ["_MaskPartial(reduce_op=sum, offset_shape=torch.Size([8, 6]), offset_dim=0)"],
        "shape": [5, 6],
        "offsets": [0, 0],
    }
    group = {"ranks": [0, 1], "nth": 0, "op": "sum"}
    return [
        Step(key=LOOKUP, gives=[summary(found, placement=how)]),
        Step(key=MASK, reads=[found], gives=[summary(term, placement=how)], made=[LOOKUP]),
        Step(key="h/op_0_all_reduce", reads=[term], gives=[TABLE[TOKENS]], made=[MASK], fields={"group": group}),
        Step(
            key="h/op_1_relu", reads=[TABLE[TOKENS]], gives=[np.maximum(TABLE[TOKENS], 0)], made=["h/op_0_all_reduce"]
        ),
    ]


def one_and_two(folder: Path, factor: float) -> Comparison:
    relu = np.maximum(TABLE[TOKENS], 0)
    one = [
        Step(key=LOOKUP, gives=[TABLE[TOKENS]]),
        Step(key="h/op_1_relu", reads=[TABLE[TOKENS]], gives=[relu], made=[LOOKUP]),
    ]
    halves = {
        "embedding.weight": [{"placements": ["Shard(0)"], "shape": [8, 6], "offsets": [4 * k, 0]} for k in (0, 1)]
    }
    alone = write_ranks(folder / "one", [one], halves)
    return compared(alone, write_ranks(folder / "two", [rank(0, 1.0), rank(1, factor)], halves))


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_lookup_is_judged_by_its_masked_terms(tmp_path: Path, factor: float) -> None:
    c = one_and_two(tmp_path, factor)
    (row,) = (k for k in range(len(c)) if c.a.op_name(int(c.row_a[k])) == "embedding" and c.row_b[k] >= 0)
    assert c.b.keys[int(c.row_b[row])] == LOOKUP
    assert Status(int(c.status[row])) == (Status.CLOSE if factor == 1 else Status.DIVERGED)
    facts = {fact.name: fact for fact in facts_of(c, row)}
    assert (facts["digest"].b, facts["digest"].agrees) == ("-", None), "only the terms were read"
    assert facts["L1"].b == ""
    if factor == 1:
        assert c.coverage.sentence.startswith("2 of 2 operations of a compared, 2 of 4 of b ")
    assert "not summed" not in c.b.texts(MERGED)[int(c.row_b[row])]


def plain_rank(number: int, masked: bool) -> list[Step]:
    """The same of plain tensors: the places in its half are whole numbers that each rank computes of the tokens."""
    here = TOKENS - 4 * number
    absent = (here < 0) | (here >= 4)
    places = np.where(absent, 0, here) if masked else np.clip(here, 0, 3)
    table = TABLE[4 * number : 4 * number + 4]
    found = table[places]
    term = np.where(absent[:, None] & masked, np.float32(0), found)
    total = np.zeros_like(term)
    for k in (0, 1):
        of = TOKENS - 4 * k
        away = (of < 0) | (of >= 4)
        rows = TABLE[4 * k : 4 * k + 4][np.where(away, 0, of) if masked else np.clip(of, 0, 3)]
        total += np.where(away[:, None] & masked, np.float32(0), rows)
    group = {"ranks": [0, 1], "nth": 0, "op": "sum"}
    return [
        Step(key="embedding/op_0_sub", reads=[TOKENS], gives=[here]),
        Step(key="embedding/op_1_clamp", reads=[here], gives=[places], made=["embedding/op_0_sub"]),
        Step(key="embedding/op_2_embedding", reads=[table, places], gives=[found], made=["", "embedding/op_1_clamp"]),
        Step(key="embedding/op_3_masked_fill", reads=[found], gives=[term], made=["embedding/op_2_embedding"]),
        Step(key="h/op_0_all_reduce", reads=[term], gives=[total], made=["embedding/op_3_masked_fill"],
             fields={"group": group}),
        Step(key="h/op_1_relu", reads=[total], gives=[np.maximum(total, 0)], made=["h/op_0_all_reduce"]),
    ]  # fmt: skip


@pytest.mark.parametrize("masked", [True, False])
def test_places_that_nothing_but_whole_numbers_decides_excuse_no_lookup(tmp_path: Path, masked: bool) -> None:
    one = [
        Step(key="embedding/op_0_sub", reads=[TOKENS], gives=[TOKENS]),
        Step(key="embedding/op_1_clamp", reads=[TOKENS], gives=[TOKENS], made=["embedding/op_0_sub"]),
        Step(
            key="embedding/op_2_embedding", reads=[TABLE, TOKENS], gives=[TABLE[TOKENS]],
            made=["", "embedding/op_1_clamp"],
        ),
        Step(
            key="embedding/op_3_masked_fill", reads=[TABLE[TOKENS]], gives=[TABLE[TOKENS]],
            made=["embedding/op_2_embedding"],
        ),
        Step(
            key="h/op_1_relu", reads=[TABLE[TOKENS]], gives=[np.maximum(TABLE[TOKENS], 0)],
            made=["embedding/op_3_masked_fill"],
        ),
    ]  # fmt: skip
    halves = {
        "embedding.weight": [{"placements": ["Shard(0)"], "shape": [8, 6], "offsets": [4 * k, 0]} for k in (0, 1)]
    }
    alone = write_ranks(tmp_path / "one", [one], halves)
    c = compared(alone, write_ranks(tmp_path / "two", [plain_rank(k, masked) for k in (0, 1)], halves))
    red = {c.a.op_name(int(c.row_a[row])) for row in np.flatnonzero(c.status == Status.DIVERGED).tolist()}
    assert red == (set() if masked else {"embedding", "masked_fill", "relu"})
