"""Numbers of a tensor that another tool has dumped are those that a capture takes of it."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from capture.statistics import Statistics
from matchers.logs.imported.measured import measured
from matchers.tensor import Tensor

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.uint8),
    *(torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
)


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3, 0), (5,), (7, 129), (3, 5, 701)], ids=str)
def test_a_dumped_tensor_has_the_numbers_that_a_capture_takes(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.randn(shape, generator=torch.manual_seed(0)) * 4).to(dtype)
    if dtype.is_floating_point and tensor.numel() > 600:
        tensor.view(-1)[5:7] = torch.tensor([float("nan"), float("inf")]).to(dtype)
    statistics = Statistics()
    slot = statistics.measure(tensor)
    own = statistics.results()[slot]
    name, parts = str(dtype).removeprefix("torch."), 2 if dtype.is_complex else 1
    found = measured(Tensor.of(bytes_of(tensor), name, shape, tensor.stride(), 0), parts)
    assert found.digest == own.digest
    assert found.counts == (own.numel, own.nan, own.inf, own.zero)
    assert found.l1 == (None if own.l1 is None else pytest.approx(own.l1, rel=1e-13))
    kept = {"L2 norm": own.l2, "Min": own.min, "Max": own.max, "Mean": own.mean}
    assert found.stats == ({} if own.l1 is None else pytest.approx(kept, rel=1e-12))
    assert own.sketch is not None
    np.testing.assert_allclose(
        found.sketch, struct.unpack("<16d", own.sketch), rtol=0, atol=1e-12 * (1 + (own.l1 or 0))
    )
