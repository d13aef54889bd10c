"""Norms, extremes, counts, digest and sketch of tensors, taken at one moment and read once.

Nothing here waits for a device: what is measured on a GPU stays in a buffer there until `Statistics.results`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from capture.kernels import eager
from capture.kernels.guards import no_functions, unnoticed
from capture.kernels.row import FIELDS, ROW
from capture.sketch import Positions

__all__ = ["Statistics", "Summary", "Unmeasurable"]

_ROWS = 1024
"""Rows of results in one buffer."""

UserHash = Callable[[torch.Tensor], Any]


class Unmeasurable(Exception):
    """A tensor has no values that can be read in place: it is sparse, fake, quantized, freed. Says which."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known about a tensor's values.

    Attributes:
        numel: Number of elements; a complex number is one element.
        nan: Elements that are NaN; complex: with a NaN in either part.
        inf: Elements that are infinite and not NaN; complex: in either part.
        zero: Elements equal to 0, −0.0 included.
        l1: Sum of the magnitudes of the finite elements; None when there are none. Like all sums, in float64.
        l2: Root of the sum of squares, without scaling: inf for float64 elements beyond 1e154.
        min: Smallest finite value; complex: of real and imaginary parts. Never −0.0.
        max: Largest finite value, as `min`.
        mean: Mean of the finite values, as `min`.
        digest: 64 bits that are equal for equal bytes in equal (row-major) order; None when it was not asked for.
        sketch: 16 little-endian float64, see docs/sketch.md; None when it was not asked for.
        user_hash: What the user's function said; None also where it failed.
    """

    numel: int
    nan: int
    inf: int
    zero: int
    l1: float | None
    l2: float | None
    min: float | None
    max: float | None
    mean: float | None
    digest: int | None = None
    sketch: bytes | None = None
    user_hash: float | int | str | None = None


class _Rows:
    """Rows of results in the memory of one device, in buffers that never move."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._blocks: list[torch.Tensor] = []
        self._used = _ROWS

    def take(self) -> int:
        """The number of a new row."""
        if self._used == _ROWS:
            # written row by row before it is read, so what the memory holds now does not matter
            with unnoticed():
                self._blocks.append(torch.empty((_ROWS, FIELDS), dtype=torch.int64, device=self._device))
            self._used = 0
        self._used += 1
        return (len(self._blocks) - 1) * _ROWS + self._used - 1

    def row(self, number: int) -> torch.Tensor:
        return self._blocks[number // _ROWS][number % _ROWS]

    def read(self) -> list[bytes]:
        """Copies all rows to the host, which waits for the device."""
        rows: list[bytes] = []
        for block in self._blocks:
            host = block.cpu()
            rows.append(ctypes.string_at(host.data_ptr(), host.numel() * 8))
        data = b"".join(rows)
        return [data[at : at + ROW.size] for at in range(0, len(data), ROW.size)]


class Statistics:
    """Collects the statistics of tensors over a step.

    `measure` may be called from several threads and inside dispatch modes; it neither records autograd, nor draws
    random numbers, nor keeps the tensor.

    Args:
        sketch: Whether to take sketches.
        digest: Whether to take digests.
        user_hash: A function of a tensor whose result (a number, text or a tensor of one element) goes with the rest.
    """

    def __init__(self, *, sketch: bool = True, digest: bool = True, user_hash: UserHash | None = None) -> None:
        self._sketch = sketch
        self._digest = digest
        self._user_hash = user_hash
        self._lock = threading.Lock()
        self._rows: dict[object, _Rows] = {}
        self._slots: list[tuple[object, int, int]] = []
        self._user: dict[int, Any] = {}
        self.kernel_name = "torch"

    def measure(self, tensor: torch.Tensor, positions: Positions | None = None) -> int:
        """Reads a tensor now, in stream order on a GPU, and returns the slot of its summary in `results`.

        Args:
            tensor: Of any strides and of any type that has numbers.
            positions: Where its elements stand in the global tensor, for the sketch; None: it is the global tensor.

        Raises:
            Unmeasurable: It has no values that can be read in place.
        """
        with self._lock:
            with no_functions():
                device = tensor.device
                rows = self._rows.get(device)
                if rows is None:
                    rows = self._rows[device] = _Rows(device)
            number = rows.take()
            with unnoticed():
                eager.measure(tensor, rows.row(number), positions, digest=self._digest, sketch=self._sketch)
            slot = len(self._slots)
            self._slots.append((device, number, tensor.numel()))
        return slot

    def results(self) -> list[Summary]:
        """The summaries of everything measured so far, by slot; waits for the devices."""
        with unnoticed():
            rows = {key: rows.read() for key, rows in self._rows.items()}
        return [self._summary(slot, rows[key][number], numel) for slot, (key, number, numel) in enumerate(self._slots)]

    def _summary(self, slot: int, row: bytes, numel: int) -> Summary:
        nan, inf, zero, digest, l1, l2, low, high, mean, sketch = ROW.unpack(row)
        values = (l1, l2, low, high, mean) if numel > nan + inf else (None,) * 5
        return Summary(
            numel,
            nan,
            inf,
            zero,
            *values,
            digest=digest if self._digest else None,
            sketch=sketch if self._sketch else None,
            user_hash=self._user.get(slot),
        )
