"""Names of Python's functions and operators on tensors, and the operations that torch dispatches for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

__all__ = ["dispatched"]

_ONE: Final[Mapping[str, str]] = {
    "iadd": "add_",
    "isub": "sub_",
    "imul": "mul_",
    "itruediv": "div_",
    "idiv": "div_",
    "ipow": "pow_",
    "radd": "add",
    "rmul": "mul",
    "rsub": "rsub",
    "truediv": "div",
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    "absolute": "abs",
    "square": "pow",
    "clip": "clamp",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "not_equal": "ne",
    "concat": "cat",
    "concatenate": "cat",
    "vector_norm": "linalg_vector_norm",
    "rpow": "pow",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "invert": "bitwise_not",
    "softmax": "_softmax",
    "log_softmax": "_log_softmax",
    "layer_norm": "native_layer_norm",
    "group_norm": "native_group_norm",
    "conv1d": "convolution",
    "conv2d": "convolution",
    "conv3d": "convolution",
}
"""Functions that dispatch one operation that computes, besides views and copies, whatever their arguments are."""
_LINEAR: Final = "linear"
_PRODUCT: Final = "matmul"
_WITH_BIAS: Final = 3


@lru_cache(maxsize=4096)
def dispatched(function: str, dimensions: tuple[int, ...]) -> str:
    """Return the operation that a function dispatches; the name itself where that is another function, or several.

    Args:
        function: without underscores around it, as in `iadd` and `softmax`.
        dimensions: of the tensors that it reads; -1: unknown.
    """
    if function == _LINEAR:
        return "addmm" if len(dimensions) == _WITH_BIAS else "mm"
    if function == _PRODUCT and len(dimensions) == 2 and min(dimensions) > 1:
        # a batch times a matrix is one product of matrices
        return "mm" if dimensions[1] == 2 else "bmm" if dimensions[0] > 2 else function
    return _ONE.get(function, function)
