"""Scalars in event files of TensorBoard: records of TFRecord, in each the few fields of a protocol buffer."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

__all__ = ["events", "is_events"]

_HEAD: Final = 12
_LARGEST: Final = 256 << 20
"""Bytes of a record."""
_FLOAT, _DOUBLE = 1, 2
"""Dtypes of a tensor in an event."""


def is_events(path: str) -> bool:
    """Return True if a file begins with a record whose length has the right checksum.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    return len(head) == _HEAD and _checked(head)


def _checked(head: bytes) -> bool:
    return _masked(head[:8]) == int.from_bytes(head[8:], "little")


def _masked(data: bytes) -> int:
    """The checksum of TFRecord: CRC-32C, rotated and moved."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def events(path: str, problems: list[str]) -> Iterator[tuple[str, int, float]]:
    """Yield (tag, step, value) of the scalars of a file; what is damaged, or cut off, ends it and is noted.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        number = 0
        while head := file.read(_HEAD):
            number += 1
            size = int.from_bytes(head[:8], "little")
            if len(head) < _HEAD or not _checked(head) or size > _LARGEST:
                problems.append(f"{path}:{number}: a damaged record: the rest is left out")
                return
            data = file.read(size)
            if len(data) < size or len(file.read(4)) < 4:
                problems.append(f"{path}:{number}: the last record is cut off and left out")
                return
            try:
                yield from _scalars(data)
            except (ValueError, IndexError, struct.error, UnicodeDecodeError):
                problems.append(f"{path}:{number}: a record that is no event is left out")


def _scalars(data: bytes) -> list[tuple[str, int, float]]:
    step = 0
    found: list[tuple[str, float]] = []
    for key, value in _fields(data):
        if key == 2 and isinstance(value, int):
            step = value
        elif key == 5 and isinstance(value, bytes):
            found += [of for inner, one in _fields(value) if inner == 1 and (of := _value(one)) is not None]
    return [(tag, step, number) for tag, number in found]


def _value(data: int | bytes) -> tuple[str, float] | None:
    if not isinstance(data, bytes):
        return None
    tag, number = "", None
    for key, value in _fields(data):
        if key == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8")
        elif key == 2 and isinstance(value, bytes):
            (number,) = struct.unpack("<f", value)
        elif key == 8 and isinstance(value, bytes):
            number = _of_tensor(value)
    return None if number is None else (tag, number)


def _of_tensor(data: bytes) -> float | None:
    """The number of a tensor of one float: as its content, or in the list of its type."""
    dtype = next((value for key, value in _fields(data) if key == 1), 0)
    form = {_FLOAT: "<f", _DOUBLE: "<d"}.get(dtype) if isinstance(dtype, int) else None
    for key, value in _fields(data):
        if form and key in (4, 4 + int(dtype)) and isinstance(value, bytes) and len(value) == struct.calcsize(form):
            return float(struct.unpack(form, value)[0])
    return None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: their numbers, and an integer, or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("a field of an unknown kind")
        if at + size > len(data):
            raise ValueError("a field beyond its message")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number that is too long")
