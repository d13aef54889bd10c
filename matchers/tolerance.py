"""Up to where a difference counts as rounding, by dtype: every coefficient of the verdicts stands here."""

from __future__ import annotations

__all__ = [
    "ACCUMULATED",
    "EPSILON",
    "EXTREMES",
    "TOLERANCE_IN_EPS",
    "default_tolerance",
    "elementwise",
    "own_tolerance",
]

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

128 ≈ 2·√4096: what the order of a sum of a few thousand terms can change.
"""

EXTREMES = 8.0
"""Min and Max are single elements: what rounding does to one of them is not averaged out, as it is in a norm."""

ACCUMULATED = 4.0
"""An error of the tensors themselves (from their sketches) is larger than that of their norms, over which rounding
averages: where something differed before, so much more of it is still rounding."""

_DEFAULT_IN_EPS = 2.0
_ELEMENTWISE_IN_EPS = 4.0
"""What two implementations of one formula make of the same numbers, element by element."""

_PRINT_RESOLUTION = 2e-6
"""Two numbers of seven digits that differ by one in the last may be equal: nothing below this is ever red."""
_SUM_RESOLUTION = 1e-13
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
    times = _ELEMENTWISE_IN_EPS if by_element else TOLERANCE_IN_EPS.get(dtype, _DEFAULT_IN_EPS)
    return max(eps * min(times, TOLERANCE_IN_EPS.get(dtype, _DEFAULT_IN_EPS)), _SUM_RESOLUTION)


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
