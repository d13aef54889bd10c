"""The Triton kernel on the device gives what plain torch gives on the host.

Without a GPU, triton's interpreter runs what is small (minutes): TRITON_INTERPRET=1, and
`pytest -c tests/gpu/pytest.ini -k 'not every_type and not streams' tests/gpu/test_kernel.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch

from capture.kernels import eager, triton_statistics
from capture.kernels.row import FIELDS, INTEGERS
from capture.sketch import Positions
from capture.statistics import Statistics

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGER = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
SIZES = (0, 1, 3, 255, 256, 257, 16_384, 16_385, 5_000_003)
"""Around a tile of the kernel, a program of it, and many programs."""


def numbers(size: int, dtype: torch.dtype) -> torch.Tensor:
    """Values of a type, among them those that are not finite."""
    generator = torch.Generator().manual_seed(size)
    if dtype is torch.bool:
        return torch.rand(size, generator=generator) > 0.5
    if dtype in INTEGER:
        return torch.randint(0 if dtype is torch.uint8 else -99, 99, (size,), generator=generator).to(dtype)
    values = torch.randn(size, generator=generator, dtype=torch.float64)
    for place, special in enumerate((math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-320)):
        if size > 100:
            values[place * 17] = special
    return values.to(dtype)


def measured(measure: Callable[..., None], tensor: torch.Tensor, positions: Positions | None) -> torch.Tensor:
    row = torch.zeros(FIELDS, dtype=torch.int64, device=tensor.device)
    measure(tensor, row, positions, digest=True, sketch=True)
    return row.cpu()


def assert_same(tensor: torch.Tensor, positions: Positions | None = None) -> None:
    on_device = tensor.to(DEVICE)
    assert on_device.stride() == tensor.stride()
    assert triton_statistics.knows(on_device, positions)
    found = measured(triton_statistics.measure, on_device, positions)
    expected = measured(eager.measure, tensor, positions)
    assert found[:INTEGERS].equal(expected[:INTEGERS])
    floats = [row.view(torch.float64)[INTEGERS:] for row in (found, expected)]
    # sums of so many elements, in another order
    size = max(1.0, float(expected.view(torch.float64)[INTEGERS].nan_to_num()))
    torch.testing.assert_close(*floats, rtol=1e-12, atol=1e-14 * size, equal_nan=True)
    assert found.equal(measured(triton_statistics.measure, on_device, positions)), "a second run gives other bits"


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGER, torch.bool], ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_of_every_type_and_size(dtype: torch.dtype, size: int) -> None:
    assert_same(numbers(size, dtype))


STRIDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda whole: whole.t(),
    "sliced": lambda whole: whole[3:90:2, 5:60],
    "a column": lambda whole: whole[:, 7],
    "expanded": lambda whole: whole[:, :1].expand(-1, 5),
    "scalar": lambda whole: whole[4, 4],
}


@pytest.mark.parametrize("form", STRIDED)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_of_every_stride(dtype: torch.dtype, form: str) -> None:
    """A copy to the device may be contiguous: the view is made there."""
    whole = numbers(9_700, dtype).reshape(97, 100)
    here, there = STRIDED[form](whole), STRIDED[form](whole.to(DEVICE))
    assert here.stride() == there.stride()
    found = measured(triton_statistics.measure, there, None)
    expected = measured(eager.measure, here, None)
    assert found[:INTEGERS].equal(expected[:INTEGERS])
    floats = [row.view(torch.float64)[INTEGERS:] for row in (found, expected)]
    torch.testing.assert_close(*floats, rtol=1e-12, atol=1e-10, equal_nan=True)


def test_of_parts_of_a_global_tensor() -> None:
    assert_same(torch.randn(9, 50), Positions.of_indices((60, 99), [range(30, 39), range(7, 57)]))
    assert_same(torch.randn(3, 4, 50), Positions.of_indices((6, 20, 99), [range(3, 6), range(5, 9), range(7, 57)]))


def special(size: int) -> torch.Tensor:
    """Complex numbers, among them zeros and some with a part that is not finite."""
    real, imaginary = numbers(size, torch.float32), numbers(size, torch.float32).roll(17)
    return torch.complex(real, imaginary)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("size", [0, 1, 130, 2_049, 16_385])
def test_of_complex_numbers(dtype: torch.dtype, size: int) -> None:
    assert_same(special(size).to(dtype))


def test_of_complex_parts_of_a_global_tensor() -> None:
    assert_same(special(450).view(9, 50), Positions.of_indices((60, 99), [range(30, 39), range(7, 57)]))
    assert_same(special(450).view(9, 50), Positions.of_indices((60, 50), [range(31, 40), range(50)]))


PIECES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda whole: whole.view(30, 400).t(),
    "heads": lambda whole: whole.view(3, 10, 5, 80).transpose(1, 2),
    "few long rows": lambda whole: whole.view(2, 3, 2_000).transpose(0, 1)[:, :, 1:],
    "at an odd address": lambda whole: whole[1:],
    "conjugated": lambda whole: whole.conj(),
    "negated": torch._neg_view,
}


@pytest.mark.parametrize("form", PIECES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
def test_what_does_not_lie_in_order_is_copied_in_pieces(
    dtype: torch.dtype, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_statistics, "_COPIED", 1_000)
    whole = special(12_000).to(dtype) if dtype.is_complex else numbers(12_000, dtype)
    there = PIECES[form](whole.to(DEVICE))
    assert triton_statistics.knows(there, None)
    pieces = list(triton_statistics._pieces(there))
    assert all(piece.numel() % 8 == 0 for piece in pieces[:-1])
    copied = torch.cat([piece.flatten() for piece in pieces]).cpu()
    torch.testing.assert_close(copied, PIECES[form](whole).flatten(), rtol=0, atol=0, equal_nan=True)
    found = measured(triton_statistics.measure, there, None)
    # of the copy: a NaN that is negated has one sign on a host, and another in another kernel of a device
    expected = measured(eager.measure, copied, None)
    assert found[:INTEGERS].equal(expected[:INTEGERS])
    floats = [row.view(torch.float64)[INTEGERS:] for row in (found, expected)]
    torch.testing.assert_close(*floats, rtol=1e-12, atol=1e-10, equal_nan=True)


def test_what_the_kernel_does_not_know_is_measured_alike() -> None:
    """In plain torch on the device."""
    tensor = torch.randn(999).to(torch.float8_e4m3fn)
    both = []
    for device in ("cpu", DEVICE):
        statistics = Statistics()
        slot = statistics.measure(tensor.to(device))
        both.append(statistics.results()[slot])
    host, device_ = both
    assert (host.digest, host.nan, host.inf, host.zero) == (device_.digest, device_.nan, device_.inf, device_.zero)
    for field in ("l1", "l2", "min", "max", "mean"):
        assert getattr(device_, field) == pytest.approx(getattr(host, field), rel=1e-6, abs=1e-6)


def test_streams_do_not_mix() -> None:
    """Each stream fills rows of its own; the results wait for all of them."""
    statistics = Statistics()
    values = [torch.full((1 << 20,), float(n), device="cuda") for n in range(8)]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(3)]
    slots = []
    for value, stream in zip(values, itertools.cycle(streams)):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000)
            slots.append(statistics.measure(value.mul_(2)))
    results = statistics.results()
    assert [results[slot].max for slot in slots] == [2.0 * n for n in range(8)]
