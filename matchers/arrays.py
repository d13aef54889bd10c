"""Array types named after their elements; each column's docstring gives the meaning."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bool", "Float64", "Hash", "Int32", "Int64"]

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Hash = NDArray[np.uint64]
