"""What a pair's numbers say: a status and a relative error for every pair.

The error is the largest of the relative differences of the printed statistics, each on its own scale:

* L1 and L2 norms by the larger norm;
* Min and Max by the largest magnitude of the tensor (a minimum near zero has no relative precision of its own);
* Mean by L1/numel, the mean magnitude (a mean near zero is cancellation, not divergence).

Each of them is a lower bound of the relative error of the tensors themselves, |‖a‖ − ‖b‖| ≤ ‖a − b‖ in its norm, so
the result is a lower bound too and is shown as "≥".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matchers.collectives import unfinished
from matchers.features import fingerprint, shared_ids
from matchers.op_log import STATISTICS, FloatArray, OpLog
from matchers.shapes import dimensions, is_shard, numel, sharded_runs
from matchers.status import Status

__all__ = [
    "EPSILON",
    "TOLERANCE_IN_EPS",
    "Verdicts",
    "default_tolerance",
    "dtype_policy",
    "epsilon",
    "judge",
    "relative",
]

Int = NDArray[np.int64]

EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e4m3fnuz": 2.0**-3,
    "float8_e5m2": 2.0**-2,
    "float8_e5m2fnuz": 2.0**-2,
    "complex64": 2.0**-23,
    "complex128": 2.0**-52,
}
"""Machine epsilon by dtype: the distance from 1 to the next number."""

TOLERANCE_IN_EPS = {"float64": 128.0, "complex128": 128.0, "float32": 128.0, "complex64": 128.0, "float16": 8.0}
"""Up to how many ε a pair is called close; 2 for the dtypes not named, whose sums are made in float32.

128 ≈ 2·√4096: what the order of a sum of a few thousand terms can change.
"""

_DEFAULT_IN_EPS = 2.0
EXTREMES = 8.0
"""Min and Max are single elements: what rounding does to one of them is not averaged out, as it is in a norm."""

_PRINT_RESOLUTION = 2e-6
"""Two numbers of seven digits that differ by one in the last may be equal: nothing below this is ever red."""


def epsilon(log: OpLog) -> FloatArray:
    """float64[dtypes + 1], ε of each entry of the dtype table; NaN for integers, bool and (the last) no dtype."""
    return np.array([EPSILON.get(name, np.nan) for name in log.dtypes] + [np.nan])


def default_tolerance(dtype: str) -> float:
    """Relative error up to which two tensors of a dtype are called close."""
    eps = EPSILON.get(dtype)
    # integers and bools have no rounding: only the print limits what can be seen of them
    return (
        _PRINT_RESOLUTION if eps is None else max(eps * TOLERANCE_IN_EPS.get(dtype, _DEFAULT_IN_EPS), _PRINT_RESOLUTION)
    )


def _tolerances(log: OpLog) -> FloatArray:
    """float64[dtypes + 1], the default tolerance by dtype; that of float32 where there is no dtype."""
    return np.array([default_tolerance(name) for name in log.dtypes] + [default_tolerance("float32")])


def relative(x: FloatArray, y: FloatArray, scale: FloatArray | None = None) -> FloatArray:
    """|x − y| / scale, by default the larger magnitude; 0 where both are equal (infinities too), NaN with a NaN."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        size = np.maximum(np.abs(x), np.abs(y)) if scale is None else scale
        out = np.abs(x - y) / size
    out = np.where(np.isinf(x) | np.isinf(y), np.inf, out)
    return np.asarray(np.where(x == y, 0.0, np.where(np.isnan(x) | np.isnan(y), np.nan, out)))


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Per pair: int8 `status`, float64 `error` (NaN: nothing to compare), bool `bound`, and two limits in float64.

    `tolerance` is the one for norms; `limit` the one for the statistic that differs most, which `error` is about.
    """

    status: NDArray[np.int8]
    error: FloatArray
    bound: NDArray[np.bool_]
    tolerance: FloatArray
    limit: FloatArray


def dtype_policy(a: OpLog, b: OpLog, i: Int, j: Int) -> tuple[tuple[str, str], ...]:
    """Pairs of dtypes that differ throughout: another precision policy, to be said once and not row by row.

    A combination is a policy when it is at least a tenth of the pairs; a single cast that moved is not.
    """
    da, db = a.dtype[i].astype(np.int64), b.dtype[j].astype(np.int64)
    names_a, names_b = list(a.dtypes), list(b.dtypes)
    both = (da >= 0) & (db >= 0)
    codes, counts = np.unique(da[both] * (len(names_b) + 1) + db[both], return_counts=True)
    out = []
    for code, n in zip(codes.tolist(), counts.tolist(), strict=True):
        x, y = names_a[code // (len(names_b) + 1)], names_b[code % (len(names_b) + 1)]
        if x != y and x in EPSILON and y in EPSILON and n >= max(3, len(i) // 10):
            out.append((x, y))
    return tuple(out)


def judge(
    a: OpLog, b: OpLog, i: Int, j: Int, rtol: FloatArray | None = None, policy: tuple[tuple[str, str], ...] = ()
) -> Verdicts:
    """Judges the pairs (i[k], j[k]).

    Args:
        rtol: tolerances from the user's rules per pair, NaN for the default.
        policy: combinations of dtypes that are expected, see `dtype_policy`; judged at the coarser ε.
    """
    tolerance = np.maximum(_tolerances(a)[a.dtype[i]], _tolerances(b)[b.dtype[j]])
    for names in policy:  # what is computed from a coarser number is no finer than it
        tolerance = np.maximum(tolerance, max(map(default_tolerance, names)))
    allowance = np.full(len(i), EXTREMES)
    if rtol is not None:  # a limit that a person set is meant as it is written
        given = ~np.isnan(rtol)
        tolerance, allowance = np.where(given, rtol, tolerance), np.where(given, 1.0, allowance)

    norms, extremes, broken, both_broken, compared = _error(a, b, i, j)
    error = np.maximum(norms, extremes)
    status = np.full(len(i), Status.SAME_PRINT, np.int8)
    status[error > 0] = Status.CLOSE
    status[(norms > tolerance) | (extremes > allowance * tolerance)] = Status.DIVERGED
    # the same infinities on both sides hide everything that was summed with them
    status[both_broken & (status == Status.SAME_PRINT)] = Status.CLOSE
    bound = np.ones(len(i), bool)

    status = _digests(a, b, i, j, status, error, bound)
    status[broken] = Status.NAN
    error[broken] = np.inf
    status = _shapes(a, b, i, j, status, policy)
    loose = unfinished(a)[i] | unfinished(b)[j]
    status[loose & (status >= Status.SHAPE)] = Status.UNFINISHED
    error[(~compared & (error == 0)) | np.isin(status, (Status.SHAPE, Status.SHARDED))] = np.nan
    bound &= np.isfinite(error)
    limit = np.where((extremes > norms) & (norms <= tolerance), allowance * tolerance, tolerance)
    return Verdicts(status, error, bound, tolerance, limit)


def _error(
    a: OpLog, b: OpLog, i: Int, j: Int
) -> tuple[FloatArray, FloatArray, NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """(error of norms and mean, error of Min and Max, broken, infinite on both sides, anything compared) per pair.

    Broken: NaN or Inf in one of the two, or NaN in both, where a number is printed.
    """
    size = np.fmax(numel(a)[a.shape[i]], numel(b)[b.shape[j]])
    worst, extremes = np.zeros(len(i)), np.zeros(len(i))
    broken = np.zeros(len(i), bool)
    infinite = np.zeros(len(i), bool)
    compared = np.zeros(len(i), bool)

    def add(
        x: FloatArray,
        y: FloatArray,
        known: NDArray[np.bool_],
        scale: FloatArray | None = None,
        into: FloatArray = worst,
    ) -> None:
        odd_x, odd_y = ~np.isfinite(x), ~np.isfinite(y)
        same_inf = np.isinf(x) & (x == y)
        broken[:] |= known & (odd_x | odd_y) & ~same_inf
        infinite[:] |= known & same_inf
        difference = np.nan_to_num(relative(x, y, scale), nan=0.0, posinf=np.inf)
        np.maximum(into, np.where(known & ~odd_x & ~odd_y, difference, 0.0), out=into)
        compared[:] |= known

    l1_a, l1_b = a.outputs.first(), b.outputs.first()
    count_a, count_b = a.outputs.count[i], b.outputs.count[j]
    width = int(max(count_a.max(initial=0), count_b.max(initial=0)))
    add(l1_a[i], l1_b[j], (count_a > 0) & (count_b > 0))
    for k in range(1, width):  # further outputs: few rows have them
        has = np.flatnonzero((count_a > k) & (count_b > k))
        if not len(has):
            break
        x = np.zeros(len(i))
        y = np.zeros(len(i))
        known = np.zeros(len(i), bool)
        x[has] = a.outputs.value[a.outputs.start[i[has]] + k]
        y[has] = b.outputs.value[b.outputs.start[j[has]] + k]
        known[has] = True
        add(x, y, known)
    # operations that return nothing are known by what went in
    nothing = (count_a == 0) & (count_b == 0) & (a.present[i] == 0) & (b.present[j] == 0)
    if nothing.any():
        _inputs(a, b, i, j, nothing, worst, broken, compared)

    with np.errstate(invalid="ignore", divide="ignore"):
        magnitude = np.fmax(
            np.fmax(np.abs(a.stats[2]), np.abs(a.stats[3]))[i], np.fmax(np.abs(b.stats[2]), np.abs(b.stats[3]))[j]
        )
        mean_size = np.fmax(l1_a[i], l1_b[j]) / size
    present = a.present[i] & b.present[j]
    for k, name in enumerate(STATISTICS):
        scale = magnitude if name in ("Min", "Max") else mean_size if name == "Mean" else None
        if scale is not None:
            scale = np.where(
                (scale > 0) & np.isfinite(scale), scale, np.maximum(np.abs(a.stats[k][i]), np.abs(b.stats[k][j]))
            )
        into = extremes if name in ("Min", "Max") else worst
        add(a.stats[k][i], b.stats[k][j], (present >> k) & 1 == 1, scale, into)
    return worst, extremes, broken, infinite, compared


def _inputs(
    a: OpLog,
    b: OpLog,
    i: Int,
    j: Int,
    which: NDArray[np.bool_],
    worst: FloatArray,
    broken: NDArray[np.bool_],
    compared: NDArray[np.bool_],
) -> None:
    """Judges pairs without outputs by the norms of their inputs, position by position."""
    rows = np.flatnonzero(which)
    count = np.minimum(a.inputs.count[i[rows]], b.inputs.count[j[rows]])
    owner = np.repeat(rows, count)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    x = a.inputs.value[a.inputs.start[i[owner]] + place]
    y = b.inputs.value[b.inputs.start[j[owner]] + place]
    odd = (~np.isfinite(x) | ~np.isfinite(y)) & ~(np.isinf(x) & (x == y))
    broken[owner[odd]] = True
    np.maximum.at(worst, owner, np.nan_to_num(relative(x, y), nan=0.0, posinf=0.0))
    compared[owner] = True


def _digests(
    a: OpLog, b: OpLog, i: Int, j: Int, status: NDArray[np.int8], error: FloatArray, bound: NDArray[np.bool_]
) -> NDArray[np.int8]:
    """Equal digests mean equal bits, whatever is printed; different ones that something differs."""
    if not len(a.digests.value) or not len(b.digests.value):
        return status
    n_a, n_b = a.digests.count[i], b.digests.count[j]
    both = (n_a > 0) & (n_a == n_b)
    same = both & (fingerprint(a.digests)[i] == fingerprint(b.digests)[j])
    status = np.where(same, np.int8(Status.EQUAL), status)
    error[same], bound[same] = 0.0, False
    return np.asarray(np.where(both & ~same & (status == Status.SAME_PRINT), np.int8(Status.CLOSE), status))


def _shapes(
    a: OpLog, b: OpLog, i: Int, j: Int, status: NDArray[np.int8], policy: tuple[tuple[str, str], ...]
) -> NDArray[np.int8]:
    """Shapes or dtypes that differ; shards of one tensor are not judged."""
    ids_a, ids_b, _ = shared_ids(a.shapes, b.shapes)
    shape_a, shape_b = ids_a[a.shape[i]], ids_b[b.shape[j]]
    both = (shape_a >= 0) & (shape_b >= 0)
    other_shape = both & (shape_a != shape_b)
    shard = np.zeros(len(i), bool)
    if other_shape.any() and sharded_runs(a, b):
        dims = [dimensions(text) for text in dict.fromkeys([*a.shapes, *b.shapes])]
        for x, y in np.unique(np.stack((shape_a[other_shape], shape_b[other_shape])), axis=1).T.tolist():
            if is_shard(dims[x], dims[y]):
                shard |= (shape_a == x) & (shape_b == y)

    ids_a, ids_b, _ = shared_ids(a.dtypes, b.dtypes)
    dtype_a, dtype_b = ids_a[a.dtype[i]], ids_b[b.dtype[j]]
    other_dtype = (dtype_a >= 0) & (dtype_b >= 0) & (dtype_a != dtype_b)
    number = dict(zip([*a.dtypes, *b.dtypes], [*ids_a[:-1].tolist(), *ids_b[:-1].tolist()], strict=True))
    for x, y in policy:
        other_dtype &= ~((dtype_a == number[x]) & (dtype_b == number[y]))

    status = np.where((other_shape | other_dtype) & (status != Status.NAN), np.int8(Status.SHAPE), status)
    return np.asarray(np.where(shard & (status == Status.SHAPE), np.int8(Status.SHARDED), status))
