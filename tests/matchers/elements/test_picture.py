"""The picture of two tensors: steps between their elements, a histogram, a grid of the largest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from matchers.elements.picture import NOT_FINITE, Picture
from tests.matchers.elements.test_differences import bfloat16, tensor


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


def changed() -> tuple[Any, Any]:
    x = np.random.default_rng(0).standard_normal((6, 50, 40)).astype(np.float32)
    y = x.copy()
    y[4, 10:20] = np.nextafter(y[4, 10:20], np.float32(9))
    y[2, 3, 7] *= 1.5
    y[5, 49, 39] = np.inf
    return x, y


def test_elements_are_counted_by_their_distance() -> None:
    picture = Picture(*map(tensor, changed()))
    assert picture.many == 402
    assert picture.histogram == [("equal", 11598), ("1–9", 400), ("10^6–", 1), ("not finite", 1)]
    assert picture.largest == (5, 49, 39)
    assert picture.steps[5, 49, 39] == NOT_FINITE
    assert picture.steps[4, 10, 0] == 1


@pytest.mark.parametrize("size", [(20, 15), (3, 2), (50, 40), (400, 400)])
def test_a_cell_has_its_largest_difference_and_leads_to_it(size: tuple[int, int]) -> None:
    picture = Picture(*map(tensor, changed()))
    for plane in picture.planes:
        grid = picture.grid(plane, *size)
        assert all(have <= most for have, most in zip(grid.digits.shape, size, strict=True))
        for index, digits in (((2, 3, 7), 7), ((5, 49, 39), 10)):
            cell = picture.cell_of(plane, grid, index)
            assert grid.digits[cell] == digits
            assert picture.steps[picture.within(plane, grid, cell)] == picture.steps[index]


def test_vectors_scalars_and_empty_tensors_have_pictures() -> None:
    vector = Picture(tensor(floats(1, 2, 3)), tensor(floats(1, 2, 4)))
    assert vector.planes == [(-1, 0)]
    assert vector.grid((-1, 0), 5, 5).digits.tolist() == [[0, 0, 7]]
    scalar = Picture(tensor(floats(1)[0]), tensor(floats(2)[0]))
    grid = scalar.grid(scalar.planes[0], 3, 3)
    assert scalar.within(scalar.planes[0], grid, (0, 0)) == ()
    assert scalar.element(()) == [("1.0", "3f800000"), ("2.0", "40000000")]
    empty = Picture(tensor(np.zeros((0, 3), np.float32)), tensor(np.zeros((0, 3), np.float32)))
    assert empty.largest == ()
    assert empty.grid(empty.planes[0], 3, 3).digits.size == 0


def test_whole_numbers_and_narrow_floats_have_steps() -> None:
    assert Picture(tensor(np.array([1, 5])), tensor(np.array([1, 2]))).steps.tolist() == [0, 3]
    assert Picture(bfloat16(np.array([1.0, 2.0])), bfloat16(np.array([1.0, 2.015625]))).steps.tolist() == [0, 1]
    zeros = Picture(tensor(floats(0.0)), tensor(floats(-0.0)))
    assert zeros.steps.tolist() == [1], "other bits"


def test_of_one_tensor_the_picture_is_where_it_is_not_finite() -> None:
    picture = Picture(tensor(floats(1, np.nan, np.inf, 2).reshape(2, 2)))
    assert picture.steps.tolist() == [[0, NOT_FINITE], [NOT_FINITE, 0]]
    assert picture.histogram == [("equal", 2), ("not finite", 2)]
    assert Picture(tensor(np.array([1, 2]))).many == 0
