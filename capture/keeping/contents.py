"""Contents of storages: the bytes of each once, named by their digest, together within a limit."""

from __future__ import annotations

import ctypes
import hashlib
import weakref
from typing import Any

import torch

from ..kernels.guards import storage_address, unnoticed

__all__ = ["Content", "Contents", "TooMuch", "bytes_of", "shown_size"]


class TooMuch(Exception):
    """Raised for what does not fit into the limit, with the sentence for the user."""


class Content:
    """The bytes of a storage at one time; `digest` is their SHA-256 in hexadecimal."""

    __slots__ = ("__weakref__", "data", "digest")

    def __init__(self, digest: str, data: bytes) -> None:
        self.digest, self.data = digest, data


class Contents:
    """All contents that something still holds.

    Args:
        limit: bytes of all of them together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._known: weakref.WeakValueDictionary[str, Content] = weakref.WeakValueDictionary()

    def of(self, tensor: torch.Tensor) -> Content:
        """Copy the storage of a tensor, unless the same bytes are held already; on a GPU it waits for the stream.

        Raises:
            TooMuch: the limit is reached.
        """
        with unnoticed():
            if not tensor.is_cpu:
                storage: Any = tensor.untyped_storage()
                host: Any = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage).cpu()
                tensor = torch.empty(0, dtype=torch.uint8).set_(host.untyped_storage())
            return self.of_bytes(_memory(tensor))

    def of_bytes(self, data: Any) -> Content:
        """Do the same for a buffer of bytes."""
        digest, size = hashlib.sha256(data).hexdigest(), len(data)
        known = self._known.get(digest)
        if known is None:
            if self._held + size > self._limit:
                raise TooMuch(f"{shown_size(size)} more than fit into the limit of {shown_size(self._limit)}")
            known = self._known[digest] = Content(digest, bytes(data))
            self._held += size
            weakref.finalize(known, self._forget, size).atexit = False
        return known

    def _forget(self, size: int) -> None:
        self._held -= size


def _memory(tensor: torch.Tensor) -> Any:
    """Return the storage of a tensor of the host as a buffer."""
    size = tensor.untyped_storage().nbytes()
    return (ctypes.c_char * size).from_address(storage_address(tensor)) if size else b""


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Copy the storage of a tensor of the host."""
    return bytes(_memory(tensor))


def shown_size(size: int) -> str:
    """Return a number of bytes as text, `1.5 MiB`."""
    power = min(max(size.bit_length() - 1, 0) // 10, 4)
    return f"{size / 1024**power:.1f} {'KMGT'[power - 1]}iB" if power else f"{size} bytes"
