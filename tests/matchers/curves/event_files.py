"""Event files of TensorBoard, as it writes them."""

from __future__ import annotations

import struct

from matchers.curves.tensorboard import _masked

__all__ = ["event_file"]


def _field(key: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _varint(key << 3) + _varint(value)
    return _varint(key << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def _record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", _masked(head)) + data + struct.pack("<I", _masked(data))


def event_file(scalars: list[tuple[str, int, float]], *, as_tensors: bool = False) -> bytes:
    """The bytes of a file with these scalars: tag, step, value."""
    records = [_record(struct.pack("<Bd", 9, 1.7e9) + _field(3, b"brain.Event:2"))]
    for tag, step, value in scalars:
        tensor = _field(8, _field(1, 1) + _field(2, b"") + _field(4, struct.pack("<f", value)))
        number = tensor if as_tensors else b"\x15" + struct.pack("<f", value)
        summary = _field(1, _field(1, tag.encode()) + number)
        records.append(_record(struct.pack("<Bd", 9, 1.7e9) + _field(2, step) + _field(5, summary)))
    return b"".join(records)
