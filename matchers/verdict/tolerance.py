"""Up to where a difference counts as rounding, by dtype: every coefficient of the verdicts stands here."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Float64

__all__ = [
    "ACCUMULATED",
    "ANYTHING",
    "COPIES",
    "DECIDED",
    "DtypePolicy",
    "EPSILON",
    "EXTREMES",
    "NOISE",
    "NORM_GROWTH",
    "RANKING",
    "RESOLUTION",
    "TF32_EPSILON",
    "TOLERANCE_IN_EPS",
    "UNKNOWN_SCORES",
    "UNSURE",
    "counting",
    "default_tolerance",
    "elementwise",
    "growth_factor",
    "longer_sum",
    "of_scores",
    "own_tolerance",
    "rounding",
    "systematic_share",
]

DtypePolicy = tuple[tuple[str, str], ...]
"""Dtypes of a and of b that differ throughout, as (of a, of b): another precision policy."""

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
"""Machine epsilon by dtype: the distance from 1 to the next number."""

TOLERANCE_IN_EPS = {"float64": 128.0, "complex128": 128.0, "float32": 128.0, "complex64": 128.0, "float16": 8.0}
"""Up to how many ε a pair is called close; 2 for the dtypes not named, whose sums are made in float32.

128 = 2·√4096: what the order of a sum of a few thousand terms can change; see `longer_sum`.
"""

_TERMS, _MAX_LONGER_SUM = 4096.0, 8.0

EXTREMES = 8.0
"""Min and Max are single elements: what rounding does to one of them is not averaged out, as it is in a norm."""

ACCUMULATED = 4.0
"""An error of the tensors themselves (from their sketches) is larger than that of their norms, over which rounding
averages: where something differed before, so much more of it is still rounding."""

_SUMMED_AS_THEY_ARE = ("float64", "complex128", "float32", "complex64")

_DEFAULT_IN_EPS = 2.0
_ELEMENTWISE_IN_EPS = {"float64": 4.0, "complex128": 4.0, "float32": 4.0, "complex64": 4.0}
"""What two implementations of one formula make of the same numbers, element by element: of functions like exp a few ε,
and 1 in the dtypes not named, which are computed in float32 and rounded once."""

_PRINT_RESOLUTION = 2e-6
"""Two numbers of seven digits that differ by one in the last may be equal: nothing below this is ever red."""
RESOLUTION = 1e-13
"""What the order of summation does to norms and sketches, which are sums in float64."""


def default_tolerance(dtype: str) -> float:
    """Relative error up to which two tensors of a dtype are called close."""
    eps = EPSILON.get(dtype)
    # integers and bools have no rounding: only the print limits what can be seen of them
    return (
        _PRINT_RESOLUTION if eps is None else max(eps * TOLERANCE_IN_EPS.get(dtype, _DEFAULT_IN_EPS), _PRINT_RESOLUTION)
    )


def own_tolerance(dtype: str, by_element: bool) -> float:
    """The same for what one operation alone may do: its inputs are equal to the bit, and its numbers round-trip.

    Args:
        by_element: the operation computes each element by itself; a sum may be made in any order, these may not.
    """
    eps = EPSILON.get(dtype, 0.0)
    times = _ELEMENTWISE_IN_EPS.get(dtype, 1.0) if by_element else TOLERANCE_IN_EPS.get(dtype, _DEFAULT_IN_EPS)
    return max(eps * times, RESOLUTION)


def rounding(dtype: str, by_element: bool, exact: bool, coarsest: float = 0.0) -> float:
    """Relative error that one operation may make by rounding.

    Args:
        exact: the log's numbers round-trip; else a difference in the last digit that is printed is none.
        coarsest: ε of what it may compute in, 0 for the dtype itself.
    """
    own = own_tolerance(dtype, by_element)
    if coarsest > EPSILON.get(dtype, float("inf")):
        own = max(own, coarsest if by_element else 2 * coarsest)
    return own if exact else max(own, default_tolerance("bool"))


def longer_sum(dtype: str, terms: Float64) -> Float64:
    """By how much more the order of a sum of so many terms may change than tolerances allow for: √(terms/4096).

    The error of a sum grows as the root of its length. From a quarter of a million terms on, sums are made in blocks,
    and it grows no more. Shorter dtypes are summed in float32 and rounded once.
    """
    if dtype not in _SUMMED_AS_THEY_ARE:
        return np.ones(len(terms))
    return np.clip(np.sqrt(terms / _TERMS), 1.0, _MAX_LONGER_SUM)


_NAMES = (
    "abs acos add addcdiv addcmul angle arange asin atan atan2 bitwise_and bitwise_not bitwise_or bitwise_xor "
    "cat ceil clamp clamp_max clamp_min clone complex copy cos cosh div elu elu_backward eq erf exp exp2 expm1 "
    "fill floor fmod full full_like ge gelu gelu_backward gt hardtanh index index_select le leaky_relu lerp log "
    "log1p log2 logical_and logical_not logical_or lt masked_fill maximum minimum mul ne neg ones ones_like "
    "polar pow reciprocal relu remainder round rsqrt rsub select_scatter sgn sigmoid sigmoid_backward sign silu "
    "silu_backward sin sinh slice_backward slice_scatter softplus split_with_sizes_copy sqrt square stack sub "
    "tanh tanh_backward threshold_backward tril triu trunc where zero zeros zeros_like _to_copy "
)
_BY_ELEMENT = frozenset(_NAMES.split())


def elementwise(op: str) -> bool:
    """Whether an operation computes each element by itself: no sum in it whose order could differ."""
    if op.startswith("_fused_"):
        return True  # the optimizers' updates
    return op.removeprefix("_foreach_").rstrip("_") in _BY_ELEMENT or op in _BY_ELEMENT


# How errors travel (error_propagation.py): used where differences are expected, see docs/matching.md

TF32_EPSILON = 2.0**-10
"""What a float32 product may be rounded to on the way in: the least ε of `--expect low-precision`."""

_GROWTH_FACTOR = 4.0
"""By how much an operation may enlarge the error that came in. A product of two tensors adds their errors and a square
doubles it; the rest is for estimates from sketches, which are off by up to a third each."""

_GROWTH_FACTOR_BY_OP = {
    "pow": 8.0,
    "_foreach_addcdiv": 32.0,
    "addcdiv": 32.0,
    "_fused_adam": 32.0,
    "_fused_adamw": 32.0,
    "_scaled_dot_product_flash_attention": 16.0,
    "_scaled_dot_product_efficient_attention": 16.0,
    "_scaled_dot_product_cudnn_attention": 16.0,
    "_scaled_dot_product_flash_attention_for_cpu": 16.0,
    "_scaled_dot_product_fused_attention_overrideable": 16.0,
}
"""Operations that enlarge it more. A power does by its exponent. An update of Adam in the first steps is little but the
sign of the gradient, which turns where the gradient is rounding. Fused attention hides an exponential of scores that no
record shows."""

_OF_SCORES = frozenset({"_softmax", "_log_softmax", "softmax", "log_softmax", "logsumexp", "exp"})
"""Here the *absolute* error of the argument becomes the relative one of the result: scores of 20 enlarge it by 20."""
UNKNOWN_SCORES = 16.0
"""How large scores are taken to be where the log does not say."""

UNSURE = 0.5
"""Below this confidence a pair is as likely wrong as right."""

NORM_GROWTH = 4.0
"""The same as `_GROWTH_FACTOR` for differences of norms."""

NOISE = 4.0
"""How many times the error that a third run shows for an operation still counts as its noise: two runs that are off by
1 each in independent directions are 1.4 apart, and sketches may be a third off on both sides."""

COPIES = frozenset(
    {
        *("cat", "clamp", "clone", "constant_pad_nd", "copy", "copy_", "flip", "gather", "index", "index_select"),
        *("masked_fill", "masked_fill_", "maximum", "minimum", "pad", "roll", "select_scatter", "slice_backward"),
        *("slice_scatter", "split_with_sizes_copy", "stack", "tril", "triu", "where"),
    }
)
"""Operations that hand elements on, maybe beside others that are so large that the error cannot be seen (a mask)."""

RANKING = frozenset(
    {"topk", "sort", "msort", "kthvalue", "max", "min", "median", "nanmedian", "mode", "cummax", "cummin"}
)
"""Operations that return values and, beside them, which they were."""

DECIDED = 4.0
"""Of whole numbers that values with an error e decide, a share of about e may be others, and the error of the numbers
themselves is about the root of that share."""

ANYTHING = 2.0
"""The relative error of two tensors of one size that have nothing to do with each other is 1.4."""

_COMMON_DIRECTION = 1 / 8
_CHANCE = 5.0


def growth_factor(op: str) -> float:
    """By how much an operation may enlarge the relative error that came in."""
    return _GROWTH_FACTOR_BY_OP.get(op.rstrip("_"), _GROWTH_FACTOR)


def of_scores(op: str) -> bool:
    """Whether the size of the argument decides about `growth_factor`."""
    return op in _OF_SCORES


def systematic_share(elements: Float64) -> Float64:
    """Which part of a tensor's relative error its norm may change by when the error is rounding.

    Rounding points in all directions: of an error e, a norm over N elements sees about e/√N (five standard deviations
    are allowed). An eighth is for what errors that went through the same sums have in common; measured on noise of
    float32 and bfloat16 it stays below a tenth. A factor of 1.01 is seen in full.

    Args:
        elements: how many elements make the norm, NaN where that is not known: see `counting`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = _COMMON_DIRECTION + _CHANCE / np.sqrt(elements)
    return np.where(np.isfinite(share), np.minimum(share, 1.0), 1.0)


def counting(l1: Float64, l2: Float64) -> Float64:
    """How many elements of a tensor make its norm, by its norms: N where all are alike, 1 where one is all there is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((l1 / l2) ** 2)
