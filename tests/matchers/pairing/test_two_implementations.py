"""One Llama and one GPT in three implementations with the same weights: partners, red rows, where a bug is found.


The truth is in the numbers: operations of two correct runs are partners only if they return the same numbers, whatever
their layout. With a bug planted, the same rows are partners.
"""

from __future__ import annotations

import numpy as np
import pytest

from matchers.arrays import Bool, Float64
from matchers.comparison import Comparison, compare
from matchers.explain.sentences import explain
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.shapes import numel
from matchers.pairing.pairing import Method
from matchers.status import Status
from matchers.verdict.fused import are_parts
from tests.matchers.pairing.conftest import Captured

LOOP = "--optimizer loop"
"""An operation per parameter, not on lists."""
PAIRS = [
    ("hf", "titan", ""),
    ("hf", "titan", LOOP),
    ("hf", "fused", ""),
    ("hf", "fused", LOOP),
    ("hf", "fused", "--optimizer fused"),
    ("titan", "fused", ""),
    ("titan", "fused", LOOP),
    ("conv1d", "linear", ""),
    ("conv1d", "linear", LOOP),
    ("conv1d", "separate", "--optimizer fused"),
    ("separate", "conv1d", LOOP),
    ("linear", "separate", ""),
    ("fused", "hf", f"{LOOP} --seed 3 --layers 3 --dim 48 --heads 6 --hidden 80"),
    ("hf", "titan", "--sdpa"),
]


def numbers(log: OpLog) -> Float64:
    """float64[5, n]: number of elements, L1, L2, Min, Max."""
    return np.stack((numel(log)[log.shape], log.outputs.first(), *log.stats[1:4]))


def same(a: OpLog, b: OpLog) -> Bool:
    """bool[n_a, n_b]: the two return the same numbers."""
    x, y = numbers(a)[:, :, None], numbers(b)[:, None, :]
    scale = np.maximum(np.abs(x), np.abs(y))
    scale[3:] = scale[3:].max(axis=0)
    return np.asarray((np.abs(x - y) <= 1e-4 * scale).all(axis=0) & (y[1] > 0))


def wrong(c: Comparison, truth: Bool) -> list[tuple[str, str]]:
    """Pairs of confidence .9 and more that are none; of lists, and of groups, the numbers of one row say nothing."""
    p = c.pairing
    i, j = p.lead_a, p.lead_b
    single = ~p.grouped & (c.a.outputs.count[i] == 1) & (c.a.outputs.first(i) > 0)
    found = np.flatnonzero(single & ~truth[i, j] & (p.confidence >= 0.9))
    return [(c.a.keys[int(i[k])], c.b.keys[int(j[k])]) for k in found]


def left_alone(c: Comparison, truth: Bool) -> int:
    """The number of unpaired rows of a that could each have an unpaired row of b of the same op and numbers."""
    free_a, free_b = np.flatnonzero(c.pairing.of_a < 0), np.flatnonzero(c.pairing.of_b < 0)
    taken: set[int] = set()
    for i in free_a.tolist():
        fits = (j for j in free_b.tolist() if truth[i, j] and j not in taken and c.a.op_name(i) == c.b.op_name(j))
        taken.update(j for j in [next(fits, -1)] if j >= 0)
    return len(taken)


@pytest.mark.parametrize(("one", "other", "arguments"), PAIRS)
def test_of_two_correct_implementations_all_is_paired_and_nothing_is_red(
    implementation: Captured, one: str, other: str, arguments: str
) -> None:
    a, b = implementation(one, arguments), implementation(other, arguments)
    c, truth = compare(a, b), same(a, b)
    assert wrong(c, truth) == []
    assert left_alone(c, truth) <= 5
    assert [explain(c, row).headline for row in np.flatnonzero(c.red | c.cause).tolist()] == []


def test_projections_of_one_tensor_are_parts_of_the_fused_one(implementation: Captured) -> None:
    c = compare(implementation("titan", LOOP), implementation("fused", LOOP))
    groups = [c.pairing.members(k) for k in np.flatnonzero(c.pairing.method == Method.PARTS).tolist()]
    named = {tuple(c.a.keys[i] for i in rows): c.b.keys[whole] for rows, (whole,) in groups}
    qkv = tuple(f"layers.1.attention.w{name}/op_0_mm" for name in "qkv")
    assert named[qkv] == "layers.1.attention.wqkv/op_0_mm"
    assert any("op_0_linalg_vector_norm" not in key and "linalg_vector_norm" in key for key in named.values())
    assert all(are_parts(c.a, c.b, *group) for group in groups)


BUGS = {
    "softmax-scale@1": ("layers.1", "_mul"),
    "norm-eps@0": ("layers.0", "_add"),
    "weight.q@1": ("layers.1", "_mm"),
    "no-mask@0": ("layers.0", ("_add", "_masked_fill")),
}


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize(("one", "other"), [("hf", "titan"), ("titan", "fused"), ("hf", "fused")])
def test_a_planted_bug_is_the_first_cause(implementation: Captured, one: str, other: str, bug: str) -> None:
    c = compare(implementation(one, LOOP), implementation(other, f"{LOOP} --bug {bug}"))
    row, *others = np.flatnonzero(c.cause).tolist()
    # the decay of a weight that differs has another result, too
    assert all(c.a.phase[c.row_a[other]] == Phase.OPTIMIZER and "weight" in bug for other in others)
    layer, op = BUGS[bug]
    key = c.a.keys[int(c.row_a[row])]
    assert layer in key
    assert key.endswith(op)


@pytest.mark.parametrize("form", ["", LOOP])
@pytest.mark.parametrize(("one", "other"), [("conv1d", "linear"), ("separate", "conv1d")])
def test_a_planted_bug_behind_transposed_weights_is_the_first_cause(
    implementation: Captured, one: str, other: str, form: str
) -> None:
    c = compare(implementation(one, form), implementation(other, f"{form} --bug softmax-scale@1"))
    (row,) = np.flatnonzero(c.cause).tolist()
    log, record = (c.a, int(c.row_a[row])) if c.row_a[row] >= 0 else (c.b, int(c.row_b[row]))
    assert ".1/" in log.keys[record]
    assert log.op_name(record) in ("div", "mul")


def test_an_update_by_the_rounding_of_a_part_of_the_gradient_is_not_judged(implementation: Captured) -> None:
    """The gradient of a key bias is zero but for rounding, and Adam makes ±lr of it."""
    c = compare(implementation("conv1d", LOOP), implementation("linear", LOOP))
    found = np.flatnonzero(c.status == Status.NOT_JUDGED).tolist()
    keys = {c.a.keys[int(c.row_a[row])] for row in found}
    assert keys == {f"h.{layer}.c_attn/op_21_addcdiv_" for layer in range(2)}


def test_dropout_that_one_run_lacks_is_the_first_cause(implementation: Captured) -> None:
    c = compare(implementation("hf"), implementation("titan", "--dropout 0.1"))
    row = int(np.flatnonzero(c.cause)[0])
    log, record = c.b, int(c.row_b[row])
    assert log.op_name(record) == "bernoulli_"
    assert log.module_name(record).endswith("layers.0.attention")
    assert explain(c, row).headline == (
        f"FIRST CAUSE: only b draws random numbers here: bernoulli_ at {log.location_text(record)}"
    )


def test_dropout_that_both_runs_have_is_none(implementation: Captured) -> None:
    c = compare(implementation("hf", "--dropout 0.1"), implementation("titan", "--dropout 0.1"))
    assert not c.red.any()
    assert not c.cause.any()


def test_names_of_other_modules_are_evidence_by_their_words(implementation: Captured) -> None:
    c = compare(implementation("hf"), implementation("titan"))
    assert c.matching is not None
    names = c.matching.features.names
    at = [
        next(int(side.pattern[k]) for k, name in enumerate(log.modules) if name.endswith(tail))
        for side, log, tail in (
            (names.a, c.a, "layers.0.input_layernorm"),
            (names.b, c.b, "layers.0.attention_norm"),
            (names.b, c.b, "output"),
        )
    ]
    near, far = (int(names.words.bins(np.array([at[0]]), np.array([other]))[0]) for other in at[1:])
    assert near > far
