"""Statistics in plain torch operations, for devices and machines without a compiled kernel.

Works in chunks, so that a tensor is never copied as a whole, and leaves its results on the device without waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch

from ..sketch import BLOCK, COLUMNS, GAMMA, PROJECTIONS, SEED, Positions, Runs
from .row import FIELDS, INTEGERS, SKETCH

__all__ = ["measure", "mixed"]

CHUNK = 1 << 18
"""Elements per chunk on the host; eight times as many elsewhere, where each operation costs a launch."""
_SIGNS_CHUNK = 1 << 14
"""Chunk size where each element needs sixteen numbers."""
# as two numbers: a table would have to be copied to the device
_LEFT, _RIGHT = (sum(column << 16 * c for c, column in enumerate(half)) for half in (COLUMNS[:4], COLUMNS[4:]))


def measure(
    tensor: torch.Tensor, row: torch.Tensor, positions: Positions | None, *, digest: bool, sketch: bool
) -> None:
    """Write the statistics of a tensor into a row (int64[FIELDS]) on the same device.

    Args:
        tensor: Of any strides and any type that converts to float64, complex ones included.
        row: Filled as in `capture.kernels.row`, except fields that are not requested.
        positions: Of its elements in the global tensor; None: it is the global tensor.
        digest: Fill the digest.
        sketch: Fill the sketch.
    """
    device = tensor.device
    counts = torch.zeros(3, dtype=torch.int64, device=device)
    sums = torch.zeros(3, dtype=torch.float64, device=device)
    low = torch.full((), float("inf"), dtype=torch.float64, device=device)
    high = -low
    projections = torch.zeros(PROJECTIONS, dtype=torch.float64, device=device)
    hashed = _Digest(device)
    parts = 2 if tensor.is_complex() else 1
    done = 0
    for piece in _pieces(tensor.detach(), CHUNK * _scale(device)):
        raw = piece.resolve_conj().resolve_neg()
        if parts == 2:
            raw = torch.view_as_real(raw)
        # of a single element, `contiguous` keeps a stride that `view` objects to
        raw = raw.contiguous().as_strided((raw.numel(),), (1,))
        if digest:
            hashed.update(raw.view(torch.uint8))
        values = raw.to(torch.float64).reshape(-1, parts)
        nan = values.isnan().any(1)
        finite = values.isfinite().all(1)
        kept = finite[:, None]
        counts += torch.stack([nan.sum(), (~finite & ~nan).sum(), (values == 0).all(1).sum()])
        low = torch.minimum(low, values.masked_fill(~kept, float("inf")).amin())
        high = torch.maximum(high, values.masked_fill(~kept, float("-inf")).amax())
        values = values.masked_fill(~kept, 0.0)  # not in place: of a float64 tensor, these are its own elements
        squares = (values * values).sum(1)
        sizes = values.abs()[:, 0] if parts == 1 else squares.sqrt()
        sums += torch.stack([sizes.sum(), squares.sum(), values.sum()])
        if sketch:
            projections += _sketch(values.reshape(-1), done * parts, positions, parts)
        done += len(values)
    count = (tensor.numel() - counts[0] - counts[1]) * parts
    row[: INTEGERS - 1] = counts
    row[INTEGERS - 1] = hashed.value()
    numbers = row.view(torch.float64)
    numbers[INTEGERS] = sums[0]
    numbers[INTEGERS + 1] = sums[1].sqrt()
    # adding zero makes −0.0, which the order of comparisons would decide about, 0.0
    numbers[INTEGERS + 2] = low + 0.0
    numbers[INTEGERS + 3] = high + 0.0
    numbers[INTEGERS + 4] = sums[2] / count
    numbers[SKETCH:FIELDS] = projections


def _scale(device: torch.device) -> int:
    return 1 if device.type == "cpu" else 8


def _pieces(tensor: torch.Tensor, limit: int) -> Iterator[torch.Tensor]:
    """Yield the elements in row-major order, flat, at most `limit` at a time."""
    if tensor.numel() == 0:
        return
    if tensor.numel() <= limit:
        yield tensor.reshape(-1)
        return
    if tensor.is_contiguous():
        tensor = tensor.view(-1)
    rows = max(1, limit * len(tensor) // tensor.numel())
    for first in range(0, len(tensor), rows):
        part = tensor[first : first + rows]
        yield from _pieces(part if rows > 1 else part[0], limit)


class _Digest:
    """The digest of a stream of bytes; see docs/sketch.md."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._carry = torch.empty(0, dtype=torch.uint8, device=device)
        self._words = 1
        self._bytes = 0
        self._sum = torch.zeros((), dtype=torch.int64, device=device)

    def update(self, data: torch.Tensor) -> None:
        self._bytes += len(data)
        if len(self._carry):
            data = torch.cat([self._carry, data])
        whole = len(data) // 8 * 8
        self._carry = data[whole:]
        if whole:
            data = data[:whole]
            if data.storage_offset() % 8:
                data = data.clone()
            self._add(data.view(torch.int64))

    def value(self) -> torch.Tensor:
        if len(self._carry):
            last = torch.zeros(8, dtype=torch.uint8, device=self._device)
            last[: len(self._carry)] = self._carry
            self._add(last.view(torch.int64))
        length = torch.full((), self._bytes, dtype=torch.int64, device=self._device)
        return self._sum + mixed(length + _signed(GAMMA))

    def _add(self, words: torch.Tensor) -> None:
        at = torch.arange(self._words + 1, self._words + len(words) + 1, dtype=torch.int64, device=self._device)
        self._words += len(words)
        self._sum += mixed(words + at * _signed(GAMMA)).sum()


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _shifted(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift unsigned numbers to the right, which torch has no type for."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def mixed(z: torch.Tensor) -> torch.Tensor:
    """Apply the output function of splitmix64 to int64: each bit depends on every bit."""
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shifted(z, 31)


def _words(n: torch.Tensor) -> torch.Tensor:
    return mixed((n + 1) * _signed(GAMMA) + _signed(SEED))


def _lookup(runs: Runs, index: torch.Tensor) -> torch.Tensor:
    """Return the index-th number of some runs."""
    found = index + runs[0].start
    before = 0
    for last, run in pairwise(runs):
        before += len(last)
        found += (index >= before) * (run.start - last.start - len(last))
    return found


def _positions(local: torch.Tensor, positions: Positions | None) -> torch.Tensor:
    if positions is None:
        return local
    size = sum(map(len, positions.inner))
    found = _lookup(positions.inner, local % size)
    rest = local // size
    for stride, runs in positions.outer:
        size = sum(map(len, runs))
        found += _lookup(runs, rest % size) * stride
        rest = rest // size
    return found


def _sketch(values: torch.Tensor, start: int, positions: Positions | None, parts: int) -> torch.Tensor:
    """Return the sketch of finite values that begin at the local element `start`; float64[16]."""
    total = torch.zeros(PROJECTIONS, dtype=torch.float64, device=values.device)
    size = _SIGNS_CHUNK * _scale(values.device)
    for first in range(0, len(values), size):
        x = values[first : first + size]
        if positions is None:
            total += _consecutive(x, start + first)
        else:
            local = torch.arange(start + first, start + first + len(x), device=x.device)
            total += _scattered(x, _positions(local // parts, positions) * parts + local % parts)
    return total


def _consecutive(x: torch.Tensor, start: int) -> torch.Tensor:
    """Return the sketch of values at consecutive positions, in whole blocks that share the block's signs."""
    before = start % BLOCK
    x = torch.nn.functional.pad(x, (before, -(before + len(x)) % BLOCK)).view(-1, BLOCK)
    block = torch.arange(start // BLOCK, start // BLOCK + len(x), device=x.device)[:, None]
    y = _flipped(x, _d(block, torch.arange(BLOCK, device=x.device)))
    for h in (1, 2, 4, 8):
        low, high = y.view(len(x), 8 // h, 2, h * 8).unbind(2)
        y = torch.stack([low + high, low - high], 2)
    sums = _flipped(y.view(-1, PROJECTIONS, 8), _u(block)[:, :, None]).sum(0)
    return _flipped(sums, _v(x.device).t()).sum(1)


def _scattered(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Return the sketch of values at any positions."""
    block, at = at // BLOCK, at % BLOCK
    x = _flipped(x, _d(block, at))
    return _flipped(x[:, None], _h(at // 8) ^ _v(x.device)[at % 8] ^ _u(block[:, None])).sum(0)


def _flipped(x: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
    """Negate the values where the lowest bit of `sign` is set."""
    return x * (1 - 2 * (sign & 1))


def _d(block: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Return the sign of each element, in the lowest bit."""
    column = at % 8
    return _words(3 * block + column // 4) >> (63 - 16 * (column % 4) - at // 8)


def _u(block: torch.Tensor) -> torch.Tensor:
    """Return the signs of blocks, int64[blocks, 1], in the lowest bits; int64[blocks, 16]."""
    return _words(3 * block + 2) >> (63 - torch.arange(PROJECTIONS, device=block.device))


def _v(device: torch.device) -> torch.Tensor:
    """Return the signs of columns in the lowest bits; int64[8, 16]."""
    column = torch.arange(8, device=device)
    v = torch.where(column < 4, _LEFT, _RIGHT) >> (16 * (column % 4))
    return v[:, None] >> torch.arange(PROJECTIONS, device=device)


def _h(row: torch.Tensor) -> torch.Tensor:
    """Return the signs of the Hadamard matrix in the lowest bits; int64[rows, 16]."""
    shared = row[:, None] & torch.arange(PROJECTIONS, device=row.device)
    shared = shared ^ (shared >> 2)
    return shared ^ (shared >> 1)
