from __future__ import annotations

import math
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from capture.sketch import BLOCK, COLUMNS, PROJECTIONS, SEED, Positions, mixed, word
from capture.statistics import Statistics


def sign(k: int, i: int) -> int:
    """The definition in docs/sketch.md, word by word."""
    block, row, column = i // 128, i % 128 // 8, i % 8
    d = word(3 * block + column // 4) >> (63 - 16 * (column % 4) - row)
    u = word(3 * block + 2) >> (63 - k)
    v = COLUMNS[column] >> k
    return 1 - 2 * ((d ^ u ^ v ^ (k & row).bit_count()) & 1)


def sketch_of(*tensors: torch.Tensor, positions: Positions | None = None) -> torch.Tensor:
    """float64[len(tensors), 16]."""
    statistics = Statistics(digest=False)
    for tensor in tensors:
        statistics.measure(tensor, positions)
    found = [summary.sketch for summary in statistics.results().values()]
    return torch.tensor([struct.unpack("<16d", sketch) for sketch in found if sketch is not None], dtype=torch.float64)


PINNED_WORDS = ["24ee4317f0e9426b", "dc92e0fad020a775", "e627cd60d6105050", "d32dcdbfa1d3ab43", "d19f365492729401"]
PINNED_SIGNS = [
    "---++--+++-++---",
    "---++-+-+---+++-",
    "-+--++--+---++-+",
    "+---+--++---+-++",
    "+---+---+-++-+-+",
    "-+--++--+-+-+++-",
]


def test_the_generator_and_the_signs_are_those_that_all_logs_were_written_with() -> None:
    assert SEED == 0x6E756D7475690A02
    assert mixed(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF  # the first output of splitmix64 with seed 0
    assert [f"{word(n):016x}" for n in (0, 1, 2, 3, 3_000_000_007)] == PINNED_WORDS
    signs = ["".join("+-"[sign(k, i) < 0] for k in range(16)) for i in (0, 1, 8, 127, 128, 10**9)]
    assert signs == PINNED_SIGNS


def test_the_kernels_sum_with_these_signs() -> None:
    x = torch.randn(3 * BLOCK + 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = [math.fsum(sign(k, i) * v for i, v in enumerate(x.tolist())) for k in range(PROJECTIONS)]
    torch.testing.assert_close(sketch_of(x)[0].tolist(), expected, rtol=1e-12, atol=1e-12)


def test_two_elements_of_a_block_are_never_far_from_orthogonal() -> None:
    signs = torch.tensor([[sign(k, i) for k in range(16)] for i in range(BLOCK)])
    products = (signs @ signs.T).fill_diagonal_(0)
    columns = torch.arange(BLOCK) % 8
    assert products[columns[:, None] == columns].abs().max() == 0
    assert set(products[columns[:, None] != columns].abs().tolist()) == {4}


def test_a_complex_number_is_two_real_ones() -> None:
    x = torch.randn(77, dtype=torch.complex64)
    assert sketch_of(x).equal(sketch_of(torch.view_as_real(x)))
    assert sketch_of(x.conj()).equal(sketch_of(torch.view_as_real(x.conj().resolve_conj())))


def test_what_is_not_finite_counts_as_nothing() -> None:
    x = torch.randn(300)
    x[5], x[250], x[251] = math.nan, math.inf, -math.inf
    assert sketch_of(x).equal(sketch_of(x.nan_to_num(0, 0, 0)))


def test_it_depends_on_order_and_sign_but_not_on_shape() -> None:
    x = torch.randn(24, 36)
    plain, flat, transposed, negated = sketch_of(x, x.reshape(-1), x.t(), -x)
    assert plain.equal(flat)
    assert not torch.allclose(plain, transposed)
    assert plain.equal(-negated)


dimension = st.integers(1, 7)


@given(st.data())
def test_sketches_of_shards_add_up(data: st.DataObject) -> None:
    """Any grid of index sets, in order or not, consecutive or not."""
    shape = data.draw(st.lists(dimension, min_size=1, max_size=4))
    x = torch.randn(shape, dtype=data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.complex64])))
    owners = [data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)) for size in shape]
    total = torch.zeros(1, 16, dtype=torch.float64)
    for n in range(3 ** len(shape)):
        cell = [n // 3**d % 3 for d in range(len(shape))]
        axes = [[i for i, owner in enumerate(held) if owner == c] for held, c in zip(owners, cell, strict=True)]
        local = x
        for d, axis in enumerate(axes):
            local = local.index_select(d, torch.tensor(axis, dtype=torch.int64))
        total += sketch_of(local, positions=Positions.of_indices(shape, axes))
    size = float(torch.linalg.vector_norm(torch.view_as_real(x) if x.is_complex() else x.double()))
    assert (total - sketch_of(x)).abs().max() <= 1e-12 * size


@pytest.mark.parametrize("kernel", ["c", "torch"])
def test_positions_of_a_big_shard(kernel: str) -> None:
    """Runs that start anywhere in a block and cross chunks."""
    x = torch.randn(700, 1000)
    total = torch.zeros(16, dtype=torch.float64)
    for columns in (range(333), range(333, 334), range(334, 1000)):
        statistics = Statistics()
        if kernel == "torch":
            statistics._native = None
        statistics.measure(x[:, columns.start : columns.stop], Positions.of_indices(x.shape, [range(700), columns]))
        total += torch.tensor(struct.unpack("<16d", statistics.results()[0].sketch or b""), dtype=torch.float64)
    assert (total - sketch_of(x)[0]).abs().max() <= 1e-12 * float(x.double().norm())


CHANGES = ["dense", "element", "row", "constant row", "constant", "sign", "permutation", "heads", "transposition"]


def changed(x: torch.Tensor, kind: str, size: float, generator: torch.Generator) -> torch.Tensor:
    """A matrix that differs from x (float64) by about `size`, relatively, where the kind of change has a size."""
    rows, columns = x.shape
    row = int(torch.randint(rows, (), generator=generator))
    delta = torch.zeros_like(x)
    if kind == "sign":
        return torch.where(torch.arange(rows)[:, None] == row, -x, x)
    if kind == "permutation":
        return x[torch.randperm(rows, generator=generator)]
    if kind == "heads":
        return x.reshape(rows, 8, -1).roll(1, dims=1).reshape(rows, columns)
    if kind == "transposition":
        return x.t().reshape(rows, columns)
    if kind == "dense":
        delta = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    elif kind == "element":
        delta[row, int(torch.randint(columns, (), generator=generator))] = 1
    elif kind == "row":
        delta[row] = torch.randn(columns, generator=generator, dtype=x.dtype)
    elif kind == "constant row":
        delta[row] = 1
    else:
        delta[:] = 1
    return x + delta * (size * x.norm() / delta.norm())


def test_the_estimate_is_within_a_factor_of_two_of_the_true_distance() -> None:
    """1,000 pairs: relative distances from 1e-8 to 1, sizes from one block to a thousand."""
    generator = torch.Generator().manual_seed(11)
    good = 0
    ratios = []
    for case in range(1000):
        rows = 2 ** int(torch.randint(2, 8, (), generator=generator)) + case % 3
        columns = 8 * int(torch.randint(2, 120, (), generator=generator))
        dtype = [torch.float64, torch.float32, torch.bfloat16][case % 3]
        kind = CHANGES[case % len(CHANGES)]
        size = 10 ** (-8 * float(torch.rand((), generator=generator)))
        x = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
        a, b = x.to(dtype), changed(x, kind, size, generator).to(dtype)
        true = float((a.double() - b.double()).norm())
        if true == 0:  # too small for the type
            good += bool(sketch_of(a).equal(sketch_of(b)))
            continue
        first, second = sketch_of(a, b)
        ratio = float((first - second).square().mean().sqrt()) / true
        ratios.append(ratio)
        good += 0.5 <= ratio <= 2
    assert good >= 970
    # unbiased, with the relative deviation of a χ² distribution with 16 degrees of freedom, or less
    squares = torch.tensor(ratios).square()
    assert abs(float(squares.mean()) - 1) < 0.05
    assert float(squares.std()) < math.sqrt(2 / PROJECTIONS) * 1.1
