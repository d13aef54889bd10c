"""The micro-batches of two logs that have the same samples, by their first results."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.ops.batch_numbers import micro_batch_numbers

__all__ = ["FIRST", "first_results", "same_samples"]

FIRST: Final = 20
"""Results of a micro-batch that are compared."""


def same_samples(logs: Sequence[OpLog], others: Sequence[OpLog]) -> list[list[int]]:
    """For each micro-batch of each log, the one of all others that has most of its first results; -1 for none."""
    by_bits = all(len(log.digests.value) for log in (*logs, *others))
    found = [results for other in others for results in first_results(other, by_bits)]

    def place(own: AbstractSet[float]) -> int:
        shared = [len(own & theirs) for theirs in found]
        best = int(np.argmax(shared))
        return best if shared[best] else -1

    return [list(map(place, first_results(log, by_bits))) for log in logs]


def first_results(log: OpLog, by_bits: bool) -> list[set[float]]:
    """The first results of each micro-batch: their digests, or their norms. Norms of small counts are all the same."""
    number = np.maximum(micro_batch_numbers(log), 0)
    if by_bits:
        results = log.digests.first(slice(None), NO_DIGEST)
        known = results != NO_DIGEST
    else:
        results = log.outputs.first()
        known = np.isfinite(results) & (results != np.floor(results))
    rows = np.flatnonzero(known & ~log.updates)
    rows = rows[np.argsort(number[rows], kind="stable")]
    parts = np.split(results[rows], np.searchsorted(number[rows], np.arange(1, int(number.max(initial=0)) + 1)))
    return [set(part[:FIRST].tolist()) for part in parts]
