"""Operations on weights that are fused in one run: their gradients and updates have no partner one by one."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool
from matchers.logs.columns import decode
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import downstream
from matchers.ops.fused import fused, fused_by_norms

__all__ = ["fused_names", "on_weights"]


def fused_names(a: OpLog, b: OpLog) -> tuple[set[str], set[str]]:
    """The names of the weights of each log that are fused in one of them."""
    runs = a.header.run, b.header.run
    names: tuple[set[str], set[str]] = (set(), set())
    for found in fused(*runs) or fused_by_norms(*runs):
        side = "ab".index(found.side)
        names[side].add(found.whole)
        names[1 - side].update(found.parts)
    return names


def on_weights(log: OpLog, names: set[str], among: Bool) -> Bool:
    """bool[n]: records that are in the modules of these weights, or work on nothing but them and their gradients.

    Args:
        among: bool[n], the records to choose from.
    """
    if not names:
        return np.zeros(len(log), bool)
    modules = {name.rpartition(".")[0] for name in names}
    found = np.array([name in modules for name in (*log.modules, "")], bool)[log.module]
    others = np.zeros(len(log), bool)
    texts = log.texts("Parameter")
    told: dict[bytes, bool] = {}
    for row in texts:
        raw = texts.raw(row)
        if raw not in told:
            held = [name for name in decode(raw).split(";") if name]
            told[raw] = all(name in names or name.rpartition(".")[0] in names for name in held)
        found[row], others[row] = told[raw], not told[raw]
    own = among & found
    return own | (among & downstream(log.producers, own, among) & ~others)  # with what scales their states
