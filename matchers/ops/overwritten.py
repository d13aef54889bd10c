"""Inputs that grafts have overwritten: they agree with the other run's, whatever their makers made."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool
from matchers.logs.op_log import OpLog, once_per_log
from matchers.ops.dataflow import sources
from matchers.ops.module_path import is_within
from matchers.ops.start import table

__all__ = ["overwritten"]


@once_per_log
def overwritten(log: OpLog) -> Bool:
    """Bool of all inputs, in the order of `sources`: what a grafted module is given or gives, read beyond its maker."""
    flow = sources(log)
    out = np.zeros(len(flow.value), bool)
    if not (grafts := table(log.header.run, "grafts")):
        return out
    known = np.flatnonzero(flow.value >= 0)
    maker, reader = log.module[flow.value[known]], log.module[flow.row[known]]
    for side, inner, outer in (("inputs", reader, maker), ("outputs", maker, reader)):
        within = _within(log, grafts.get(side))
        out[known] |= (within[:, inner] & ~within[:, outer]).any(axis=0)
    return out


def _within(log: OpLog, modules: object) -> Bool:
    """bool[modules named, modules of the log + 1]: the module is one of these, or inside it."""
    names = [name for name in modules if isinstance(name, str)] if isinstance(modules, list) else []
    inside = [[is_within(each, name) for each in log.modules] + [False] for name in names]
    return np.array(inside, bool).reshape(len(names), len(log.modules) + 1)
