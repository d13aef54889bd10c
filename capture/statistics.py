"""Norms, extremes, counts, digest and sketch of tensors, taken in one pass and read once.

Measuring never waits for a device: values from a GPU stay in a buffer there until `Statistics.results`.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from .guard import pass_on
from .kernels import eager
from .kernels.guards import has_own_dispatch, no_functions, storage_address, unnoticed
from .kernels.native import DIGEST, SKETCH, SOURCE, Native
from .kernels.row import DIGEST_AT, FIELDS, ROW
from .messages import describe, warn
from .native_library import attempt
from .sketch import Positions

__all__ = ["Statistics", "Summary", "Unmeasurable", "check_readable"]

_ROWS = 1024
"""Rows of results in one buffer."""

UserHash = Callable[[torch.Tensor], Any]


class Unmeasurable(Exception):
    """Raised for a tensor without values to read in place (sparse, fake, quantized, freed), with the reason."""


class Summary(NamedTuple):
    """Statistics of a tensor's values.

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
        digest: 64 bits, equal for equal bytes in equal (row-major) order; None if not requested.
        sketch: 16 little-endian float64, see docs/sketch.md; None if not requested.
        user_hash: Result of the user's function; None also where it failed.
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
        self._left = 0
        self._next = 0
        self.count = 0

    def take(self) -> int:
        """Return the address of the next row."""
        if self._left == 0:
            # every row is written before it is read, so uninitialised memory is fine
            with unnoticed():
                block = torch.empty((_ROWS, FIELDS), dtype=torch.int64, device=self._device)
            self._blocks.append(block)
            self._next = block.data_ptr()
            self._left = _ROWS
        self._left -= 1
        self.count += 1
        address = self._next
        self._next += ROW.size
        return address

    def last(self) -> torch.Tensor:
        """The last row taken."""
        return self._blocks[-1][_ROWS - self._left - 1]

    def digest(self, number: int) -> int:
        """Return the digest of a row in the memory of the host."""
        address = self._blocks[number // _ROWS].data_ptr() + number % _ROWS * ROW.size
        return ctypes.c_uint64.from_address(address + DIGEST_AT).value

    def read(self) -> list[tuple[Any, ...]]:
        """Return the fields of all rows, which waits for the device."""
        hosts = [block.cpu() for block in self._blocks]
        data = b"".join(ctypes.string_at(host.data_ptr(), _ROWS * ROW.size) for host in hosts)
        return list(ROW.iter_unpack(data[: self.count * ROW.size]))


class Statistics:
    """Collect the statistics of tensors over a step.

    `measure` may be called from several threads and inside dispatch modes; it neither records autograd, nor draws
    random numbers, nor keeps the tensor.

    Args:
        sketch: Take sketches.
        digest: Take digests.
        user_hash: A function of a tensor whose result (a number, text or a tensor of one element) is added.

    Attributes:
        notes: Sentences on slower fallbacks in use, with the reason.
    """

    def __init__(self, *, sketch: bool = True, digest: bool = True, user_hash: UserHash | None = None) -> None:
        self._take = (DIGEST if digest else 0) | (SKETCH if sketch else 0)
        self._user_hash = user_hash
        self._user_hash_failed = False
        self._user: dict[int, Any] = {}
        self._lock = threading.RLock()  # a handler of a signal writes the log in the middle of anything
        self._host = _Rows(torch.device("cpu"))
        self._devices: dict[tuple[torch.device, int], _Rows] = {}
        self._slots: list[tuple[_Rows, int, int, int]] = []
        """(where its row is, the number of the row, elements, what the row has)"""
        self._first = 0
        self._unreachable = False
        self._kept: dict[int, Summary] = {}
        self._places: dict[int, int] = {}
        """Slots of the values of sparse tensors, and of the indices that belong to them."""
        library, problem = attempt(SOURCE)
        self._native = None if library is None else Native(library)
        self._triton = _triton_kernel()
        self.notes: tuple[str, ...] = (f"statistics take longer: {problem}",) if problem else ()

    @property
    def kernel_name(self) -> str:
        """Name of the kernel in use, "c" or "torch"; with a GPU also the one there: "c, triton"."""
        host = "torch" if self._native is None else "c"
        if not torch.cuda.is_available():
            return host
        return f"{host}, {'torch' if self._triton is None else 'triton'}"

    def measure(
        self,
        tensor: torch.Tensor,
        positions: Positions | None = None,
        *,
        sketch: bool = True,
        user_hash: bool = True,
    ) -> int:
        """Measure a tensor now, in stream order on a GPU, and return the slot of its summary in `results`.

        Args:
            tensor: Of any strides and any numeric type. Of a sparse one in coordinates the stored values are measured,
                without a sketch; its digest is of them and of their indices.
            positions: Of its elements in the global tensor, for the sketch; None: it is the global tensor. Positions
                that do not fit its shape give no sketch.
            sketch: False to take none of this tensor.
            user_hash: False to leave out the user's function.

        Raises:
            Unmeasurable: It has no values to read in place.
        """
        if tensor.layout is torch.sparse_coo and not has_own_dispatch(tensor):
            return self._sparse(tensor, user_hash=user_hash)
        with self._lock, no_functions():
            check_readable(tensor)
            take = self._take if sketch else self._take & ~SKETCH
            if positions is not None:
                if not positions.fit(tensor.shape):
                    # signs at wrong positions would make a sketch that agrees with none
                    take &= ~SKETCH
                if positions.whole or not take & SKETCH:
                    positions = None
            slot = self._first + len(self._slots)
            if tensor.is_cpu:
                rows = self._host
                address = rows.take()
                if self._native is None or not self._native.measure(tensor, address, positions, take):
                    self._with_torch(tensor, rows, positions, take)
            else:
                if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
                    # a measurement would be recorded, too, and run in each replay
                    raise Unmeasurable("a CUDA graph records the operations, and nothing is computed yet")
                rows = self._rows(tensor.device)
                rows.take()
                self._with_torch(tensor, rows, positions, take)
            self._slots.append((rows, rows.count - 1, tensor.numel(), take))
        if user_hash and self._user_hash is not None:
            self._hash(tensor, slot)
        return slot

    def _sparse(self, tensor: torch.Tensor, *, user_hash: bool) -> int:
        with unnoticed():
            values, indices = tensor._values(), tensor._indices()
        with self._lock:
            slot = self.measure(values, sketch=False, user_hash=user_hash)
            self._places[slot] = self.measure(indices, sketch=False, user_hash=False)
        return slot

    def digest(self, slot: int) -> int | None:
        """Return the digest of a slot while the step runs; None without one.

        Raises:
            Unmeasurable: a device computes it, which would have to be waited for.
        """
        with self._lock:
            if slot < self._first:
                return self._kept[slot].digest
            rows, number, _, take = self._slots[slot - self._first]
            if rows is not self._host:
                raise Unmeasurable("its digest is on a device")
            digest = rows.digest(number) if take & DIGEST else None
            return _placed(digest, self.digest(self._places[slot])) if slot in self._places else digest

    def restart(self, keep: Iterable[int]) -> None:
        """Forget all slots but some; no number is used again. Waits for the devices."""
        results = self.results()
        self._kept = {slot: results[slot] for slot in keep}
        self._first += len(self._slots)
        self._slots, self._user, self._places = [], {}, {}
        self._host, self._devices = _Rows(torch.device("cpu")), {}

    def wait(self, seconds: float) -> bool:
        """Wait at most so long for the devices; False if one does not end its work, as in a collective that never ends.

        What lies there is then missing in `results`, which does not wait for it any more.
        """
        self._unreachable = bool(self._devices)
        if self._unreachable:
            waiting = threading.Thread(target=self._answer, daemon=True)
            waiting.start()
            waiting.join(seconds)
        return not self._unreachable

    def _answer(self) -> None:
        with suppress(RuntimeError):  # of a device that has failed
            self._synchronize()
            self._unreachable = False

    def _synchronize(self) -> None:
        for device in {device for device, _ in self._devices}:
            # its streams are not ordered among each other
            torch.accelerator.synchronize(device)

    def results(self) -> dict[int, Summary]:
        """Return all summaries so far, by slot; waits for the devices."""
        # a thread that hands a stuck device more work than it takes waits in `measure`, with the lock
        with nullcontext() if self._unreachable else self._lock, unnoticed():
            if not self._unreachable:
                self._synchronize()
            slots = tuple(self._slots)
            devices = () if self._unreachable else self._devices.values()
            read = {rows: rows.read() for rows in (self._host, *devices)}
            found = {
                slot: self._summary(slot, read[rows][number], numel, take)
                for slot, (rows, number, numel, take) in enumerate(slots, self._first)
                if rows in read
            }
            for slot, indices in tuple(self._places.items()):
                if slot in found and indices in found:
                    found[slot] = found[slot]._replace(digest=_placed(found[slot].digest, found[indices].digest))
            return self._kept | found

    def _rows(self, device: torch.device) -> _Rows:
        """Return the buffer of the current stream: another stream must not write to its memory yet."""
        stream = torch.accelerator.current_stream(device).stream_id
        rows = self._devices.get((device, stream))
        if rows is None:
            rows = self._devices[device, stream] = _Rows(device)
        return rows

    def _with_torch(self, tensor: torch.Tensor, rows: _Rows, positions: Positions | None, take: int) -> None:
        triton = tensor.is_cuda and self._triton is not None and self._triton.knows(tensor, positions)
        measure = self._triton.measure if triton else eager.measure
        try:
            with unnoticed():
                measure(tensor, rows.last(), positions, digest=bool(take & DIGEST), sketch=bool(take & SKETCH))
        except (RuntimeError, TypeError) as error:
            # a type that torch cannot convert, a device without float64, no memory left
            raise Unmeasurable(str(error).partition("\n")[0]) from error

    def _hash(self, tensor: torch.Tensor, slot: int) -> None:
        assert self._user_hash is not None
        try:
            with unnoticed(), _generators_kept(tensor.device):
                # a copy: what the function writes to is not the training's
                value = self._user_hash(tensor.detach().clone())
                # a result on a device is read later, together with all others
                self._user[slot] = value.detach().clone() if isinstance(value, torch.Tensor) else _plain(value)
        except (Exception, SystemExit) as error:  # noqa: BLE001  user code; the training continues
            self._hash_failed(error)

    def _hash_failed(self, error: BaseException) -> None:
        pass_on(error)
        if not self._user_hash_failed:
            self._user_hash_failed = True
            warn(f"the user's hash failed and is left out: {describe(error)}")

    def _user_value(self, slot: int) -> float | int | str | None:
        value = self._user.get(slot)
        if not isinstance(value, torch.Tensor):
            return value
        if self._unreachable and not value.is_cpu:
            return None
        try:
            return _plain(value.item() if value.numel() == 1 else value.tolist())
        except Exception as error:  # noqa: BLE001  a result that has no values; the training continues
            self._hash_failed(error)
            return None

    def _summary(self, slot: int, row: tuple[Any, ...], numel: int, take: int) -> Summary:
        nan, inf, zero, digest, l1, l2, low, high, mean, sketch = row
        if numel == nan + inf:
            l1 = l2 = low = high = mean = None
        return Summary(
            numel,
            nan,
            inf,
            zero,
            l1,
            l2,
            low,
            high,
            mean,
            digest if take & DIGEST else None,
            sketch if take & SKETCH else None,
            self._user_value(slot) if self._user else None,
        )


def _placed(values: int | None, indices: int | None) -> int | None:
    """Return one digest of two, unlike for other values and for other indices."""
    if values is None or indices is None:
        return None
    return int.from_bytes(hashlib.blake2b(struct.pack("=QQ", values, indices), digest_size=8).digest(), "little")


def _plain(value: Any) -> float | int | str | None:
    """Return the result of a user's function in a type of Python's own, such as JSON has."""
    if value is None:
        return None
    if isinstance(value, float):
        return float(value)
    text = str(value)  # an integer of too many digits has none
    return int(value) if isinstance(value, int) else text


@contextmanager
def _generators_kept(device: torch.device) -> Iterator[None]:
    """Leave torch's random generators as they were: a user's function may seed them, or draw from them."""
    on_device = device.type not in {"cpu", "meta"}
    with torch.random.fork_rng([device] if on_device else [], device_type=device.type if on_device else "cuda"):
        yield


def check_readable(tensor: torch.Tensor) -> None:
    """Raise `Unmeasurable` unless all elements can be read."""
    if has_own_dispatch(tensor):
        raise Unmeasurable(f"only {type(tensor).__name__} itself knows its values")
    if tensor.layout is not torch.strided:
        raise Unmeasurable(f"its layout is {tensor.layout}")
    if tensor.is_nested or tensor.is_quantized or tensor.is_meta:
        raise Unmeasurable(
            "it is " + ("nested" if tensor.is_nested else "quantized" if tensor.is_quantized else "meta")
        )
    if tensor.numel() == 0:
        return
    try:
        if storage_address(tensor) == 0:
            raise Unmeasurable("it has no storage")
        available = tensor.untyped_storage().nbytes()
    except RuntimeError as error:
        # a tensor of a function transform, or of a device without storages
        raise Unmeasurable(str(error).partition("\n")[0]) from error
    if tensor.is_contiguous():
        reach = tensor.numel()
    else:
        reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    # sharded parameters free the storage and keep the tensor
    if (tensor.storage_offset() + reach) * tensor.element_size() > available:
        raise Unmeasurable("its storage was freed")


@cache
def _triton_kernel() -> Any:
    """Return the kernel for CUDA devices; None without them, or without triton."""
    if not torch.cuda.is_available() or find_spec("triton") is None:
        return None
    return import_module(".kernels.triton_statistics", __package__)
