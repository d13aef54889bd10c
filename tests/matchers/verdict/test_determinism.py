"""An operation that repeats in all its like, and does not in one, was computed otherwise: red at any size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.rules.model import RuleSet, ToleranceRule
from matchers.status import Role
from matchers.verdict.expectation import Expect, Expectation
from numtui.report.gate import fails
from tests.captured import Step, captured_log

RUN: Mapping[str, Any] = {
    "versions": {"torch": "2.13.0", "python": "3.11.2"},
    "device": "Processor",
    "threads": {"intra_op": 1},
    "deterministic": {"algorithms": False},
}
RNG = np.random.default_rng(5)
Array = NDArray[np.float32]
*GIVEN, HEAD = (RNG.normal(size=(8, 16)).astype(np.float32) for _ in range(5))
"""What norms read: each layer something of its own."""


def normalized(x: Array, eps: float) -> Array:
    wide = x.astype(np.float64)
    scale = np.sqrt(wide.var(-1, keepdims=True) + eps)
    return np.asarray((wide - wide.mean(-1, keepdims=True)) / scale, np.float32)


def norms(
    eps: Mapping[int, float] | None = None,
    *,
    op: str = "native_layer_norm",
    given: Sequence[Array] = GIVEN,
    module: str = "layers.{}.norm",
) -> list[Step]:
    """The norm of each layer; `eps` of those that have another one than 1e-5."""
    return [
        Step(
            key=f"{module.format(k)}/op_{k}_{op}",
            reads=[x],
            gives=[normalized(x, (eps or {}).get(k, 1e-5))],
        )
        for k, x in enumerate(given)
    ]


def compared(
    a: list[Step], b: list[Step], run: Mapping[str, Any] = RUN, other: Mapping[str, Any] = RUN, **options: Any
) -> Comparison:
    return compare(captured_log(a, **run), captured_log(b, **other), **options)


def reds(c: Comparison) -> list[int]:
    return np.flatnonzero(c.red).tolist()


def test_another_eps_in_one_of_four_norms_is_the_first_cause() -> None:
    c = compared(norms(), norms({1: 1e-6}))
    assert reds(c) == np.flatnonzero(c.cause).tolist() == [1]
    assert c.role[1] == Role.ORIGIN
    assert c.error[1] < 1e-5
    assert c.tolerance[1] == 0
    assert headline(c, 1).endswith(
        "; repeats elsewhere: 3 of 3 other native_layer_norm with equal inputs agree to the bit"
    )
    assert fails(c)


@pytest.mark.parametrize(("layers", "red"), [(2, []), (3, [1])])
def test_it_takes_two_that_repeat(layers: int, red: list[int]) -> None:
    c = compared(norms(given=GIVEN[:layers]), norms({1: 1e-6}, given=GIVEN[:layers]))
    assert reds(c) == red
    assert c.first_difference is not None
    assert c.first_difference.row == 1


def test_where_others_differ_too_another_kernel_is_at_work() -> None:
    assert not reds(compared(norms(), norms({1: 1e-6, 2: 1e-6})))


@pytest.mark.parametrize(("module", "red"), [("loop.norm", [2, 3]), ("<none>", [])])
def test_a_module_that_runs_twice_differs_twice(module: str, red: list[int]) -> None:
    """As in a loop; outside of modules, two operations are two."""
    a, b = ([*norms(given=GIVEN[:2]), *norms(eps, given=GIVEN[2:], module=module)] for eps in ({}, {0: 1e-6, 1: 1e-6}))
    assert reds(compared(a, b)) == red


@pytest.mark.parametrize(
    "change",
    [
        {"versions": {"torch": "2.12.0"}},
        {"device": "Another"},
        {"threads": {"intra_op": 2}},
        {"deterministic": {"algorithms": True}},
        {"precision": {"fp32": "tf32"}},
        {"environment": {"MKL_CBWR": "AVX2"}},
        {"world_size": 2},
        {"merged_ranks": 2},
    ],
)
def test_runs_of_other_kernels_need_not_repeat(change: Mapping[str, Any]) -> None:
    assert not reds(compared(norms(), norms({1: 1e-6}), other={**RUN, **change}))


def test_logs_that_do_not_say_how_they_ran_prove_nothing() -> None:
    assert not reds(compared(norms(), norms({1: 1e-6}), {}, {}))


def test_another_version_of_python_computes_the_same() -> None:
    other = {**RUN, "versions": {"torch": "2.13.0", "python": "3.12.1"}}
    assert reds(compared(norms(), norms({1: 1e-6}), other=other)) == [1]


@pytest.mark.parametrize("op", ["index_add", "scatter_add_", "_fused_dropout", "convolution", "all_reduce"])
def test_an_operation_that_may_vary_is_no_proof(op: str) -> None:
    assert not reds(compared(norms(op=op), norms({1: 1e-6}, op=op)))


def test_others_of_another_shape_may_use_another_kernel() -> None:
    given = [*GIVEN[:2], *(np.concatenate((x, x)) for x in GIVEN[2:])]
    assert not reds(compared(norms(given=given), norms({1: 1e-6}, given=given)))


def test_constants_repeat_whatever_made_them() -> None:
    given = [GIVEN[0], GIVEN[1], *(np.full_like(x, k) for k, x in enumerate(GIVEN[2:]))]
    assert not reds(compared(norms(given=given), norms({1: 1e-6}, given=given)))


@pytest.mark.parametrize(
    ("of_a", "of_b", "red"),
    [
        (("", "", "", ""), ("", "", "", ""), [1]),
        (("", ":1,8", "", ""), ("", ":1,8", "", ""), []),
        (("", "", "", ""), ("", ":1,8", "", ""), []),
        (("", ":1,8", ":1,8", ":1,8"), ("", ":1,8", ":1,8", ":1,8"), [1]),
    ],
)
def test_others_of_other_strides_may_use_another_kernel(of_a: list[str], of_b: list[str], red: list[int]) -> None:
    steps = [norms(), norms({1: 1e-6})]
    for log, forms in zip(steps, (of_a, of_b), strict=True):
        for made, form in zip(log, forms, strict=True):
            made.fields = {"forms": form}
    assert reds(compared(steps[0], steps[1])) == red


@pytest.mark.parametrize("copied", [False, True])
def test_a_copy_may_lie_in_memory_otherwise(copied: bool) -> None:
    """Equal bits, but of other strides: a kernel adds up in another order."""

    def made(eps: float, copy: bool) -> list[Step]:
        steps = norms()
        steps.insert(0, Step(key="head/op_0_mm", gives=[HEAD], reads=[GIVEN[0]]))
        if copy:
            steps.insert(1, Step(key="head/op_1_clone", gives=[HEAD], reads=[HEAD], made=["head/op_0_mm"]))
        maker = "head/op_1_clone" if copy else "head/op_0_mm"
        return [
            *steps,
            Step(
                key="head.norm/op_0_native_layer_norm",
                reads=[HEAD],
                gives=[normalized(HEAD, eps)],
                made=[maker],
            ),
        ]

    c = compared(made(1e-5, False), made(1e-6, copied))
    assert bool(c.red.any()) != copied


def test_pairs_crossed_are_no_difference() -> None:
    """Two operations on one tensor, in the other order in b."""
    eps = [1e-5, 1e-6]
    a, b = (
        [
            *norms(),
            *(
                Step(key=f"x/op_{k}_native_layer_norm", reads=[GIVEN[0]], gives=[normalized(GIVEN[0], e)])
                for k, e in enumerate(order)
            ),
        ]
        for order in (eps, eps[::-1])
    )
    assert not reds(compared(a, b))


@pytest.mark.parametrize("preset", [Expect.REDUCTION_ORDER, Expect.LOW_PRECISION])
def test_where_rounding_is_expected_it_stays_a_sentence(preset: Expect) -> None:
    assert not reds(compared(norms(), norms({1: 1e-6}), expectation=Expectation(preset=preset)))


def test_the_user_has_the_last_word() -> None:
    rules = RuleSet((ToleranceRule(match="layers.1.*", rtol=1e-3),))
    assert not reds(compared(norms(), norms({1: 1e-6}), rules=rules))
    assert not reds(compared(norms(), norms({1: 1e-6}), expectation=Expectation(rtol=1e-3)))
