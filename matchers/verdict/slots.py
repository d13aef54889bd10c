"""Compare the further results of two records slot by slot.

A slot is an output after the first, or an input that the operation changed in place. An input that only one side
changed is compared with the unchanged input of the other side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from matchers.arrays import Bool, Hash, Int64, columns
from matchers.laws.law import Form
from matchers.logs.columns import repeated
from matchers.logs.op_log import NO_DIGEST, OpLog, is_mark
from matchers.ops.laws import rows_where
from matchers.ops.values import Result, Values, as_values, further, read
from matchers.status import Status
from matchers.verdict.judge_values import Limits, ValueVerdicts, judge_values, untaken_in_both
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative
from matchers.verdict.tolerance import EXTREMES, default_tolerance

__all__ = ["SlotVerdict", "Slots", "beyond_whole", "deciding", "judge_results", "judge_slots", "worst"]

_DEFAULT = Limits()

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

    @classmethod
    def of(cls, name: str, found: ValueVerdicts, k: int, **more: Any) -> SlotVerdict:
        """One of some verdicts."""
        error, bound, limit = (column[k].item() for column in (found.error, found.bound, found.limit))
        return cls(name, Status(found.status[k]), Reason(found.reason[k]), error, bound, limit, **more)

    @classmethod
    def of_scalars(cls, x: float, y: float, error: float, limit: float) -> SlotVerdict:
        """The verdict on a pair whose operations have these scalar arguments."""
        return cls("the scalar", Status.DIVERGED, Reason.OTHER_SCALAR, error, False, limit, scalars=(x, y))

    @property
    def itself(self) -> bool:
        """True if the operation was given something else, whatever its producers returned."""
        return self.read or self.scalars is not None


def worst(found: Iterable[SlotVerdict]) -> SlotVerdict | None:
    """The slot that decides a record's verdict."""
    return max(found, key=lambda slot: (_RANK.index(slot.status), np.nan_to_num(slot.error)), default=None)


@columns
class Slots:
    """Verdicts on slots.

    Attributes:
        pair: int64[s], the pair of records.
        x, y: of a and of b.
        only: `a` or `b`: only this side changed these inputs.
    """

    pair: Int64
    x: Values
    y: Values
    found: ValueVerdicts
    only: str = ""

    def verdict(self, s: int) -> SlotVerdict:
        """One of them."""
        name = self.x.name[s]
        only = self.only if self.found.reason[s] == Reason.CHANGED_BY_ONE_RUN else ""
        return SlotVerdict.of(name if not name.startswith("input ") else self.y.name[s], self.found, s, only=only)

    def deciding(self) -> Iterator[tuple[int, SlotVerdict]]:
        """Yield the verdict that decides about each pair."""
        rank = np.array([_RANK.index(status) if status in _RANK else 0 for status in Status])[self.found.status]
        order = np.lexsort((-np.nan_to_num(self.found.error), -rank, self.pair))
        for s in order[np.diff(self.pair[order], prepend=-1) != 0].tolist():
            yield int(self.pair[s]), self.verdict(s)


def deciding(a: OpLog, b: OpLog, i: Int64, j: Int64, limits: Limits, recorded: bool) -> dict[int, SlotVerdict]:
    """The slots that decide about the pairs (i[k], j[k]); arguments as of `judge_slots`."""
    out: dict[int, SlotVerdict] = {}
    for slots in judge_slots(a, b, i, j, limits, recorded):
        for k, slot in slots.deciding():
            out[k] = worst([out[k], slot]) or slot if k in out else slot
    return out


def judge_slots(
    a: OpLog, b: OpLog, i: Int64, j: Int64, limits: Limits = _DEFAULT, recorded: bool = True
) -> Iterator[Slots]:
    """Judge the slots of the pairs (i[k], j[k]) that both records have.

    Args:
        limits: by pair.
        recorded: both logs say what operations change in place; else what one log says is compared with nothing.
    """
    of_a, of_b = further(a), further(b)
    (pair_a, at_a), (pair_b, at_b) = _of_pairs(of_a, i), _of_pairs(of_b, j)
    span = 1 + int(max(np.abs(values.slot).max(initial=0) for values in (of_a, of_b)))
    key_a, key_b = (
        # outputs first, and inputs in their order
        pair * 2 * span + np.where(slot < 0, span - 1 - slot, slot)
        for pair, slot in ((pair_a, of_a.slot[at_a]), (pair_b, of_b.slot[at_b]))
    )
    _, in_a, in_b = np.intersect1d(key_a, key_b, assume_unique=True, return_indices=True)
    x, y = of_a.taken(at_a[in_a]), of_b.taken(at_b[in_b])
    # an output with the same bits is no news, unless they are NaN
    news = np.flatnonzero((x.slot < 0) | ~x.known | (x.digest != y.digest) | (x.counts[1] > 0))
    if len(news):
        pair, x, y = pair_a[in_a[news]], x.taken(news), y.taken(news)
        found = judge_values(x, y, limits.taken(pair), untaken_in_both(a, b, x, y))
        ties = (found.status == Status.DIVERGED) & (x.slot > 0) & _ranks_alike(a, b, i, j)[pair]
        found.settle(ties, Status.NOT_JUDGED, Reason.TIED)
        yield Slots(pair, x, y, found)
    if not recorded:
        return
    for only, mine, key, others, of, pair, at, log, rows in (
        ("a", a, key_a, key_b, of_a, pair_a, at_a, b, j),
        ("b", b, key_b, key_a, of_b, pair_b, at_b, a, i),
    ):
        alone = np.flatnonzero((of.slot[at] < 0) & ~np.isin(key, others))
        alone = alone[~_returned(log, rows[pair[alone]], of.digest[at[alone]])]
        if len(alone):
            yield _of_one_side(only, mine, of.taken(at[alone]), log, rows, pair[alone], limits)


def _ranks_alike(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """bool[p]: both put the same values in order, so that other positions are those of equal ones."""
    one, other = a.digests.first(i, NO_DIGEST), b.digests.first(j, NO_DIGEST)
    ranks = rows_where(a, lambda law: law.form is Form.RANK, i) & rows_where(b, lambda law: law.form is Form.RANK, j)
    return np.asarray(ranks & (one == other) & ~is_mark(one))


def _of_pairs(values: Values, records: Int64) -> tuple[Int64, Int64]:
    """The pair of each value of some records, and its row among all values."""
    start = np.searchsorted(values.maker, records)
    pair, nth = repeated(np.arange(len(records)), np.searchsorted(values.maker, records, "right") - start)
    return pair, start[pair] + nth


def _returned(log: OpLog, records: Int64, digests: Hash) -> Bool:
    """bool: the other run returns what this one writes in place: a compiler made the operation a function."""
    of = zip(records.tolist(), digests, strict=True)
    return np.array([digest != NO_DIGEST and digest in log.digests[row] for row, digest in of], bool)


def _of_one_side(
    only: str, mine: OpLog, changed: Values, log: OpLog, rows: Int64, pair: Int64, limits: Limits
) -> Slots:
    """The verdicts on inputs that one side changed, against what the other side (`log`, its `rows`) has there."""
    slots = -1 - changed.slot
    before, unchanged = read(mine, changed.maker, slots), read(log, rows[pair], slots)
    x, y = (changed, unchanged) if only == "a" else (unchanged, changed)
    found = judge_values(x, y, limits.taken(pair))
    new = before.known & (before.digest == unchanged.digest) & (x.digest != y.digest)
    # if it differed before, a change on one side only is no new finding
    error = relative(x.l1, y.l1)[new]
    found.settle(new, Status.DIVERGED, Reason.CHANGED_BY_ONE_RUN, error=error, bound=True, limit=0.0)
    return Slots(pair, x, y, found, only)


def judge_results(x: Sequence[Result], y: Sequence[Result], limits: Limits) -> list[SlotVerdict]:
    """Judge tensors of a against tensors of b, one by one, by all that is known of them."""
    one, other = as_values(x), as_values(y)
    slots = Slots(np.arange(len(one)), one, other, judge_values(one, other, limits))
    return [slots.verdict(s) for s in range(len(one))]


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
