"""Tensors in files of checkpoints, read one at a time when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from matchers.errors import LogError
from matchers.tensor import SIZES, Tensor, row_major

__all__ = ["Divided", "InFile", "Stored"]


class Stored(Protocol):
    """A tensor that somebody has stored.

    Attributes:
        dtype: as in `float32`; of another name, only the bits are compared.
        shape: of its elements.
    """

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def bits(self) -> NDArray[Any]:
        """Read it: unsigned integers in row-major order; a complex one has a last dimension of two more.

        Raises:
            LogError: the file cannot be read, or ends before.
        """


@dataclass(frozen=True, slots=True)
class InFile:
    """A tensor in a file: where its storage begins and its size in bytes; strides, offset in elements.

    Without strides it fills its storage in row-major order.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    at: int
    size: int
    strides: tuple[int, ...] | None = None
    offset: int = 0

    def bits(self) -> NDArray[Any]:
        """Read it, as of `Stored`."""
        item = SIZES.get(self.dtype, 1)
        strides = row_major(self.shape) if self.strides is None else list(self.strides)
        # of a dtype that is not known here, the bytes as they lie
        shape = self.shape if self.dtype in SIZES else (self.size,)
        strides = strides if self.dtype in SIZES else [1]
        reach = 0 if 0 in shape else 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        if (self.offset + reach) * item > self.size:
            raise LogError(f"{self.path}:1: a tensor is larger than its storage")
        # what is read is what is needed: a storage may be shared by all tensors of a file
        data = read_bytes(self.path, self.at + self.offset * item, reach * item)
        return Tensor.of(data, self.dtype, shape, strides, 0).bits


@dataclass(frozen=True, slots=True)
class Divided:
    """A tensor in several pieces, each with the offsets of its first element and a function that reads it."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Sequence[tuple[tuple[int, ...], tuple[int, ...], Callable[[], NDArray[Any]]]]

    def bits(self) -> NDArray[Any]:
        """Read and join the pieces, as of `Stored`."""
        if sum(math.prod(sizes) for _, sizes, _ in self.pieces) != math.prod(self.shape):
            raise LogError(f"{self.path}:1: the pieces of a tensor do not make the whole")
        whole: NDArray[Any] | None = None
        for offsets, sizes, read in self.pieces:
            piece = read()
            if whole is None:
                whole = np.zeros((*self.shape, *piece.shape[len(sizes) :]), piece.dtype)
            whole[tuple(slice(at, at + n) for at, n in zip(offsets, sizes, strict=True))] = piece
        return np.zeros(self.shape, np.uint8) if whole is None else whole


def read_bytes(path: str, at: int, size: int) -> bytes:
    """Read a part of a file.

    Raises:
        LogError: it cannot be read, or ends before.
    """
    try:
        with open(path, "rb") as file:
            file.seek(at)
            data = file.read(size)
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) < size:
        raise LogError(f"{path}:1: the file ends within a tensor")
    return data
