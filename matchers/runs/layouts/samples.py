"""The micro-batches of two logs that have the same samples, by their first results."""

from __future__ import annotations

from typing import Final

import numpy as np

from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.ops.micro_batches import micro_batch_numbers

__all__ = ["FIRST", "first_results", "same_samples"]

FIRST: Final = 20
"""Results of a micro-batch that are compared."""


def same_samples(log: OpLog, other: OpLog) -> list[int]:
    """For each micro-batch, that of another log that has most of its first results; -1 for none."""
    by_bits = bool(len(log.digests.value) and len(other.digests.value))
    found = first_results(other, by_bits)
    out = []
    for own in first_results(log, by_bits).values():
        shared = {batch: len(own & theirs) for batch, theirs in found.items()}
        best = max(shared, key=lambda batch: shared[batch])
        out.append(best if shared[best] else -1)
    return out


def first_results(log: OpLog, by_bits: bool) -> dict[int, set[float]]:
    """The first results of each micro-batch: their digests, or their norms. Norms of small counts are all the same."""
    number = np.maximum(micro_batch_numbers(log), 0)
    if by_bits:
        results = log.digests.first(np.arange(len(log)), NO_DIGEST)
        known = results != NO_DIGEST
    else:
        results = log.outputs.first(np.arange(len(log)))
        known = np.isfinite(results) & (results != np.floor(results))
    found: dict[int, set[float]] = {}
    for batch in range(int(number.max(initial=0)) + 1):
        rows = np.flatnonzero(known & ~log.updates & (number == batch))[:FIRST]
        found[batch] = set(results[rows].tolist())
    return found
