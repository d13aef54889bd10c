"""Operations that hand on the values they read: views, splits, clones and casts. None of them can make an error."""

from __future__ import annotations

from matchers.arrays import Bool
from matchers.logs.op_log import OpLog
from matchers.ops.op_names import rows_where

__all__ = ["copies", "copy_source"]

_COPIES = frozenset(
    {
        *("_conj", "_reshape_alias", "_to_copy", "_unsafe_view", "alias", "as_strided", "chunk", "clone", "contiguous"),
        *("copy_", "detach", "diagonal", "expand", "flatten", "lift_fresh", "movedim", "narrow", "permute", "reshape"),
        *("select", "slice", "split", "split_with_sizes", "squeeze", "swapaxes", "t", "to", "transpose", "unbind"),
        *("unflatten", "unfold", "unsqueeze", "view", "view_as_complex", "view_as_real"),
    }
)


def copies(log: OpLog) -> Bool:
    """bool[n]: the records of operations that hand on values; `split_copy` and the like included."""
    return rows_where(log, lambda name: name in _COPIES or name.removesuffix("_copy") in _COPIES)


def copy_source(log: OpLog, row: int) -> int:
    """The position of the input whose values such a record hands on."""
    return 1 if log.op_name(row) == "copy_" and len(log.inputs[row]) > 1 else 0
