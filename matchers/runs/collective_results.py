"""The result of a collective is that of what its members gave.

Sketches and sums are linear: those of what the members give add up to that of what they get, up to the rounding of the
terms. Outputs of an all-reduce, all-gather or broadcast have equal bits on all members.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, permutations

import numpy as np

from matchers.arrays import Float64
from matchers.laws.law import Kind
from matchers.runs.calls import ONE_RESULT, Call, Group, Part
from matchers.runs.finding import Check, Finding, Made, Unmade
from matchers.runs.rank_logs import RankLogs, odd_ranks
from matchers.verdict.tolerance import EPSILON

__all__ = ["check_collective_results"]

_CHECK = Check.COLLECTIVES_COMPUTE
_OF_ROOT = (Kind.REDUCE, Kind.GATHER, Kind.SCATTER)
"""Collectives in which one member alone gives or gets; not judged."""
_SLACK = 4.0
"""Times the bound of the rounding error n·ε·Σ‖x‖, because a sketch estimates a distance to about a third."""
_FLOOR = 1e-9
"""Relative rounding of the sketches themselves, sums of float64."""


def check_collective_results(ranks: RankLogs) -> Iterator[Finding | Made | Unmade]:
    """Yield the collectives whose result is not that of their inputs."""
    made = unknown = 0
    for group in ranks.groups:
        for calls in group.joined():
            if len({call.kind for call in calls}) > 1 or not all(call.complete for call in calls):
                break  # the numbers of the calls do not belong together from here on
            wrong, size, known = _judged(calls)
            made += known
            unknown += not known and calls[0].kind != Kind.BARRIER
            if wrong:
                yield _finding(ranks, calls, wrong, size)
    for pair in ranks.messages:
        for sent, received in _messages(pair):
            known = bool(sent.given and received.got)
            made += known
            unknown += not known
            if known and _other_bits(sent.given, received.got):
                yield _finding(ranks, (received, sent), (received.rank,), math.nan)
    if made:
        yield Made(_CHECK, made, "collectives")
    if unknown:
        yield Unmade(_CHECK, f"{unknown:,} collectives: the logs do not have their inputs")


def _finding(ranks: RankLogs, calls: Sequence[Call], wrong: tuple[int, ...], size: float) -> Finding:
    at = [
        next(((call.rank, call.row) for call in calls if (call.rank in wrong) is of), (-1, -1)) for of in (True, False)
    ]
    differs = calls[0].kind in ONE_RESULT and math.isnan(size)
    text = f"result of {calls[0].does} {'differs between members' if differs else 'is not that of its inputs'}"
    return ranks.finding(_CHECK, text, wrong, calls[0].group, *at, size=size)


def _judged(calls: Sequence[Call]) -> tuple[tuple[int, ...], float, bool]:
    """(ranks with a wrong result, relative error, could be judged) of one collective."""
    kind = calls[0].kind
    if kind in _OF_ROOT or not all(call.finite for call in calls):
        return (), math.nan, False
    known = kind in ONE_RESULT and all(call.got and call.got[0].digest is not None for call in calls)
    if known and (odd := odd_ranks({call.rank: tuple(part.digest for part in call.got) for call in calls})):
        return odd, math.nan, True
    given, got = _sums([call.given for call in calls]), _sums([call.got for call in calls])
    if given is None or got is None or kind == Kind.BROADCAST:
        return (), math.nan, known and kind == Kind.BROADCAST
    (sum_in, size), (sum_out, _) = given, got
    if kind in ONE_RESULT:
        sum_out = sum_out / len(calls)
    if calls[0].reduces == "avg":
        sum_in, size = sum_in / len(calls), size / len(calls)
    elif calls[0].reduces not in ("", "sum"):
        return (), math.nan, False
    off = float(np.sqrt(np.mean((sum_in - sum_out) ** 2)))
    epsilon = EPSILON.get(calls[0].dtype, 0.0) if kind.reduces else 0.0
    if off <= (_SLACK * len(calls) * epsilon + _FLOOR) * size:
        return (), math.nan, True
    return _to_blame(calls), off / size if size else math.inf, True


def _to_blame(calls: Sequence[Call]) -> tuple[int, ...]:
    """The ranks whose part of the result is wrong, as far as the pieces tell; otherwise all."""
    every = tuple(call.rank for call in calls)
    if len(calls[0].group) != len(calls) or any(len(call.given) != 1 or len(call.got) != 1 for call in calls):
        return every
    blamed: Iterable[bool] = ()
    if calls[0].kind == Kind.ALL_GATHER and all(len(call.got[0].pieces) == len(calls) for call in calls):
        got = np.array([[digest for digest, _ in call.got[0].pieces] for call in calls], object)
        wrong = got != np.array([call.given[0].digest for call in calls], object)
        blamed = (wrong.all(axis=0) if wrong.all(axis=0).any() else wrong.any(axis=1)).tolist()
    elif calls[0].kind == Kind.REDUCE_SCATTER and all(len(call.given[0].pieces) == len(calls) for call in calls):
        terms = len(calls) if calls[0].reduces == "avg" else 1
        sums = np.sum([[total for _, total in call.given[0].pieces] for call in calls], axis=0) / terms
        off = np.abs(sums - [call.got[0].total for call in calls])
        blamed = (off > off.max() / 10).tolist()
    return tuple(compress(every, blamed)) or every


def _sums(parts: Sequence[Sequence[Part]]) -> tuple[Float64, float] | None:
    """The sum of the members' sketches, and of their L2 norms; None if one of them is not known."""
    if not all(parts):
        return None
    every = [part for of_rank in parts for part in of_rank]
    total = np.sum([part.sketch for part in every], axis=0)
    size = sum(part.l2 if math.isfinite(part.l2) else 0.0 for part in every)
    return (total, size) if np.isfinite(total).all() else None


def _messages(pair: Group) -> Iterator[tuple[Call, Call]]:
    """Yield each message as it was sent, and as it was received."""
    for sender, receiver in permutations(pair.calls, 2):
        both = zip(*pair.messages(sender, receiver), strict=False)
        yield from ((sent, received) for sent, received in both if received.complete)


def _other_bits(given: Sequence[Part], got: Sequence[Part]) -> bool:
    pairs = [(x.digest, y.digest) for x, y in zip(given, got, strict=False)]
    return any(x != y for x, y in pairs if x is not None and y is not None)
