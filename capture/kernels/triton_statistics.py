"""Statistics of a tensor in Triton kernels, for CUDA devices; imported only where triton exists.

Each program takes a fixed number of tiles and leaves a row of partial sums; another kernel adds the rows in order. So
the results do not depend on scheduling, and nothing waits for the device.

A tile is seen as the sketch sees positions: blocks of 16 rows and 8 columns. A lane has one column of a block, so that
the Hadamard transform over its rows is between numbers of one thread. The signs of shards in several runs are computed
for each element by a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, no_type_check

import torch

from ..sketch import BLOCK, COLUMNS, GAMMA, SEED, Positions
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
    torch.complex32,
    torch.complex64,
    torch.complex128,
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
}
_COPIED = 1 << 22
"""Number of elements of a non-contiguous tensor that are copied at once."""
_WIDE = {torch.float64, torch.int32, torch.int64}
"""Types with values that float32 does not have."""
_TILE = 256
"""Elements of a tile whose signs are computed one by one."""
_ROWS = 64
"""Rows of partial sums that are added at once."""
_BLOCKS = 16
"""Blocks of positions in a tile."""
_TILES = 8
"""Tiles per program, at least."""
_PROGRAMS = 2048
"""From this number of programs on, each takes more tiles."""

_GAMMA = tl.constexpr(GAMMA)
_SEED = tl.constexpr(SEED)
_LEFT = tl.constexpr(sum(column << 16 * c for c, column in enumerate(COLUMNS[:4])))
_RIGHT = tl.constexpr(sum(column << 16 * c for c, column in enumerate(COLUMNS[4:])))
_FIELDS = tl.constexpr(FIELDS)
_INTEGERS = tl.constexpr(INTEGERS)
_SKETCH = tl.constexpr(SKETCH)


def knows(tensor: torch.Tensor, positions: Positions | None) -> bool:
    """Return True if the kernel can read a tensor and compute its positions."""
    return tensor.dtype in _TYPES and (positions is None or _affine(positions) is not None)


def measure(
    tensor: torch.Tensor, row: torch.Tensor, positions: Positions | None, *, digest: bool, sketch: bool
) -> None:
    """Do the same as `capture.kernels.eager.measure`, for tensors that `knows` accepts."""
    parts = 2 if tensor.is_complex() else 1
    numel = tensor.numel() * parts
    affine = None if positions is None else _affine(positions)
    start, inner, size, stride, far = affine or (0, tensor.numel(), 1, 0, 0)
    in_a_run = inner >= tensor.numel()
    alone = False
    sums = []
    done = 0
    with torch.cuda.device_of(row):
        for piece in _pieces(tensor):
            x = torch.view_as_real(piece) if parts == 2 else piece
            x = x.view(torch.uint8) if x.dtype is torch.bool else x
            form = {"SIZE": x.element_size(), "PARTS": parts}
            kind = {"WIDE": x.dtype in _WIDE}
            # of whole blocks, the first one may begin before the piece
            first, before = divmod(start * parts + done, BLOCK) if in_a_run else (0, 0)
            tiles = max(_TILES, (before + x.numel()) // (_BLOCKS * BLOCK * _PROGRAMS))
            programs = max(1, -(-(before + x.numel()) // (tiles * _BLOCKS * BLOCK)))
            alone = programs == 1 and x.numel() == numel and (in_a_run or not sketch)
            partials = row if alone else torch.empty((programs, FIELDS), dtype=torch.int64, device=row.device)
            _partials[(programs,)](
                x,
                partials,
                x.numel(),
                done,
                before,
                first,
                tiles,
                BLOCKS=_BLOCKS,
                DIGEST=digest,
                SIGNS=sketch and in_a_run,
                ALONE=alone,
                **form,
                **kind,
            )
            if sketch and not in_a_run:
                tiles *= _BLOCKS * BLOCK // _TILE
                _scattered[(programs,)](
                    x,
                    partials,
                    x.numel(),
                    done,
                    start,
                    inner,
                    size,
                    stride,
                    far,
                    tiles,
                    TILE=_TILE,
                    PARTS=parts,
                    **kind,
                )
            sums.append(partials)
            before_last, done = done, done + x.numel()
        if not alone:
            partials = sums[0] if len(sums) == 1 else torch.cat(sums)
            _add_up[(1,)](x, partials, len(partials), numel, before_last, row, ROWS=_ROWS, **form)


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield a tensor's elements as contiguous tensors that begin at multiples of eight elements and of eight bytes."""
    if (
        tensor.is_contiguous()
        and not (tensor.is_conj() or tensor.is_neg())
        and tensor.storage_offset() * tensor.element_size() % 8 == 0
    ):
        yield tensor.detach()
    elif tensor.numel() <= _COPIED:
        yield _copied(tensor)
    else:
        inner = tensor.numel() // len(tensor)
        rows = _COPIED // inner // 8 * 8
        if rows == 0 and inner % 8 == 0:
            for part in tensor.detach().unbind():
                yield from _pieces(part)
        else:
            for part in tensor.split(max(rows, 8)):
                yield _copied(part)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


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


@triton.jit
@no_type_check
def _word(n):
    return _mixed(_SEED + (n + 1).to(tl.uint64) * _GAMMA)


@triton.jit
@no_type_check
def _flipped(x, bits):
    """Negate float64 numbers where the highest of 64 bits is set."""
    return (x.to(tl.uint64, bitcast=True) ^ (bits & (1 << 63))).to(tl.float64, bitcast=True)


@triton.jit
@no_type_check
def _butterflies(x):
    """Do a stage of the Hadamard transform of 16 numbers; four of them leave it in its natural order."""
    low = ()
    high = ()
    for pair in tl.static_range(8):
        low = low + (x[2 * pair] + x[2 * pair + 1],)  # noqa: RUF005  Triton knows no unpacking
        high = high + (x[2 * pair] - x[2 * pair + 1],)  # noqa: RUF005  as above
    return low + high


@triton.jit
@no_type_check
def _numbers(ptr):
    return ptr.to(tl.pointer_type(tl.float64), bitcast=True)


# not specialized: compiling once more for every kind of number or address would stop the training again and again
@triton.jit(do_not_specialize=["x_ptr", "partials_ptr", "numel", "done", "before", "first", "tiles"])
@no_type_check
def _partials(
    x_ptr,
    partials_ptr,
    numel,
    done,
    before,
    first,
    tiles,
    BLOCKS: tl.constexpr,  # noqa: N803
    SIZE: tl.constexpr,  # noqa: N803
    PARTS: tl.constexpr,  # noqa: N803
    WIDE: tl.constexpr,  # noqa: N803
    DIGEST: tl.constexpr,  # noqa: N803
    SIGNS: tl.constexpr,  # noqa: N803
    ALONE: tl.constexpr,  # noqa: N803
):
    LANES: tl.constexpr = BLOCKS * 8  # noqa: N806
    program = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    c = lane % 8
    # the parts of a complex number lie side by side, and one of them counts
    counts = c % PARTS == 0
    infinity = float("inf")
    # float32 compares at a multiple of the speed
    kind: tl.constexpr = tl.float64 if WIDE else tl.float32
    nan = tl.zeros((LANES,), tl.int32)
    odd = tl.zeros((LANES,), tl.int32)
    zero = tl.zeros((LANES,), tl.int32)
    low = tl.full((LANES,), infinity, kind)
    high = tl.full((LANES,), -infinity, kind)
    l1 = tl.zeros((LANES,), tl.float64)
    squares = tl.zeros((LANES,), tl.float64)
    total = tl.zeros((LANES,), tl.float64)
    hashed = tl.zeros((LANES,), tl.uint64)
    sums = (total,) * 16
    words = tl.full((), numel, tl.int64) * SIZE // 8
    words_ptr = x_ptr.to(tl.pointer_type(tl.uint64), bitcast=True)
    left = tl.full((), numel, tl.int64) + before - program * tiles * (BLOCKS * 128)
    for tile in range(tl.minimum(tl.cdiv(left, BLOCKS * 128), tiles)):
        block = (program * tiles + tile) * BLOCKS + lane // 8
        begin = block * 128 + c - before
        # rows of this column that are in the tensor
        last = tl.minimum(numel - begin, 128).to(tl.int32)
        here = tl.maximum(-begin, 0).to(tl.int32)
        signs = _word(3 * (first + block) + c // 4) << (16 * (c % 4)).to(tl.uint64)
        column = ()
        for r in tl.static_range(16):
            there = (8 * r < last) & (8 * r >= here)
            value = tl.load(x_ptr + begin + 8 * r, mask=there, other=0).to(kind)
            other = value
            if PARTS == 2:
                other = tl.load(x_ptr + (begin + 8 * r ^ 1), mask=there, other=0).to(kind)
            finite = there & (tl.abs(value) < infinity) & (tl.abs(other) < infinity)
            nan += (counts & ((value != value) | (other != other))).to(tl.int32)
            odd += (counts & there & ~finite).to(tl.int32)
            zero += (counts & there & (value == 0) & (other == 0)).to(tl.int32)
            low = tl.minimum(low, tl.where(finite, value, infinity))
            high = tl.maximum(high, tl.where(finite, value, -infinity))
            x = tl.where(finite, value, 0.0).to(tl.float64)
            if PARTS == 2:
                y = tl.where(finite & counts, other, 0.0).to(tl.float64)
                l1 += tl.where(counts, tl.sqrt(x * x + y * y), 0.0)
            else:
                l1 += tl.abs(x)
            squares += x * x
            total += x
            if SIGNS:
                column = column + (_flipped(x, signs << r),)  # noqa: RUF005  Triton knows no unpacking
        if SIGNS:
            for _ in tl.static_range(4):
                column = _butterflies(column)
            signs = _word(3 * (first + block) + 2)
            added = ()
            for k in tl.static_range(16):
                added = added + (sums[k] + _flipped(column[k], signs << k),)  # noqa: RUF005  as above
            sums = added
        if DIGEST:
            for part in tl.static_range(2 * SIZE):
                n = ((program * tiles + tile) * (2 * SIZE) + part) * LANES + lane
                word = tl.load(words_ptr + n, mask=n < words, other=0)
                position = n + 2 + tl.full((), done, tl.int64) * SIZE // 8
                term = _mixed(word + position.to(tl.uint64) * _GAMMA)
                hashed += tl.where(n < words, term, 0)
    partials = partials_ptr + program * _FIELDS
    numbers = _numbers(partials)
    infinite = tl.sum(odd) - tl.sum(nan)
    tl.store(partials, tl.sum(nan).to(tl.int64))
    tl.store(partials + 1, infinite.to(tl.int64))
    tl.store(partials + 2, tl.sum(zero).to(tl.int64))
    tl.store(partials + 3, tl.sum(hashed).to(tl.int64, bitcast=True))
    tl.store(numbers + _INTEGERS, tl.sum(l1))
    tl.store(numbers + _INTEGERS + 1, tl.sum(squares))
    tl.store(numbers + _INTEGERS + 2, tl.min(low).to(tl.float64))
    tl.store(numbers + _INTEGERS + 3, tl.max(high).to(tl.float64))
    tl.store(numbers + _INTEGERS + 4, tl.sum(total))
    if SIGNS:
        table = tl.where(c < 4, _LEFT, _RIGHT).to(tl.uint64) >> (16 * (c % 4)).to(tl.uint64)
        for k in tl.static_range(16):
            tl.store(numbers + _SKETCH + k, tl.sum(_flipped(sums[k], table << (63 - k))))
    if ALONE:
        tl.debug_barrier()
        _add_up(x_ptr, partials_ptr, 1, numel, 0, partials_ptr, SIZE, PARTS, 1)


@triton.jit(
    do_not_specialize=["x_ptr", "partials_ptr", "numel", "done", "start", "inner", "size", "stride", "far", "tiles"]
)
@no_type_check
def _scattered(
    x_ptr,
    partials_ptr,
    numel,
    done,
    start,
    inner,
    size,
    stride,
    far,
    tiles,
    TILE: tl.constexpr,  # noqa: N803
    PARTS: tl.constexpr,  # noqa: N803
    WIDE: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0).to(tl.int64)
    kind: tl.constexpr = tl.float64 if WIDE else tl.float32
    k = tl.arange(0, 16).to(tl.uint64)
    signed = tl.zeros((16, TILE), tl.float64)
    for tile in range(tiles):
        i = (program * tiles + tile) * TILE + tl.arange(0, TILE)
        value = tl.load(x_ptr + i, mask=i < numel, other=0).to(kind)
        finite = tl.abs(value) < float("inf")
        if PARTS == 2:
            finite &= tl.abs(tl.load(x_ptr + (i ^ 1), mask=i < numel, other=0).to(kind)) < float("inf")
        x = tl.where(finite, value, 0.0).to(tl.float64)
        element = (done + i) // PARTS
        run = element // inner
        at = start + element % inner + run % size * stride + run // size * far
        at = at * PARTS + i % PARTS
        block = at // 128
        r = (at % 128 // 8).to(tl.uint64)
        c = at % 8
        shift = (16 * (c % 4)).to(tl.uint64)
        # the highest bit of these is the sign of the element, bit k the sign of projection k
        d = _word(3 * block + c // 4) << (shift + r)
        v = tl.where(c < 4, _LEFT, _RIGHT).to(tl.uint64) >> shift
        h = (r & 1) * 0xAAAA ^ (r >> 1 & 1) * 0xCCCC ^ (r >> 2 & 1) * 0xF0F0 ^ (r >> 3 & 1) * 0xFF00
        u = _word(3 * block + 2)
        flips = (v ^ h)[None, :] << (63 - k[:, None]) ^ u[None, :] << k[:, None]
        signed += _flipped(_flipped(x, d)[None, :], flips)
    tl.store(_numbers(partials_ptr) + program * _FIELDS + _SKETCH + tl.arange(0, 16), tl.sum(signed, 1))


@triton.jit(do_not_specialize=["x_ptr", "partials_ptr", "programs", "numel", "done", "row_ptr"])
@no_type_check
def _add_up(
    x_ptr,
    partials_ptr,
    programs,
    numel,
    done,
    row_ptr,
    SIZE: tl.constexpr,  # noqa: N803
    PARTS: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
):
    """Make a row of the programs' partial sums."""
    infinity = float("inf")
    field = tl.arange(0, 32)
    counts = tl.zeros((ROWS, 32), tl.int64)
    sums = tl.zeros((ROWS, 32), tl.float64)
    low = tl.full((ROWS, 32), infinity, tl.float64)
    high = tl.full((ROWS, 32), -infinity, tl.float64)
    for first in range(0, programs, ROWS):
        program = (first + tl.arange(0, ROWS))[:, None]
        at = program * _FIELDS + field[None, :]
        there = program < programs
        integer = there & (field < _INTEGERS)[None, :]
        number = there & (field >= _INTEGERS)[None, :] & (field < _FIELDS)[None, :]
        counts += tl.load(partials_ptr + at, mask=integer, other=0)
        found = tl.load(_numbers(partials_ptr) + at, mask=number, other=0.0)
        sums += found
        low = tl.minimum(low, tl.where(number, found, infinity))
        high = tl.maximum(high, tl.where(number, found, -infinity))
    counts = tl.sum(counts, 0)
    sums = tl.sum(sums, 0)
    # the digest's words that are not whole: the length before, the rest after
    size = tl.full((), numel, tl.int64) * SIZE
    byte = tl.arange(0, 8)
    rest_ptr = x_ptr.to(tl.pointer_type(tl.uint8), bitcast=True) + (size // 8 * 8 - tl.full((), done, tl.int64) * SIZE)
    rest = tl.load(rest_ptr + byte, mask=byte < size % 8, other=0).to(tl.uint64)
    word = tl.sum(rest << (8 * byte).to(tl.uint64))
    ends = _mixed(size.to(tl.uint64) + _GAMMA)
    ends += tl.where(size % 8 != 0, _mixed(word + (size // 8 + 2).to(tl.uint64) * _GAMMA), 0)
    counts = tl.where(field == 3, counts + ends.to(tl.int64, bitcast=True), counts)
    missing = tl.sum(tl.where(field < 2, counts, 0))
    sums = tl.where(field == _INTEGERS + 1, tl.sqrt(sums), sums)
    sums = tl.where(field == _INTEGERS + 2, tl.min(low, 0) + 0.0, sums)
    sums = tl.where(field == _INTEGERS + 3, tl.max(high, 0) + 0.0, sums)
    sums = tl.where(field == _INTEGERS + 4, sums / (numel - missing * PARTS).to(tl.float64), sums)
    tl.store(row_ptr + field, counts, mask=field < _INTEGERS)
    tl.store(_numbers(row_ptr) + field, sums, mask=(field >= _INTEGERS) & (field < _FIELDS))
