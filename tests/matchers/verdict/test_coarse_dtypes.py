"""Tensors of a coarse dtype are judged at their own resolution, and excuse nothing that reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import Comparison, compare
from matchers.logs.op_log import OpLog
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from tests.captured import Step, captured_log, summary

RNG = np.random.default_rng(3)
ACTIVATIONS, GRADIENT = (RNG.normal(size=(64, 32)).astype(np.float32) for _ in range(2))
ACTIVATIONS[0], ACTIVATIONS[1] = 1 + 3 * 2**-4, 1 + 3 * 2**-8
"""Between two numbers of a coarse dtype: rounding decides which."""
DIGITS = {"float8_e4m3fn": 4, "bfloat16": 8}
"""Significant bits of a number."""
EXPECTATIONS = [None, Expect.REDUCTION_ORDER, Expect.LOW_PRECISION]


def rounded(values: NDArray[np.float32], dtype: str) -> NDArray[np.float32]:
    """The values with as many bits as a dtype has."""
    mantissa, exponent = np.frexp(values)
    steps = 2.0 ** DIGITS[dtype]
    return np.ldexp(np.round(mantissa * steps) / steps, exponent).astype(np.float32)


def step(dtype: str, factor: float = 1.0, noise: float = 0.0) -> OpLog:
    """A layer that keeps its activations in a coarse dtype for the gradient of its weight, and the update with it.

    Args:
        factor: of the kept activations, which no operation in the log makes.
        noise: relative error of the activations.
    """
    x = ACTIVATIONS * (1 + np.float32(noise) * RNG.normal(size=ACTIVATIONS.shape).astype(np.float32))
    kept = rounded(np.float32(factor) * x, dtype)
    gradient = GRADIENT.T @ kept
    weight = np.float32(1e-2) * gradient
    back: dict[str, Any] = {"phase": "backward"}
    return captured_log(
        [
            Step(key="layer/op_0_mm", gives=[x], reads=[ACTIVATIONS]),
            Step(key="layer/op_1__to_copy", gives=[summary(kept, dtype=dtype)], reads=[x], made=["layer/op_0_mm"]),
            Step(
                key="layer/op_2__to_copy",
                gives=[kept],
                reads=[summary(kept, dtype=dtype)],
                made=["layer/op_1__to_copy"],
                fields=back,
            ),
            Step(
                key="layer/op_3_mm",
                gives=[gradient],
                reads=[GRADIENT, kept],
                made=["", "layer/op_2__to_copy"],
                fields=back,
            ),
            Step(
                key="layer/op_4_mul_",
                gives=[weight],
                reads=[gradient],
                made=["layer/op_3_mm"],
                fields={"phase": "optimizer"},
            ),
        ]
    )


def compared(a: OpLog, b: OpLog, preset: Expect | None) -> Comparison:
    return compare(a, b, expectation=Expectation(preset=preset))


@pytest.mark.parametrize("preset", EXPECTATIONS)
@pytest.mark.parametrize("dtype", DIGITS)
@pytest.mark.parametrize("factor", [2.0, 0.5, 1.25])
def test_kept_activations_of_another_size_are_red_and_so_is_what_follows(
    factor: float, dtype: str, preset: Expect | None
) -> None:
    c = compared(step(dtype), step(dtype, factor), preset)
    assert np.flatnonzero(c.red).tolist() == [1, 2, 3, 4]
    assert np.flatnonzero(c.cause).tolist() == [1]


@pytest.mark.parametrize("preset", EXPECTATIONS[1:])
@pytest.mark.parametrize("dtype", DIGITS)
def test_rounding_that_a_coarse_dtype_decides_is_quiet(dtype: str, preset: Expect | None) -> None:
    c = compared(step(dtype), step(dtype, noise=3e-6), preset)
    assert c.counts[Status.CLOSE] == len(c)
    assert not c.red.any()
    assert not c.counts[Status.NOT_JUDGED]


@pytest.mark.parametrize("preset", EXPECTATIONS)
@pytest.mark.parametrize("dtype", DIGITS)
def test_a_cast_is_determined_by_what_it_reads(dtype: str, preset: Expect | None) -> None:
    """Another mode of rounding is no rounding error, however little it changes."""
    cut = np.nextafter(ACTIVATIONS, np.float32(0))
    key, read = "layer/op_0__to_copy", [ACTIVATIONS]
    a, b = (
        captured_log([Step(key=key, reads=read, gives=[summary(rounded(values, dtype), dtype=dtype)])])
        for values in (ACTIVATIONS, cut)
    )
    assert compared(a, a, preset).status.tolist() == [Status.EQUAL]
    assert compared(a, b, preset).status.tolist() == [Status.DIVERGED]


def test_two_coarse_dtypes_are_quiet_where_low_precision_is_expected() -> None:
    c = compared(step("float8_e4m3fn"), step("bfloat16"), Expect.LOW_PRECISION)
    assert not c.red.any()
    assert not c.counts[Status.NOT_JUDGED]
