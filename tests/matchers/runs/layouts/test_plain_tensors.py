"""Tensor parallelism of plain tensors whose parameters are placed by annotations."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import sources
from matchers.ops.placement import MERGED, NOT_SUMMED
from matchers.ops.run_info import contradictions
from matchers.ops.share import Holds
from matchers.rules.model import LayoutRule, RuleSet, Side
from matchers.rules.scope import reach
from matchers.runs.layouts.read import layouts_differ, read_both
from matchers.runs.layouts.unsummed import read_unsummed
from matchers.runs.run import Run, find_run
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from tests.captured import Step, captured_log, write_captured
from tests.matchers.runs.layouts.ranks import compared, write_ranks

Array = NDArray[np.float32]
GATHERS = {"ranks": [0, 1], "nth": 0}
GROUP = GATHERS | {"op": "sum"}


def step(x: Array, w: Array, total: Array | None, factor: float = 1.0) -> list[Step]:
    """The product of a layer, which ranks sum up if there is a total of theirs, and what reads it."""
    made = (x @ w.T * factor).astype(np.float32)
    out = [Step(key="layers.0.down/op_0_mm", gives=[made], reads=[x, w])]

    def then(key: str, gives: Array, reads: Array, **fields: Any) -> Array:
        out.append(Step(key=key, gives=[gives], reads=[reads], made=[out[-1].key], fields=fields))
        return gives

    if total is not None:
        copied = then("layers.0.down/op_1_clone", made, made)
        made = then("layers.0.down/op_2_all_reduce", total, copied, group=GROUP)
    then("layers.0/op_0_relu", np.maximum(made, 0), made)
    return out


def one_and_two(folder: Path, factor: float, summed: bool = True) -> Comparison:
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=(8, 16)).astype(np.float32) for _ in range(2))
    parts = [(x[:, :8], w[:, :8], factor), (x[:, 8:], w[:, 8:], 1.0)]
    one, other = ((a @ b.T * c).astype(np.float32) for a, b, c in parts)
    where = [{"placements": ["Shard(1)"], "shape": [8, 16], "offsets": [0, 8 * rank]} for rank in (0, 1)]
    placed = {"layers.0.down.weight": where}
    alone = write_ranks(folder / "one", [step(x, w, None)], placed)
    steps = [step(a, b, one + other if summed else None, c) for a, b, c in parts]
    run = write_ranks(folder / "run", steps, placed)
    assert layouts_differ(find_run(str(folder / "one")), find_run(run))
    return compared(alone, run)


def test_what_ranks_sum_up_are_terms(tmp_path: Path) -> None:
    c = one_and_two(tmp_path, 1.0)
    assert not c.red.any()
    assert c.coverage.a.compared == c.coverage.a.operations
    assert c.b.texts(MERGED)[0] == "2 ranks, partial, summed up later"


def test_a_wrong_term_is_red_where_it_is_made(tmp_path: Path) -> None:
    c = one_and_two(tmp_path, 1.01)
    assert [c.a.keys[int(c.row_a[cause.rows[0]])] for cause in c.consequences.causes] == ["layers.0.down/op_0_mm"]


def test_terms_that_no_collective_adds_up_are_told(tmp_path: Path) -> None:
    c = one_and_two(tmp_path, 1.0, summed=False)
    assert re.fullmatch(r"2 ranks, partial by its values, \de-\d\d off, not summed", c.b.texts(MERGED)[0])
    (told,) = contradictions(c.b.header.run)
    assert told.startswith("layers.0.down/op_0_mm: a term on each rank")
    assert not contradictions(one_and_two(tmp_path / "summed", 1.0).b.header.run)


@pytest.mark.parametrize("op", ["embedding_dense_backward", "sum", "relu"])
def test_sums_of_terms_may_be_added_up_in_their_place(op: str) -> None:
    """As the gradient of a table of positions, whose heads are on ranks; what is no sum misleads."""
    term = np.ones((8, 8), np.float32)
    steps = [Step(key="down/op_0_mm", gives=[term], reads=[term]), Step(key=f"table/op_0_{op}", gives=[term])]
    steps.append(Step(key="table/op_1_allreduce_", gives=[term], fields={"group": GROUP}))
    for made, read in pairwise(steps):
        read.reads, read.made = made.gives, [made.key]
    log, none = captured_log(steps), np.zeros(3, bool)
    holds = np.array([Holds.PARTIAL, Holds.PARTIAL, Holds.UNKNOWN], np.int8)
    told = read_unsummed(log, sources(log), holds, none, none, [0, 1], {0, 1})
    assert told == ({0: NOT_SUMMED} if op == "relu" else {})


def test_a_copy_that_is_read_beside_the_sum_is_the_first_cause(tmp_path: Path) -> None:
    """A collective that another copy goes through: each rank goes on with its own term."""
    rng = np.random.default_rng(3)
    x, w = (rng.normal(size=(8, 16)).astype(np.float32) for _ in range(2))
    terms = [(x[:, half] @ w[:, half].T).astype(np.float32) for half in (slice(0, 8), slice(8, 16))]
    total = terms[0] + terms[1]

    def then(made: str, read: Array, columns: slice = slice(0, 8)) -> list[Step]:
        relu, of = np.maximum(read, 0), w[:, columns]
        product = (relu @ of).astype(np.float32)
        return [
            Step(key="layers.0/op_0_relu", gives=[relu], reads=[read], made=[made]),
            Step(key="layers.0/op_1_mm", gives=[product], reads=[relu, of], made=["layers.0/op_0_relu", ""]),
        ]

    def of_rank(k: int) -> list[Step]:
        mm, half = "layers.0.down/op_0_mm", slice(8 * k, 8 * k + 8)
        return [
            Step(key=mm, gives=[terms[k]], reads=[x[:, half], w[:, half]]),
            Step(key="layers.0.down/op_1_clone", gives=[terms[k]], reads=[terms[k]], made=[mm]),
            Step(key="layers.0.down/op_2_clone", gives=[terms[k]], reads=[terms[k]], made=[mm]),
            Step(
                key="layers.0.down/op_3_all_reduce",
                gives=[total],
                reads=[terms[k]],
                made=["layers.0.down/op_2_clone"],
                fields={"group": GROUP},
            ),
            *then("layers.0.down/op_1_clone", terms[k], slice(4 * k, 4 * k + 4)),
        ]

    placed = {
        "layers.0.down.weight": [{"placements": ["Shard(1)"], "shape": [8, 16], "offsets": [0, 8 * k]} for k in (0, 1)]
    }
    one = [Step(key="layers.0.down/op_0_mm", gives=[total], reads=[x, w]), *then("layers.0.down/op_0_mm", total)]
    alone = write_ranks(tmp_path / "one", [one], placed)
    c = compared(alone, write_ranks(tmp_path / "run", [of_rank(0), of_rank(1)], placed))
    (cause,) = c.consequences.causes
    assert c.b.keys[int(c.row_b[cause.rows[0]])] == "layers.0.down/op_1_clone"
    assert "no collective adds them up" in headline(c, cause.rows[0])


def test_what_is_nearly_the_same_on_all_ranks_is_no_term(tmp_path: Path) -> None:
    """Scores masked by a large number: half of their sum, as of two micro-batches, is what one process has."""
    scores = np.random.default_rng(0).normal(size=(2, 8, 4)).astype(np.float32)

    def steps(number: int, size: int) -> list[Step]:
        return [
            made
            for k, own in enumerate(scores * np.float32(1e-3) + np.float32(1e4) * np.triu(np.ones((8, 4)), 1))
            for masked in [(own + 1e-2 * number * (size - 1) * scores[k]).astype(np.float32)]
            for key in [f"h/op_{2 * k}_masked_fill"]
            for made in (
                Step(key=key, gives=[masked], fields={"micro_batch": k}),
                Step(
                    key=f"h/op_{2 * k + 1}_softmax",
                    gives=[scores[k] * (1 + number)],
                    reads=[masked],
                    made=[key],
                    fields={"micro_batch": k},
                ),
            )
        ]

    where = [{"placements": ["Shard(0)"], "shape": [8], "offsets": [4 * at]} for at in (0, 1)]
    one = write_ranks(tmp_path / "one", [steps(0, 1)], {"h.bias": where})
    c = compared(one, write_ranks(tmp_path / "run", [steps(number, 2) for number in (0, 1)], {"h.bias": where}))
    assert not contradictions(c.b.header.run)


@pytest.mark.parametrize("added_up", [False, True])
def test_terms_that_are_gathered_like_parts_are_told(tmp_path: Path, added_up: bool) -> None:
    """A collective may gather terms for each rank to add them up; one that puts them together takes them for parts."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=(8, 16)).astype(np.float32) for _ in range(2))
    parts = [(x[:, :8], w[:, :8]), (x[:, 8:], w[:, 8:])]
    gathered = np.concatenate([(a @ b.T).astype(np.float32) for a, b in parts])
    put, residual = "layers.0.down/op_1_all_gather_into_tensor", x[:, :8]

    def add(product: Array, maker: str) -> Step:
        reads = [product, residual]
        return Step(key="layers.0/op_0_add", gives=[product[:8] + residual], reads=reads, made=[maker, ""])

    def rank(a: Array, b: Array) -> list[Step]:
        product = step(a, b, None)[0]
        gather = Step(key=put, gives=[gathered], reads=product.gives, made=[product.key], fields={"group": GATHERS})
        total = Step(key="layers.0/op_0_sum", gives=[gathered.reshape(2, 8, 8).sum(0)], reads=[gathered], made=[put])
        return [product, gather, total if added_up else add(gathered, put)]

    whole = step(x, w, None)[0]
    where = [{"placements": ["Shard(1)"], "shape": [8, 16], "offsets": [0, 8 * at]} for at in (0, 1)]
    placed = {"layers.0.down.weight": where}
    one = write_ranks(tmp_path / "one", [[whole, add(np.asarray(whole.gives[0]), whole.key)]], placed)
    c = compared(one, write_ranks(tmp_path / "run", [rank(*part) for part in parts], placed))
    told = contradictions(c.b.header.run)
    if added_up:
        assert not told
    else:
        assert told[0].startswith("layers.0.down/op_0_mm: declared Shard, acts as Partial")
        (cause,) = c.consequences.causes
        assert c.a.keys[int(c.row_a[cause.rows[0]])] == "layers.0.down/op_0_mm"
        assert headline(c, cause.rows[0]).endswith("their sum agrees, but they are gathered as parts")


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("read", [False, True])
def test_equal_results_are_shards_only_if_they_are_constant(tmp_path: Path, constant: bool, read: bool) -> None:
    """Ranks that read half of the other run's batch have one half, not two; a constant is one of what is made of it."""
    y = np.arange(16, dtype=np.float32).reshape(2, 8)
    x = np.ones((2, 8), np.float32) if constant else y

    def steps(x: Array, y: Array) -> list[Step]:
        made = Step(key="layers.0/op_0_relu", gives=[x])
        return [made, Step(key="layers.0/op_1_mul", gives=[y], reads=[x, y], made=[made.key, ""])][: 1 + read]

    whole = steps(np.concatenate((x, x + (not constant))), np.concatenate((y, y + 1)))
    run = write_ranks(tmp_path / "run", [steps(x, y)] * 2, {})
    told, *_ = compared(write_ranks(tmp_path / "one", [whole], {}), run).b.texts(MERGED).values()
    assert told == f"2 ranks, {'shard by its shape' if constant and not read else 'replica'}"


def test_equally_many_ranks_with_other_parts_are_merged(tmp_path: Path) -> None:
    """Of plain tensors the number of elements tells that a rank has parts; other models have other parameters."""

    def run(name: str, elements: int, parameter: str = "w") -> Run:
        for rank in range(2):
            info = {"world_size": 2, "rank": rank, "parameter_digests": {parameter: "00"}}
            path = tmp_path / name / f"rank_{rank}_activations.log"
            path.parent.mkdir(exist_ok=True)
            write_captured(path, [], parameters={"elements": elements}, **info)
        return find_run(str(tmp_path / name))

    whole = run("whole", 8)
    assert layouts_differ(whole, run("parts", 4))
    assert not layouts_differ(whole, run("again", 8))
    assert not layouts_differ(whole, run("other", 4, "v"))


def test_what_one_rank_alone_has_is_no_term(tmp_path: Path) -> None:
    """Against ranks of another run, one of which has just the same: the sum with zeros proves nothing."""
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    logs = [
        [Step(key="m/op_0_ge", gives=[x * (rank == 0)]), Step(key="m/op_1_relu", gives=[x + rank])] for rank in (0, 1)
    ]
    pair = [write_ranks(tmp_path / name, logs, {}) for name in ("a", "b")]
    for log in read_both((pair[0], pair[1])):
        assert "partial" not in log.texts(MERGED)[0]
        assert not contradictions(log.header.run)


def test_a_rule_says_what_ranks_hold(tmp_path: Path) -> None:
    """It has the last word, and the logs are merged anew when it changes."""
    one_and_two(tmp_path, 1.0)
    paths = str(tmp_path / "one" / "rank_0_activations.log"), str(tmp_path / "run")

    def merged(rules: RuleSet) -> tuple[OpLog, OpLog]:
        return read_both(paths, rules=rules)

    c = compare(*merged(RuleSet()), merge_again=merged, expectation=Expectation(Expect.REDUCTION_ORDER))
    assert c.b.texts(MERGED)[0] == "2 ranks, partial, summed up later"
    rule = LayoutRule(match="layers.0.down/op_0_mm", holds=Holds.UNKNOWN, side=Side.B)
    ruled = c.with_rules(RuleSet((rule,)))
    assert ruled.b.texts(MERGED)[0] == "2 ranks, unknown by a rule"
    assert ruled.usage[0].matched == 1
    assert np.flatnonzero(reach(rule, ruled.a, ruled.b).b).tolist() == [0]
    assert Status(int(ruled.status[0])) == Status.NO_VALUES
    assert ruled.with_rules(RuleSet()).b.texts(MERGED)[0] == c.b.texts(MERGED)[0]
    of_a = c.with_rules(RuleSet((replace(rule, side=Side.A),)))
    assert of_a.usage[0].hint, "no ranks are merged in a"


@pytest.mark.parametrize("ranks", [[0, 1], [0, 2]])
def test_products_of_parts_are_terms_that_a_collective_among_other_ranks_does_not_add_up(
    tmp_path: Path, ranks: list[int]
) -> None:
    """The products have a whole tensor's shape, and the collective a sum; lengths tell that each contracts a part."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=(8, 16)).astype(np.float32) for _ in range(2))
    right = (x[:, :8] @ w[:, :8].T).astype(np.float32) + (x[:, 8:] @ w[:, 8:].T).astype(np.float32)

    def steps(a: Array, b: Array, total: Array | None) -> list[Step]:
        first, *rest = step(a, b, total)
        forms = f"[8,{a.shape[1]}];[{a.shape[1]},8]"
        rest = [replace(of, fields={"group": GROUP | {"ranks": ranks}}) if "reduce" in of.key else of for of in rest]
        return [replace(first, made=["", ""], fields={"forms": forms}), *rest]

    where = [{"placements": ["Shard(1)"], "shape": [8, 16], "offsets": [0, 8 * rank]} for rank in (0, 1)]
    placed = {"layers.0.down.weight": where}
    alone = write_ranks(tmp_path / "one", [steps(x, w, None)], placed)
    halves = [(x[:, half], w[:, half]) for half in (slice(0, 8), slice(8, 16))]
    totals = [right, right] if ranks == [0, 1] else [(k * right).astype(np.float32) for k in (2, 3)]
    run = [steps(*of, total) for of, total in zip(halves, totals, strict=True)]
    c = compared(alone, write_ranks(tmp_path / "run", run, placed))
    if ranks == [0, 1]:
        assert not c.red.any()
        assert not contradictions(c.b.header.run)
        return
    assert c.b.texts(MERGED)[0] == "2 ranks, partial, a product of parts, not summed"
    told, *_ = contradictions(c.b.header.run)
    assert told.startswith("layers.0.down/op_0_mm: a term on each rank")


@pytest.mark.parametrize("digest", ["0b", "0c"], ids=["of nothing known", "of another parameter"])
def test_a_copy_that_begins_otherwise_on_one_rank_is_the_first_cause(tmp_path: Path, digest: str) -> None:
    """One process has the parameter of rank 0; that of rank 1 is no other one of its, such as an expert's."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=(8, 16)).astype(np.float32) for _ in range(2))

    def written(path: Path, factor: float, own: str, **info: Any) -> str:
        scores = (x @ (w * factor).T).astype(np.float32)
        steps = [
            Step(key="router/op_0_mm", gives=[scores], reads=[x, (w * factor).astype(np.float32)], made=["", ""]),
            Step(key="router/op_1_relu", gives=[np.maximum(scores, 0)], reads=[scores], made=["router/op_0_mm"]),
        ]
        digests = {"router.weight": own, "expert.weight": "0c"}
        path.parent.mkdir(exist_ok=True)
        write_captured(path, steps, parameter_digests=digests, batch=[{"digest": "00"}], **info)
        return str(path)

    alone = written(tmp_path / "one" / "rank_0_activations.log", 1.0, "0a")
    for rank, (factor, own) in enumerate([(1.0, "0a"), (1.5, digest)]):
        path = tmp_path / "run" / f"rank_{rank}_activations.log"
        written(path, factor, own, world_size=2, rank=rank)
    c = compared(alone, str(tmp_path / "run"))
    if digest == "0c":
        assert c.b.texts(MERGED)[0] == "2 ranks, unknown"
        return
    assert c.b.texts(MERGED)[1] == "2 ranks, replica of copies, rank 1 differs"
    (cause,) = c.consequences.causes
    assert c.b.keys[int(c.row_b[cause.rows[0]])] == "router/op_0_mm"
    assert headline(c, cause.rows[0]).startswith(
        "FIRST CAUSE: ranks of b contradict each other: router.weight: parameter"
    )
