"""Branches that only one run has: the operation with which they begin is named, not the one that joins them."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog
from tests.captured import Step, captured_log, summary

X = np.arange(1.0, 33.0, dtype=np.float32).reshape(4, 8)


def branching(*, branch: bool, layers: int = 2, other: str = "") -> list[Step]:
    """Layers of a `mul` and a `sum`; in the last layer a branch of two products is added between them."""
    steps: list[Step] = []
    x, made = X, ""
    for layer in range(layers):
        y = x * np.float32(1.5)
        steps.append(Step(key=f"layers.{layer}.m/op_0_mul", gives=[y], reads=[x], made=[made]))
        read, value = steps[-1].key, y
        if branch and layer == layers - 1:
            first, second = y @ np.eye(8, dtype=np.float32)[::-1], np.sin(y)
            keys = [f"layers.{layer}.m/op_{k}_{name}" for k, name in ((1, "mm"), (2, "sin"), (3, "add"))]
            steps.append(Step(key=keys[0], gives=[first], reads=[y], made=[read]))
            steps.append(Step(key=keys[1], gives=[second], reads=[first], made=[keys[0]]))
            value = y + second
            steps.append(Step(key=keys[2], gives=[value], reads=[y, second], made=[read, keys[1]]))
            read = keys[2]
        elif other:
            value = np.tanh(y) if other == "tanh" else np.abs(np.tanh(y)) + np.float32(0.5)
            steps.append(Step(key=f"layers.{layer}.m/op_1_{other}", gives=[value], reads=[y], made=[read]))
            read = steps[-1].key
        x = value.sum(0, keepdims=True) + X
        made = f"layers.{layer}.m/op_9_sum"
        steps.append(Step(key=made, gives=[x], reads=[value], made=[read]))
    return steps


def causes(c: Comparison) -> list[str]:
    return [
        c.a.keys[int(c.row_a[row])] if c.row_a[row] >= 0 else c.b.keys[int(c.row_b[row])]
        for row in np.flatnonzero(c.cause).tolist()
    ]


def test_the_start_of_a_branch_is_the_cause() -> None:
    for a, b in ((False, True), (True, False)):
        c = compare(captured_log(branching(branch=a)), captured_log(branching(branch=b)))
        assert causes(c) == ["layers.1.m/op_1_mm"]


def test_of_two_operations_in_the_place_of_each_other_one_is_the_cause() -> None:
    c = compare(
        captured_log(branching(branch=False, layers=1, other="tanh")),
        captured_log(branching(branch=False, layers=1, other="gelu")),
    )
    assert causes(c) == ["layers.0.m/op_1_tanh"]


def test_other_operations_with_the_same_result_are_no_cause() -> None:
    c = compare(captured_log(branching(branch=False)), captured_log(branching(branch=False)))
    assert causes(c) == []


def saving(op: str, *, factor: float) -> list[Step]:
    """A `mul` and an operation of another name in each run; a backward pass that reads what this has kept."""
    y = X * np.float32(1.5)
    kept, back = np.tanh(y), {"phase": "backward"}
    steps = [
        Step(key="m/op_0_mul", gives=[y], reads=[X], made=[""]),
        Step(key=f"m/op_1_{op}", gives=[kept], reads=[y], made=["m/op_0_mul"]),
        Step(key="m/op_2_sum", gives=[kept.sum(0)], reads=[kept], made=[f"m/op_1_{op}"]),
    ]
    given, made = ((1 - kept**2) * factor).astype(np.float32), f"m/op_3_{op}_backward"
    steps.append(Step(key=made, gives=[given], reads=[X, kept], made=["", f"m/op_1_{op}"], fields=back))
    steps.append(Step(key="m/op_4_cumsum", gives=[np.cumsum(given, 0)], reads=[given], made=[made], fields=back))
    return steps


def test_what_a_forward_pass_keeps_is_no_cause_where_its_results_agree() -> None:
    c = compare(captured_log(saving("tanh", factor=1.0)), captured_log(saving("gelu", factor=1.5)))
    assert causes(c) == ["m/op_3_tanh_backward"]


def attending(op: str, *, masks: bool, modules: tuple[str, ...]) -> list[Step]:
    """A `mul`, an operation of another name in each run, which may read a mask in the last module, and a `sum`."""
    steps: list[Step] = []
    x, made = X, ""
    for module in modules:
        y = x * np.float32(1.5)
        steps.append(Step(key=f"{module}/op_0_mul", gives=[y], reads=[x], made=[made]))
        reads, makers, value = [y], [f"{module}/op_0_mul"], np.tanh(y)
        if masks and module == modules[-1]:
            mask = np.tril(np.ones((4, 8), bool))
            steps.append(Step(key=f"{module}/op_1_eq", gives=[~mask], reads=[y], made=makers))
            steps.append(Step(key=f"{module}/op_2_tril", gives=[mask], reads=[~mask], made=[f"{module}/op_1_eq"]))
            reads, makers, value = [y, mask], [*makers, f"{module}/op_2_tril"], np.where(mask, value, 0)
        steps.append(Step(key=f"{module}/op_3_{op}", gives=[value], reads=reads, made=makers))
        x, made = value.sum(0, keepdims=True) + X, f"{module}/op_9_sum"
        steps.append(Step(key=made, gives=[x], reads=[value], made=[f"{module}/op_3_{op}"]))
    return steps


@pytest.mark.parametrize(
    ("modules", "cause"), [(("layers.0.m", "layers.1.m"), "layers.1.m/op_2_tril"), (("loss",), "loss/op_3_softmax")]
)
def test_a_mask_of_one_layer_is_the_cause(modules: tuple[str, ...], cause: str) -> None:
    """Where attention is another operation in each run; a loss is in no layer, and made of other operations."""
    a = captured_log(attending("softmax", masks=False, modules=modules))
    assert causes(compare(a, captured_log(attending("sdpa", masks=True, modules=modules)))) == [cause]
    assert causes(compare(a, captured_log(attending("sdpa", masks=False, modules=modules)))) == []


def swapped(read: int) -> list[Step]:
    """Two products of equal norms, of which the next operation reads one."""
    keys = ["m.gate/op_0_mul", "m.up/op_0_mul"]
    products = [X * np.float32(1.5), X[::-1] * np.float32(1.5)]
    steps = [
        Step(key=key, gives=[y], reads=[y / np.float32(1.5)], made=[""]) for key, y in zip(keys, products, strict=True)
    ]
    value = np.cumsum(products[read], axis=0)
    steps.append(Step(key="m/op_0_cumsum", gives=[value], reads=[products[read]], made=[keys[read]]))
    return steps


def test_an_input_of_another_operation_differs_though_its_norm_does_not() -> None:
    c = compare(captured_log(swapped(0)), captured_log(swapped(1)))
    assert causes(c) == ["m/op_0_cumsum"]
    [row] = np.flatnonzero(c.cause).tolist()
    assert "input 0 already differs: a reads m.gate/op_0_mul, b reads m.up/op_0_mul" in headline(c, row)


def test_a_table_of_all_layers_begins_no_branch_of_one() -> None:
    """Nor do operations that lead to it alone."""
    buffer = X / np.float32(7)

    def log(op: str, *, tables: bool, bug: float = 0.0) -> OpLog:
        steps, x, made = [], X, "embed/op_0_mm"
        steps.append(Step(key=made, reads=[X + 1], made=[""], gives=[X]))
        if tables:
            steps.append(Step(key="m/op_0_cos", reads=[buffer], made=[""], gives=[np.cos(X)]))
            steps.append(Step(key="m/op_1_exp", reads=[np.cos(X)], made=["m/op_0_cos"], gives=[np.exp(X / 9)]))
        for layer in range(3):
            key, value = f"layers.{layer}.m/op_0_{op}", x * np.float32(0.1 + bug * (layer == 1))
            reads, makers = ([x, np.exp(X / 9)], [made, "m/op_1_exp"]) if tables else ([x], [made])
            steps.append(Step(key=key, reads=reads, made=makers, gives=[value + (1 if tables else 2)]))
            x, made = value.sum(0, keepdims=True) + X, f"layers.{layer}.m/op_9_sum"
            steps.append(Step(key=made, reads=[value + (1 if tables else 2)], made=[key], gives=[x]))
        return captured_log(steps, buffer_digests={"positions": f"{summary(buffer).digest:016x}"})

    c = compare(log("mul", tables=True), log("sub", tables=False, bug=0.01))
    assert causes(c) == ["layers.1.m/op_0_mul"]
