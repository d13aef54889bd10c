"""Layouts and lists in another order: numbers that do not depend on the order decide, where the runs show another."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import explain
from matchers.status import Status
from tests.captured import Array, Step, captured_log

RNG = np.random.default_rng(5)
HEADS = [RNG.normal(size=(2, 3, 4, 5)) for _ in range(4)]
GRADS = [RNG.normal(size=(2, 3)), RNG.normal(size=(4,)), RNG.normal(size=(3, 5))]


def laid_out(turned: bool, times: float = 1.0, many: int = 4) -> Comparison:
    """Products of two runs, of which the second has them (…, heads, …) where `turned`; the last is `times` as large."""
    logs = []
    for side in "ab":
        steps = []
        for k, x in enumerate(HEADS[:many]):
            y = x * (times if side == "b" and k == many - 1 else 1.0)
            value = np.ascontiguousarray(y.transpose(0, 2, 1, 3)) if side == "b" and turned else y
            steps.append(Step(key=f"layers.{k}.attention/op_0_mul", reads=[value / 2], gives=[value], made=[""]))
        logs.append(captured_log(steps))
    return compare(logs[0], logs[1])


def test_another_layout_throughout_is_not_red() -> None:
    c = laid_out(turned=True)
    assert c.status.tolist() == [Status.CLOSE] * 4


@pytest.mark.parametrize(
    ("many", "times", "shape"), [(1, 1, True), (2, 1, True), (3, 1, False), (3, 1.0006, False), (3, 1.002, True)]
)
def test_another_layout_is_shown_by_three_with_the_same_numbers(many: int, times: float, shape: bool) -> None:
    """One shape that changed, or two, are a change of the program."""
    assert (laid_out(turned=True, many=many, times=times).status[0] == Status.SHAPE) == shape


def test_other_numbers_in_another_layout_are_red() -> None:
    assert laid_out(turned=True, times=1.01).status.tolist() == [Status.CLOSE] * 3 + [Status.DIVERGED]


def lists(order: list[int], times: float = 1.0) -> Comparison:
    """An operation on a list of tensors; in b in this order, and the first of them `times` as large."""
    given = [GRADS[0] * times, *GRADS[1:]]
    logs = [
        captured_log([Step(key="optimizer/op_0__foreach_sqrt", reads=some, gives=some, made=[""] * 3)])
        for some in (GRADS, [given[k] for k in order])
    ]
    return compare(logs[0], logs[1])


@pytest.mark.parametrize(
    ("order", "times", "status"),
    [
        ([0, 1, 2], 1.0, Status.EQUAL),
        ([2, 0, 1], 1.0, Status.CLOSE),
        ([0, 1, 2], 1.01, Status.DIVERGED),
        ([2, 0, 1], 1.01, Status.DIVERGED),
    ],
)
def test_a_list_in_another_order_is_not_red_if_it_holds_the_same(
    order: list[int], times: float, status: Status
) -> None:
    assert lists(order, times).status.tolist() == [status]


WEIGHTS = {name: RNG.normal(size=(rows, 4)) for name, rows in (("q", 4), ("k", 2), ("v", 2), ("o", 6))}
CUT = {"wo": "o", "wqkv": "qkv"}


def cut(op: str, one: dict[str, Array], other: dict[str, Array]) -> Comparison:
    """An operation that changes lists of named tensors in place, to these."""
    logs = []
    for tensors in (one, other):
        read, names = [x / 2 for x in tensors.values()], [f"{name}.weight" for name in tensors]
        step = Step(
            key=f"optimizer/op_0_{op}",
            reads=read,
            made=[""] * len(read),
            changed=dict(enumerate(tensors.values())),
            fields={"parameters": names, "phase": "optimizer"},
        )
        logs.append(captured_log([step]))
    return compare(logs[0], logs[1])


def fused(times: float = 1.0) -> dict[str, Array]:
    return {name: np.concatenate([WEIGHTS[part] for part in parts]) * times for name, parts in CUT.items()}


def test_lists_of_the_same_elements_in_other_tensors_agree() -> None:
    assert cut("_foreach_mul_", WEIGHTS, fused()).status.tolist() == [Status.CLOSE]
    transposed = {name: np.ascontiguousarray(x.T) for name, x in WEIGHTS.items()}
    assert cut("_foreach_mul_", WEIGHTS, transposed).status.tolist() == [Status.CLOSE]


def test_lists_of_other_elements_or_values_are_red() -> None:
    found = cut("_foreach_mul_", WEIGHTS, {**fused(), "wqkv": fused(1.01)["wqkv"]})
    assert found.status.tolist() == [Status.DIVERGED]
    assert "v.weight (with 2 more) differs after the step by ≥9.9e-03" in explain(found, 0).headline
    assert cut("_foreach_mul_", WEIGHTS, {"wqkv": fused()["wqkv"]}).status.tolist() == [Status.SHAPE]


def test_numbers_of_each_tensor_agree_if_those_of_all_do() -> None:
    """Norms add up by their squares; the count of steps is one for all."""
    norms = [
        captured_log(
            [
                Step(
                    key="clip/op_0__foreach_norm",
                    reads=list(x),
                    gives=[np.asarray(np.linalg.norm(t)) for t in x],
                    made=[""] * len(x),
                )
            ]
        )
        for x in (list(WEIGHTS.values()), list(fused().values()), list(fused(1.01).values()))
    ]
    assert [compare(norms[0], other).status.tolist() for other in norms[1:]] == [[Status.CLOSE], [Status.DIVERGED]]
    steps = [{name: np.array(3.0) for name in names} for names in ("qkv", "x")]
    assert cut("_foreach_add_", *steps).status.tolist() == [Status.CLOSE]
    assert cut("_foreach_add_", steps[0], {"x": np.array(4.0)}).status.tolist() == [Status.DIVERGED]


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_stack_of_the_same_in_another_order(factor: float) -> None:
    values = [np.array(float(k)) for k in (3, 1, 2)]
    logs = []
    for order, times in (([0, 1, 2], 1.0), ([1, 2, 0], factor)):
        read = [values[k] * times for k in order]
        logs.append(captured_log([Step(key="clip/op_0_stack", reads=read, gives=[np.stack(read)], made=[""] * 3)]))
    assert compare(logs[0], logs[1]).red.tolist() == [factor > 1]
