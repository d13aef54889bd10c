"""Statistics, digest and sketch of a tensor that a tool has dumped: those that a capture takes (docs/sketch.md)."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capture.sketch import BLOCK, COLUMNS, GAMMA, PROJECTIONS, SEED
from matchers.arrays import Float64, Hash
from matchers.tensor import SIZES, Tensor, row_major

__all__ = ["Dumped", "fields_of", "measured", "printed"]

_CHUNK: Final = 1 << 20
"""Elements that are converted at once; a multiple of the sketch's blocks."""
_EXACT: Final = 1 << 53


class Measured(NamedTuple):
    """Numbers of a tensor.

    Attributes:
        l1: norm of the finite values; None where there are none, or where the dtype's numbers are unknown.
        stats: the others of `STATISTICS`, by name, of the finite values.
        counts: as in `OpLog.counts`; empty where the numbers are unknown.
        digest: of its bytes.
        sketch: float64[16]; empty where the numbers are unknown.
    """

    l1: float | None
    stats: Mapping[str, float]
    counts: tuple[int, ...]
    digest: int
    sketch: Float64


def measured(tensor: Tensor, parts: int = 1) -> Measured:
    """Measure a tensor; `parts` is 2 for a complex one, whose last dimension has real and imaginary parts."""
    digest = _digest(tensor.bits)
    if tensor.values is None:
        return Measured(None, {}, (), digest, np.zeros(0))
    values = tensor.values.reshape(-1)
    whole = values.dtype.kind in "biu"
    nan = inf = zero = 0
    l1 = squares = total = 0.0
    low, high = np.inf, -np.inf
    sketch = np.zeros(PROJECTIONS)
    for at in range(0, len(values), _CHUNK):
        with nullcontext() if whole else np.errstate(invalid="ignore"):  # of a NaN that signals
            x = values[at : at + _CHUNK].astype(np.float64).reshape(-1, parts)
        zero += len(x) - int(np.count_nonzero(x if parts == 1 else x.any(axis=1)))
        if whole or np.isfinite(x).all():
            low, high = min(low, float(x.min(initial=np.inf))), max(high, float(x.max(initial=-np.inf)))
        else:
            finite = np.asarray(np.isfinite(x).all(axis=1))
            odd = np.asarray(np.isnan(x).any(axis=1))
            nan += int(odd.sum())
            inf += int((~finite & ~odd).sum())
            low = min(low, float(x.min(initial=np.inf, where=finite[:, None])))
            high = max(high, float(x.max(initial=-np.inf, where=finite[:, None])))
            x[~finite] = 0.0
        size = x * x if parts == 1 else (x * x).sum(axis=1)
        squares += float(np.add.reduce(size, axis=None))
        own = float(np.add.reduce(x, axis=None))
        total += own
        magnitudes = x if parts == 1 and low >= 0.0 else np.abs(x) if parts == 1 else np.sqrt(size)
        l1 += own if magnitudes is x else float(np.add.reduce(magnitudes, axis=None))
        sketch += _sketch(x.reshape(-1), at)
    numel = len(values) // parts
    counts = (numel, nan, inf, zero)
    if numel == nan + inf:
        return Measured(None, {}, counts, digest, sketch)
    mean = total / (parts * (numel - nan - inf))
    stats = {"L2 norm": float(np.sqrt(squares)), "Min": low + 0.0, "Max": high + 0.0, "Mean": mean}
    return Measured(l1, stats, counts, digest, sketch)


def _measured_rows(values: NDArray[np.int64]) -> Iterator[Measured]:
    """As `measured` of each row of some numbers, of which float64 has all sums."""
    x, size = values.astype(np.float64), values.shape[1]
    rows = np.zeros((len(x), -(-size // BLOCK), BLOCK))
    rows.reshape(len(x), -1)[:, :size] = x
    columns, projections = _signs(0, rows.shape[1])
    sketches = (((rows * columns) @ _patterns()) * projections).sum(axis=1)
    digests = _mixed(values.astype("<i8").view(np.uint64) + _numbered(1, size)).sum(axis=1, dtype=np.uint64)
    digests += np.uint64(_mixed_size(8 * size))
    zeros = size - np.count_nonzero(values, axis=1)
    totals, norms = x.sum(axis=1).tolist(), np.abs(x).sum(axis=1).tolist()
    stats = np.sqrt((x * x).sum(axis=1)), x.min(axis=1), x.max(axis=1)
    told = zip(*(of.tolist() for of in (zeros, digests, *stats)), sketches, totals, norms, strict=True)
    for zero, digest, l2, low, high, sketch, total, l1 in told:
        named = {"L2 norm": l2, "Min": low + 0.0, "Max": high + 0.0, "Mean": total / size}
        yield Measured(l1, named, (size, 0, 0, zero), digest, sketch)


@dataclass(frozen=True, eq=False)
class Dumped:
    """A tensor as a tool has dumped it.

    Attributes:
        data: its elements in row-major order, little-endian; empty if they were not read.
        dtype: as in `float32`; of another name, only the bits are compared.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of_whole_numbers(cls, values: NDArray[np.int64], shape: tuple[int, ...]) -> list[Dumped]:
        """The tensors of int64 with these elements, one a row, measured together: several times faster than each."""
        made = [cls("int64", shape, row.tobytes()) for row in values.astype("<i8")]
        largest = max(-int(values.min(initial=0)), int(values.max(initial=0)))
        if values.shape[1] and values.shape[1] * largest**2 < _EXACT:  # no sum is rounded, in whatever order
            for one, numbers in zip(made, _measured_rows(values), strict=True):
                vars(one)["measured"] = numbers
        return made

    @cached_property
    def measured(self) -> Measured:
        """Its numbers."""
        if self.dtype not in SIZES:
            return measured(Tensor.of(self.data, self.dtype, [len(self.data)], [1], 0))
        strides = row_major(self.shape)
        return measured(
            Tensor.of(self.data, self.dtype, self.shape, strides, 0), 2 if self.dtype.startswith("complex") else 1
        )


def fields_of(tensors: Sequence[Dumped]) -> dict[str, Any]:
    """The fields of a `Row` that are about its outputs; without their numbers where the data was not read."""
    if not tensors:
        return {}
    first = {"shape": str(list(tensors[0].shape)), "dtype": tensors[0].dtype}
    if not all(tensor.data or 0 in tensor.shape for tensor in tensors):
        return first
    found = [tensor.measured for tensor in tensors]
    texts = {
        f"Output {k}": printed(
            tensor.shape,
            tensor.dtype,
            one.stats if one.l1 is None else {"L1 norm": one.l1, **one.stats},
            digest=f"{one.digest:016x}",
            **({"counts": one.counts, "sketch": _text(one.sketch)} if one.counts else {}),
        )
        for k, (tensor, one) in enumerate(zip(tensors, found, strict=True))
        if k
    }
    return {
        **first,
        "outputs": [math.nan if one.l1 is None else one.l1 for one in found if one.counts],
        "stats": found[0].stats,
        "counts": found[0].counts,
        "digests": [one.digest for one in found],
        "texts": texts | ({"Sketch": _text(found[0].sketch)} if found[0].counts else {}),
    }


def printed(shape: Sequence[int] | None, dtype: str, stats: Mapping[str, float], **more: Any) -> str:
    """The text of an output after the first (docs/log-format.md), from statistics by the names of `STATISTICS`."""
    return json.dumps({"shape": shape, "dtype": dtype} | {_KEYS[name]: value for name, value in stats.items()} | more)


_KEYS: Final = {"L1 norm": "l1", "L2 norm": "l2", "Min": "min", "Max": "max", "Mean": "mean"}


def _text(sketch: Float64) -> str:
    return b64encode(sketch.astype("<f8").tobytes()).decode()


_SHIFTS: Final = [*map(np.uint64, (30, 27, 31))]
_FACTORS: Final = [*map(np.uint64, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))]


def _mixed(z: Hash) -> Hash:
    z = z ^ (z >> _SHIFTS[0])
    z *= _FACTORS[0]
    z ^= z >> _SHIFTS[1]
    z *= _FACTORS[1]
    z ^= z >> _SHIFTS[2]
    return z


@lru_cache(maxsize=2)  # as of _signs
def _numbered(first: int, many: int) -> Hash:
    """(n + 1)·γ of as many numbers n."""
    return (np.arange(first, first + many, dtype=np.uint64) + np.uint64(1)) * np.uint64(GAMMA)


def _digest(bits: NDArray[np.unsignedinteger]) -> int:
    data = np.ascontiguousarray(bits).reshape(-1).view(np.uint8)
    whole = len(data) // 8 * 8
    total = _mixed_size(len(data))
    words = data[:whole].view("<u8")
    for at in range(0, len(words), _CHUNK):
        piece = words[at : at + _CHUNK]
        total += int(_mixed(piece + _numbered(at + 1, len(piece))).sum(dtype=np.uint64))
    if whole < len(data):
        last = np.frombuffer(data[whole:].tobytes().ljust(8, b"\0"), "<u8")
        total += int(_mixed(last + _numbered(len(words) + 1, 1))[0])
    return total & (1 << 64) - 1


@lru_cache(maxsize=1024)
def _mixed_size(size: int) -> int:
    return int(_mixed(np.uint64(size) + _numbered(0, 1))[0])


@cache
def _patterns() -> Float64:
    """float64[128, 16], the signs H·V of each place of a block."""
    k, row = np.arange(PROJECTIONS), np.arange(BLOCK // 8)
    hadamard = 1.0 - 2.0 * (np.array([n.bit_count() & 1 for n in range(16)])[row[:, None] & k])
    columns = 1.0 - 2.0 * ((np.array(COLUMNS)[:, None] >> k) & 1)
    return np.asarray((hadamard[:, None, :] * columns[None, :, :]).reshape(BLOCK, PROJECTIONS))


@lru_cache(maxsize=1)  # most tensors are of one size, or of one block
def _signs(first: int, blocks: int) -> tuple[Float64, Float64]:
    """The signs of the columns, float64[blocks, 128], and of the projections, float64[blocks, 16], of some blocks."""
    word = _mixed(np.uint64(SEED) + _numbered(3 * first, 3 * blocks)).reshape(blocks, 3)
    bits = np.unpackbits(word.astype(">u8").view(np.uint8).reshape(blocks, 3, 8), axis=2)
    # 16 bits for each column, from the highest down
    columns = bits[:, :2].reshape(blocks, 8, 16).transpose(0, 2, 1).reshape(blocks, BLOCK)
    return np.asarray(1.0 - 2.0 * columns), np.asarray(1.0 - 2.0 * bits[:, 2, :PROJECTIONS])


def _sketch(values: Float64, at: int) -> Float64:
    """float64[16], the sums of values from a position on, which begins a block."""
    blocks = -(-len(values) // BLOCK)
    x = values
    if len(values) % BLOCK:
        x = np.zeros(blocks * BLOCK)
        x[: len(values)] = values
    columns, projections = _signs(at // BLOCK, blocks)
    return np.asarray((((x.reshape(blocks, BLOCK) * columns) @ _patterns()) * projections).sum(axis=0))
