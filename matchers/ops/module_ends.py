"""A log of operations as one of modules: what each call of a module returns, to compare it with a log of such calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import takewhile

import numpy as np

from matchers.arrays import Bool, Int64, one_of
from matchers.logs.columns import KeyColumn, Ragged, Strings, Texts
from matchers.logs.imported.format import NATIVE_KEY
from matchers.logs.op_log import STATISTICS, OpLog, Phase
from matchers.ops.module_path import canonical
from matchers.ops.shapes import numel

__all__ = ["at_module_ends"]

_OF_RESULTS = ("Sketch", "Placement")
"""Fields that are about a first output."""
_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
"""Parts of complex numbers, which modules that compute with these return, as rotary embeddings: of the same bits."""


def at_module_ends(a: OpLog, b: OpLog) -> tuple[OpLog, OpLog]:
    """The logs; if one is of modules and the other of operations, that one where modules end.

    The last result inside of a module, in the forward pass, is what the module returns if it has as many elements and
    the same dtype, or is the complex numbers whose parts it returns. Of a module that returns several tensors, or is
    called an unknown number of times, none is known.
    """
    if a.tells.modules and not b.tells.modules:
        return a, _at_ends_of(b, a)
    if b.tells.modules and not a.tells.modules:
        return _at_ends_of(a, b), b
    return a, b


def _at_ends_of(log: OpLog, calls: OpLog) -> OpLog:
    """The results of a log that calls of modules return, named as these."""
    pairs = sorted(_returned(log, calls))
    rows, named = (np.array([pair[k] for pair in pairs], np.int64) for k in (0, 1))
    many = len(rows)
    extra: dict[str, Texts] = {}
    as_parts = np.array([*map(_PARTS.__contains__, log.dtypes), False])[log.dtype[rows]]
    as_parts &= ~np.array([*map(_PARTS.__contains__, calls.dtypes), True])[calls.dtype[named]]
    for name in _OF_RESULTS:
        told = log.texts(name)
        extra[name] = Texts.of(
            {k: raw for k, row in enumerate(rows.tolist()) if not as_parts[k] and (raw := told.raw(row))}
        )
    extra[NATIVE_KEY] = Texts.of({k: log.keys.raw(row) for k, row in enumerate(rows.tolist())})
    dtypes = list(dict.fromkeys([*log.dtypes.raw, *(part.encode() for part in _PARTS.values())]))
    dtype = log.dtype[rows]
    dtype[as_parts] = [dtypes.index(_PARTS[log.dtype_text(row)].encode()) for row in rows[as_parts].tolist()]
    stats, counts = log.stats[:, rows], log.counts[:, rows]
    stats[STATISTICS.index("L1 norm"), as_parts] = np.nan  # of magnitudes
    counts[:, as_parts] = -1
    columns = ("location", "phase", "present", "recompute", "micro_batch", "line")
    of_calls = ("module", "op", "counter", "shape")
    none = Ragged(np.zeros(many + 1, np.int64), log.digests.value[:0])
    return replace(
        log,
        header=replace(log.header, declared=None),
        keys=KeyColumn(b"".join(calls.keys.raw(row) + b"\n" for row in named.tolist())),
        modules=calls.modules,
        ops=calls.ops,
        shapes=calls.shapes,
        dtypes=Strings(dtypes),
        dtype=dtype,
        stats=stats,
        counts=counts,
        inputs=Ragged(np.arange(many + 1), np.full(many, np.nan)),
        producers=Ragged(np.arange(many + 1), np.full(many, -1, np.int32)),
        input_digests=none,
        extra=extra,
        outputs=_first(log.outputs, rows, ~as_parts),
        digests=_first(log.digests, rows, np.ones(many, bool)),
        **{name: getattr(log, name)[rows] for name in columns},
        **{name: getattr(calls, name)[named] for name in of_calls},
    )


def _first(lists: Ragged, rows: Int64, wanted: Bool) -> Ragged:
    """The first value of each wanted row that has one."""
    has = (lists.count[rows] > 0) & wanted
    return Ragged(np.concatenate(([0], np.cumsum(has))), lists.value[lists.start[rows[has]]])


def _returned(log: OpLog, calls: OpLog) -> Iterator[tuple[int, int]]:
    """Yield a result of the log, and the call of a module that returns it."""
    told = (log.outputs.count > 0) if len(log.outputs.value) else log.present > 0
    inside = _Inside(log, np.flatnonzero(told & (log.phase == Phase.FORWARD) & ~log.recompute))
    one = one_of(calls.phase, (Phase.FORWARD, Phase.OTHER)) & ~calls.recompute
    one[calls.texts("Output 1").rows] = False
    sizes, of_calls = numel(log)[log.shape], numel(calls)[calls.shape]
    by_module = _by_module(calls, np.flatnonzero(one))
    roots = {module.partition(".")[0] for module in by_module}
    # a step, or a wrapper
    within = f"{next(iter(roots))}." if len(roots) == 1 and not roots & inside.modules else ""
    for module, rows in by_module.items():
        for row, call in zip(inside.last(module.removeprefix(within), len(rows)).tolist(), rows.tolist(), strict=False):
            dtype = calls.dtype_text(call)
            as_parts = _PARTS.get(log.dtype_text(row)) == dtype
            if sizes[row] * (1 + as_parts) == of_calls[call] and (as_parts or dtype in ("", log.dtype_text(row))):
                yield row, call


def _by_module(log: OpLog, rows: Int64) -> Mapping[str, Int64]:
    found: dict[str, list[int]] = defaultdict(list)
    names = [canonical(name) for name in log.modules]
    for row in rows.tolist():
        if log.module[row] >= 0:
            found[names[log.module[row]]].append(row)
    return {name: np.array(of, np.int64) for name, of in found.items() if name}


def _same_place(module: str, name: str) -> bool:
    """True if paths differ in wrappers before them; those of two layers do not, of which one may compute nothing."""
    one, other = module.split("."), name.split(".")
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one[::-1], other[::-1], strict=False)))
    before = [parts[: len(parts) - common] for parts in (one, other)]
    numbers = [[part for part in parts if part.isdigit()] for parts in before]
    return numbers[0] == numbers[1] and (common > 1 or not all(before))


class _Inside:
    """The operations in modules and in the modules of these."""

    def __init__(self, log: OpLog, rows: Int64) -> None:
        self._log = log
        self._place = np.zeros(len(log), np.int64)
        self._place[rows] = np.arange(len(rows))
        self._rows: dict[str, list[Int64]] = defaultdict(list)
        for module, of in _by_module(log, rows).items():
            parts = module.split(".")
            for k in range(1, len(parts) + 1):
                self._rows[".".join(parts[:k])].append(of)
        ends: dict[str, list[str]] = defaultdict(list)
        for module in self._rows:
            parts = module.split(".")
            for k in range(1, len(parts)):
                ends[".".join(parts[k:])].append(module)
        self._by_end = {end: found[0] for end, found in ends.items() if len(found) == 1}
        """By the end of a path the only module that has it: a wrapper may have put something before it."""

    @property
    def modules(self) -> AbstractSet[str]:
        """All modules with such operations in them."""
        return self._rows.keys()

    def last(self, module: str, calls: int) -> Int64:
        """The last operation in each of so many calls of a module; empty if it was called another number of times."""
        name = module
        while name and name not in self._rows:
            name = self._by_end.get(name) or name.partition(".")[2]
        if not name or (name != module and ("." not in name or not _same_place(module, name))):
            return np.zeros(0, np.int64)
        rows = np.sort(np.concatenate(self._rows[name]))
        ends = np.append(np.flatnonzero(np.diff(self._place[rows]) > 1), len(rows) - 1)
        if calls == 1:
            ends = ends[-1:]
        elif len(ends) < calls:  # some follow each other with nothing in between
            each = self._repeated(rows, calls)
            ends = each if np.isin(ends, each).all() else ends
        return rows[ends] if len(ends) == calls else rows[:0]

    def _repeated(self, rows: Int64, calls: int) -> Int64:
        """The ends of the calls, if as many have done the same operations at the same lines; empty if not."""
        size, rest = divmod(len(rows), calls)
        if rest:
            return rows[:0]
        done = np.stack([self._log.op[rows], self._log.location[rows]])
        same = (done.reshape(-1, calls, size) == done[:, None, :size]).all()
        return np.arange(1, calls + 1) * size - 1 if same else rows[:0]
