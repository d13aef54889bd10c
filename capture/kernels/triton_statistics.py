"""Statistics of a tensor in one Triton kernel, for CUDA devices; imported only where triton exists.

Each program takes a fixed number of tiles and leaves a row of partial sums; another kernel adds the rows in order. So
the results do not depend on scheduling, and nothing waits for the device.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, no_type_check

import torch

from ..sketch import COLUMNS, GAMMA, SEED, Positions
from .row import FIELDS, INTEGERS, SKETCH

__all__ = ["knows", "measure"]

# untyped modules, which the machine that checks the types does not have
triton: Any = import_module("triton")
tl: Any = import_module("triton.language")

_TYPES = {
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
}
_COPIED = 1 << 22
"""Number of elements up to which a non-contiguous tensor is copied."""
_TILE = 256
_TILES = 64
"""Tiles per program."""

_GAMMA = tl.constexpr(GAMMA)
_SEED = tl.constexpr(SEED)
_LEFT = tl.constexpr(sum(column << 16 * c for c, column in enumerate(COLUMNS[:4])))
_RIGHT = tl.constexpr(sum(column << 16 * c for c, column in enumerate(COLUMNS[4:])))
_FIELDS = tl.constexpr(FIELDS)
_INTEGERS = tl.constexpr(INTEGERS)
_SKETCH = tl.constexpr(SKETCH)


def knows(tensor: torch.Tensor, positions: Positions | None) -> bool:
    """Return True if the kernel can read a tensor and compute its positions."""
    if tensor.dtype not in _TYPES or tensor.is_neg() or (positions is not None and _affine(positions) is None):
        return False
    if not tensor.is_contiguous():
        return tensor.numel() <= _COPIED
    return tensor.storage_offset() * tensor.element_size() % 8 == 0


def measure(
    tensor: torch.Tensor, row: torch.Tensor, positions: Positions | None, *, digest: bool, sketch: bool
) -> None:
    """Do the same as `capture.kernels.eager.measure`, for tensors that `knows` accepts."""
    numel = tensor.numel()
    flat = tensor.detach().reshape(-1)
    # of a tensor of one element, any stride counts as contiguous
    flat = flat.contiguous().as_strided((numel,), (1,))
    data = flat.view(torch.uint8)
    if flat.dtype is torch.bool:
        flat = data
    words = data[: len(data) // 8 * 8].view(torch.int64)
    programs = max(1, -(-numel // (_TILE * _TILES)))
    partials = torch.empty((programs, FIELDS), dtype=torch.int64, device=row.device)
    affine = None if positions is None else _affine(positions)
    start, inner, size, stride, far = affine or (0, max(numel, 1), 1, 0, 0)
    with torch.cuda.device_of(row):
        _partials[(programs,)](
            flat,
            words,
            partials,
            partials.view(torch.float64),
            numel,
            len(words),
            start,
            inner,
            size,
            stride,
            far,
            TILE=_TILE,
            TILES=_TILES,
            PER_WORD=8 // flat.element_size(),
            DIGEST=digest,
            SIGNS=sketch,
        )
        _combined[(1,)](
            partials, partials.view(torch.float64), programs, data, len(data), numel, row, row.view(torch.float64)
        )


def _affine(positions: Positions) -> tuple[int, int, int, int, int] | None:
    """Describe regular positions by five numbers; None for irregular ones.

    (start, elements in a run, runs in a group, stride of runs, stride of groups)
    """
    axes = [(1, positions.inner), *positions.outer]
    if len(axes) > 3 or any(len(runs) != 1 for _, runs in axes):
        return None
    start = sum(stride * runs[0].start for stride, runs in axes)
    (_, inner), (stride, rows), (far, _) = [*axes, (0, (range(1),)), (0, (range(1),))][:3]
    return start, len(inner[0]), len(rows[0]), stride, far


@triton.jit
@no_type_check
def _mixed(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


# not specialized: compiling once more for every kind of number would stop the training again and again
@triton.jit(do_not_specialize=["numel", "words", "start", "inner", "size", "stride", "far"])
@no_type_check
def _partials(
    x_ptr,
    words_ptr,
    integers_ptr,
    numbers_ptr,
    numel,
    words,
    start,
    inner,
    size,
    stride,
    far,
    TILE: tl.constexpr,  # noqa: N803
    TILES: tl.constexpr,  # noqa: N803
    PER_WORD: tl.constexpr,  # noqa: N803
    DIGEST: tl.constexpr,  # noqa: N803
    SIGNS: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0).to(tl.int64)
    infinity = float("inf")
    nan = tl.zeros((TILE,), tl.int64)
    inf = tl.zeros((TILE,), tl.int64)
    zero = tl.zeros((TILE,), tl.int64)
    l1 = tl.zeros((TILE,), tl.float64)
    squares = tl.zeros((TILE,), tl.float64)
    total = tl.zeros((TILE,), tl.float64)
    low = tl.full((TILE,), infinity, tl.float64)
    high = tl.full((TILE,), -infinity, tl.float64)
    hashed = tl.zeros((TILE // PER_WORD,), tl.uint64)
    k = tl.arange(0, 16).to(tl.uint64)
    signed = tl.zeros((16, TILE), tl.float64)
    for tile in range(TILES):
        i = (program * TILES + tile) * TILE + tl.arange(0, TILE)
        there = i < numel
        x = tl.load(x_ptr + i, mask=there, other=0).to(tl.float64)
        is_nan = x != x
        finite = there & (tl.abs(x) < infinity)
        nan += is_nan.to(tl.int64)
        inf += (there & ~finite & ~is_nan).to(tl.int64)
        zero += (there & (x == 0)).to(tl.int64)
        low = tl.minimum(low, tl.where(finite, x, infinity))
        high = tl.maximum(high, tl.where(finite, x, -infinity))
        x = tl.where(finite, x, 0.0)
        l1 += tl.abs(x)
        squares += x * x
        total += x
        if DIGEST:
            n = (program * TILES + tile) * (TILE // PER_WORD) + tl.arange(0, TILE // PER_WORD)
            word = tl.load(words_ptr + n, mask=n < words, other=0).to(tl.uint64, bitcast=True)
            term = _mixed(word + (n + 2).to(tl.uint64) * _GAMMA)
            hashed += tl.where(n < words, term, 0)
        if SIGNS:
            run = i // inner
            at = (start + i % inner + run % size * stride + run // size * far).to(tl.uint64)
            block = at // 128
            r = at % 128 // 8
            c = at % 8
            d = _mixed(_SEED + (3 * block + c // 4 + 1) * _GAMMA) >> (63 - 16 * (c % 4) - r)
            u = _mixed(_SEED + (3 * block + 3) * _GAMMA)
            # bit k of these is the sign of projection k
            v = tl.where(c < 4, _LEFT, _RIGHT).to(tl.uint64) >> (16 * (c % 4))
            h = (r & 1) * 0xAAAA ^ (r >> 1 & 1) * 0xCCCC ^ (r >> 2 & 1) * 0xF0F0 ^ (r >> 3 & 1) * 0xFF00
            flip = (v ^ h)[None, :] >> k[:, None] ^ u[None, :] >> (63 - k[:, None]) ^ d[None, :]
            signed += tl.where((flip & 1) != 0, -x[None, :], x[None, :])
    integers = integers_ptr + program * _FIELDS
    numbers = numbers_ptr + program * _FIELDS
    tl.store(integers, tl.sum(nan))
    tl.store(integers + 1, tl.sum(inf))
    tl.store(integers + 2, tl.sum(zero))
    tl.store(integers + 3, tl.sum(hashed).to(tl.int64, bitcast=True))
    tl.store(numbers + _INTEGERS, tl.sum(l1))
    tl.store(numbers + _INTEGERS + 1, tl.sum(squares))
    tl.store(numbers + _INTEGERS + 2, tl.min(low))
    tl.store(numbers + _INTEGERS + 3, tl.max(high))
    tl.store(numbers + _INTEGERS + 4, tl.sum(total))
    tl.store(numbers + _SKETCH + tl.arange(0, 16), tl.sum(signed, 1))


@triton.jit(do_not_specialize=["programs", "size", "numel"])
@no_type_check
def _combined(
    integers_ptr,
    numbers_ptr,
    programs,
    bytes_ptr,
    size,
    numel,
    row_ptr,
    row_numbers_ptr,
):
    infinity = float("inf")
    field = tl.arange(0, 32)
    counts = tl.zeros((32,), tl.int64)
    sums = tl.zeros((32,), tl.float64)
    low = tl.full((32,), infinity, tl.float64)
    high = tl.full((32,), -infinity, tl.float64)
    for first in range(0, programs, 64):
        program = (first + tl.arange(0, 64))[:, None]
        at = program * _FIELDS + field[None, :]
        there = program < programs
        integer = there & (field < _INTEGERS)[None, :]
        number = there & (field >= _INTEGERS)[None, :] & (field < _FIELDS)[None, :]
        counts += tl.sum(tl.load(integers_ptr + at, mask=integer, other=0), 0)
        found = tl.load(numbers_ptr + at, mask=number, other=0.0)
        sums += tl.sum(found, 0)
        low = tl.minimum(low, tl.min(tl.where(number, found, infinity), 0))
        high = tl.maximum(high, tl.max(tl.where(number, found, -infinity), 0))
    # the digest's words that are not whole: the length before, the rest after
    byte = tl.arange(0, 8)
    rest = tl.load(bytes_ptr + size // 8 * 8 + byte, mask=byte < size % 8, other=0).to(tl.uint64)
    word = tl.sum(rest << (8 * byte).to(tl.uint64))
    ends = _mixed(tl.full((), size, tl.int64).to(tl.uint64) + _GAMMA)
    position = tl.full((), size // 8 + 2, tl.int64).to(tl.uint64)
    ends += tl.where(size % 8 != 0, _mixed(word + position * _GAMMA), 0)
    counts = tl.where(field == 3, counts + ends.to(tl.int64, bitcast=True), counts)
    missing = tl.sum(tl.where(field < 2, counts, 0))
    sums = tl.where(field == _INTEGERS + 1, tl.sqrt(sums), sums)
    sums = tl.where(field == _INTEGERS + 2, low + 0.0, sums)
    sums = tl.where(field == _INTEGERS + 3, high + 0.0, sums)
    sums = tl.where(field == _INTEGERS + 4, sums / (numel - missing).to(tl.float64), sums)
    tl.store(row_ptr + field, counts, mask=field < _INTEGERS)
    tl.store(row_numbers_ptr + field, sums, mask=(field >= _INTEGERS) & (field < _FIELDS))
