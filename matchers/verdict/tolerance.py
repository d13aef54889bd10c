"""Tolerances by dtype and operation: every coefficient of the verdicts is defined here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from matchers.arrays import Float64
from matchers.laws.law import Amplifies, Law

__all__ = [
    "ACCUMULATED",
    "ANYTHING",
    "DECIDED",
    "DtypePolicy",
    "EPSILON",
    "EXTREMES",
    "MOST_ALLOWED",
    "MOST_UNEARNED",
    "NOISE",
    "GROWTH",
    "PRINT_RESOLUTION",
    "RESOLUTION",
    "TF32_EPSILON",
    "TOLERANCE_IN_EPS",
    "OPTIMIZER_FORMS",
    "SAME_NUMBERS",
    "UNKNOWN_SCORES",
    "UNSEEN",
    "UNSURE",
    "by_dtype",
    "counting",
    "default_tolerance",
    "growth_factor",
    "longer_sum",
    "own_tolerance",
    "rounding",
    "scalar_rounding",
    "shorter_sum",
    "systematic_share",
]

DtypePolicy = tuple[tuple[str, str], ...]
"""Dtypes that differ throughout, as (of a, of b): a different precision policy."""

EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e4m3fnuz": 2.0**-3,
    "float8_e5m2": 2.0**-2,
    "float8_e5m2fnuz": 2.0**-2,
    "complex64": 2.0**-23,
    "complex128": 2.0**-52,
}
"""Machine epsilon by dtype: the distance from 1 to the next larger number."""

TOLERANCE_IN_EPS = {"float32": 128.0, "complex64": 128.0, "float16": 8.0}
"""Tolerance of a pair in units of ε; 2 for other dtypes: those that are summed in float32, and those so fine that the
resolution of norms counts.

128 = 2·√4096: the effect of reordering a sum of a few thousand terms; see `longer_sum`.
"""

_TERMS, _MAX_LONGER_SUM = 4096.0, 8.0

EXTREMES = 8.0
"""Factor for Min and Max, which are single elements: their rounding is not averaged as in a norm."""

ACCUMULATED = 4.0
"""Factor for errors of the tensors themselves (from their sketches), which exceed those of their norms because rounding
averages out in norms; applies if an input differed already.
"""

_SUMMED_AS_THEY_ARE = ("float64", "complex128", "float32", "complex64")

_DEFAULT_IN_EPS = 2.0
_ELEMENTWISE_IN_EPS = {"float32": 4.0, "complex64": 4.0}
"""Tolerance of elementwise operations in units of ε: two implementations of functions like exp differ by a few; 1 for
other dtypes, which are computed in float32 and rounded once.
"""

PRINT_RESOLUTION = 2e-6
"""Differences in the last of seven printed digits may come from equal numbers: nothing below this is red."""
RESOLUTION = 1e-13
"""Effect of the summation order on norms and sketches, which are sums in float64."""


OPTIMIZER_FORMS = 4.0
"""Factor on the tolerance of an elementwise operation for what an optimizer leaves from equal gradients and states: a
fused step rounds once what others round in each of a dozen operations.
"""


def default_tolerance(dtype: str) -> float:
    """Relative error up to which two tensors of a dtype are close."""
    eps = EPSILON.get(dtype)
    # integers and bools do not round: only the printed precision limits the comparison
    return (
        PRINT_RESOLUTION if eps is None else max(eps * TOLERANCE_IN_EPS.get(dtype, _DEFAULT_IN_EPS), PRINT_RESOLUTION)
    )


def by_dtype(dtypes: Iterable[str], of: Callable[[str], float] = default_tolerance) -> Float64:
    """float64[dtypes + 1], a tolerance for each entry of a table of dtypes; that of float32 for no dtype."""
    return np.array([of(name) for name in (*dtypes, "float32")])


def own_tolerance(dtype: str, by_element: bool) -> float:
    """Relative error up to which one operation's outputs are close, given bitwise equal inputs and round-trip numbers.

    Args:
        by_element: the operation computes each element by itself; only sums may be reordered.
    """
    eps = EPSILON.get(dtype, 0.0)
    times = _ELEMENTWISE_IN_EPS.get(dtype, 1.0) if by_element else TOLERANCE_IN_EPS.get(dtype, _DEFAULT_IN_EPS)
    return max(eps * times, RESOLUTION)


def scalar_rounding(dtype: str) -> float:
    """Relative rounding of adding a scalar or multiplying by one; NaN for dtypes without an order that it keeps.

    Half an ulp in low precision, which is computed in float32 and rounded once; some kernels round the scalar, or its
    inverse, too.
    """
    if dtype not in EPSILON or dtype.startswith("complex"):
        return float("nan")
    return EPSILON[dtype] * (2.0 if dtype in _SUMMED_AS_THEY_ARE else 0.51)


def rounding(dtype: str, by_element: bool, exact: bool, coarsest: float = 0.0) -> float:
    """Relative error that one operation may add by rounding.

    Args:
        exact: the log's numbers round-trip; otherwise a difference in the last printed digit counts as none.
        coarsest: ε of the coarsest dtype it may compute in, 0 for its own.
    """
    own = own_tolerance(dtype, by_element)
    if coarsest > EPSILON.get(dtype, float("inf")):
        own = max(own, coarsest if by_element else 2 * coarsest)
    return own if exact else max(own, default_tolerance("bool"))


def longer_sum(dtype: str, terms: Float64) -> Float64:
    """Factor by which reordering a sum of this many terms may exceed the tolerance: √(terms/4096), at most 8.

    The error of a sum grows as the root of its length. From a quarter of a million terms on, sums are computed in
    blocks and it stops growing. Low-precision dtypes are summed in float32 and rounded once.
    """
    if dtype not in _SUMMED_AS_THEY_ARE:
        return np.ones(len(terms))
    return np.clip(np.sqrt(terms / _TERMS), 1.0, _MAX_LONGER_SUM)


def shorter_sum(dtype: str, terms: Float64) -> Float64:
    """Factor by which a sum of so few terms rounds less than the tolerance has room for: √(terms/4096).

    At least that of an operation without a sum; 1 where the number of terms is not known.
    """
    if dtype not in _ELEMENTWISE_IN_EPS:
        return np.ones(len(terms))
    least = _ELEMENTWISE_IN_EPS[dtype] / TOLERANCE_IN_EPS[dtype]
    return np.where(terms > 1, np.clip(np.sqrt(terms / _TERMS), least, 1.0), 1.0)


# Error propagation (error_propagation.py), used if differences are expected; see docs/matching.md

TF32_EPSILON = 2.0**-10
"""Rounding of the factors of a float32 product: the minimum ε of `--expect low-precision`."""

GROWTH = 4.0
"""Factor by which an operation may amplify its input error, or the difference of norms. A product of two tensors adds
their errors and a square doubles it; the rest covers estimates from sketches, which are off by up to a third each.
"""

_AMPLIFIES = {
    Amplifies.LITTLE: GROWTH,
    Amplifies.BY_EXPONENT: 8.0,
    Amplifies.NEAR_A_SIGN: 32.0,
    Amplifies.HIDDEN_SCORES: 16.0,
}

SAME_NUMBERS = 1e-12
"""Relative difference of the norms of the same numbers in another order, in double precision."""

UNKNOWN_SCORES = 16.0
"""Assumed size of scores if the log does not give it."""

UNSEEN = 8.0
"""Least factor between an error in all directions and the change of the norm that it makes."""

UNSURE = 0.5
"""Below this confidence a pair is as likely wrong as right."""

NOISE = 4.0
"""Factor on the error that a third run shows: two runs that are each off by 1 in independent directions are 1.4 apart,
and sketches may be a third off on both sides.
"""

DECIDED = 4.0
"""Values with an error e change a fraction of about e of the whole numbers derived from them; the error of these
numbers is about the root of that fraction.
"""

MOST_ALLOWED = 0.1
"""Largest error that an expectation or noise may allow. A tensor that may be off by more could as well be another one:
heads in another order, a softmax of another temperature; such a pair is not judged.
"""

MOST_UNEARNED = 1e-3
"""The same of an error that is only supposed, because the log shows too little of what came in."""

ANYTHING = 2.0
"""Exceeds the relative error of two unrelated tensors of the same size, 1.4."""

_COMMON_DIRECTION = 1 / 8
_CHANCE = 5.0


def growth_factor(law: Law) -> float:
    """Factor by which an operation may amplify the relative error of its inputs."""
    return _AMPLIFIES[law.amplifies]


def signs_differ(error: float, elements: float) -> float:
    """Error of the signs of so many numbers that have an error: as of `DECIDED`, and at least one may differ."""
    return DECIDED * math.sqrt(max(error, 1 / max(elements, 1)))


def systematic_share(elements: Float64) -> Float64:
    """Fraction of a tensor's relative error by which its norm may change if the error is rounding.

    Rounding points in all directions: a norm over N elements changes by about e/√N for an error e (five standard
    deviations are allowed). One eighth is added for the common component of errors that went through the same sums;
    measured on noise of float32 and bfloat16 it stays below a tenth. A factor of 1.01 changes the norm in full.

    Args:
        elements: effective number of elements in the norm, NaN if unknown: see `counting`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = _COMMON_DIRECTION + _CHANCE / np.sqrt(elements)
    return np.where(np.isfinite(share), np.minimum(share, 1.0), 1.0)


def counting(l1: Float64, l2: Float64) -> Float64:
    """Effective number of elements in a tensor's norm, from its norms: N if all are alike, 1 if one dominates."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((l1 / l2) ** 2)
