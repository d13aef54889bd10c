"""Rows of results, as a log has them (`numtui capture --rows`): all dimensions but the last number them."""

from __future__ import annotations

import binascii
import math

import numpy as np

from matchers.arrays import Float64, Hash, Int64, columns
from matchers.logs.op_log import OpLog
from matchers.ops.json_values import integers, parsed
from matchers.ops.sketch import PROJECTIONS

__all__ = ["TensorRows", "distances", "rows_of"]

_HEAD = [("digest", "<u8"), ("l1", "<f8"), ("l2", "<f8"), ("mean", "<f8")]
_PLAIN = np.dtype(_HEAD)
_SKETCHED = np.dtype([*_HEAD, ("sketch", "<f4", PROJECTIONS)])


@columns
class TensorRows:
    """The rows of one tensor.

    Attributes:
        of: the dimensions that number them: their product is n.
        digest: uint64[n].
        l1, l2, mean: float64[n]; NaN for a row with NaN or infinite elements.
        sketch: float64[n, 16], NaN where it is not known.
    """

    of: tuple[int, ...]
    digest: Hash
    l1: Float64
    l2: Float64
    mean: Float64
    sketch: Float64

    def __len__(self) -> int:
        return len(self.digest)

    @property
    def single(self) -> bool:
        """True if each row is a single number, as far as the norms tell."""
        return bool(np.all((self.l1 == np.abs(self.mean)) & (self.l1 == self.l2)))

    def taken(self, rows: Int64) -> TensorRows:
        """Some rows, in this order, as a tensor of one row number."""
        return TensorRows(
            (len(rows),), self.digest[rows], self.l1[rows], self.l2[rows], self.mean[rows], self.sketch[rows]
        )

    def index(self, row: int) -> tuple[int, ...]:
        """The indices of a row."""
        return tuple(int(k) for k in np.unravel_index(row, self.of))


def rows_of(log: OpLog, record: int) -> dict[int, TensorRows]:
    """The rows of a record's outputs, by their number; empty without, or where they cannot be read."""
    told = parsed(log.texts("Rows").raw(record))
    found = {}
    for entry in told if isinstance(told, list) else ():
        if isinstance(entry, dict) and type(entry.get("output")) is int:
            of, values = integers(entry.get("rows")), entry.get("values")
            if of and min(of) > 0 and isinstance(values, str) and (rows := _read(of, values)) is not None:
                found[entry["output"]] = rows
    return found


def _read(of: tuple[int, ...], values: str) -> TensorRows | None:
    try:
        raw = binascii.a2b_base64(values)
    except ValueError:
        return None
    many = math.prod(of)
    for dtype in (_PLAIN, _SKETCHED):
        if len(raw) == many * dtype.itemsize:
            table = np.frombuffer(raw, dtype)
            l1, l2, mean = (np.asarray(table[name], np.float64) for name in ("l1", "l2", "mean"))
            # a row of one number is its own sketch
            sketch = np.repeat(np.where(l1 == np.abs(mean), mean, np.nan)[:, None], PROJECTIONS, axis=1)
            if dtype is _SKETCHED:
                sketch = table["sketch"].astype(np.float64)
            return TensorRows(of, np.asarray(table["digest"], np.uint64), l1, l2, mean, sketch)
    return None


def distances(x: TensorRows, y: TensorRows) -> Float64:
    """float64[n]: estimates of each row's ‖a − b‖, relative to the larger norm; 0 for equal bits, NaN if unknown.

    Args:
        x, y: as many rows, or one for all of the other's.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        apart = np.sqrt(np.mean((x.sketch - y.sketch) ** 2, axis=1))
        out = np.where(apart == 0, 0.0, apart / np.fmax(x.l2, y.l2))
    return np.asarray(np.where(x.digest == y.digest, 0.0, out))
