"""The relative difference of numbers, one by one and as columns."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from matchers.verdict.relative_error import relative, relative_difference

NUMBERS = st.floats() | st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan])


@given(NUMBERS, NUMBERS, st.none() | st.floats(1e-300, 1e300))
def test_single_numbers_differ_as_columns_do(x: float, y: float, scale: float | None) -> None:
    one = relative_difference(x, y, math.nan if scale is None else scale)
    column = relative(np.array([x]), np.array([y]), None if scale is None else np.array([scale]))[0]
    assert one == column or (math.isnan(one) and math.isnan(column))
