"""Statistics of a tensor in host memory in compiled C: `statistics.c` and its arguments."""

from __future__ import annotations

import ctypes
import os
import struct
from array import array
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ..sketch import Positions
from .guards import storage_address, unnoticed

__all__ = ["DIGEST", "SKETCH", "SOURCE", "Native"]

SOURCE = Path(__file__).with_name("statistics.c")

DIGEST, SKETCH, _CONJUGATE, _NEGATE, _COMPLEX = 1, 2, 4, 8, 16
_BY_TABLE = 0
_KINDS = {
    torch.float16: 1,
    torch.bfloat16: 2,
    torch.float32: 3,
    torch.float64: 4,
    torch.int16: 5,
    torch.int32: 6,
    torch.int64: 7,
    torch.uint16: 8,
    torch.uint32: 9,
    torch.uint64: 10,
}
_PARTS = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
_BYTES = (
    "bool",
    "int8",
    "uint8",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)
"""8-bit types by name: not every version of torch has all of them."""

_WORTH_THREADS = (1 << 15) + 1
"""Number of elements from which there are several segments, which threads share."""
_MAX_THREADS = 8
"""Of those started besides a training on one thread."""


class Native:
    """The compiled kernel. Not thread-safe: it has one set of arguments."""

    def __init__(self, library: ctypes.CDLL) -> None:
        function = library.measure
        function.argtypes = (ctypes.c_void_p,)
        function.restype = ctypes.c_int
        self._function = function
        self._arguments = ctypes.create_string_buffer(88)
        self._address = ctypes.c_void_p(ctypes.addressof(self._arguments))
        self._pack = struct.Struct("=11q").pack_into
        self._team = _team()
        self._spare = _spare_cores()
        self._types = {dtype: (kind, flags, table[1]) for dtype, (kind, flags, table) in _types().items()}

    def measure(self, tensor: torch.Tensor, row: int, positions: Positions | None, take: int) -> bool:
        """Fill the row at an address; return False for an unknown type or without memory.

        Args:
            tensor: In host memory, with its storage allocated.
            row: Address of a row.
            positions: Of its elements in the global tensor; None: it is the global tensor.
            take: `DIGEST`, `SKETCH`, both or 0.
        """
        known = self._types.get(tensor.dtype)
        if known is None:
            return False
        kind, flags, table = known
        dims = 0
        layout: Any = None
        if not tensor.is_contiguous():
            dims = tensor.dim()
            layout = array("q", (*tensor.shape, *tensor.stride()))
        if tensor.is_neg():
            flags |= _NEGATE
        if flags & _COMPLEX and tensor.is_conj():
            flags |= _CONJUGATE
        numel = tensor.numel()
        threads = torch.get_num_threads() if numel >= _WORTH_THREADS else 1
        self._pack(
            self._arguments,
            0,
            storage_address(tensor) + tensor.storage_offset() * tensor.element_size(),
            row,
            numel,
            kind,
            flags | take,
            table,
            0 if positions is None else positions.packed.buffer_info()[0],
            dims,
            layout.buffer_info()[0] if dims else 0,
            threads if threads > 1 else self._spare,
            self._team if threads > 1 else 0,
        )
        return self._function(self._address) == 0


@cache
def _types() -> dict[torch.dtype, tuple[int, int, tuple[Any, int]]]:
    """Return dtype → kind, flags, and for an 8-bit type the tensor of its 256 values with its address."""
    found: dict[torch.dtype, tuple[int, int, tuple[Any, int]]] = {}
    for dtype, kind in _KINDS.items():
        found[dtype] = (kind, 0, (None, 0))
    for dtype, part in _PARTS.items():
        found[dtype] = (_KINDS[part], _COMPLEX, (None, 0))
    with unnoticed():
        for dtype in (getattr(torch, name) for name in _BYTES if hasattr(torch, name)):
            values = torch.arange(256, dtype=torch.uint8, device="cpu").view(dtype).to(torch.float64)
            found[dtype] = (_BY_TABLE, 0, (values, values.data_ptr()))
    return found


@cache
def _team() -> int:
    """Return the address of the function that runs another in torch's own threads, 0 where there is none.

    Threads started beside them would wait for a core: OpenMP's are busy for a while after their work, waiting for more.
    """
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value or 0
    except (AttributeError, OSError):
        return 0


def _spare_cores() -> int:
    """Return the number of threads where torch has one: this rank's part of the cores."""
    try:
        cores, ranks = len(os.sched_getaffinity(0)), int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    except (AttributeError, ValueError):
        return 1
    return min(max(cores // max(ranks, 1), 1), _MAX_THREADS)
