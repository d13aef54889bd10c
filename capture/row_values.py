"""Statistics of the rows of chosen results (`--rows`): what another batch or a decode step has of them can be found."""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch

from .globs import inside
from .statistics import Statistics, Summary, Unmeasurable
from .subclasses import local_tensors

__all__ = ["MeasuredRows", "chosen", "measure_rows", "rows_json"]

_MOST = 1 << 14
"""Rows of one result; of one that has more, none are measured."""


class MeasuredRows(NamedTuple):
    """The rows of a tensor: the sizes of the dimensions that number them, and the slots of their statistics."""

    of: tuple[int, ...]
    slots: tuple[int, ...]


def chosen(module: str, name: str, globs: Sequence[str]) -> bool:
    """Return True if the rows of an operation's results are wanted: by its module, or as `module/name`."""
    return inside(module, globs) or any(fnmatchcase(f"{module}/{name}", glob) for glob in globs)


def measure_rows(
    tensor: torch.Tensor, statistics: Statistics, tokens: Sequence[tuple[int, ...]] = ()
) -> MeasuredRows | None:
    """Measure the rows of a tensor: all dimensions but the last number them.

    A result with one number for each token, or for each that has a predecessor, has rows of one number.

    Args:
        tokens: shapes (batch, tokens) of the integers that the model was given.

    Returns:
        None for a tensor of less than two dimensions, of too many rows, or without values in this process.
    """
    if tensor.dim() < 2 or not tensor.numel() or local_tensors(tensor) is not None:
        return None
    shape = tuple(tensor.shape)
    single = any(shape in (each, (each[0], each[1] - 1)) for each in tokens)
    of = shape if single else shape[:-1]
    rows = tensor.detach().reshape(-1, 1 if single else shape[-1])
    if len(rows) > _MOST:
        return None
    try:
        sketch = rows.shape[1] > 1  # of a single number, it says nothing more
        return MeasuredRows(of, tuple(statistics.measure(row, sketch=sketch, user_hash=False) for row in rows.unbind()))
    except Unmeasurable:
        return None


def rows_json(outputs: Mapping[int, MeasuredRows], summaries: Mapping[int, Summary]) -> list[dict[str, Any]]:
    """Return the rows of a record's outputs, by their number, ready for JSON (docs/log-format.md)."""
    return [
        {"output": k, "rows": rows.of, "values": _packed([summaries[slot] for slot in rows.slots])}
        for k, rows in outputs.items()
        if all(slot in summaries for slot in rows.slots)  # not those of a device that could not be read
    ]


_HEAD = struct.Struct("<Q3d")
_SKETCH = struct.Struct("<16d")
_SHORT = struct.Struct("<16f")


def _packed(rows: Sequence[Summary]) -> str:
    sketches = all(row.sketch is not None for row in rows)
    return b64encode(b"".join(_row(row) + (_short(row.sketch) if sketches else b"") for row in rows)).decode()


def _row(row: Summary) -> bytes:
    """Return digest, L1 and L2 norm and mean of a row; NaN if it has NaN or infinite elements."""
    known = row.nan == row.inf == 0
    numbers = (row.l1, row.l2, row.mean) if known else (None, None, None)
    return _HEAD.pack(row.digest or 0, *(math.nan if number is None else number for number in numbers))


def _short(sketch: bytes | None) -> bytes:
    try:
        return _SHORT.pack(*_SKETCH.unpack(sketch or b""))
    except OverflowError:  # beyond float32
        return _SHORT.pack(*[math.nan] * 16)
