"""The coefficients of the verdicts, in the numbers that docs/matching.md gives."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.laws.register import law
from matchers.verdict import tolerance
from matchers.verdict.tolerance import (
    EPSILON,
    default_tolerance,
    growth_factor,
    longer_sum,
    own_tolerance,
    rounding,
    scalar_rounding,
    systematic_share,
)

DIGITS = {
    **{name: np.finfo(name).nmant + 1 for name in ("float64", "float32", "float16")},
    "complex64": 24,
    "complex128": 53,
    "bfloat16": 8,
    "float8_e4m3fn": 4,
    "float8_e4m3fnuz": 4,
    "float8_e5m2": 3,
    "float8_e5m2fnuz": 3,
}
"""Significant bits of a number."""


def test_epsilon_is_the_last_of_the_significant_bits() -> None:
    assert {name: 2.0 ** (1 - bits) for name, bits in DIGITS.items()} == EPSILON


@pytest.mark.parametrize(
    ("dtype", "default", "sums", "elements", "scalar"),
    [
        ("float32", 128, 128, 4, 2),
        ("complex64", 128, 128, 4, None),
        ("float16", 8, 8, 1, 0.51),
        ("bfloat16", 2, 2, 1, 0.51),
        ("float8_e4m3fn", 2, 2, 1, 0.51),
        ("float64", None, 2, 1, 2),
        ("complex128", None, 2, 1, None),
    ],
)
def test_tolerances_in_epsilons(
    dtype: str, default: float | None, sums: float, elements: float, scalar: float | None
) -> None:
    """Of two tensors, of an operation on equal inputs, and of a scalar; float64 is finer than what is printed."""
    eps = EPSILON[dtype]
    assert default_tolerance(dtype) == (2e-6 if default is None else default * eps)
    # the order in which norms are added up limits the rest
    assert own_tolerance(dtype, False) == max(sums * eps, 1e-13)
    assert own_tolerance(dtype, True) == max(elements * eps, 1e-13)
    assert np.isnan(scalar_rounding(dtype)) if scalar is None else scalar_rounding(dtype) == scalar * eps


def test_whole_numbers_are_as_exact_as_what_is_printed() -> None:
    assert default_tolerance("int64") == 2e-6
    assert own_tolerance("int64", True) == 1e-13


def test_a_run_may_round_to_a_coarser_dtype() -> None:
    assert rounding("float32", True, True, EPSILON["bfloat16"]) == EPSILON["bfloat16"]
    assert rounding("float32", False, True, EPSILON["bfloat16"]) == 2 * EPSILON["bfloat16"]
    assert rounding("float32", True, False) == 2e-6


def test_longer_sums_are_less_exact_up_to_eight_times() -> None:
    terms = np.array([1.0, 4096.0, 16384.0, 1e12])
    assert longer_sum("float32", terms).tolist() == [1, 1, 2, 8]
    assert longer_sum("bfloat16", terms).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(("name", "factor"), [("mm", 4), ("pow", 8), ("_fused_adamw_", 32), ("addcdiv", 32)])
def test_errors_grow_by_the_operation(name: str, factor: float) -> None:
    assert growth_factor(law(name)) == factor


def test_hidden_scores_may_be_large() -> None:
    assert growth_factor(law("_scaled_dot_product_flash_attention")) == tolerance.UNKNOWN_SCORES == 16


def test_rounding_hardly_shows_in_a_norm() -> None:
    """An eighth of it, and five standard deviations of random signs."""
    assert systematic_share(np.array([100.0, 1e16, 4.0, np.nan])).tolist() == pytest.approx([0.625, 0.125, 1, 1])


def test_factors_of_the_documentation() -> None:
    """Extremes, sketches, noise and decisions; and what allows so much that it judges nothing."""
    names = ("EXTREMES", "ACCUMULATED", "GROWTH", "NOISE", "DECIDED", "UNSEEN", "OPTIMIZER_FORMS")
    assert [getattr(tolerance, name) for name in names] == [8, 4, 4, 4, 4, 8, 4]
    assert (tolerance.MOST_ALLOWED, tolerance.TF32_EPSILON, tolerance.UNSURE, tolerance.ANYTHING) == (
        0.1,
        2**-10,
        0.5,
        2,
    )
