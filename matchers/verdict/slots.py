"""Compare the further results of two records slot by slot.

A slot is an output after the first, or an input that the operation changed in place. An input that only one side
changed is compared with the unchanged input of the other side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.ops.outputs import Result, further_output, mutated, unchanged
from matchers.ops.placement import same_part
from matchers.ops.shapes import is_shard
from matchers.status import Status
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative_difference
from matchers.verdict.sketches import decode_sketches, distance
from matchers.verdict.tolerance import ACCUMULATED, EPSILON, EXTREMES, DtypePolicy, default_tolerance, own_tolerance

__all__ = ["Limits", "SlotVerdict", "beyond_whole", "judge_results", "judge_slots", "worst"]

_RANK = (
    Status.EQUAL,
    Status.SAME_PRINT,
    Status.SHARDED,
    Status.CLOSE,
    Status.NOT_JUDGED,
    Status.DIVERGED,
    Status.SHAPE,
    Status.NAN,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The tolerances for one pair; see `matchers.verdict.judge.judge`.

    Attributes:
        rtol: the user's tolerance, NaN for the default.
        alone: all inputs are bitwise equal, so any difference arises in the operation itself.
        by_element: the operation computes each element by itself.
        policy: pairs of dtypes that are expected to differ.
        shards: the runs may hold unmarked shards.
        ordered: the order of the elements counts, so that other bits with equal norms are not judged.
        recorded: both logs say what operations change in place; else what one log says is compared with nothing.
    """

    rtol: float = math.nan
    alone: bool = False
    by_element: bool = False
    policy: DtypePolicy = ()
    shards: bool = False
    recorded: bool = True
    ordered: bool = True

    def of(self, a: str, b: str) -> tuple[float, float]:
        """(tolerance of norms, tolerance of the tensors themselves) for two dtypes."""
        if not math.isnan(self.rtol):
            return self.rtol, self.rtol
        if self.alone:
            own = max(own_tolerance(a, self.by_element), own_tolerance(b, self.by_element))
            return own, own
        usual = max(map(default_tolerance, (a, b, *(name for pair in self.policy for name in pair))))
        return usual, ACCUMULATED * usual


@dataclass(frozen=True, slots=True)
class SlotVerdict:
    """One slot: its name, status, reason and relative error (NaN: not comparable), as in `judge.Verdicts`."""

    name: str
    status: Status
    reason: Reason
    error: float = 0.0
    bound: bool = False
    limit: float = math.nan
    only: str = ""
    """`a` or `b`: only this side changed the input."""
    read: bool = False
    """The slot is an input as it was read."""
    more: int = 0
    """Number of further tensors of its kind that differ, where the verdict is on their last contents."""
    alone: bool = False
    """The verdict is on a last content, and all that it was computed from is bitwise equal."""
    gathered: bool = False
    """The slot is the whole result of a shard; `name` is the operation of the other log that holds it."""
    scalars: tuple[float, float] | None = None
    """The scalar arguments of a and of b that make the difference."""

    @property
    def itself(self) -> bool:
        """True if the operation was given something else, whatever its producers returned."""
        return self.read or self.scalars is not None


def worst(found: list[SlotVerdict]) -> SlotVerdict | None:
    """The slot that decides a record's verdict."""
    return max(found, key=lambda slot: (_RANK.index(slot.status), np.nan_to_num(slot.error)), default=None)


def judge_slots(a: OpLog, b: OpLog, i: int, j: int, limits: Limits) -> list[SlotVerdict]:
    """Judge the slots that both records have."""
    return [judge_results(x, y, limits, only) for x, y, only in _slots(a, b, i, j, limits.recorded)]


def _slots(a: OpLog, b: OpLog, i: int, j: int, recorded: bool) -> Iterator[tuple[Result, Result, str]]:
    digests_a, digests_b = a.digests[i], b.digests[j]
    for k in range(1, min(len(digests_a), len(digests_b))):
        if digests_a[k] == digests_b[k] != NO_DIGEST:
            continue
        x, y = further_output(a, i, k), further_output(b, j, k)
        if x is not None and y is not None:
            yield x, y, ""
    if a.texts("Mutated").raw(i) == b.texts("Mutated").raw(j):
        return
    changed_a, changed_b = mutated(a, i), mutated(b, j)
    for slot in sorted({*changed_a, *changed_b}):
        one, two = changed_a.get(slot), changed_b.get(slot)
        if one is not None and two is not None:
            yield one, two, ""
        elif recorded and not _returned(one or two, digests_b if one else digests_a):
            before = unchanged(a, i, slot), unchanged(b, j, slot)
            # if it differed before, a change on one side only is no new finding
            same = before[0].digest is not None and before[0].digest == before[1].digest
            yield one or before[0], two or before[1], ("a" if one else "b") if same else ""


def _returned(changed: Result | None, outputs: NDArray[np.uint64]) -> bool:
    """True if the other run returns what this one writes in place: a compiler made the operation a function."""
    return changed is not None and changed.digest is not None and changed.digest in outputs.tolist()


def judge_results(x: Result, y: Result, limits: Limits, only: str = "") -> SlotVerdict:
    """Judge two tensors by all that is known of them. `only`: `a` or `b`, where the other side did not write to it."""
    name = x.name if not x.name.startswith("input ") else y.name
    known = x.digest is not None and y.digest is not None
    if only and x.digest != y.digest:
        change, reason = relative_difference(x.l1, y.l1), Reason.CHANGED_BY_ONE_RUN
        return SlotVerdict(name, Status.DIVERGED, reason, change, True, 0.0, only)
    odd = _of_other_kind(x, y, limits)
    if odd is not None:
        return SlotVerdict(name, *odd, math.nan)
    counted = x.nan >= 0 and y.nan >= 0
    if counted and (x.nan != y.nan or x.inf != y.inf or (x.nan > 0 and x.digest != y.digest)):
        return SlotVerdict(name, Status.NAN, Reason.NON_FINITE, math.inf)
    if known and x.digest == y.digest:
        return SlotVerdict(name, Status.EQUAL, Reason.EQUAL_BITS)
    return _measured(name, x, y, limits, known)


def beyond_whole(x: Result, y: Result, rtol: float | None) -> SlotVerdict | None:
    """The verdict on a shard whose extremes or norms exceed those of its whole; None where they do not, as they must.

    Only for shards that a log places. `rtol`: the user's tolerance.
    """
    part, whole = (x, y) if x.numel < y.numel else (y, x)
    placed = part.part
    if placed is None or placed.partial or placed.whole != whole.shape or part.numel >= whole.numel:
        return None
    size = float(np.nanmax([abs(whole.min), abs(whole.max), abs(part.min), abs(part.max), 0.0]))
    tolerance = max(*map(default_tolerance, (x.dtype, y.dtype)), rtol or 0.0)
    of_part, of_whole = np.array([part.l1, part.l2]), np.array([whole.l1, whole.l2])
    beyond = np.array([whole.min - part.min, part.max - whole.max])
    with np.errstate(divide="ignore", invalid="ignore"):  # of zeros
        norms = float(np.nanmax([*((of_part - of_whole) / of_part), 0.0]))
        extremes = float(np.nanmax([*(beyond / size), 0.0]))
    limit = tolerance if norms > tolerance else EXTREMES * tolerance
    error = max(norms, extremes)
    if not error > limit:
        return None
    return SlotVerdict(whole.name, Status.DIVERGED, Reason.BEYOND_WHOLE, error, True, limit)


def _of_other_kind(x: Result, y: Result, limits: Limits) -> tuple[Status, Reason] | None:
    """Status of two tensors that cannot be compared, and why; None if they can."""
    if x.shape is None or y.shape is None:
        return None
    if x.part and y.part and x.part.whole == y.part.whole and not same_part(x.part, y.part):
        return Status.SHARDED, Reason.SHARD_OF_WHOLE
    if limits.shards and is_shard(x.shape, y.shape):
        return Status.SHARDED, Reason.SHARD_OF_WHOLE
    if x.shape != y.shape:
        return Status.SHAPE, Reason.OTHER_SHAPE
    other_dtype = x.dtype != y.dtype and (x.dtype, y.dtype) not in limits.policy
    return (Status.SHAPE, Reason.OTHER_DTYPE) if other_dtype else None


_BEYOND = Status.DIVERGED, Reason.BEYOND_TOLERANCE
_WITHIN = Status.CLOSE, Reason.WITHIN_TOLERANCE


def _measured(name: str, x: Result, y: Result, limits: Limits, known: bool) -> SlotVerdict:
    norm_limit, limit = limits.of(x.dtype, y.dtype)
    differences = [relative_difference(x.l1, y.l1), relative_difference(x.l2, y.l2)]
    norms = float(np.nanmax([*differences, 0.0]))
    size = float(np.nanmax([abs(x.min), abs(x.max), abs(y.min), abs(y.max), 0.0]))
    differences += [relative_difference(x.min, y.min, size), relative_difference(x.max, y.max, size)]
    extremes = float(np.nanmax([*differences[2:], 0.0]))
    estimate = math.nan
    if x.sketch and y.sketch and x.part is not None and y.part is not None and same_part(x.part, y.part):
        pair = decode_sketches([x.sketch, y.sketch])
        estimate = float(distance(pair[:1], pair[1:], np.array([x.l2]), np.array([y.l2]))[0])
    allowance = EXTREMES if math.isnan(limits.rtol) else 1.0
    by_norms = norms > norm_limit or extremes > allowance * norm_limit
    whole = all(dtype and dtype not in EPSILON for dtype in (x.dtype, y.dtype))
    if known and whole and math.isnan(limits.rtol):
        # integers do not round
        measured = not math.isnan(estimate)
        error = estimate if measured else max(norms, extremes)
        return SlotVerdict(name, Status.DIVERGED, Reason.OTHER_WHOLE_NUMBERS, error, not measured, 0.0)
    if estimate > limit or (not math.isnan(estimate) and not by_norms):
        return SlotVerdict(name, *(_BEYOND if estimate > limit else _WITHIN), estimate, False, limit)
    error = max(norms, extremes)
    if by_norms:
        far = norms <= norm_limit
        return SlotVerdict(name, *_BEYOND, error, True, allowance * norm_limit if far else norm_limit)
    if known and np.isnan(differences).all():  # nothing says how far the two are apart
        return SlotVerdict(name, Status.NOT_JUDGED, Reason.UNSIZED, math.nan)
    if known and error == 0 and limits.ordered and math.isnan(limits.rtol):
        return SlotVerdict(name, Status.NOT_JUDGED, Reason.REARRANGED, math.nan)
    other_bits = (Status.CLOSE, Reason.OTHER_BITS_SAME_NORMS) if known else (Status.SAME_PRINT, Reason.SAME_NUMBERS)
    return SlotVerdict(name, *(_WITHIN if error > 0 else other_bits), error, True, norm_limit)
