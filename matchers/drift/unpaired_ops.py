"""Detect drift among unpaired operations: equivalent ops, fused operations, and repeated work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial

import numpy as np

from matchers.arrays import Int64
from matchers.drift.pair_names import PairNames, print_codes, twins
from matchers.drift.suggestion import Finding, allowed, found_by, instances
from matchers.laws.law import Form
from matchers.laws.register import law
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.laws import collective, law_of
from matchers.pairing.features import LogFeatures
from matchers.rules.model import IgnoreRule, OpRule, Side
from matchers.status import Status

__all__ = ["unpaired_families"]


def unpaired_families(names: PairNames) -> Iterator[Finding]:
    """Families of drift that the unpaired operations show."""
    unpaired_a, unpaired_b = names.unpaired("a"), names.unpaired("b")
    for name, detect in (
        ("equivalent ops", _equivalent),
        ("fused and separate", _fused),
        ("further micro-batches", _batches),
        ("communication of one run", _communication),
    ):
        yield from found_by(name, partial(detect, names, unpaired_a, unpaired_b))
    yield from found_by("recomputed copies", partial(_recomputed, names))


# Equivalent ops


def _equivalent(names: PairNames, unpaired_a: Int64, unpaired_b: Int64) -> Iterator[Finding]:
    """Ops that only one run has, whose result another op, or two in a row, produce in the other run."""
    a, b = names.c.a, names.c.b
    chains: dict[tuple[tuple[str, ...], tuple[str, ...]], list[tuple[int, int]]] = defaultdict(list)
    seen: set[int] = set()
    for i, j in [*_same_result(names, unpaired_a, unpaired_b), *_same_place(names, unpaired_a, unpaired_b)]:
        if i in seen:
            continue
        seen.add(i)
        op_a, op_b = a.op_name(i), b.op_name(j)
        chain = (
            (*_step_before(a, i, op_b, unpaired_a), op_a),
            (*_step_before(b, j, op_a, unpaired_b), op_b),
        )
        chains[chain].append((i, j))
    known_a, known_b = set(a.ops), set(b.ops)
    rules: list[OpRule] = []
    shown: list[tuple[int, int]] = []
    taken = set[str]()
    for chain, found in sorted(chains.items(), key=lambda item: -len(item[1])):
        ops_a, ops_b = chain
        # a rule for an op that both runs have would break its pairs
        new_a = len(ops_a) > 1 or ops_a[0] not in known_b
        new_b = len(ops_b) > 1 or ops_b[0] not in known_a
        if new_a and new_b and not (len(ops_a) > 1 and len(ops_b) > 1) and not {f"a {ops_a}", f"b {ops_b}"} & taken:
            taken |= {f"a {ops_a}", f"b {ops_b}"}
            if more := allowed(OpRule, ops_a, ops_b, "the same operation under another name"):
                rules += more
                shown += found
    if rules:
        i, j = shown[0]
        yield Finding(
            "equivalent ops",
            "The runs use different ops for the same result: in-place or not, or one instead of two in a row. "
            f"For example {a.keys[i]} ↔ {b.keys[j]}.",
            instances(*np.array(shown).T),
            tuple(rules),
        )


def _same_result(names: PairNames, unpaired_a: Int64, unpaired_b: Int64) -> Iterator[tuple[int, int]]:
    """Unpaired rows of different ops with equal printed results, unique among the unpaired ones."""
    codes, rows = [], []
    for side, unpaired in ((names.f.a, unpaired_a), (names.f.b, unpaired_b)):
        first = side.log.outputs.first(unpaired)
        telling = unpaired[np.isfinite(first) & (first != 0) & (side.shape[unpaired] >= 0)]
        codes.append(print_codes(side, telling, names.f.shapes))
        rows.append(telling)
    i, j = twins(codes[0], rows[0], codes[1], rows[1])
    other = names.op_a[i] != names.op_b[j]
    order = np.argsort(i[other], kind="stable")
    yield from zip(i[other][order].tolist(), j[other][order].tolist(), strict=True)


def _same_place(names: PairNames, unpaired_a: Int64, unpaired_b: Int64) -> Iterator[tuple[int, int]]:
    """Unpaired rows of ops that differ only in being in-place, if both runs have equally many per module."""
    found = []
    for log, modules, unpaired, other in (
        (names.c.a, names.a, unpaired_a, set(names.c.b.ops)),
        (names.c.b, names.b, unpaired_b, set(names.c.a.ops)),
    ):
        stem = [law(op).base if op not in other and not law(op).on_lists else "" for op in log.ops]
        places: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for row in unpaired.tolist():
            op = stem[int(log.op[row])] if log.op[row] >= 0 else ""
            if op:
                places[op, modules.canonical[int(log.module[row])], int(log.phase[row])].append(row)
        found.append(places)
    for place, rows in found[0].items():
        others = found[1].get(place, [])
        if len(rows) == len(others):
            yield from zip(rows, others, strict=True)


def _step_before(log: OpLog, row: int, fused: str, unpaired: Int64) -> tuple[str, ...]:
    """The op of the preceding row, if it is unpaired, in the same module, and part of the other op's name."""
    before = row - 1
    at = int(unpaired.searchsorted(before))
    if before < 0 or at >= len(unpaired) or unpaired[at] != before or log.module[before] != log.module[row]:
        return ()
    step, op = log.op_name(before), log.op_name(row)
    return (step,) if step != op and step in fused and law(op).base in fused and fused != op else ()


# Fused operations


def _fused(names: PairNames, unpaired_a: Int64, unpaired_b: Int64) -> Iterator[Finding]:
    """Operations that do for several tensors at once what the other run does one by one."""
    sides = ((names.c.a, unpaired_a, names.c.b, unpaired_b), (names.c.b, unpaired_b, names.c.a, unpaired_a))
    shown: list[tuple[int, int]] = []
    example = ""
    for log, unpaired, other, theirs in sides:
        mine = log is names.c.a
        laws = [law_of(other, row) for row in theirs.tolist()]
        separate = Counter(each.base for each in laws if not each.on_lists)
        phases = set(other.phase[theirs].tolist())
        for row in unpaired.tolist():
            of = law_of(log, row)
            # the separate operations of a fused optimizer step have other names
            whole = of.form is Form.UPDATE and int(log.phase[row]) in phases
            if whole or (of.on_lists and separate[of.base] > 1):
                shown.append((row, -1) if mine else (-1, row))
                example = example or log.keys[row]
        for row, parts in _split_modules(log, unpaired, other, theirs):
            shown.append((row, -1) if mine else (-1, row))
            example = example or f"{log.keys[row]} for {', '.join(parts)}"
    if shown:
        yield Finding(
            "fused and separate",
            f"One run fuses several operations of the other. For example {example}.",
            instances(*np.array(shown).T),
            no_rule="a pair compares single results, and none of the separate ones is the whole",
        )


def _split_modules(log: OpLog, unpaired: Int64, other: OpLog, theirs: Int64) -> Iterator[tuple[int, list[str]]]:
    """Unpaired rows of a module that the other run lacks, and the modules there that share out its last dimension.

    `wqkv` against `wq`, `wk`, `wv`: siblings whose last letters occur in the name of the fused one.
    """
    unknown = set(log.modules) - set(other.modules)
    siblings: dict[tuple[str, str, int], dict[str, int]] = defaultdict(dict)
    only_theirs = set(other.modules) - set(log.modules)
    for row in theirs.tolist():
        name = other.module_name(row)
        parent, _, child = name.rpartition(".")
        if name in only_theirs:
            siblings[parent, other.op_name(row), int(other.phase[row])].setdefault(child, row)
    for row in unpaired.tolist():
        name = log.module_name(row)
        if name not in unknown:
            continue
        parent, _, child = name.rpartition(".")
        parts = siblings.get((parent, log.op_name(row), int(log.phase[row])), {})
        inside = [part for part in parts if part and part[-1] in child and part[:-1] == child[: len(part) - 1]]
        if len(inside) > 1:
            yield row, inside


# Repeated work


def _recomputed(names: PairNames) -> Iterator[Finding]:
    rows = np.flatnonzero(names.c.status == Status.RECOMPUTE)
    if len(rows):
        yield Finding(
            "recomputed copies",
            "Only one run recomputes forward operations in the backward pass (activation checkpointing).",
            instances(names.c.row_a[rows], names.c.row_b[rows]),
            no_rule="they are labelled, name their originals, and are not red",
        )


def _batches(names: PairNames, unpaired_a: Int64, unpaired_b: Int64) -> Iterator[Finding]:
    """Rows of micro-batches that the other run lacks, by their logged number or by how often modules ran."""
    f = names.f
    extra = []
    for side, unpaired, other in ((f.a, unpaired_a, f.b), (f.b, unpaired_b, f.a)):
        said = side.batch[unpaired] >= 0
        if said.any():
            extra.append(unpaired[said & ~np.isin(side.batch[unpaired], other.batch)])
        else:
            extra.append(_ran_again(side, unpaired, other))
    shown = np.concatenate((instances(extra[0], -1), instances(-1, extra[1])), axis=1)
    if shown.size:
        yield Finding(
            "further micro-batches",
            "One run has micro-batches that the other does not have.",
            shown,
            no_rule="the other run has no counterpart; an ignore rule hides them",
        )


def _ran_again(side: LogFeatures, unpaired: Int64, other: LogFeatures) -> Int64:
    """Unpaired rows of places that this run visits k times as often as the other, for the most common k.

    None if no k covers most of the rows. The optimizer steps once, however many micro-batches there are.
    """
    unpaired = unpaired[np.isin(side.phase[unpaired], (Phase.FORWARD, Phase.BACKWARD))]
    size = np.int64(max(side.site.max(initial=0), other.site.max(initial=0)) + 1)
    place, theirs = (
        (s.place.astype(np.int64) + 1) * size * len(Phase) + s.site * len(Phase) + s.phase for s in (side, other)
    )
    here = place[unpaired]
    often, before = _occurrences(place, here), _occurrences(theirs, here)
    times = np.where((before > 0) & (often % np.maximum(before, 1) == 0), often // np.maximum(before, 1), 0)
    again = np.bincount(times[times > 1], minlength=2)
    usual = int(again.argmax())
    return unpaired[times == usual] if usual > 1 and 2 * again[usual] > len(unpaired) else unpaired[:0]


def _occurrences(values: Int64, of: Int64) -> Int64:
    ordered = np.sort(values)
    return np.searchsorted(ordered, of, side="right") - np.searchsorted(ordered, of)


def _communication(names: PairNames, unpaired_a: Int64, unpaired_b: Int64) -> Iterator[Finding]:
    """Collectives of one run if the other has none at all."""
    for side, log, unpaired, other in (
        ("a", names.c.a, unpaired_a, names.c.b),
        ("b", names.c.b, unpaired_b, names.c.a),
    ):
        collectives = collective(log)
        rows = unpaired[collectives[unpaired]]
        if not len(rows) or collective(other).any():
            continue
        ops = Counter(log.op_name(row) for row in rows.tolist())
        of_ops = Counter(log.op_name(row) for row in np.flatnonzero(collectives).tolist())
        yield Finding(
            "communication of one run",
            f"Only {side} communicates: its weights or its batch are sharded over ranks. "
            f"For example {log.keys[int(rows[0])]}.",
            instances(rows, -1) if side == "a" else instances(-1, rows),
            tuple(
                IgnoreRule(side=Side(side), op=op, why="only this run communicates")
                for op in ops
                if ops[op] == of_ops[op]
            ),
        )
