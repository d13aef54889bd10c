"""The sketch: sixteen signed sums that estimate the distance of two tensors without the tensors.

s_k = Σ_i σ_k(i)·x_i with fixed signs σ_k(i) = ±1 of the element's position i in the flat, row-major *global* tensor.
For two tensors a and b, the mean of (s_k(a) − s_k(b))² over k estimates ‖a − b‖₂². The sums are linear, so those of
disjoint shards, or of the terms of a partial sum, add up to those of the whole.

docs/sketch.md specifies the signs for other readers and writers. The Python kernels take their constants from here,
and a test checks those in C against them.

The signs. Positions come in blocks of 128, seen as 16 rows of 8 columns: i = 128·b + 8·r + c, and

    σ_k(i) = H[k, r] · V[k, c] · d(i) · U_k(b)

H[k, r] = (−1)^popcount(k & r) is the Hadamard matrix, V a constant table, d(i) one random sign per element and U_k(b)
sixteen random signs per block. The random signs make the estimate unbiased for every input. H and V serve speed (a
fast Hadamard transform takes 4 additions per element, 16 independent signs take 16) and precision: the 8 columns of V
are those of a Kerdock set, so the sixteen products σ_k(i)·σ_k(j) of two elements of one block sum to 0 (same column)
or ±4 (other columns), where independent signs would give ±4 on average.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

__all__ = ["BLOCK", "COLUMNS", "GAMMA", "PROJECTIONS", "SEED", "Positions", "mixed", "word"]

PROJECTIONS = 16
"""Number of sums in a sketch; with 16, the squared distance has a relative standard deviation of √(2/16)."""
BLOCK = 128
"""Positions that share the signs U."""
COLUMNS = (0x0000, 0x6AC0, 0xC6A0, 0x24E8, 0x7228, 0xB848, 0x1E88, 0x5C60)
"""V: bit k of the c-th number is set where V[k, c] = −1."""
SEED = 0x6E756D7475690A02
GAMMA = 0x9E3779B97F4A7C15
"""The increment of the generator splitmix64."""

_MASK = (1 << 64) - 1


def mixed(z: int) -> int:
    """Apply the output function of splitmix64: a bijection of 64-bit numbers; every bit depends on every input bit."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
    return z ^ (z >> 31)


def word(n: int) -> int:
    """Return the n-th output (from 0) of splitmix64 with `SEED`.

    Block b takes its signs from the words 3b, 3b + 1, 3b + 2: the first two contain d, 16 bits per column from the
    highest bit down, the third U_k in bit 63 − k; 1 is −1.
    """
    return mixed(SEED + (n + 1) * GAMMA & _MASK)


Runs = tuple[range, ...]
"""Indices along one dimension, in order: ranges of step 1."""


@dataclass(frozen=True)
class Positions:
    """Positions of a shard's elements in the global tensor: its global indices along each dimension.

    Attributes:
        shape: Of the global tensor.
        axes: For each dimension, the indices of the shard in the order of its elements.
        flat: The shard's elements are at these positions in row-major order, whatever its shape.
    """

    shape: tuple[int, ...]
    axes: tuple[Runs, ...]
    flat: bool = False

    @classmethod
    def of_indices(cls, shape: Sequence[int], axes: Sequence[Sequence[int]]) -> Positions:
        """Make positions from a plain sequence of indices per dimension."""
        return cls(tuple(shape), tuple(_runs(axis) for axis in axes))

    @cached_property
    def local_shape(self) -> tuple[int, ...]:
        return tuple(sum(map(len, runs)) for runs in self.axes)

    def fit(self, shape: tuple[int, ...]) -> bool:
        """Return True if they are the positions of a shard of this shape."""
        return prod(shape) == len(self) if self.flat else self.local_shape == shape

    @cached_property
    def whole(self) -> bool:
        """True if the shard is the whole global tensor, so that positions are local element numbers."""
        return all(_covers(runs, size) for size, runs in zip(self.shape, self.axes, strict=True))

    @cached_property
    def inner(self) -> Runs:
        """Flat positions of the innermost dimensions together; `outer` repeats them at other offsets."""
        return self._folded[0]

    @cached_property
    def outer(self) -> tuple[tuple[int, Runs], ...]:
        """(stride in the global tensor, indices) of the dimensions outside `inner`, innermost first."""
        return self._folded[1]

    @cached_property
    def packed(self) -> array[int]:
        """Pack `inner` and `outer` as 64-bit integers for the C kernel.

        The number of outer dimensions; for `inner` and then each outer dimension its stride (1 for `inner`), its
        number of elements, its number of runs, and start and length of each run.
        """
        numbers = array("q", [len(self.outer)])
        for stride, runs in ((1, self.inner), *self.outer):
            numbers.extend((stride, sum(map(len, runs)), len(runs)))
            for run in runs:
                numbers.extend((run.start, len(run)))
        return numbers

    @cached_property
    def _folded(self) -> tuple[Runs, tuple[tuple[int, Runs], ...]]:
        inner: Runs = (range(1),)
        outer: list[tuple[int, Runs]] = []
        stride = 1
        for size, runs in zip(reversed(self.shape), reversed(self.axes), strict=True):
            # what is complete so far is a run of `stride` positions, and an index of this dimension such a run
            if not outer and _covers(inner, stride):
                inner = tuple(range(run.start * stride, run.stop * stride) for run in runs)
            else:
                outer.append((stride, runs))
            stride *= size
        return inner, tuple(outer)

    def __len__(self) -> int:
        return prod(self.local_shape)


def _covers(runs: Runs, size: int) -> bool:
    return runs == (range(size),)


def _runs(indices: Sequence[int]) -> Runs:
    runs: list[range] = []
    for index in indices:
        if runs and runs[-1].stop == index:
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
    return tuple(runs)
