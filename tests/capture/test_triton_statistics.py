"""The kernel for CUDA devices, in Triton's interpreter on the host: what it computes, not how fast."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

triton = pytest.importorskip(
    "triton", reason="only builds of torch for CUDA come with triton, and only they use this kernel"
)

SAME_AS_TORCH = """
import math, torch
from capture.kernels import eager, triton_statistics as kernel
from capture.kernels.row import FIELDS, INTEGERS
from capture.sketch import Positions

kernel._TILES = 4  # several programs without many elements
holes = torch.randn(5003)
holes[3], holes[4], holes[5], holes[6] = math.nan, math.inf, -math.inf, 0
cases = [(holes.to(dtype), None) for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)]
cases += [(torch.randn(n), None) for n in (0, 1, 3, 1024)]
cases += [(torch.randint(-99, 99, (777,)).to(dtype), None) for dtype in (torch.int8, torch.int32, torch.int64)]
cases += [(holes > 0, None), (torch.randn(30, 50).t(), None), (torch.tensor(2.0), None)]
cases += [(torch.randn(9, 50), Positions.of_indices((60, 99), [range(30, 39), range(7, 57)]))]
cases += [(torch.randn(3, 4, 50), Positions.of_indices((6, 20, 99), [range(3, 6), range(5, 9), range(7, 57)]))]
for tensor, positions in cases:
    assert kernel.knows(tensor, positions)
    found, expected = torch.zeros(2, FIELDS, dtype=torch.int64)
    kernel.measure(tensor, found, positions, digest=True, sketch=True)
    eager.measure(tensor, expected, positions, digest=True, sketch=True)
    assert found[:INTEGERS].equal(expected[:INTEGERS]), tensor.dtype
    numbers = [row.view(torch.float64)[INTEGERS:] for row in (found, expected)]
    torch.testing.assert_close(*numbers, rtol=1e-12, atol=1e-12, equal_nan=True)
assert not kernel.knows(torch.randn(4), Positions.of_indices((9,), [(0, 2, 3, 5)]))
assert not kernel.knows(torch.randn(4)[1:], None)
assert not kernel.knows(torch.randn(4, dtype=torch.complex64), None)
"""


@pytest.mark.skipif(
    tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7) and np.lib.NumpyVersion(np.__version__) >= "2.4.0",
    reason="the interpreter of Triton before 3.7 (torch 2.11) fails with NumPy 2.4",
)
def test_the_kernel_computes_what_torch_does() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", SAME_AS_TORCH]
    run = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
