"""The share of a tensor that ranks hold."""

from __future__ import annotations

from matchers.status import LabelledEnum

__all__ = ["Holds"]


class Holds(LabelledEnum):
    """The share of a tensor that the ranks hold. NORM: the norm of a shard, of one element."""

    REPLICA = 0
    SHARD = 1
    PARTIAL = 2
    UNKNOWN = 3
    NORM = 4
