"""Verdicts: what two records' numbers say, and no more than they say."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.comparison import compare
from matchers.logs.columns import Ragged
from matchers.logs.op_log import MARKS, OpLog
from matchers.ops.shapes import is_shard, numel
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.judge import dtype_policy, judge
from matchers.verdict.relative_error import relative
from matchers.verdict.tolerance import EPSILON, default_tolerance
from tests.builders import Op, op
from tests.captured import Step, as_parts, captured_log, summary
from tests.matchers.drifted_logs import made_up_log
from tests.needs import examples

BASE = op("m/op_0_add", 1.0)
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Verdict:
    status: Status
    error: float
    bound: bool
    tolerance: float


def verdict(
    a: Op,
    b: Op,
    *,
    rtol: float = NAN,
    policy: tuple[tuple[str, str], ...] = (),
    elsewhere: tuple[Op, ...] = (),
    **log: Any,
) -> Verdict:
    """The verdict on two records as a pair; `elsewhere` are further records of both logs."""
    one = np.zeros(1, np.int64)
    # a policy is found in the logs: its dtypes occur in them
    others = [*elsewhere, *(replace(BASE, dtype=dtype) for names in policy for dtype in names)]
    made = judge(made_up_log([a, *others], **log), made_up_log([b, *others], **log), one, one, np.array([rtol]), policy)
    status = Status(made.status[0])
    return Verdict(status, float(made.error[0]), bool(made.bound[0]), float(made.tolerance[0]))


def status(a: Op, b: Op, **options: Any) -> Status:
    """The status of two records as a pair, and the same with the sides swapped."""
    found = verdict(a, b, **options).status
    swapped = verdict(b, a, **options | {"policy": tuple((y, x) for x, y in options.get("policy", ()))}).status
    assert found == swapped
    return found


def scaled(factor: float, **fields: Any) -> Op:
    """The base record with its output hash and its L2 norm scaled."""
    return replace(BASE, outputs=[3.0 * factor], l2=2.0 * factor, **fields)


# ---------------------------------------------------------------------- equal, same-print, close, diverged


def test_equal_digests_are_equal_bits_whatever_is_printed() -> None:
    same = {"Digest": "00ff00ff00ff00ff, 0000000000000001"}
    found = verdict(replace(BASE, extra=same), replace(BASE, extra=same))
    assert found.status == Status.EQUAL
    assert (found.error, found.bound) == (0.0, False)


def test_other_digests_are_a_difference_that_no_norm_shows() -> None:
    """Elements that were moved, as a rule: an error of 0 would say that there is none."""
    a, b = (replace(BASE, extra={"Digest": f"{digest:016x}"}) for digest in (1, 2))
    assert status(a, b) == Status.NOT_JUDGED
    assert math.isnan(verdict(a, b).error)
    assert status(a, b, rtol=1e-3) == Status.CLOSE


def shuffled(
    op_name: str, factor: float = 1.0, dtype: str = "float32", preset: Expect | None = None, **made: Any
) -> Status:
    """An operation that returns the same elements in another order, times a factor, of equal inputs."""
    values = np.linspace(1, 2, 64).astype(np.float32).reshape(8, 8)
    given = {"reads": [values], "fields": {"overload": "aten"}, "key": f"norm/op_0_{op_name}"}
    values = made.get("values", values)
    summaries = [
        summary(x, dtype=dtype, sketch=False)
        for x in (values, (values * np.float32(factor)).ravel()[::-1].reshape(values.shape))
    ]
    one, other = (captured_log([Step(gives=[x], **given)]) for x in summaries)  # type: ignore[arg-type]
    found = [compare(*logs, expectation=Expectation(preset)).status.tolist() for logs in ((one, other), (other, one))]
    assert found[0] == found[1]
    return Status(found[0][0])


@pytest.mark.parametrize("preset", [None, Expect.REDUCTION_ORDER, Expect.LOW_PRECISION])
@pytest.mark.parametrize("name", ["native_layer_norm", "_fused_rms_norm", "mm", "gelu_backward"])
def test_moved_elements_are_red_where_the_inputs_determine_them(name: str, preset: Expect | None) -> None:
    assert shuffled(name, preset=preset) == Status.DIVERGED


@pytest.mark.parametrize("name", ["index_put", "permute_heads", "dropout"])
def test_elsewhere_they_are_not_judged(name: str) -> None:
    """An argument, or a random number, may ask for another order."""
    assert shuffled(name) == Status.NOT_JUDGED


def test_what_norms_cannot_show_is_not_judged() -> None:
    """A sign of zero, and the last bit of a number in float64, leave all norms as they are."""
    zeros = np.linspace(-1, 1, 65).astype(np.float32)
    assert shuffled("mm", values=zeros) == Status.NOT_JUDGED
    assert shuffled("mm", dtype="float64") == Status.NOT_JUDGED


BY_ELEMENT = {
    **dict.fromkeys(("native_layer_norm", "_fused_rms_norm"), False),
    **dict.fromkeys(("hardswish", "mish", "nan_to_num", "silu"), True),
}


@pytest.mark.parametrize(("name", "elementwise"), BY_ELEMENT.items())
def test_an_operation_on_equal_inputs_is_judged_by_its_law(name: str, elementwise: bool) -> None:
    """Whatever its name begins with, and whether torch tags it: four ε element by element, else 128."""
    assert shuffled(name, 1 + 8e-7) == (Status.DIVERGED if elementwise else Status.CLOSE)
    assert shuffled(name, 1 + 3e-7) == Status.CLOSE
    assert shuffled(name, 1 + 2e-5) == Status.DIVERGED


def test_a_digest_on_one_side_says_nothing() -> None:
    assert status(replace(BASE, extra={"Digest": "01"}), BASE) == Status.SAME_PRINT
    assert status(replace(BASE, extra={"Digest": "01"}), replace(BASE, extra={"Digest": "01, 02"})) != Status.EQUAL


def test_the_same_numbers_in_another_order_of_another_operation_are_not_judged() -> None:
    """Heads repeated one by one, or all in turn: equal norms tell nothing of the order, nor does an error of 0."""
    made: dict[str, Any] = {"extra": {"Digest": f"{1:016x}"}, "shape": (2, 2, 3)}
    a, b = replace(BASE, **made), replace(BASE, key="m/op_0_repeat", **made | {"shape": (2, 3, 2)})
    assert status(a, b) == Status.EQUAL
    b = replace(b, extra={"Digest": f"{2:016x}"})
    assert status(a, b) == Status.NOT_JUDGED
    assert math.isnan(verdict(a, b).error)


def test_digests_are_in_order() -> None:
    a, b = (replace(BASE, extra={"Digest": text}) for text in ("01, 02", "02, 01"))
    assert status(a, b) == Status.NOT_JUDGED


def test_nan_is_said_even_where_the_bits_are_the_same() -> None:
    """Two runs that broke in the same way broke."""
    broken = replace(BASE, outputs=["nan"], extra={"Digest": "01"})
    assert status(broken, broken) == Status.NAN


def test_without_digests_equal_numbers_are_the_same_in_print() -> None:
    found = verdict(BASE, BASE)
    assert found.status == Status.SAME_PRINT
    assert (found.error, found.bound) == (0.0, True)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "int64", "bool"])
def test_the_tolerance_of_a_dtype_parts_close_from_diverged(dtype: str) -> None:
    tolerance = default_tolerance(dtype)
    base = replace(BASE, dtype=dtype)
    for factor, expected in ((0.5, Status.CLOSE), (3.0, Status.DIVERGED)):
        found = verdict(base, scaled(1 + factor * tolerance, dtype=dtype), exact=True)
        assert found.status == expected
        assert found.error == pytest.approx(factor * tolerance, rel=0.6)
        assert found.bound
        assert found.tolerance == tolerance


def test_the_tolerance_is_some_epsilons_and_never_below_what_is_printed() -> None:
    assert default_tolerance("float32") == 128 * EPSILON["float32"]
    assert default_tolerance("bfloat16") == 2 * EPSILON["bfloat16"]
    assert default_tolerance("float64") == default_tolerance("int64") > 1e-6


def test_the_error_is_relative_to_the_larger_side() -> None:
    found = verdict(BASE, scaled(4.0))
    assert found.status == Status.DIVERGED
    assert found.error == pytest.approx(0.75)


def test_every_output_counts() -> None:
    a, b = replace(BASE, outputs=[3.0, 5.0, 7.0]), replace(BASE, outputs=[3.0, 5.0, 7.7])
    assert status(a, b) == Status.DIVERGED
    assert status(a, replace(a, outputs=[3.0, 5.0])) == Status.SAME_PRINT
    assert status(a, replace(a, outputs=[3.0, 5.0, "nan"])) == Status.NAN


def test_the_user_has_the_last_word_on_the_tolerance() -> None:
    other = scaled(1.01)
    assert status(BASE, other) == Status.DIVERGED
    assert status(BASE, other, rtol=0.1) == Status.CLOSE
    assert status(BASE, scaled(1.000002), rtol=0.0) == Status.DIVERGED
    assert status(BASE, BASE, rtol=0.0) == Status.SAME_PRINT


# ---------------------------------------------------------------------- each statistic on its own scale


def test_the_mean_is_judged_on_the_scale_of_l1_over_numel() -> None:
    """A mean near zero is cancellation: half of it may be gone and nothing has happened."""
    base = replace(BASE, shape=(100, 10), outputs=[1000.0])  # the mean magnitude is 1
    a, b = replace(base, mean=1e-7), replace(base, mean=-4.6e-8)
    found = verdict(a, b)
    assert found.status == Status.CLOSE
    assert found.error == pytest.approx(1.46e-7, rel=1e-3)
    assert status(replace(a, mean=0.5), replace(a, mean=0.6)) == Status.DIVERGED


def test_the_minimum_is_judged_on_the_scale_of_the_tensor() -> None:
    """A smallest element near zero has no relative precision of its own."""
    a, b = replace(BASE, min=1e-9, max=1.0), replace(BASE, min=3e-9, max=1.0)
    assert status(a, b) == Status.CLOSE
    assert status(replace(a, min=-1.0), replace(a, min=-0.9)) == Status.DIVERGED


def test_a_negated_tensor_is_seen_in_its_extremes() -> None:
    """Its norms are those of the original."""
    assert status(replace(BASE, min=-1.0, max=3.0), replace(BASE, min=-3.0, max=1.0)) == Status.DIVERGED


def test_a_statistic_that_one_side_lacks_is_not_compared() -> None:
    assert status(BASE, replace(BASE, l2=None, min=None)) == Status.SAME_PRINT
    assert status(replace(BASE, l1=9.0), BASE) == Status.SAME_PRINT
    assert status(replace(BASE, l1=9.0), replace(BASE, l1=8.0)) == Status.DIVERGED


@given(st.floats(allow_nan=True), st.floats(allow_nan=True))
def test_relative_is_symmetric_and_never_below_zero(x: float, y: float) -> None:
    forth, back = (relative(np.array([p]), np.array([q]))[0] for p, q in ((x, y), (y, x)))
    assert np.array_equal(forth, back, equal_nan=True)
    assert math.isnan(forth) == (math.isnan(x) or math.isnan(y))
    if not math.isnan(forth):
        assert forth >= 0
        assert (forth == 0) == (x == y)


def test_numbers_of_elements() -> None:
    log = made_up_log([replace(BASE, shape=shape) for shape in ((4, 8), (), (3,), (0, 5))])
    size = numel(log)
    assert [size[shape] for shape in log.shape.tolist()] == [32.0, 1.0, 3.0, 0.0]
    assert math.isnan(size[-1])


# ---------------------------------------------------------------------- NaN and Inf


@pytest.mark.parametrize("odd", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("where", ["outputs", "l2", "min", "max", "mean"])
def test_nan_or_inf_on_one_side_is_never_a_match(odd: str, where: str) -> None:
    broken = replace(BASE, **{where: [odd] if where == "outputs" else odd})  # type: ignore[arg-type]
    assert status(BASE, broken) == Status.NAN
    assert verdict(BASE, broken).error == INF
    assert status(BASE, broken, rtol=1e9) == Status.NAN


def test_nan_on_both_sides_is_not_the_same_print() -> None:
    """NaN hides everything: neither run has a value here."""
    broken = replace(BASE, outputs=["nan"], l2="nan")
    assert status(broken, broken) == Status.NAN


def test_the_same_infinity_on_both_sides() -> None:
    """A mask is full of -inf, rightly."""
    masked = replace(BASE, outputs=["inf"], min="-inf")
    assert status(masked, masked) == Status.SAME_PRINT
    assert status(masked, replace(masked, min="inf")) == Status.NAN
    assert status(masked, replace(masked, max=2.0)) == Status.DIVERGED


def test_infinity_against_nan() -> None:
    assert status(replace(BASE, max="inf"), replace(BASE, max="nan")) == Status.NAN


# ---------------------------------------------------------------------- shapes, shards, dtypes


def test_another_shape_of_other_numbers_of_elements() -> None:
    assert status(BASE, replace(BASE, shape=(4, 9))) == Status.SHAPE
    assert status(replace(BASE, shape=(6, 4)), replace(BASE, shape=(9, 4))) == Status.SHAPE


def test_another_shape_of_the_same_number_of_elements() -> None:
    assert status(BASE, replace(BASE, shape=(8, 4))) == Status.SHAPE


def test_another_view_of_equal_bits_is_equal() -> None:
    one, other, more = (replace(BASE, shape=shape, extra={"Digest": "0a"}) for shape in ((2, 2, 8), (4, 8), (4, 9)))
    assert status(one, other) == Status.EQUAL
    assert status(one, more) == Status.SHAPE
    assert status(one, replace(other, extra={"Digest": "0b"})) == Status.SHAPE


@pytest.mark.parametrize("shape", [(2, 8), (4, 4), (1, 8), (4, 2)])
def test_shapes_that_divide_are_shards_and_not_judged(shape: tuple[int, ...]) -> None:
    """Old logs do not say how tensors are sharded."""
    half = replace(scaled(0.5), shape=shape)
    assert status(BASE, half, elsewhere=(op("m/op_9_wait_tensor", 1.0),)) == Status.SHARDED


def test_where_nothing_communicates_nothing_is_sharded() -> None:
    assert status(BASE, replace(scaled(0.5), shape=(2, 8))) == Status.SHAPE


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ((2048, 256), (32, 2048), False),  # each is larger in one dimension
        ((256, 256), (256, 768), True),
        ((8,), (8, 1), False),
        ((6, 4), (4, 4), False),
        ((4, 8), (4, 8), False),
    ],
)
def test_a_shard_is_an_even_part(x: tuple[int, ...], y: tuple[int, ...], expected: bool) -> None:
    assert is_shard(x, y) == is_shard(y, x) == expected


def test_nan_in_one_shard_is_still_nan() -> None:
    assert status(BASE, replace(BASE, shape=(2, 8), max="nan")) == Status.NAN


def test_an_empty_tensor_is_no_shard_of_anything() -> None:
    assert status(BASE, replace(BASE, shape=(0, 8))) == Status.SHAPE


def test_another_dtype_in_one_place_is_red() -> None:
    assert status(BASE, replace(BASE, dtype="bfloat16")) == Status.SHAPE
    assert status(replace(BASE, dtype="int64"), replace(BASE, dtype="int32")) == Status.SHAPE


def test_another_dtype_throughout_is_judged_at_the_coarser_epsilon() -> None:
    policy = (("float32", "bfloat16"),)
    other = scaled(1.01, dtype="bfloat16")
    assert status(BASE, other, policy=policy) == Status.CLOSE
    assert status(BASE, scaled(1.1, dtype="bfloat16"), policy=policy) == Status.DIVERGED
    # what is computed from coarser numbers is no finer than they are
    assert status(BASE, scaled(1.01), policy=policy) == Status.CLOSE
    assert status(BASE, scaled(1.01)) == Status.DIVERGED


def log_of_dtypes(*dtypes: str) -> OpLog:
    return made_up_log([replace(BASE, dtype=dtype) for dtype in dtypes])


@pytest.mark.parametrize(
    ("changed", "policy"),
    [(0, ()), (2, ()), (3, (("float32", "bfloat16"),)), (10, (("float32", "bfloat16"),))],
)
def test_a_policy_is_what_a_tenth_of_the_pairs_do(changed: int, policy: tuple[tuple[str, str], ...]) -> None:
    """A single cast that moved is none."""
    rows = np.arange(20)
    a, b = log_of_dtypes(*["float32"] * 20), log_of_dtypes(*["bfloat16"] * changed, *["float32"] * (20 - changed))
    assert dtype_policy(a, b, rows, rows) == policy


def test_integers_are_no_precision_policy() -> None:
    rows = np.arange(20)
    assert dtype_policy(log_of_dtypes(*["int64"] * 20), log_of_dtypes(*["int32"] * 20), rows, rows) == ()


# ---------------------------------------------------------------------- collectives, operations without outputs


@pytest.mark.parametrize(
    "name", ["_allgather_base_", "_reduce_scatter_base_", "allreduce_", "all_gather_into_tensor", "all_gather_copy_in"]
)
def test_a_collective_that_was_read_before_it_was_done_is_not_red(name: str) -> None:
    """Neither for its values nor for NaN, which is what a buffer may hold before it is filled."""
    a = replace(BASE, key=f"m/op_0_{name}")
    assert status(a, replace(a, outputs=[1e30])) == Status.UNFINISHED
    assert status(a, replace(a, outputs=["nan"])) == Status.UNFINISHED
    assert status(a, a) == Status.SAME_PRINT


def test_the_value_that_was_waited_for_is_judged() -> None:
    a = replace(BASE, key="m/op_0_wait_tensor")
    assert status(a, replace(a, outputs=[30.0])) == Status.DIVERGED


def test_our_own_capture_reads_collectives_at_the_wait() -> None:
    a = replace(BASE, key="m/op_0__allgather_base_")
    assert status(a, replace(a, outputs=[1e30]), run={}, footer=True) == Status.DIVERGED


IN_PLACE = op("m/op_0_add_", shape=None, outputs=[], inputs=[1.0, 2.0])


def test_operations_without_outputs_are_known_by_what_went_in_only_where_it_differs() -> None:
    assert status(IN_PLACE, IN_PLACE) == Status.NO_VALUES
    assert math.isnan(verdict(IN_PLACE, IN_PLACE).error)
    assert status(IN_PLACE, replace(IN_PLACE, inputs=[1.0, 2.00001])) == Status.NO_VALUES
    assert status(IN_PLACE, replace(IN_PLACE, inputs=[1.0, 9.0])) == Status.DIVERGED
    assert status(IN_PLACE, replace(IN_PLACE, inputs=[1.0, "nan"])) == Status.NAN
    assert status(IN_PLACE, replace(IN_PLACE, inputs=[1.0, "inf"])) == Status.NAN


def test_an_operation_of_which_nothing_is_known_has_no_error() -> None:
    bare = replace(IN_PLACE, inputs=[])
    found = verdict(bare, bare)
    assert found.status == Status.NO_VALUES
    assert math.isnan(found.error)


@pytest.mark.parametrize("bare", [{"l2": None, "min": None, "max": None, "mean": None, "outputs": []}])
def test_a_shape_alone_or_values_of_one_side_only_compare_nothing(bare: dict[str, Any]) -> None:
    silent = replace(BASE, **bare)
    for one, other in ((silent, silent), (BASE, silent), (silent, BASE)):
        assert status(one, other) == Status.NO_VALUES
    assert status(BASE, replace(silent, outputs=BASE.outputs)) == Status.SAME_PRINT
    assert status(silent, replace(silent, shape=[3, 3])) == Status.SHAPE


def test_inputs_do_not_judge_an_operation_that_has_outputs() -> None:
    """They are the business of the origins."""
    assert status(replace(BASE, inputs=[1.0]), replace(BASE, inputs=[99.0])) == Status.SAME_PRINT


def test_no_pairs_at_all() -> None:
    log, none = made_up_log([BASE]), np.zeros(0, np.int64)
    made = judge(log, log, none, none)
    assert len(made.status) == len(made.error) == len(made.bound) == len(made.tolerance) == 0
    assert dtype_policy(log, log, none, none) == ()


# ---------------------------------------------------------------------- any two records


odd_numbers = st.sampled_from([0.0, 1.0, -1.0, 1.0000001, 1.001, 2.0, 1e-30, 1e30, NAN, INF, -INF])
some_records = st.builds(
    op,
    st.sampled_from(["m/op_0_add", "m/op_0_add_", "m/op_0_wait_tensor", "m/op_0_allreduce_"]),
    odd_numbers,
    shape=st.sampled_from([None, (), (4,), (2,), (0,)]),
    dtype=st.sampled_from(["float32", "bfloat16", "int64"]),
    outputs=st.lists(odd_numbers, max_size=2),
    inputs=st.lists(odd_numbers, max_size=2),
    extra=st.sampled_from([{}, {"Digest": "01"}, {"Digest": "02"}]),
)


@settings(max_examples=examples(60))
@given(some_records, some_records)
def test_verdicts_are_symmetric(a: Op, b: Op) -> None:
    forth, back = verdict(a, b), verdict(b, a)
    assert forth.status == back.status
    if forth.status in (Status.SHAPE, Status.SHARDED):
        return  # of different tensors; there is no error that means anything
    assert np.array_equal(forth.error, back.error, equal_nan=True)
    assert forth.error >= 0 or math.isnan(forth.error)
    assert forth.tolerance == back.tolerance


@settings(max_examples=examples(40))
@given(some_records)
def test_a_record_and_itself_never_diverge(record: Op) -> None:
    found = verdict(record, record).status
    assert found in (
        *(Status.EQUAL, Status.SAME_PRINT, Status.CLOSE),
        *(Status.NO_VALUES, Status.NAN, Status.UNFINISHED),
    )
    printed = [*record.outputs, *(record.inputs if not record.outputs and record.shape is None else ())]
    if record.shape is not None:
        printed += [record.l2, record.min, record.max, record.mean]  # type: ignore[list-item]
    if found == Status.NAN:
        assert any(math.isnan(float(value)) for value in printed)


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_terms_with_a_dimension_of_length_1_more_are_judged_by_their_sketches(factor: float) -> None:
    """Of terms of a sum the norms are not known, with which the elements could be in any order."""
    x = np.random.default_rng(0).normal(size=(1, 8)).astype(np.float32)
    one = captured_log([Step(key="m/op_0_sum", gives=[x])])
    terms = as_parts(captured_log([Step(key="m/op_0_sum", gives=[np.float32(factor) * x[None]])]), np.ones(1, bool))
    status = compare(one, terms).status[0]
    assert status == (Status.CLOSE if factor == 1 else Status.DIVERGED)


@pytest.mark.parametrize("preset", [None, Expect.REDUCTION_ORDER])
def test_heads_repeated_in_another_order_are_not_close(preset: Expect | None) -> None:
    """`repeat` for `repeat_interleave` before attention: the same norms, other heads."""
    heads = np.random.default_rng(2).normal(size=(2, 2, 8, 4)).astype(np.float32)
    logs = []
    for name, repeated in (("repeat_interleave", np.repeat(heads, 2, 1)), ("repeat", np.tile(heads, (1, 2, 1, 1)))):
        key = f"attention/op_0_{name}"
        scores = repeated * np.arange(1, 5, dtype=np.float32)[:, None, None]
        steps = [
            Step(key=key, reads=[heads], gives=[repeated]),
            Step(
                key="attention/op_1_transpose_copy",
                reads=[repeated],
                gives=[repeated.swapaxes(2, 3).copy()],
                made=[key],
            ),
            Step(key="attention/op_2_bmm", reads=[repeated], gives=[scores], made=[key]),
        ]
        logs.append(captured_log(steps))
    c = compare(logs[0], logs[1], expectation=Expectation(preset))
    assert not np.isin(c.status, (Status.EQUAL, Status.SAME_PRINT, Status.CLOSE)).any()
    assert c.red.any()
    assert set(c.at_a[[0]]) | set(c.at_b[[0]]) >= set(np.flatnonzero(c.cause))


@pytest.mark.parametrize("mark", MARKS[:2])
def test_bits_that_are_unknown_do_not_differ(mark: np.uint64) -> None:
    """Of a mask of which one run has the parts, the norm rounds."""
    mask = np.arange(8) < 7
    one = captured_log([Step(key="m/op_0_ne", gives=[mask])])
    other = replace(one, digests=Ragged(one.digests.start, np.full(1, mark)), stats=one.stats * np.nextafter(1, 2))
    row = np.zeros(1, np.int64)
    assert judge(one, other, row, row).status == [Status.CLOSE]
