"""Tensors of whole numbers that are measured together have the numbers that each has by itself."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.logs.imported.measured import Dumped


@pytest.mark.parametrize("largest", [1, 128, 1 << 20, 1 << 40])
@pytest.mark.parametrize("shape", [(3, 2), (128, 8), (0, 4), (40, 5)])
def test_many_are_measured_as_each(shape: tuple[int, int], largest: int) -> None:
    values = np.random.default_rng(3).integers(-largest, largest, (5, shape[0] * shape[1]))
    for one, row in zip(Dumped.of_whole_numbers(values, shape), values, strict=True):
        alone = Dumped("int64", shape, row.astype("<i8").tobytes())
        assert (one.dtype, one.shape, one.data) == (alone.dtype, alone.shape, alone.data)
        *numbers, sketch = one.measured
        *expected, other = alone.measured
        assert numbers == expected
        assert sketch.tobytes() == other.tobytes()
