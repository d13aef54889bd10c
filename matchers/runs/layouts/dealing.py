"""Parts of one batch that the ranks of two runs read: the same, or other ones, as of a sequence in zigzag order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matchers.ops.json_values import number

__all__ = ["batches_of", "dealt_otherwise"]


def dealt_otherwise(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> bool:
    """True if no rank reads what one of the other run does, though all together read as much: other parts of one batch.

    As a sequence in zigzag order. Ranks that read one batch count once.
    """
    of_a, of_b = batches_of(a), batches_of(b)
    totals = [sum(of.values()) for of in (of_a, of_b)]
    return of_a.keys().isdisjoint(of_b) and 0 < totals[0] < math.inf and math.isclose(*totals)


def batches_of(infos: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By digest, the L1 norms of the first tensors that the model is called with; NaN where a log does not tell."""
    first = [of[0] for info in infos if isinstance(of := info.get("batch"), list) and of and isinstance(of[0], dict)]
    return {str(of.get("digest")): number(of.get("l1")) for of in first if not of.get("computed")}
