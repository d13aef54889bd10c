"""Patterns that are planted are named, and nothing is named that does not hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.elements.differences import differences
from matchers.elements.moves import moved
from matchers.tensor import Tensor, to_bfloat16

Values = NDArray[Any]
Rng = np.random.Generator
_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def tensor(values: Values, dtype: str = "") -> Tensor:
    return Tensor.of(values.tobytes(), dtype or str(values.dtype), values.shape, _steps(values.shape), 0)


def _steps(shape: tuple[int, ...]) -> list[int]:
    return [int(np.prod(shape[k + 1 :], dtype=np.int64)) for k in range(len(shape))]


def bfloat16(values: Values) -> Tensor:
    return tensor(to_bfloat16(values.astype(np.float32)), "bfloat16")


def exchanged(x: Values, rng: Rng) -> tuple[Values, str]:
    dim = int(rng.integers(x.ndim))
    i, j = sorted(map(int, rng.choice(x.shape[dim], 2, replace=False)))
    order = np.arange(x.shape[dim])
    order[[i, j]] = j, i
    return x.take(order, dim), rf"{i} and {j} of dimension {dim} exchanged"


def rolled(x: Values, rng: Rng) -> tuple[Values, str]:
    dim = int(rng.integers(x.ndim))
    by = int(rng.integers(1, max(x.shape[dim] // 2, 2)))
    pairs = x.shape[dim] == 2
    return np.roll(
        x, by, dim
    ), rf"0 and 1 of dimension {dim}" if pairs else rf"rolled by {by} along dimension {dim}|blocks"


def permuted(x: Values, rng: Rng) -> tuple[Values, str]:
    dim = int(np.argmax(x.shape))
    order = np.roll(rng.permutation(x.shape[dim]), 1)
    if (order == np.arange(len(order))).all():
        order = np.roll(order, 1)
    return x.take(order, dim), rf"dimension {dim}( permuted| exchanged| in reverse|)"


def blocks(x: Values, _: Rng) -> tuple[Values, str]:
    x = x.reshape(x.shape[0], -1)
    half = x.shape[1] // 2
    return np.concatenate([x[:, half:], x[:, :half]], 1), rf"blocks of {half} 0 and 1 of dimension 1 exchanged"


def shifted(x: Values, rng: Rng) -> tuple[Values, str]:
    dim = int(np.argmax(x.shape))
    y = np.roll(x, 1, dim)
    y[tuple(slice(0, 1) if k == dim else slice(None) for k in range(x.ndim))] = rng.normal()
    return y, rf"shifted by 1 along dimension {dim}, with other values in the first 1"


def turned(x: Values, _: Rng) -> tuple[Values, str]:
    return x.swapaxes(0, 1).copy(), "transposed: dimensions 0 and 1 exchanged"


def viewed(x: Values, _: Rng) -> tuple[Values, str]:
    return x.swapaxes(0, 1).copy().reshape(x.shape), "dimensions 0 and 1 exchanged|transposed"


def scaled(x: Values, rng: Rng) -> tuple[Values, str]:
    factor = float(rng.choice([0.5, 2.0, 0.1, 1.01, 3.0, 0.125]))
    return (x * x.dtype.type(factor)).astype(x.dtype), f"a times {factor:g}$"


def negative(x: Values, rng: Rng) -> tuple[Values, str]:
    y, k = x.copy(), int(rng.integers(len(x)))
    y[k] = -y[k]
    return y, f"{_first_or(k, len(x))} of dimension 0: the negative of a"


def _first_or(k: int, _: int) -> str:
    return rf"only in {k}"


def block_of_nan(x: Values, rng: Rng) -> tuple[Values, str]:
    y, last = x.copy(), int(rng.integers(1, len(x)))
    y[-last:] = np.nan
    return y, (r"the last \d+|only in \d+" if last < len(x) else "") + " of dimension 0: NaN in b alone"


def zeroed(x: Values, _: Rng) -> tuple[Values, str]:
    y = x.copy()
    y[:, ::2] = 0
    every = r"(every 2nd from 0|0|0, 2)" if x.shape[1] > 2 else "0"
    return y, rf"only in {every} of dimension 1: zero in b"


def one_element(x: Values, rng: Rng) -> tuple[Values, str]:
    y, at = x.copy(), tuple(int(rng.integers(n)) for n in x.shape)
    y[at] = y[at] * 3 + 1
    return y, rf"1 of .* only in element {re.escape(str(list(at)))}: .* in a, .* in b"


def flushed(x: Values, _: Rng) -> tuple[Values, str]:
    return np.where(np.abs(x) < 1, 0, x).astype(x.dtype), "zero in b"


def rounded(x: Values, _: Rng) -> tuple[Values, str]:
    bits = to_bfloat16(x.astype(np.float32)).astype(np.uint32) << 16
    return bits.view(np.float32).astype(x.dtype), "rounded to bfloat16 in b"


PLANTS: list[Callable[[Values, Rng], tuple[Values, str]]] = [
    *(exchanged, rolled, permuted, blocks, shifted, turned, viewed, scaled, negative, block_of_nan, zeroed),
    *(one_element, flushed, rounded),
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_patterns_are_named(plant: Callable[[Values, Rng], tuple[Values, str]]) -> None:
    """Fifteen of each kind, of two to four dimensions."""
    for seed in range(15):
        rng = np.random.default_rng(seed)
        shape = tuple(map(int, rng.choice([2, 3, 4, 6, 8], int(rng.integers(2, 5)))))
        x = rng.normal(size=shape).astype(np.float32)
        y, expected = plant(x, rng)
        if plant is blocks:
            x = x.reshape(len(x), -1)
        told = differences(tensor(x), tensor(np.ascontiguousarray(y))).text
        assert re.search(expected, told), (seed, shape, told)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_unrelated_tensors_have_no_pattern(dtype: str) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(2, 6, 5))
        made = bfloat16 if dtype == "bfloat16" else lambda values: tensor(values.astype(dtype))
        found = differences(made(x), made(y))
        assert (found.move, found.place, found.relation) == ("", "", "")
        assert "the largest at" in found.text


def test_a_factor_holds_for_every_element_or_is_not_named() -> None:
    x = np.linspace(1, 2, 50, dtype=np.float32)
    y = x * np.float32(1.01)
    assert differences(tensor(x), tensor(y)).relation == "a times 1.01"
    y[7] = np.nextafter(y[7], np.float32(9))
    assert differences(tensor(x), tensor(y)).relation == ""


def test_a_factor_of_bfloat16_is_rounded_as_the_operation_rounds_it() -> None:
    x = np.linspace(1, 2, 50, dtype=np.float32)
    a = bfloat16(x)
    assert a.values is not None
    assert differences(a, bfloat16(a.values * np.float32(0.3))).relation.startswith("a times 0.3")


def test_denormal_numbers_that_were_flushed_are_named() -> None:
    x = np.array([1, 1e-40, -1e-41, 2, 3e-39], np.float32)
    y = np.where(np.abs(x) < 1e-37, 0, x).astype(np.float32)
    assert differences(tensor(x), tensor(y)).text == (
        "3 of 5 elements differ, only in 1–2, 4 of dimension 0: denormal numbers flushed to zero in b"
    )


def test_zeros_of_the_other_sign_are_no_flushed_denormals() -> None:
    found = differences(tensor(np.zeros(4, np.float32)), tensor(np.full(4, -0.0, np.float32)))
    assert found.relation == "the negative of a"


def test_a_single_element_is_told_with_its_values() -> None:
    x = np.ones(4, np.float32)
    y = x.copy()
    y[2] = np.nextafter(np.float32(1), np.float32(2))
    assert differences(tensor(x), tensor(y)).text == (
        "1 of 4 elements differ, only in element [2]: 1 ulp, 1.0 in a, 1.0000001 in b"
    )
    y[2] = np.nan
    assert differences(tensor(x), tensor(y)).text.endswith("only in element [2]: 1.0 in a, nan in b")


def test_equal_slices_do_not_confuse_a_permutation() -> None:
    x = np.zeros((4, 3), np.uint32)
    x[1], x[3] = 5, 7
    assert moved(x, x[[0, 3, 2, 1]]) == "with 1 and 3 of dimension 0 exchanged"


def test_tensors_are_read_as_they_lie_in_their_storage() -> None:
    data = np.arange(12, dtype=np.float32)
    found = Tensor.of(data.tobytes(), "float32", [3, 2], [1, 3], 1)
    assert found.values is not None
    assert found.values.tolist() == [[1, 4], [2, 5], [3, 6]]
    whole = Tensor.of(np.array([1 + 2j], np.complex64).tobytes(), "complex64", [1], [1], 0)
    assert whole.bits.shape == (1, 2)
    assert Tensor.of(b"\x38", "float8_e8m0fnu", [1], [1], 0).values is None
    assert Tensor.of(b"", "float32", [0, 4], [4, 1], 0).bits.shape == (0, 4)


def test_other_dtypes_and_shapes_are_said() -> None:
    x = np.arange(6, dtype=np.float32)
    ups, rounded = tensor(x / 7), bfloat16(x / 7)
    assert "b is a, rounded to bfloat16" in differences(ups, rounded).text
    assert "b is a, before it was rounded to bfloat16" in differences(rounded, ups).text
    assert "float32 in a, float64 in b" in differences(tensor(x), tensor(x.astype(np.float64))).text
    assert "in the shape [2, 3] instead of [6]" in differences(tensor(x), tensor(x.reshape(2, 3))).text
    assert differences(tensor(x), tensor(x)).text == "equal in every bit"
    assert "first at [2], 2 in a, 9 in b" in differences(tensor(np.arange(4)), tensor(np.array([0, 1, 9, 3]))).text
