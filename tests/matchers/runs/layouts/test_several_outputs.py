"""Operations with several outputs on ranks that hold parts: attention's gradients, norms of all gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import Comparison
from matchers.ops.combine import combine
from matchers.ops.placement import Part
from matchers.ops.share import Holds, placed_share
from matchers.ops.sketch import PROJECTIONS, decode_sketches, encode_sketch
from matchers.ops.values import Result, as_values, further_output
from matchers.status import Status
from tests.captured import Step, summary, write_captured
from tests.matchers.runs.layouts.ranks import compared, write_ranks

Array = NDArray[np.float32]
RNG = np.random.default_rng(1)
X, Q, K, V = (RNG.normal(size=(4, 8, 6)).astype(np.float32) for _ in range(4))
BACK, CLIP = {"phase": "backward"}, {"phase": "gradients"}
MESH = {"mesh": {"tp": 2}}
MAKER = "h.0.attn/op_1_attention_backward"


def attention(q: Array, k: Array, v: Array, bias: Array) -> list[Step]:
    """The gradients of queries, keys and values, and that of the bias of the keys, which is rounding alone."""
    return [
        Step(key="h.0.proj/op_0_mm", gives=[X], fields=BACK),
        Step(key=MAKER, reads=[X], gives=[q, k, v], made=["h.0.proj/op_0_mm"], fields=BACK),
        Step(key="h.0.attn.k/op_2_sum", reads=[k], gives=[bias], made=[MAKER], fields=BACK),
    ]


def norms(placed: list[Array], shards: bool) -> list[Step]:
    """The norms of two gradients, each sharded, and that of a third one that all ranks have."""
    how = {**MESH, "placements": ["_NormPartial(2.0)" if shards else "Replicate"], "shape": [], "offsets": []}
    made = [summary(np.float32(np.linalg.norm(one))[()], placement=how if shards else None) for one in placed]
    out: list[Any] = [step for k, one in enumerate(placed) for step in [Step(key=f"w{k}/op_0_mm", gives=[one])]]
    keys = [step.key for step in out]
    return [*out, Step(key="clip/op_0__foreach_norm", reads=placed, gives=made, made=keys, fields=CLIP)]


def one_and_two(folder: Path, one: list[Step], ranks: list[list[Step]]) -> Comparison:
    """Compare one process with two ranks."""
    halves = {"h.0.attn.k.bias": [{"placements": ["Shard(0)"], "shape": [8], "offsets": [4 * rank]} for rank in (0, 1)]}
    return compared(write_ranks(folder / "one", [one], halves), write_ranks(folder / "run", ranks, halves))


def heads(rank: int, tensor: Array) -> Array:
    """The part of a rank: half of the heads."""
    return np.ascontiguousarray(tensor[:, 4 * rank : 4 * rank + 4])


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_outputs_after_the_first_are_merged(tmp_path: Path, factor: float) -> None:
    noise = [1e-9 * RNG.normal(size=size).astype(np.float32) for size in (8, 4, 4)]
    parts = [attention(heads(rank, Q), heads(rank, K), heads(rank, V) * factor, noise[1 + rank]) for rank in (0, 1)]
    c = one_and_two(tmp_path, attention(Q, K, V, noise[0]), parts)
    found = further_output(c.b, int(c.at_b[1]), 2)
    assert found is not None
    assert found.shape == V.shape
    assert found.l2 == pytest.approx(factor * np.linalg.norm(V))
    red = {c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.red)}
    assert red == (set() if factor == 1 else {MAKER})


def test_outputs_of_the_shape_that_the_other_run_has_are_no_shards(tmp_path: Path) -> None:
    """They may be terms; that the operation gives something twice as long elsewhere tells nothing."""

    def steps(term: Array) -> list[Step]:
        wide = np.arange(12, dtype=np.float32)
        return [
            Step(key=f"h.{k}.norm/op_0_norm_backward", reads=[X], gives=[X + k, gradient], fields=BACK)
            for k, gradient in enumerate((term, wide))
        ]

    terms = [RNG.normal(size=6).astype(np.float32) for _ in range(2)]
    c = one_and_two(tmp_path, steps(terms[0] + terms[1]), [steps(term) for term in terms])
    assert not c.red.any()
    assert further_output(c.b, 0, 1) is None


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_norms_of_shards_are_merged(tmp_path: Path, factor: float) -> None:
    parts = [
        [np.float32(factor if k else 1.0) * heads(rank, tensor) for k, tensor in enumerate((Q, K))] for rank in (0, 1)
    ]
    c = one_and_two(tmp_path, norms([Q, K], shards=False), [norms(part, shards=True) for part in parts])
    (row,) = (k for k in range(len(c)) if c.a.op_name(int(c.row_a[k])) == "_foreach_norm")
    merged = c.b.outputs[int(c.row_b[row])].tolist()
    assert merged == pytest.approx([np.linalg.norm(Q), factor * np.linalg.norm(K)])
    assert bool(c.red[row]) == (factor != 1)


def placed(*names: str, offset: int = 0) -> Part:
    return Part((4,), (offset,), (2,), names, ("dp", "tp"))


AT = [{"dp": rank // 2, "tp": rank % 2} for rank in range(4)]


def test_ranks_apart() -> None:
    def apart(parts: Sequence[Part], at: Sequence[Mapping[str, int]] = AT) -> list[int]:
        return placed_share(parts, at).ranks

    assert apart([placed("Replicate", "_NormPartial(2.0)")] * 4) == [0, 1]
    assert apart([placed("Partial(sum)", "Replicate")] * 4) == [0, 2]
    assert apart([placed("Replicate", "Shard(0)", offset=rank % 2) for rank in range(4)]) == [0, 1]
    assert apart([placed("Partial(sum)", "Partial(sum)")] * 4, [{}] * 4) == [0, 1, 2, 3], "no place is known"


def test_of_one_element_on_two_ranks_the_one_that_has_it_tells_the_whole(tmp_path: Path) -> None:
    fields = {"parameters": ["head.bias"], "phase": "optimizer"}

    def steps(values: Array, start: int) -> list[Step]:
        placed = {**MESH, "placements": ["Shard(0)"], "shape": [1], "offsets": [start]}
        return [Step(key="head/op_0_mul", gives=[summary(values, placement=placed)], fields=fields)]

    one = np.array([3], np.float32)
    whole = [Step(key="head/op_0_mul", gives=[one], fields=fields)]
    c = one_and_two(tmp_path, whole, [steps(one, 0), steps(one[:0], 1)])
    assert c.b.shape_text(0) == "[1]"
    assert c.status.tolist() == [Status.CLOSE]


def test_a_rank_that_has_all_holds_a_shard_where_others_have_nothing() -> None:
    parts = [Part((1,), (start,), (size,), ("Shard(0)",), ("dp",)) for start, size in ((0, 1), (1, 0))]
    share = placed_share(parts, [{"dp": 0}, {"dp": 1}])
    assert (share.holds, list(share.ranks), share.whole) == (Holds.SHARD, [0, 1], (1,))


def test_terms_of_shards_are_all_counted() -> None:
    """One dimension of the mesh has terms, the other shards: all four parts are needed, and replicas only once."""

    def total(*names: str) -> list[float]:
        share = placed_share([placed(*names, offset=rank % 2) for rank in range(4)], AT)
        sketches = [encode_sketch(np.full(PROJECTIONS, 2.0**rank)) for rank in share.ranks]
        parts = as_values([Result("state", (2,), "float32", sketch=sketch) for sketch in sketches])
        found = combine(parts, np.array([0]), [share])
        assert found.shapes[int(found.shape[0])] == "[4]"
        return [float(value) for value in set(decode_sketches(found.sketch)[0])]

    assert total("Partial(sum)", "Shard(0)") == [1 + 2 + 4 + 8]
    assert total("Replicate", "Shard(0)") == [1 + 2]
    assert total("Partial(avg)", "Shard(0)") == [(1 + 2 + 4 + 8) / 2]


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_averages_are_divided_by_the_ranks(tmp_path: Path, factor: float) -> None:
    """DTensor averages what it averages over shards; plain operations go on with the terms.

    What is kept of them is named after a parameter in shards, of another form.
    """
    squares, state = RNG.random((4, 6)).astype(np.float32), RNG.random(6).astype(np.float32)
    halves = [squares[:2], np.float32(factor) * squares[2:]]
    placed = {"placements": ["Partial(avg)"], "shape": [6], "offsets": [0], **MESH}
    optimizer = {"phase": "optimizer"}
    named = {**optimizer, "parameters": ["h.0.attn.k.bias.c"]}

    def means(rows: Array, whole: Array, average: bool) -> list[Step]:
        mean, total = rows.mean(0), state + rows.mean(0)
        steps = [
            Step(key="optimizer/op_0_mean", gives=[summary(mean, placement=placed if average else None)]),
            Step(key="optimizer/op_1_add", gives=[total], reads=[state, mean], made=["", "optimizer/op_0_mean"]),
        ]
        if average:
            made = [steps[-1].key]
            steps.append(Step(key="optimizer/op_2_all_reduce", gives=[whole], reads=[total], made=made, fields=named))
        fields = optimizer if average else named
        root = Step(
            key="optimizer/op_3_sqrt", gives=[np.sqrt(whole)], reads=[whole], made=[steps[-1].key], fields=fields
        )
        return [*steps, root]

    ranks = [means(half, state + np.concatenate(halves).mean(0), average=True) for half in halves]
    c = one_and_two(tmp_path, means(squares, state + squares.mean(0), average=False), ranks)
    assert [bool(red) for red in c.red[c.at_a]] == [factor != 1] * 3
    assert c.red.any() == (factor != 1)


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_sums_of_shards_count_replicas_once(tmp_path: Path, factor: float) -> None:
    """A parameter that tensor parallelism does not divide is in shards of data parallelism only."""
    squares = RNG.random(8).astype(np.float32)

    def norm(values: Array, placement: dict[str, Any] | None) -> list[Step]:
        key = "clip/op_0_pow"
        made = Step(key=key, gives=[summary(values, placement=placement)], fields=CLIP)
        return [made, Step(key="clip/op_1_sum", gives=[values.sum()], reads=[values], made=[key], fields=CLIP)]

    info = {"parameter_digests": {"norm.weight": "00"}, "batch": [{"digest": "00"}]}
    write_captured(tmp_path / "one.log", norm(squares, None), **info)
    (tmp_path / "run").mkdir()
    for rank in range(4):
        at, mesh = {"dp": rank // 2, "tp": rank % 2}, {"dp": 2, "tp": 2}
        where = {"mesh": mesh, "placements": ["Shard(0)", "Replicate"], "shape": [8], "offsets": [4 * at["dp"]]}
        own = np.float32(factor if rank > 1 else 1) * squares[4 * at["dp"] :][:4]
        run = {"world_size": 4, "rank": rank, "mesh": mesh, "mesh_coordinates": at, **info}
        write_captured(tmp_path / "run" / f"rank_{rank}_activations.log", norm(own, where), **run)
    c = compared(str(tmp_path / "one.log"), str(tmp_path / "run"))
    assert c.red.tolist() == [factor != 1, factor != 1]
    assert c.coverage.a.compared == 2


def test_powers_of_norms() -> None:
    assert placed("Replicate", "_NormPartial(2.0)").power == 2
    assert placed("_NormPartial(inf)").power is None
    assert placed("_NormPartial(2.0)", "Partial(sum)").power is None
    assert placed("Shard(0)").power is None
