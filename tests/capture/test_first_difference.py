"""The smallest error in one product of a real step is the first difference; a repeated step has none."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from matchers.causes.first_difference import Kind
from matchers.comparison import compare
from matchers.explain.first_difference import first_difference_reasons
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from tests.truth.loop import record
from tests.truth.run import Run


class Products:
    """Replaces the CPU kernel of `mm` by itself, and counts its calls; the one numbered `at` is off."""

    def __init__(self) -> None:
        self.calls, self.at = 0, -1

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = torch.ops.aten.mm.out(a, b, out=torch.empty(len(a), b.shape[1], dtype=a.dtype))
        if self.calls == self.at:
            largest = out.view(-1)[out.abs().argmax()]
            if out.dtype == torch.float32:
                out += 1e-6 * out.norm() / out.numel() ** 0.5
            else:
                largest.copy_(torch.nextafter(largest, 2 * largest))
        self.calls += 1
        return out


@pytest.fixture(scope="module")
def products() -> Iterator[Products]:
    library = torch.library.Library("aten", "IMPL")
    made = Products()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a kernel that is replaced
        library.impl("mm", made, "CPU")
    yield made
    library._destroy()


def captured(run: Run, path: Path, products: Products, at: int = -1) -> OpLog:
    products.calls, products.at = 0, at
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        record(run, path)
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
    return read_log(str(path))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", ["packed", "recurrent"])
def test_an_error_in_one_product_is_the_first_difference(
    model: str, dtype: str, products: Products, tmp_path: Path
) -> None:
    run = Run(model=model, dtype=dtype)
    base, again = (captured(run, tmp_path / name, products) for name in ("base.log", "again.log"))
    assert compare(base, again).first_difference is None
    made = np.flatnonzero([base.op_name(record) == "mm" for record in range(len(base))])
    assert len(made) == products.calls
    # an error in proportion to a result of zeros is none; where the first state is read depends on the machine
    some = np.flatnonzero(base.stats[1, made] > 0).tolist()
    for at in (some[1], some[len(some) // 2], some[-1]):
        c = compare(base, captured(run, tmp_path / "off.log", products, at))
        found = c.first_difference
        assert found is not None
        assert (int(c.row_a[found.row]), found.kind) == (made[at], Kind.OPERATION)
        assert found.others > 0 == found.others_differ
        assert first_difference_reasons(c)[1].endswith("to the bit")
