"""The grafts after which nothing differs behind causes, and the modules that share what they read."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from capture.keeping.form import OF_OPTIMIZER
from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.dataflow import sources
from matchers.verdict.tolerance import EPSILON
from numtui.report.called_modules import Called, key_of, module_of
from numtui.report.isolation import Found

__all__ = ["grafts_behind", "sharing"]


def grafts_behind(c: Comparison, called: Called, causes: Iterable[Found]) -> tuple[list[str], list[str]]:
    """Return what to graft so that nothing differs behind some causes.

    Returns:
        (in front of which modules, behind which), as `--graft` and `--graft-after` name them, without the run.
    """
    before: dict[str, None] = {}
    after: dict[str, None] = {}

    def behind(here: str, there: str) -> None:
        after[_spec(here, there)] = None
        for name in called.inner[there]:  # those of a whole model have names without its own
            before[_spec(here + name.removeprefix(there) if name.startswith(f"{there}.") else name, name)] = None

    for cause in causes:
        if not cause.rows and cause.module in called.inner:
            behind(cause.module, cause.module)
        for row in cause.rows:
            key_a, key_b = key_of(c.a, c.row_a[row]), key_of(c.b, c.row_b[row])
            log, record = (c.a, c.row_a[row]) if key_a else (c.b, c.row_b[row])
            phase = Phase(log.phase[record])
            there = called.nearest(module_of(key_a or key_b))
            if phase in (Phase.OPTIMIZER, Phase.AFTER, Phase.PREPARE):
                continue  # nothing of the step reads what these make, or all of it does
            if phase == Phase.GRADIENTS:
                before[OF_OPTIMIZER] = None
            elif there:
                behind(_renamed(there, module_of(key_a), module_of(key_b)) if key_a and key_b else there, there)
            else:  # a loss, say: what it hands back enters the models
                before.update(dict.fromkeys(called.outermost))
    return [*before], [*after]


def _renamed(module: str, key_a: str, key_b: str) -> str:
    """Return the name in b of a module that contains that of a pair: what follows it there has as many parts."""
    if key_a == key_b:
        return module
    inner = key_a.count(".") - module.count(".")
    return key_b.rsplit(".", inner)[0] if inner else key_b


def _spec(here: str, there: str) -> str:
    return here if here == there else f"{here}:{there}"


def sharing(log: OpLog, called: Called) -> dict[str, set[str]]:
    """Return the modules that read in their forward pass what operations outside of them read, too: who reads it."""
    around: dict[str, set[str]] = {}
    for name in called.inner:
        for inner in (name, *called.within(name)):
            around.setdefault(inner, set()).add(name)
    near = [called.nearest(name) for name in log.modules]
    flow, forward = sources(log), (log.phase == Phase.FORWARD) & ~log.recompute
    rounds = np.array([*(name in EPSILON for name in log.dtypes), False])[log.dtype]  # others have no gradients
    reads = np.flatnonzero((flow.value >= 0) & forward[flow.row] & rounds[flow.value])
    readers: dict[int, set[int]] = {}
    for maker, module in zip(flow.value[reads].tolist(), log.module[flow.row[reads]].tolist(), strict=True):
        readers.setdefault(maker, set()).add(module)
    found: dict[str, set[str]] = {}
    for maker, modules in readers.items():
        if len(modules) > 1:
            inside: list[set[str]] = [around.get(near[module], set()) for module in modules]
            common = inside[0].intersection(*inside) | around.get(near[log.module[maker]], set())
            for name in inside[0].union(*inside) - common:
                found.setdefault(name, set()).update(near[module] for module in modules)
    return found
